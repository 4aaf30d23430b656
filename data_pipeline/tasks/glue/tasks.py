"""The tasks of GLUE: where each keeps its texts and labels, how it is scored, and what its server wants.

https://gluebenchmark.com; columns are those of the files as GLUE publishes them.
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal

GlueName = Literal["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax"]

GlueSplit = Literal["train", "dev", "dev_mismatched", "test", "test_mismatched"]
"""In mnli, dev and test are the matched ones."""

_FILES: Mapping[GlueSplit, str] = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
_INFERENCE = ("contradiction", "entailment", "neutral")
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """A task of GLUE: where its texts and labels are, how it is scored, and what the server wants."""

    name: GlueName
    directory: str
    """Name of its directory, as published."""
    columns: tuple[str, ...]
    """Column of the text, or the two columns of a pair."""
    label_column: str
    labels: tuple[str, ...]
    """Labels as the files write them, in the order of the model's outputs; empty in regression."""
    metrics: tuple[str, ...]
    """Names of its metrics; the best trial is chosen by the first."""
    submissions: Mapping[GlueSplit, str]
    """Name of each test set's file in the zip for the server."""
    files: Mapping[GlueSplit, str] = dataclasses.field(default_factory=lambda: _FILES)
    """Name of each split's file in the directory; the splits that the task has."""
    names_without_header: tuple[str, ...] = ()
    """Columns of training and development files that have no header; empty if they have one."""
    tfds_columns: tuple[str, ...] = ()
    """TFDS's names of `columns`; empty if they are the same."""


GLUE_TASKS: Mapping[GlueName, GlueTask] = {
    task.name: task
    for task in (
        GlueTask(
            "cola",
            "CoLA",
            ("sentence",),
            "label",
            _BINARY,
            ("matthews", "accuracy"),
            {"test": "CoLA.tsv"},
            names_without_header=("source", "label", "mark", "sentence"),
        ),
        GlueTask("sst2", "SST-2", ("sentence",), "label", _BINARY, ("accuracy",), {"test": "SST-2.tsv"}),
        GlueTask(
            "mrpc",
            "MRPC",
            ("#1 String", "#2 String"),
            "Quality",
            _BINARY,
            ("f1", "accuracy"),
            {"test": "MRPC.tsv"},
            tfds_columns=("sentence1", "sentence2"),
        ),
        GlueTask(
            "stsb",
            "STS-B",
            ("sentence1", "sentence2"),
            "score",
            (),
            ("spearman", "pearson"),
            {"test": "STS-B.tsv"},
        ),
        GlueTask(
            "qqp",
            "QQP",
            ("question1", "question2"),
            "is_duplicate",
            _BINARY,
            ("f1", "accuracy"),
            {"test": "QQP.tsv"},
        ),
        GlueTask(
            "mnli",
            "MNLI",
            ("sentence1", "sentence2"),
            "gold_label",
            _INFERENCE,
            ("accuracy",),
            {"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"},
            files={
                "train": "train.tsv",
                "dev": "dev_matched.tsv",
                "dev_mismatched": "dev_mismatched.tsv",
                "test": "test_matched.tsv",
                "test_mismatched": "test_mismatched.tsv",
            },
            tfds_columns=("premise", "hypothesis"),
        ),
        GlueTask(
            "qnli",
            "QNLI",
            ("question", "sentence"),
            "label",
            _ENTAILMENT,
            ("accuracy",),
            {"test": "QNLI.tsv"},
        ),
        GlueTask(
            "rte", "RTE", ("sentence1", "sentence2"), "label", _ENTAILMENT, ("accuracy",), {"test": "RTE.tsv"}
        ),
        GlueTask(
            "wnli", "WNLI", ("sentence1", "sentence2"), "label", _BINARY, ("accuracy",), {"test": "WNLI.tsv"}
        ),
        # The diagnostic set has no training data; a model trained on MNLI predicts it.
        GlueTask(
            "ax",
            "diagnostic",
            ("sentence1", "sentence2"),
            "label",
            _INFERENCE,
            ("matthews",),
            {"test": "AX.tsv"},
            files={"test": "diagnostic.tsv"},
            tfds_columns=("premise", "hypothesis"),
        ),
    )
}
