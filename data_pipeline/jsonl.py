"""JSON lines: one object per line."""

from typing import Any

from data_pipeline.errors import UserError
from data_pipeline.json_text import parse_json

SUFFIXES = (".jsonl", ".ndjson")


def parse_object(line: str, place: object) -> dict[str, Any]:
    """Returns the object on a line. Raises UserError, whose message names `place`, if there is none."""
    try:
        fields = parse_json(line)
    except ValueError as error:
        raise UserError(f"{place} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise UserError(f"{place} is not a JSON object; each line must be one")
    return fields
