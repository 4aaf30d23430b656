"""Data sets whose examples each have one label or one number: texts, pairs, and relations in texts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from scipy.special import softmax

from bert_jax.task import Metric
from bert_jax.tasks.finetuning.outputs import outputs_of, write_lines
from bert_jax.tasks.finetuning.task import AppliedModel, Apply, Outcome, TaskData, join_splits
from data_pipeline.errors import UserError
from data_pipeline.tasks.classify import TextExample, text_rows
from data_pipeline.tasks.finetuning import scores
from data_pipeline.tasks.finetuning.labels import Labelled, find_labels, listed
from data_pipeline.tasks.finetuning.records import Record, example_place
from data_pipeline.tasks.finetuning.rows import Rows
from data_pipeline.tasks.finetuning.scores import Items, Scorer

T = TypeVar("T")

ACCURACY = Metric("accuracy", "accuracy")
MACRO_F1 = Metric("macro_f1", "macro F1")

SCORERS: Mapping[Metric, tuple[Scorer, Items]] = {
    ACCURACY: (scores.accuracy, scores.are_right),
    Metric("f1", "F1"): (scores.f1, scores.pairs),
    MACRO_F1: (scores.macro_f1, scores.pairs),
    Metric("matthews", "Matthews"): (scores.matthews, scores.pairs),
    Metric("pearson", "Pearson"): (scores.pearson, scores.pairs),
    Metric("spearman", "Spearman"): (scores.spearman, scores.pairs),
}
"""Metrics that several tasks share, and how each is computed: of all rows, and from single ones."""


def scorers(*names: str) -> dict[Metric, tuple[Scorer, Items]]:
    """The `SCORERS` of these names, in this order."""
    by_name = {metric.name: metric for metric in SCORERS}
    return {by_name[name]: SCORERS[by_name[name]] for name in names}


class LabelledData(TaskData):
    """Rows with the target `labels`, or `values` in regression."""

    def __init__(
        self,
        labels: tuple[str, ...],
        scorers: Mapping[Metric, tuple[Scorer, Items]],
        train: Rows,
        dev: Mapping[str, Rows],
        test: Mapping[str, Rows],
    ) -> None:
        """
        Args:
          labels: words of the classes; empty in regression.
          scorers: metrics to compute, as in `SCORERS`; the first one chooses the best trial by default.
          train: training rows.
          dev: development sets by name; `dev` chooses the best trial.
          test: test sets by name.
        """
        self.labels = labels
        self.metrics = tuple(scorers)
        self.train = train
        self.evaluated = {**dev, **test}
        self.dev_fingerprint = _fingerprint(dev)
        self.test_fingerprint = _fingerprint(test) if test else ""
        self._scorers = {metric.name: scorer for metric, (scorer, _) in scorers.items()}
        self._items = {metric.name: items for metric, (_, items) in scorers.items()}
        self._dev = dev
        self._target = "values" if "values" in train.targets else "labels"

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """The metrics on the development sets; names of those on a second set begin with its name."""
        outputs = {name: outputs_of(rows, apply) for name, rows in self._dev.items()}
        return self._measure(outputs, self._scorers)

    def finish(self, apply: Apply, directory: Path) -> Outcome:
        """Writes `predictions-SPLIT.jsonl` for each split."""
        outputs = {name: outputs_of(rows, apply) for name, rows in self.evaluated.items()}
        self.write(directory, outputs)
        return Outcome(
            self._measure(outputs, self._scorers),
            self.find_degenerate(outputs["dev"]),
            items=self._measure({name: outputs[name] for name in self._dev}, self._items),
        )

    def write(self, directory: Path, outputs: Mapping[str, np.ndarray]) -> None:
        """Writes the predictions of each split, given the model's outputs [R, L]."""
        for name, values in outputs.items():
            write_lines(directory / f"predictions-{name}.jsonl", self.describe(values))

    def describe(self, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        """What is written of each row of outputs [R, L]."""
        return describe(self.labels, outputs)

    def decide(self, outputs: np.ndarray) -> np.ndarray:
        """int64 [R] label ids, or float32 [R] numbers in regression, from outputs [R, L]."""
        return outputs[:, 0] if self._target == "values" else outputs.argmax(-1)

    def find_degenerate(self, outputs: np.ndarray) -> str | None:
        """One sentence if the model says the same of every row of the development set, None if not.

        Args:
          outputs: [R, L], of `dev`.
        """
        targets = self._dev["dev"].targets[self._target]
        if self._target == "values":
            return scores.find_degenerate_values(targets, self.decide(outputs))
        return scores.find_degenerate_classes(targets, self.decide(outputs), self.labels)

    def _measure(
        self, outputs: Mapping[str, np.ndarray], measures: Mapping[str, Callable[[np.ndarray, np.ndarray], T]]
    ) -> dict[str, T]:
        """What each of the measures says of (targets, decisions) [R], on each split that has targets."""
        found = {}
        for split, values in outputs.items():
            targets = self.evaluated[split].targets.get(self._target)
            if targets is not None:
                decided = self.decide(values)
                found[split] = {name: measure(targets, decided) for name, measure in measures.items()}
        return join_splits(found)


def describe(labels: Sequence[str], outputs: np.ndarray) -> Iterator[dict[str, Any]]:
    """The prediction for each row of outputs [R, L]: `label` and the `probabilities` of all labels.

    Or, where there are no labels, a number as `value`. They are yielded one by one, since those of many rows
    with many labels may not fit into memory.
    """
    for row in outputs:
        if not labels:
            yield {"value": float(row[0])}
            continue
        probabilities = zip(labels, softmax(row).tolist(), strict=True)
        yield {
            "label": labels[int(row.argmax())],
            "probabilities": {label: round(p, 6) for label, p in probabilities},
        }


def _fingerprint(splits: Mapping[str, Rows]) -> str:
    first, *others = splits.values()
    return first.fingerprint(*(rows.fingerprint() for rows in others))


def take_labels(train: Sequence[Labelled], dev: Sequence[Labelled]) -> tuple[str, ...]:
    """The labels of the training and development examples; says which of them training lacks.

    Raises UserError as `find_labels`.
    """
    trained, labels = set(find_labels(train)), find_labels([*train, *dev])
    if unseen := [label for label in labels if label not in trained]:
        count = sum(example.label in unseen for example in dev)
        print(f"note: labels that dev has and training lacks: {listed(unseen)} ({count:,} examples)")
    return labels


def predict_labels(rows: Rows, model: AppliedModel) -> Iterator[dict[str, Any]]:
    """For each row what `describe` says of it: `label` and the probabilities of all labels, or `value`."""
    return describe(model.record.labels, outputs_of(rows, model.apply))


def label_texts(
    examples: Sequence[TextExample], model: AppliedModel, max_length: int
) -> Iterator[dict[str, Any]]:
    """As `predict_labels`, of texts or pairs, which are cut to `max_length` tokens."""
    return predict_labels(text_rows(examples, model.plain_tokenizer, max_length, {}), model)


def predict_texts(
    examples: Sequence[Any],
    columns: Sequence[str],
    parse: Callable[[Record, Sequence[str]], TextExample],
    model: AppliedModel,
    max_length: int,
) -> list[dict[str, Any]]:
    """Predictions for texts in memory.

    Args:
      examples: strings, or pairs of strings if there are two columns.
      columns: names of the texts' columns in files.
      parse: a record of a file, and `columns` -> its example.
      max_length: most tokens of a text or pair; longer ones are cut.

    Raises UserError naming the first example of another form, or one that `parse` refuses.
    """
    takes_pairs = len(columns) > 1
    found = []
    for index, example in enumerate(examples):
        place = example_place(index)
        if not (_is_pair(example) if takes_pairs else isinstance(example, str)):
            form = "pair (text, other text), as the model was trained on" if takes_pairs else "text"
            raise UserError(f"{place}: {example!r:.40} is no {form}")
        texts = example if takes_pairs else (example,)
        found.append(parse(Record(place, dict(zip(columns, texts, strict=True))), columns))
    return list(label_texts(found, model, max_length))


def _is_pair(example: Any) -> bool:
    is_pair = isinstance(example, list | tuple) and len(example) == 2
    return is_pair and all(isinstance(text, str) for text in example)
