"""Data sets whose examples each have one label, or one number: texts, pairs, and relations in texts."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bert_jax.cli.finetuning.outputs import outputs_of, write_lines
from bert_jax.cli.finetuning.predict_records import Header, predict_records
from bert_jax.cli.finetuning.task_data import Apply, Outcome, Prediction, join_figures
from bert_jax.finetuning.labels import decide, describe
from data_pipeline.tasks.names import MetricName

if TYPE_CHECKING:
    from bert_jax.finetuning.config import HeadKind
    from data_pipeline.tasks.records import Record
    from data_pipeline.tasks.rows import Rows


class LabelledData:
    """A `TaskData` of rows with `labels`, or with `values` in regression."""

    def __init__(
        self,
        kind: "HeadKind",
        labels: tuple[str, ...],
        metrics: tuple[MetricName, ...],
        train: "Rows",
        dev: "Mapping[str, Rows]",
        test: "Mapping[str, Rows]",
    ) -> None:
        """Args: what it holds; its development and test sets by name, the first of which chooses."""
        self.kind = kind
        self.labels = labels
        self.metric: str = metrics[0]
        self.train = train
        self.evaluated: Mapping[str, Rows] = {**dev, **test}
        self._metrics = metrics
        self._dev = dev
        self._test = test
        self._target = "values" if kind == "regression" else "labels"

    @property
    def dev_fingerprint(self) -> str:
        """A hash of the development set, with all that it is scored by."""
        return _fingerprint(self._dev)

    @property
    def test_fingerprint(self) -> str:
        """A hash of the test sets, with all that they are scored by."""
        return _fingerprint(self._test) if self._test else ""

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """The task's metrics; those of a second development set carry its name."""
        return self._figures({name: outputs_of(rows, apply) for name, rows in self._dev.items()})

    def finish(self, apply: Apply, folder: Path) -> Outcome:
        """`predictions-PART.jsonl` for each part."""
        outputs = {name: outputs_of(rows, apply) for name, rows in self.evaluated.items()}
        self.write(folder, outputs)
        return Outcome(self._figures(outputs), self._degenerate(outputs))

    def write(self, folder: Path, outputs: Mapping[str, np.ndarray]) -> None:
        """Writes predictions, the model's outputs [R, L] of each part."""
        for name, values in outputs.items():
            write_lines(folder / f"predictions-{name}.jsonl", describe(self.kind, self.labels, values))

    def _figures(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Of the parts that have labels."""
        from data_pipeline.tasks.metrics import score

        targets = {name: self.evaluated[name].targets for name in outputs}
        return join_figures(
            {
                name: score(
                    self._metrics, targets[name][self._target], decide(self.kind, values), self.labels
                )
                for name, values in outputs.items()
                if self._target in targets[name]
            }
        )

    def _degenerate(self, outputs: Mapping[str, np.ndarray]) -> str | None:
        from data_pipeline.tasks.metrics import find_degenerate_classes, find_degenerate_values

        name, rows = next(iter(self._dev.items()))
        targets, decided = rows.targets[self._target], decide(self.kind, outputs[name])
        if self.kind == "regression":
            return find_degenerate_values(targets, decided)
        return find_degenerate_classes(targets, decided, self.labels)


def _fingerprint(parts: "Mapping[str, Rows]") -> str:
    first, *others = parts.values()
    return first.fingerprint(*(rows.fingerprint() for rows in others))


def predict_labels(
    job: Prediction,
    records: "Iterator[Record]",
    encode: "Callable[[Sequence[Record]], Rows]",
    header: Header = "names",
) -> int:
    """Adds `label` and a probability for each label, or `value`, to every record of a table or JSONL.

    Arguments as `predict_records`.
    """
    say = functools.partial(describe, job.record.config.kind, job.record.labels)
    return predict_records(job, records, encode, say, header)
