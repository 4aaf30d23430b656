"""Multiple choice: SWAG, CODAH, and generic JSONL."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.cli.finetuning.files import find_table, require_table
from bert_jax.cli.finetuning.labels import outputs_of, write_lines
from bert_jax.cli.finetuning.task_data import Apply, Outcome, Prediction

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from bert_jax.finetuning.config import Kind
    from data_pipeline.tasks.choice import ChoiceExample
    from data_pipeline.tasks.rows import Rows


@dataclasses.dataclass(frozen=True)
class ChoiceSettings:
    """A folder with train, dev and perhaps test: SWAG's .csv, CODAH's .tsv, or .jsonl of
    {"context", "question", "choices", "label"}, the question being optional."""

    max_seq_length: int = 128
    """Of one choice with its context; longer ones are cut."""

    def load(self, task: str, data: str, tokenizer: "Tokenizer") -> "ChoiceData":
        """Reads and encodes the parts that are there."""
        from data_pipeline.tasks.choice import choice_rows
        from data_pipeline.tasks.encode import make_task_tokenizer

        del task
        folder, plain = Path(data), make_task_tokenizer(tokenizer)
        files = {name: require_table(folder, name) for name in ("train", "dev")}
        test = find_table(folder, "test")
        parts = {name: read(file) for name, file in (files | ({"test": test} if test else {})).items()}
        rows = {name: choice_rows(part, plain, self.max_seq_length) for name, part in parts.items()}
        return ChoiceData(rows, parts)

    def predict(self, job: Prediction) -> int:
        """A file of the same form, without labels; writes JSONL."""
        from data_pipeline.tasks.choice import choice_rows
        from data_pipeline.tasks.encode import make_task_tokenizer

        examples = [dataclasses.replace(example, label=None) for example in read(job.input)]
        rows = choice_rows(examples, make_task_tokenizer(job.tokenizer), self.max_seq_length)
        return job.write_lines([describe(examples, outputs_of(rows, job.apply))])


class ChoiceData:
    """A `TaskData` of contexts with choices."""

    kind: "Kind" = "choice"
    labels: tuple[str, ...] = ()
    metric = "accuracy"

    def __init__(self, rows: "Mapping[str, Rows]", examples: "Mapping[str, Sequence[ChoiceExample]]") -> None:
        self.train = rows["train"]
        self._rows = rows
        self._examples = examples

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """Accuracy."""
        return self._figures(outputs_of(self._rows["dev"], apply))

    def finish(self, apply: Apply, folder: Path) -> Outcome:
        """`predictions-PART.jsonl`: the index of the choice and the probabilities of all."""
        outputs = {name: outputs_of(rows, apply) for name, rows in self._rows.items() if name != "train"}
        for name, scores in outputs.items():
            write_lines(folder / f"predictions-{name}.jsonl", describe(self._examples[name], scores))
        chosen = set(outputs["dev"].argmax(-1).tolist())
        degenerate = f"the choice is always number {chosen.pop()}" if len(chosen) == 1 else None
        return Outcome(self._figures(outputs["dev"]), degenerate)

    def _figures(self, scores: np.ndarray) -> dict[str, float]:
        right = scores.argmax(-1) == self._rows["dev"].targets["labels"]
        return {"accuracy": float(right.mean())}


def read(file: Path) -> "list[ChoiceExample]":
    """The examples of a file, by its suffix."""
    from data_pipeline.tasks.choice import read_choices, read_codah, read_swag

    return {".csv": read_swag, ".tsv": read_codah}.get(file.suffix, read_choices)(file)


def describe(examples: "Sequence[ChoiceExample]", scores: np.ndarray) -> list[dict[str, Any]]:
    """What to say of each example."""
    described = []
    for example, row in zip(examples, scores, strict=True):
        weights = np.exp(row - row.max())[: len(example.choices)]
        shares = weights / weights.sum()
        described.append(
            {"label": int(shares.argmax()), "probabilities": [round(float(p), 6) for p in shares]}
        )
    return described
