"""Files that a test makes."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def write(path: Path, content: str | bytes) -> Path:
    """Writes a file, in UTF-8 if it is text, and makes its parent directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_all(directory: Path, files: Mapping[str, str | bytes]) -> None:
    """Writes several, content by name."""
    for name, content in files.items():
        write(directory / name, content)


def json_lines(objects: Iterable[Any]) -> str:
    """A JSON object on each line."""
    return "".join(json.dumps(one) + "\n" for one in objects)


def squad_json(context: str, questions: Sequence[Mapping[str, Any]]) -> str:
    """A file of SQuAD's with one passage."""
    return json.dumps({"data": [{"title": "t", "paragraphs": [{"context": context, "qas": questions}]}]})
