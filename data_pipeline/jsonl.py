"""JSON lines: an object a line."""

import json
from typing import Any

from data_pipeline.errors import UserError

SUFFIXES = (".jsonl", ".ndjson")


def parse_object(line: str, place: object) -> dict[str, Any]:
    """The object of a line, whose place the message of a UserError names if it holds none."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise UserError(f"{place} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise UserError(f"{place} is not a JSON object; each line must be one")
    return fields
