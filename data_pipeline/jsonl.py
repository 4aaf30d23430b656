"""JSON lines: one object per line."""

import json
from typing import Any

from data_pipeline.errors import UserError

SUFFIXES = (".jsonl", ".ndjson")


def parse_object(line: str, place: object) -> dict[str, Any]:
    """Returns the object on a line. Raises UserError, whose message names `place`, if there is none."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise UserError(f"{place} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise UserError(f"{place} is not a JSON object; each line must be one")
    return fields
