"""The tasks of GLUE, and the zip of test predictions for its server."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from tokenizers import Tokenizer

from bert_jax.finetuning_config import FineTuningConfig
from bert_jax.task import Metric
from bert_jax.tasks.classify import Classification, Regression
from bert_jax.tasks.finetuning.head import Head
from bert_jax.tasks.finetuning.labelled_data import (
    LabelledData,
    label_texts,
    predict_texts,
    scorers,
)
from bert_jax.tasks.finetuning.predict_records import predict_records
from bert_jax.tasks.finetuning.task import AppliedModel, Prediction, TaskSettings
from data_pipeline import tfds
from data_pipeline.errors import UserError
from data_pipeline.tasks.classify import text_rows
from data_pipeline.tasks.finetuning.encode import make_task_tokenizer
from data_pipeline.tasks.finetuning.labels import label_targets
from data_pipeline.tasks.finetuning.records import Place
from data_pipeline.tasks.finetuning.rows import Rows
from data_pipeline.tasks.glue import Flags
from data_pipeline.tasks.glue.files import glue_example, glue_file, open_glue, read_glue
from data_pipeline.tasks.glue.submission import SUBMISSION_FILE, submission_text, write_submission
from data_pipeline.tasks.glue.tasks import GLUE_TASKS, GlueName, GlueSplit, GlueTask

_DIAGNOSTIC = "tfds:glue/ax"


@dataclasses.dataclass(frozen=True)
class Settings(Flags, TaskSettings):
    """GLUE's files, and a label or a number for each text or pair."""

    def load(self, task: str, data: str, tokenizer: Tokenizer) -> "GlueData":
        """Reads and encodes a task of GLUE.

        Raises:
          UserError: as `data_pipeline.tasks.glue.files.read_glue`.
        """
        plain = make_task_tokenizer(tokenizer)
        encode = functools.partial(text_rows, tokenizer=plain, max_length=self.max_seq_length)
        glue = GLUE_TASKS[cast(GlueName, task)]
        read = functools.partial(_read, data, glue, encode, encoding=self.encoding)
        dev = {str(split): read(split) for split in glue.files if split not in glue.submissions}
        train = dev.pop("train")
        tests = {
            str(split): read(split)
            for split in glue.submissions
            if tfds.is_tfds(data) or glue_file(data, glue, split).exists()
        }
        submissions = {str(split): file for split, file in glue.submissions.items() if split in tests}
        if task == "mnli" and (source := _find_diagnostic(data)):
            diagnostic = GLUE_TASKS["ax"]
            tests[diagnostic.directory] = _read(source, diagnostic, encode, "test", encoding=self.encoding)
            submissions[diagnostic.directory] = diagnostic.submissions["test"]
        return GlueData(glue, train, dev, tests, submissions)

    def head(self, task: str, config: FineTuningConfig) -> Head:
        """A label's score for each text, or a number."""
        glue = GLUE_TASKS[cast(GlueName, task)]
        metrics = tuple(scorers(*glue.metrics))
        if task == "mnli":
            metrics += (Metric("dev_mismatched_accuracy", "mismatched"),)
        return (Classification if glue.labels else Regression)(config, metrics)

    def predict_file(self, job: Prediction) -> int:
        """Predicts a file of GLUE, or a table with the task's columns, such as sentence1 and sentence2."""
        task = GLUE_TASKS[cast(GlueName, job.model.record.task)]
        file = open_glue(job.input, task, encoding=job.encoding)
        _say_broken(file.broken)
        parse = functools.partial(glue_example, columns=file.columns)
        predict = functools.partial(label_texts, model=job.model, max_length=self.max_seq_length)
        return predict_records(job, file.read, parse, predict)

    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[dict[str, Any]]:
        """Predicts texts, or pairs of texts if the task has pairs."""
        columns = GLUE_TASKS[cast(GlueName, model.record.task)].columns
        return predict_texts(examples, columns, glue_example, model, self.max_seq_length)


class GlueData(LabelledData):
    """The data of a task of GLUE."""

    def __init__(
        self,
        task: GlueTask,
        train: Rows,
        dev: Mapping[str, Rows],
        test: Mapping[str, Rows],
        submissions: Mapping[str, str],
    ) -> None:
        """Args: as `LabelledData`; `submissions` names each test set's file in the zip for the server."""
        super().__init__(task.labels, scorers(*task.metrics), train, dev, test)
        self._submissions = submissions

    def write(self, directory: Path, outputs: Mapping[str, np.ndarray]) -> None:
        """Writes the predictions, and the zip for GLUE's server if there are test sets."""
        super().write(directory, outputs)
        texts = {}
        for name, file in self._submissions.items():
            values = self.decide(outputs[name]).tolist()
            texts[file] = submission_text([self.labels[value] for value in values] if self.labels else values)
        if texts:
            write_submission(directory / SUBMISSION_FILE, texts)


def _read(
    source: str, task: GlueTask, encode: Callable[..., Rows], split: GlueSplit, *, encoding: str
) -> Rows:
    """The rows of one split; those of test sets have no targets, as GLUE does not publish their labels."""
    examples, broken = read_glue(source, task, split, encoding)
    _say_broken(broken)
    targets = {} if split in task.submissions else label_targets(examples, task.labels)
    return encode(examples, targets=targets)


def _say_broken(places: Sequence[Place]) -> None:
    if places:
        print(f"warning: left out are lines without all columns: {len(places)}, first {places[0]}")


def _find_diagnostic(data: str) -> str | None:
    """Where GLUE's diagnostic set, which models of MNLI predict, is; None if it is not available."""
    if tfds.is_tfds(data):
        try:
            tfds.open_tfds(_DIAGNOSTIC, advice="give the directory of GLUE's files")
        except UserError as error:
            print(f"the diagnostic set is not predicted: {error}")
            return None
        return _DIAGNOSTIC
    return data if glue_file(data, GLUE_TASKS["ax"], "test").exists() else None
