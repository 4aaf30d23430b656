"""The rules by which a tokenizer cuts text into pieces, and where those of two tokenizers differ."""

import json
from collections.abc import Collection
from typing import Any

from tokenizers import Tokenizer

from data_pipeline.corpus.vocabulary_file import Casing

_PARTS = {"normalizer": "normalizer", "pre_tokenizer": "pre-tokenizer", "model": "model"}
"""The parts of a tokenizer that decide which pieces a text gets, and what messages call them."""

_LONGEST_VALUE = 40  # in characters; a message only says that a longer one is another


def find_difference(found: Tokenizer, wanted: Tokenizer) -> str | None:
    """The first rule of a tokenizer that differs from another one's, for messages; None if none does.

    Ids are not compared. Of merges, and of pieces with scores, one tokenizer may have more than the other.
    """
    ours, theirs = (json.loads(tokenizer.to_str()) for tokenizer in (found, wanted))
    for part, name in _PARTS.items():
        steps, expected = _steps(ours[part]), _steps(theirs[part])
        if (types := describe_steps(ours[part])) != (others := describe_steps(theirs[part])):
            return f"its {name} is {types}, not {others}"
        for step, other in zip(steps, expected, strict=True):
            for setting in sorted(step.keys() | other.keys()):
                value, right = step.get(setting), other.get(setting)
                if not _is_same(setting, value, right):
                    return f"its {name} {step['type']} has {_describe(setting, value, right)}"
    return None


def find_gap(ids: Collection[int]) -> str | None:
    """That ids are not 0 to one less than their number, for messages; None if they are."""
    if sorted(ids) == [*range(len(ids))]:
        return None
    return f"it has {len(ids)} pieces, whose ids are not 0 to {len(ids) - 1}"


def found_casing(tokenizer: Tokenizer) -> Casing:
    """The casing that a tokenizer's normalization gives."""
    lowers = tokenizer.normalizer is not None and "A" not in tokenizer.normalizer.normalize_str("A")
    return "uncased" if lowers else "cased"


def describe_steps(part: dict[str, Any] | None) -> str:
    """The types of the steps that a part of a `tokenizer.json` consists of; none if there is no such part."""
    return " and ".join(step["type"] for step in _steps(part)) or "none"


def _steps(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The steps of a part, those of sequences in their place, with the settings that are implied."""
    if part is None:
        return []
    if part["type"] == "Sequence":
        (steps,) = (value for value in part.values() if isinstance(value, list))
        return [inner for step in steps for inner in _steps(step)]
    if part["type"] == "BertNormalizer" and part["strip_accents"] is None:
        return [{**part, "strip_accents": part["lowercase"]}]
    return [part]


def _is_same(setting: str, value: Any, other: Any) -> bool:
    if setting == "vocab" and isinstance(value, dict):
        return True
    if isinstance(value, list) and isinstance(other, list):
        return all(one == another for one, another in zip(value, other, strict=False))
    return value == other


def _describe(setting: str, value: Any, other: Any) -> str:
    shown, right = (json.dumps(one, ensure_ascii=False) for one in (value, other))
    if max(len(shown), len(right)) > _LONGEST_VALUE:
        return f"another {setting}"
    return f"{setting} {shown}, not {right}"
