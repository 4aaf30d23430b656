"""Predictions for the texts of a table, written in the form of the table, a part at a time."""

import csv
import io
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_jax.cli.finetuning.labels import describe, outputs_of
from bert_jax.cli.finetuning.task_data import Prediction

if TYPE_CHECKING:
    from data_pipeline.tasks.records import Record

# Enough for full batches of like length, few enough to hold.
_RECORDS_AT_ONCE = 4096


def predict_table(job: Prediction, columns: Sequence[str], max_length: int) -> int:
    """Adds `label` and a probability for each label, or `value`, to every record.

    Args:
      job: its input is a .tsv, .csv or .jsonl file.
      columns: of the text, or of both texts of a pair.
      max_length: longer texts are cut.

    Returns:
      number of records.

    Raises:
      UserError: as `data_pipeline.tasks.records.read_records`, or an empty text.
    """
    from data_pipeline.tasks.encode import make_task_tokenizer
    from data_pipeline.tasks.records import read_records
    from data_pipeline.tasks.texts import TextExample, text_rows

    tokenizer, kind = make_task_tokenizer(job.tokenizer), job.record.config.kind
    records = read_records(job.input, columns)

    def parts() -> Iterator[list[str]]:
        header = True
        while part := list(itertools.islice(records, _RECORDS_AT_ONCE)):
            examples = []
            for record in part:
                text, *pair = (record.text(column) for column in columns)
                examples.append(TextExample(record.place, text, pair[0] if pair else None, label=None))
            rows = text_rows(examples, tokenizer, max_length, {})
            found = describe(kind, job.record.labels, outputs_of(rows, job.apply))
            yield _format(job.input.suffix, part, found, header=header)
            header = False

    return job.write_text(parts())


def _format(
    suffix: str, records: "Sequence[Record]", found: Sequence[Mapping[str, Any]], *, header: bool
) -> list[str]:
    """A text for each record; a table's line of names is in the first one."""
    if suffix in (".jsonl", ".ndjson"):
        return [
            json.dumps({**record.fields, "prediction": prediction}, ensure_ascii=False) + "\n"
            for record, prediction in zip(records, found, strict=True)
        ]
    lines: list[str] = []
    for record, prediction in zip(records, found, strict=True):
        fields = {**record.fields, **_flat(prediction)}
        names = [_line(suffix, list(fields))] if header and not lines else []
        lines.append("".join([*names, _line(suffix, list(fields.values()))]))
    return lines


def _flat(prediction: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a prediction."""
    columns = {"predicted": prediction.get("label", prediction.get("value"))}
    shares = prediction.get("probabilities", {})
    return columns | {f"probability_{label}": share for label, share in shares.items()}


def _line(suffix: str, values: Sequence[Any]) -> str:
    if suffix == ".tsv":
        return "\t".join(map(str, values)) + "\n"
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()
