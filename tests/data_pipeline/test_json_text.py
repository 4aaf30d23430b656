from pathlib import Path

import pytest

from data_pipeline.json_text import load_json, parse_json

DEEP = '{"text": "x", "m": ' + "[" * 200_000 + "]" * 200_000 + "}"


def test_a_value_that_is_nested_too_deeply_is_a_value_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(DEEP)
    (tmp_path / "a.json").write_text(DEEP)
    with pytest.raises(ValueError, match="nested too deeply"):
        load_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "line 1 column 2"),
        (b"", "Expecting value"),
        (b'"\xff"', "^it is not UTF-8 at byte 1$"),
        (b"1" * 5000, "digits"),
    ],
)
def test_what_is_not_json_is_a_value_error(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_json(tmp_path / "a.json")


def test_reads_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"ä": [1, null]}', encoding="utf-8")
    assert load_json(tmp_path / "a.json") == {"ä": [1, None]}
