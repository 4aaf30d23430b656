"""Hidden states in files: the same vectors as `encode` gives, in both formats."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_jax
from bert_jax.cli.main import main
from bert_jax.inference.bert import Bert
from bert_jax.names import Pooling
from tests.bert_jax.formats.foreign_directories import stored_weights, write_huggingface

LINES = ["a b c", "d e\tf", "", *("g " * (i % 9) + "h" for i in range(200))]
TEXTS = [tuple(line.split("\t")) if "\t" in line else line for line in LINES]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("features")
    write_huggingface(directory / "hf", stored_weights())
    (directory / "texts.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def model(directory: Path) -> Bert:
    return bert_jax.load_model(directory / "hf")


def command(directory: Path, output: Path, *flags: str) -> list[str]:
    given = [
        "--model",
        str(directory / "hf"),
        "--input",
        str(directory / "texts.txt"),
        "--output",
        str(output),
    ]
    return ["features", *given, *flags]


@pytest.mark.parametrize("pooling", ["none", "mean", "cls"])
def test_both_formats_hold_what_encode_gives(
    directory: Path, model: Bert, tmp_path: Path, pooling: Pooling
) -> None:
    for suffix in (".npz", ".parquet"):
        flags = ("--layers=-1,0", "--pooling", pooling)
        assert main(command(directory, tmp_path / f"out{suffix}", *flags)) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.npz", "out.parquet"]
    encoded = model.encode(TEXTS, ["hidden_states"])
    table = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert table["tokens"] == encoded.tokens
    arrays = np.load(tmp_path / "out.npz")
    for layer in (-1, 0):
        states = [text[layer] for text in encoded.hidden_states]
        if pooling == "none":
            expected = np.concatenate(states)
            assert arrays["tokens"].tolist() == [token for tokens in encoded.tokens for token in tokens]
            assert np.diff(arrays["offsets"]).tolist() == [len(tokens) for tokens in encoded.tokens]
            in_table = np.concatenate(table[f"layer_{layer}"])
        else:
            expected = np.stack([x.mean(0) if pooling == "mean" else x[0] for x in states])
            in_table = np.array(table[f"layer_{layer}"])
        np.testing.assert_allclose(arrays[f"layer_{layer}"], expected, atol=1e-5)
        np.testing.assert_array_equal(in_table, arrays[f"layer_{layer}"])


def test_cut_texts_are_counted(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "long.txt").write_text("a\n" + "b " * 30 + "\n")
    flags = ["--input", str(tmp_path / "long.txt"), "--pooling", "cls"]
    assert main(command(directory, tmp_path / "out.npz", *flags)) == 0
    assert "warning: 1 of 2 texts were cut to 20 tokens" in capsys.readouterr().out
    assert np.load(tmp_path / "out.npz")["layer_-1"].shape == (2, 16)


def test_a_byte_order_mark_is_not_text(directory: Path, tmp_path: Path) -> None:
    for name, mark in (("with", "\ufeff"), ("without", "")):
        (tmp_path / name).write_text(f"{mark}a b\n", encoding="utf-8")
        flags = ["--input", str(tmp_path / name), "--pooling", "none"]
        assert main(command(directory, tmp_path / f"{name}.npz", *flags)) == 0
    assert np.load(tmp_path / "with.npz")["tokens"].tolist() == ["[CLS]", "a", "b", "[SEP]"]


def test_bad_input_is_one_line_and_leaves_nothing(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"tabs": b"a\n" * 70 + b"b\tc\td\n", "latin": b"a\n\xe9\n", "empty": b""}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "there.npz").touch()
    before = sorted(tmp_path.iterdir())
    output = tmp_path / "out.parquet"
    for argv, message in (
        (command(directory, output, "--input", str(tmp_path / "tabs")), "line 71 of"),
        (command(directory, output, "--input", str(tmp_path / "latin")), "is not UTF-8"),
        (command(directory, output, "--input", str(tmp_path / "empty")), "is empty"),
        (command(directory, output, "--input", str(tmp_path / "absent")), "is not a file"),
        (command(directory, tmp_path / "out.csv"), "must end in .npz or .parquet"),
        (command(directory, tmp_path / "there.npz"), "exists; name another one"),
        (command(directory, tmp_path / "tabs" / "x.npz"), f"cannot be made: {tmp_path / 'tabs'} is a file"),
        (command(directory, output, "--layers=-1,4"), "no layer 4; valid: -3 to 2"),
        (command(directory, tmp_path / "new" / "directory" / "x.npz", "--layers=9"), "no layer 9"),
        (command(directory, output, "--layers=last"), "--layers is 'last'"),
    ):
        assert main(argv) == 2, argv
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before
