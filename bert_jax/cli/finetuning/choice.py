"""Multiple choice: SWAG, CODAH, and generic JSONL."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.cli.finetuning.files import find_table, require_table
from bert_jax.cli.finetuning.labels import outputs_of, write_lines
from bert_jax.cli.finetuning.predict_records import Header, predict_records
from bert_jax.cli.finetuning.task_data import Apply, Outcome, Prediction

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from bert_jax.finetuning.config import Kind
    from data_pipeline.tasks.records import Record
    from data_pipeline.tasks.rows import Rows


@dataclasses.dataclass(frozen=True)
class ChoiceSettings:
    """A folder with train, dev and perhaps test: SWAG's .csv, CODAH's .tsv, or .jsonl of
    {"context", "question", "choices", "label"}, the question being optional."""

    max_seq_length: int = 128
    """Of one choice with its context; longer ones are cut."""

    def load(self, task: str, data: str, tokenizer: "Tokenizer") -> "ChoiceData":
        """Reads and encodes the parts that are there."""
        from data_pipeline.tasks.choice import choice_rows, read_choices
        from data_pipeline.tasks.encode import make_task_tokenizer

        del task
        folder, plain = Path(data), make_task_tokenizer(tokenizer)
        files = {name: require_table(folder, name) for name in ("train", "dev")}
        test = find_table(folder, "test")
        named = files | ({"test": test} if test else {})
        parts = {name: read_choices(file) for name, file in named.items()}
        rows = {name: choice_rows(part, plain, self.max_seq_length) for name, part in parts.items()}
        return ChoiceData(rows)

    def predict(self, job: Prediction) -> int:
        """A file of the same form; its labels are not looked at."""
        from data_pipeline.tasks.choice import choice_rows, open_choices
        from data_pipeline.tasks.encode import make_task_tokenizer

        form, tokenizer = open_choices(job.input), make_task_tokenizer(job.tokenizer)

        def encode(records: "Sequence[Record]") -> "Rows":
            examples = [dataclasses.replace(form.example(record), label=None) for record in records]
            return choice_rows(examples, tokenizer, self.max_seq_length)

        header: Header = "names" if form.has_names else "none"
        return predict_records(job, form.records, encode, describe, header)


class ChoiceData:
    """A `TaskData` of contexts with choices."""

    kind: "Kind" = "choice"
    labels: tuple[str, ...] = ()
    metric = "accuracy"

    def __init__(self, rows: "Mapping[str, Rows]") -> None:
        self.train = rows["train"]
        self._rows = rows

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """Accuracy."""
        return self._figures(outputs_of(self._rows["dev"], apply))

    def finish(self, apply: Apply, folder: Path) -> Outcome:
        """`predictions-PART.jsonl`: the index of the choice and the probabilities of all."""
        outputs = {name: outputs_of(rows, apply) for name, rows in self._rows.items() if name != "train"}
        for name, scores in outputs.items():
            write_lines(folder / f"predictions-{name}.jsonl", describe(scores))
        chosen = set(outputs["dev"].argmax(-1).tolist())
        degenerate = f"the choice is always number {chosen.pop()}" if len(chosen) == 1 else None
        return Outcome(self._figures(outputs["dev"]), degenerate)

    def _figures(self, scores: np.ndarray) -> dict[str, float]:
        right = scores.argmax(-1) == self._rows["dev"].targets["labels"]
        return {"accuracy": float(right.mean())}


def describe(scores: np.ndarray) -> list[dict[str, Any]]:
    """What to say of examples by their scores [R, C]; a choice that one lacks has none."""
    from bert_jax.finetuning.heads import IMPOSSIBLE

    described = []
    for row in scores:
        weights = np.exp(row - row.max())[row > IMPOSSIBLE]
        shares = weights / weights.sum()
        described.append(
            {"label": int(shares.argmax()), "probabilities": [round(float(p), 6) for p in shares]}
        )
    return described
