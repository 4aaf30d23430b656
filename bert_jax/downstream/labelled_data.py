"""Data sets whose examples each have one label or one number: texts, pairs, and relations in texts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.downstream.outputs import outputs_of, write_lines
from bert_jax.downstream.task_data import AppliedModel, Apply, Outcome, join_figures
from bert_jax.finetuning.config import HeadKind
from bert_jax.finetuning.labels import decide, describe
from data_pipeline.errors import UserError
from data_pipeline.tasks.names import MetricName

if TYPE_CHECKING:
    from data_pipeline.tasks.records import Record
    from data_pipeline.tasks.rows import Rows
    from data_pipeline.tasks.texts import TextExample


class LabelledData:
    """The `TaskData` of rows with the target `labels`, or `values` in regression."""

    def __init__(
        self,
        kind: HeadKind,
        labels: tuple[str, ...],
        metrics: tuple[MetricName, ...],
        train: "Rows",
        dev: "Mapping[str, Rows]",
        test: "Mapping[str, Rows]",
    ) -> None:
        """Saves the data set's parts.

        Args:
          kind: kind of head.
          labels: words of the classes; empty in regression.
          metrics: metrics to compute; the first one chooses the best run.
          train: training rows.
          dev: development sets by name; the first, `dev`, chooses the best run.
          test: test sets by name.
        """
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
        """A hash of the development sets and their targets."""
        return _fingerprint(self._dev)

    @property
    def test_fingerprint(self) -> str:
        """A hash of the test sets and their targets; empty if there are none."""
        return _fingerprint(self._test) if self._test else ""

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """The metrics on the development sets; names of those on a second set begin with its name."""
        return self._figures({name: outputs_of(rows, apply) for name, rows in self._dev.items()})

    def finish(self, apply: Apply, folder: Path) -> Outcome:
        """Writes `predictions-PART.jsonl` for each part."""
        outputs = {name: outputs_of(rows, apply) for name, rows in self.evaluated.items()}
        self.write(folder, outputs)
        first_dev = next(iter(self._dev))
        return Outcome(self._figures(outputs), self.find_degenerate(outputs[first_dev]))

    def write(self, folder: Path, outputs: Mapping[str, np.ndarray]) -> None:
        """Writes the predictions of each part, given the model's outputs [R, L]."""
        for name, values in outputs.items():
            write_lines(folder / f"predictions-{name}.jsonl", self.describe(values))

    def describe(self, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        """What is written of each row of outputs [R, L]."""
        return describe(self.kind, self.labels, outputs)

    def _figures(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """The metrics on each part that has targets."""
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

    def find_degenerate(self, outputs: np.ndarray) -> str | None:
        """One sentence if the model says the same of every row of the development set, None if not.

        Args:
          outputs: [R, L], of the first development set.
        """
        from data_pipeline.tasks.metrics import find_degenerate_classes, find_degenerate_values

        rows = next(iter(self._dev.values()))
        targets, decided = rows.targets[self._target], decide(self.kind, outputs)
        if self.kind == "regression":
            return find_degenerate_values(targets, decided)
        return find_degenerate_classes(targets, decided, self.labels)


def _fingerprint(parts: "Mapping[str, Rows]") -> str:
    first, *others = parts.values()
    return first.fingerprint(*(rows.fingerprint() for rows in others))


def predict_labels(rows: "Rows", model: AppliedModel) -> Iterator[dict[str, Any]]:
    """For each row its `label` and the probabilities of all labels, or its `value`."""
    return describe(model.record.config.kind, model.record.labels, outputs_of(rows, model.apply))


def label_texts(
    examples: "Sequence[TextExample]", model: AppliedModel, max_length: int
) -> Iterator[dict[str, Any]]:
    """As `predict_labels`, of texts or pairs, which are cut to `max_length` tokens."""
    from data_pipeline.tasks.texts import text_rows

    return predict_labels(text_rows(examples, model.plain_tokenizer, max_length, {}), model)


def predict_texts(
    examples: Sequence[Any],
    columns: Sequence[str],
    parse: "Callable[[Record], TextExample]",
    model: AppliedModel,
    max_length: int,
) -> list[dict[str, Any]]:
    """Predictions for texts in memory.

    Args:
      examples: strings, or pairs of strings if there are two columns.
      columns: names of the texts' columns in files.
      parse: a record of a file -> its example.
      max_length: most tokens of a text or pair; longer ones are cut.

    Raises UserError naming the first example of another form, or one that `parse` refuses.
    """
    from data_pipeline.tasks.records import Record, example_place

    takes_pairs = len(columns) > 1
    found = []
    for index, example in enumerate(examples):
        place = example_place(index)
        if not (_is_pair(example) if takes_pairs else isinstance(example, str)):
            form = "pair (text, other text), as the model was trained on" if takes_pairs else "text"
            raise UserError(f"{place}: {example!r:.40} is no {form}")
        texts = example if takes_pairs else (example,)
        found.append(parse(Record(place, dict(zip(columns, texts, strict=True)))))
    return list(label_texts(found, model, max_length))


def _is_pair(example: Any) -> bool:
    is_pair = isinstance(example, list | tuple) and len(example) == 2
    return is_pair and all(isinstance(text, str) for text in example)
