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
    labels: tuple[str, ...]
    """Labels as the files write them, in the order of the model's outputs; empty in regression."""
    metrics: tuple[str, ...]
    """Names of its metrics; the best trial is chosen by the first."""
    columns: tuple[str, ...] = ("sentence1", "sentence2")
    """Column of the text, or the two columns of a pair."""
    label_column: str = "label"
    files: Mapping[GlueSplit, str] = dataclasses.field(default_factory=lambda: _FILES)
    """Name of each split's file in the directory; the splits that the task has."""
    server_files: Mapping[GlueSplit, str] | None = None
    """`submissions` where they are not called as the directory."""
    names_without_header: tuple[str, ...] = ()
    """Columns of training and development files that have no header; empty if they have one."""
    tfds_columns: tuple[str, ...] = ()
    """TFDS's names of `columns`; empty if they are the same."""

    @property
    def submissions(self) -> Mapping[GlueSplit, str]:
        """Name of each test set's file in the zip for the server."""
        return self.server_files or {"test": f"{self.directory}.tsv"}


GLUE_TASKS: Mapping[GlueName, GlueTask] = {
    task.name: task
    for task in (
        GlueTask(
            "cola",
            "CoLA",
            _BINARY,
            ("matthews", "accuracy"),
            ("sentence",),
            names_without_header=("source", "label", "mark", "sentence"),
        ),
        GlueTask("sst2", "SST-2", _BINARY, ("accuracy",), ("sentence",)),
        GlueTask(
            "mrpc",
            "MRPC",
            _BINARY,
            ("f1", "accuracy"),
            ("#1 String", "#2 String"),
            "Quality",
            tfds_columns=("sentence1", "sentence2"),
        ),
        GlueTask("stsb", "STS-B", (), ("spearman", "pearson"), label_column="score"),
        GlueTask("qqp", "QQP", _BINARY, ("f1", "accuracy"), ("question1", "question2"), "is_duplicate"),
        GlueTask(
            "mnli",
            "MNLI",
            _INFERENCE,
            ("accuracy",),
            label_column="gold_label",
            files={
                "train": "train.tsv",
                "dev": "dev_matched.tsv",
                "dev_mismatched": "dev_mismatched.tsv",
                "test": "test_matched.tsv",
                "test_mismatched": "test_mismatched.tsv",
            },
            server_files={"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"},
            tfds_columns=("premise", "hypothesis"),
        ),
        GlueTask("qnli", "QNLI", _ENTAILMENT, ("accuracy",), ("question", "sentence")),
        GlueTask("rte", "RTE", _ENTAILMENT, ("accuracy",)),
        GlueTask("wnli", "WNLI", _BINARY, ("accuracy",)),
        # The diagnostic set has no training data; a model trained on MNLI predicts it.
        GlueTask(
            "ax",
            "diagnostic",
            _INFERENCE,
            ("matthews",),
            files={"test": "diagnostic.tsv"},
            server_files={"test": "AX.tsv"},
            tfds_columns=("premise", "hypothesis"),
        ),
    )
}
