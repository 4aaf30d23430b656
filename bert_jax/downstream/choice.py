"""Multiple choice: SWAG, CODAH, and generic JSONL."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.downstream.folds import FoldSettings
from bert_jax.downstream.outputs import outputs_of, write_lines
from bert_jax.downstream.predict_records import RECORDS_AT_ONCE, Header, in_parts, predict_records
from bert_jax.downstream.task_data import AppliedModel, Apply, Outcome, Prediction, join_figures
from data_pipeline.tasks.parts import find_part

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from bert_jax.finetuning.config import HeadKind
    from data_pipeline.tasks.choice import ChoiceExample
    from data_pipeline.tasks.records import Record
    from data_pipeline.tasks.rows import Rows


@dataclasses.dataclass(frozen=True)
class ChoiceSettings(FoldSettings):
    """A folder with train, dev (or val) and perhaps test: SWAG's .csv, CODAH's .tsv, or .jsonl of
    {"context", "question", "choices", "label"}, the question being optional. Or with one file for
    all, CODAH's full_data.tsv or all.csv, all.tsv, all.jsonl, for cross-validation."""

    max_seq_length: int = 128
    """Of one choice with its context; longer ones are cut."""

    def load(self, task: str, data: str, tokenizer: "Tokenizer") -> "ChoiceData":
        """Reads and encodes the parts that are there."""
        from data_pipeline.tasks.choice import choice_rows, require_labels
        from data_pipeline.tasks.encode import make_task_tokenizer

        del task
        plain = make_task_tokenizer(tokenizer)
        parts = self._parts(data)
        for name in ("train", "dev"):
            require_labels(parts[name])
        rows = {name: choice_rows(part, plain, self.max_seq_length) for name, part in parts.items()}
        return ChoiceData(rows)

    def _parts(self, data: str) -> "dict[str, Sequence[ChoiceExample]]":
        from data_pipeline.tasks.choice import read_choices

        names = ("full_data", "all")  # CODAH's, and anyone's
        train, dev = self.read_train_and_dev(data, read_choices, lambda example: example.context, names)
        test = find_part(Path(data), "test")
        return {"train": train, "dev": dev, **({"test": read_choices(test)} if test else {})}

    def predict_file(self, job: Prediction) -> int:
        """A file of the same form; its labels are not looked at."""
        from data_pipeline.tasks.choice import open_choices

        form = open_choices(job.input)

        def parse(record: "Record") -> "ChoiceExample":
            return form.example(record.without("label"))

        header: Header = "names" if form.has_names else "none"
        predict = functools.partial(self._predict, model=job.model)
        return predict_records(job, form.read, parse, predict, header=header)

    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[dict[str, Any]]:
        """Dicts of {"context", "choices"}, perhaps with "question"."""
        from data_pipeline.tasks.choice import CHOICE_FIELDS, json_example
        from data_pipeline.tasks.records import as_records

        records = as_records(examples, CHOICE_FIELDS)
        read = [json_example(record.without("label")) for record in records]
        return [one for part in in_parts(iter(read), RECORDS_AT_ONCE) for one in self._predict(part, model)]

    def _predict(self, examples: "Sequence[ChoiceExample]", model: AppliedModel) -> Iterator[dict[str, Any]]:
        from data_pipeline.tasks.choice import choice_rows

        rows = choice_rows(examples, model.plain_tokenizer, self.max_seq_length)
        return describe(outputs_of(rows, model.apply))


class ChoiceData:
    """A `TaskData` of contexts with choices."""

    kind: "HeadKind" = "choice"
    labels: tuple[str, ...] = ()
    metric = "accuracy"

    def __init__(self, rows: "Mapping[str, Rows]") -> None:
        self.train = rows["train"]
        self._rows = rows

    @property
    def evaluated(self) -> "Mapping[str, Rows]":
        """The parts but training."""
        return {name: rows for name, rows in self._rows.items() if name != "train"}

    @property
    def dev_fingerprint(self) -> str:
        """A hash of the development set, with all that it is scored by."""
        return self._rows["dev"].fingerprint()

    @property
    def test_fingerprint(self) -> str:
        """A hash of the test set, with all that it is scored by."""
        return self._rows["test"].fingerprint() if "test" in self._rows else ""

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """Accuracy."""
        return self._figures({"dev": outputs_of(self._rows["dev"], apply)})

    def finish(self, apply: Apply, folder: Path) -> Outcome:
        """`predictions-PART.jsonl`: the index of the choice and the probabilities of all."""
        outputs = {name: outputs_of(rows, apply) for name, rows in self.evaluated.items()}
        for name, scores in outputs.items():
            write_lines(folder / f"predictions-{name}.jsonl", describe(scores))
        chosen = set(outputs["dev"].argmax(-1).tolist())
        is_always_one = len(chosen) == 1 < len(outputs["dev"])
        degenerate = f"the choice is always number {chosen.pop()}" if is_always_one else None
        return Outcome(self._figures(outputs), degenerate)

    def _figures(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Of the parts that have labels."""
        targets = {name: self._rows[name].targets for name in outputs}
        right = {
            name: scores.argmax(-1) == targets[name]["labels"]
            for name, scores in outputs.items()
            if targets[name]
        }
        return join_figures({name: {"accuracy": float(found.mean())} for name, found in right.items()})


def describe(scores: np.ndarray) -> Iterator[dict[str, Any]]:
    """What to say of examples by their scores [R, C]; a choice that one lacks has none."""
    from bert_jax.finetuning.heads import IMPOSSIBLE

    for row in scores:
        weights = np.exp(row - row.max())[row > IMPOSSIBLE]
        shares = weights / weights.sum()
        yield {"label": int(shares.argmax()), "probabilities": [round(float(p), 6) for p in shares]}
