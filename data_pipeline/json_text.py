"""Reading JSON and lines of JSON that others may have written."""

import json
from pathlib import Path
from typing import Any

from data_pipeline.errors import UserError, bad_input

JSON_LINES_SUFFIXES = (".jsonl", ".ndjson")
"""Suffixes of files with one object per line."""


def parse_json(text: str) -> Any:
    """Returns the value that `text` holds. Raises ValueError if it is not JSON, or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def load_json(path: Path) -> Any:
    """Returns the value in a file. Raises OSError, or ValueError if it is not JSON in UTF-8."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 at byte {error.start}") from None
    return parse_json(text)


def read_object(path: Path) -> dict[str, Any]:
    """Reads the JSON object in a file.

    Raises:
      UserError: the file is missing or unreadable, or does not hold a JSON object.
    """
    try:
        content = load_json(path)
    except (OSError, ValueError) as error:
        raise bad_input(error, path, f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no JSON object")
    return content


def parse_object(line: str, place: object) -> dict[str, Any]:
    """Returns the object on a line. Raises UserError, whose message names `place`, if there is none."""
    try:
        fields = parse_json(line)
    except ValueError as error:
        raise UserError(f"{place} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise UserError(f"{place} is not a JSON object; each line must be one")
    return fields
