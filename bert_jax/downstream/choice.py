"""Multiple choice: SWAG, CODAH, and generic JSONL."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.downstream.folds import FoldSettings
from bert_jax.downstream.labelled_data import LabelledData
from bert_jax.downstream.outputs import outputs_of
from bert_jax.downstream.predict_records import RECORDS_AT_ONCE, Header, in_parts, predict_records
from bert_jax.downstream.task_data import AppliedModel, Prediction
from data_pipeline.tasks.parts import find_part

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from data_pipeline.tasks.choice import ChoiceExample
    from data_pipeline.tasks.records import Record
    from data_pipeline.tasks.rows import Rows


@dataclasses.dataclass(frozen=True)
class ChoiceSettings(FoldSettings):
    """A folder with train, dev (or val) and optionally test: SWAG's .csv, CODAH's .tsv, or .jsonl with
    {"context", "question", "choices", "label"} per line, where "question" is optional. Or a folder with a
    single file for cross-validation: CODAH's full_data.tsv, or all.csv, all.tsv or all.jsonl."""

    max_seq_length: int = 128
    """Most tokens of one choice with its context; longer ones are cut."""

    def load(self, task: str, data: str, tokenizer: "Tokenizer") -> "ChoiceData":
        """Reads and encodes train, dev, and test if there is one."""
        from data_pipeline.tasks.choice import choice_rows, require_labels
        from data_pipeline.tasks.encode import make_task_tokenizer

        del task
        plain = make_task_tokenizer(tokenizer)
        parts = self._parts(data)
        for name in ("train", "dev"):
            require_labels(parts[name])
        rows = {name: choice_rows(part, plain, self.max_seq_length) for name, part in parts.items()}
        return ChoiceData(rows.pop("train"), rows.pop("dev"), test=rows)

    def _parts(self, data: str) -> "dict[str, Sequence[ChoiceExample]]":
        from data_pipeline.tasks.choice import read_choices

        names = ("full_data", "all")  # CODAH's, and anyone's
        train, dev = self.read_train_and_dev(data, read_choices, lambda example: example.context, names)
        test = find_part(Path(data), "test")
        return {"train": train, "dev": dev, **({"test": read_choices(test)} if test else {})}

    def predict_file(self, job: Prediction) -> int:
        """Predicts a file in one of the forms of the training data; its labels are ignored."""
        from data_pipeline.tasks.choice import open_choices

        form = open_choices(job.input)

        def parse(record: "Record") -> "ChoiceExample":
            return form.example(record.without("label"))

        header: Header = "names" if form.has_names else "none"
        predict = functools.partial(self._predict, model=job.model)
        return predict_records(job, form.read, parse, predict, header=header)

    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[dict[str, Any]]:
        """Predicts dicts {"context", "choices"}, optionally with "question"."""
        from data_pipeline.tasks.choice import CHOICE_FIELDS, json_example
        from data_pipeline.tasks.records import as_records

        records = as_records(examples, CHOICE_FIELDS)
        read = [json_example(record.without("label")) for record in records]
        return [one for part in in_parts(iter(read), RECORDS_AT_ONCE) for one in self._predict(part, model)]

    def _predict(self, examples: "Sequence[ChoiceExample]", model: AppliedModel) -> Iterator[dict[str, Any]]:
        from data_pipeline.tasks.choice import choice_rows

        rows = choice_rows(examples, model.plain_tokenizer, self.max_seq_length)
        return describe(outputs_of(rows, model.apply))


class ChoiceData(LabelledData):
    """A `TaskData` of contexts with choices; the label of one is the index of the right choice."""

    def __init__(self, train: "Rows", dev: "Rows", test: "Mapping[str, Rows]") -> None:
        super().__init__("choice", (), ("accuracy",), train, {"dev": dev}, test)

    def describe(self, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        """The index of the choice and the probabilities of all."""
        return describe(outputs)

    def find_degenerate(self, outputs: np.ndarray) -> str | None:
        """One sentence if every choice has the same index, None if not."""
        chosen = set(outputs.argmax(-1).tolist())
        is_always_one = len(chosen) == 1 < len(outputs)
        return f"the choice is always number {chosen.pop()}" if is_always_one else None


def describe(scores: np.ndarray) -> Iterator[dict[str, Any]]:
    """The predictions of examples from their scores [R, C]; a missing choice gets no probability."""
    from bert_jax.finetuning.heads import IMPOSSIBLE

    for row in scores:
        weights = np.exp(row - row.max())[row > IMPOSSIBLE]
        shares = weights / weights.sum()
        yield {"label": int(shares.argmax()), "probabilities": [round(float(p), 6) for p in shares]}
