"""A fine-tuned model in Python says what `bert-jax predict` says."""

import json
from pathlib import Path

import pytest

import bert_jax
from bert_jax.cli.main import main
from data_pipeline.errors import UserError
from tests.bert_jax.small_finetuned import make_cell

TEXTS = ["the cat sat", "Paris is a city", "", "the dog " * 20, "on"]


def test_labels_are_those_of_the_command(tmp_path: Path) -> None:
    make_cell(tmp_path, "classification", "classify", ("yes", "no"), settings={"max_seq_length": 16})
    model = bert_jax.load_finetuned(tmp_path)
    assert model.labels == ("yes", "no")
    with pytest.warns(UserWarning, match="1 of 5 texts were cut to 16 tokens"):
        found = model.predict(TEXTS)
    told = [text for text in TEXTS if text]  # which the command asks for
    new, output = tmp_path / "new.jsonl", tmp_path / "out.jsonl"
    new.write_text("".join(json.dumps({"text": text}) + "\n" for text in told))
    assert main(["predict", f"--model={tmp_path}", f"--input={new}", f"--output={output}"]) == 0
    by_command = [json.loads(line)["prediction"] for line in output.read_text().splitlines()]
    for text, prediction in zip(told, by_command, strict=True):
        assert found[TEXTS.index(text)]["label"] == prediction["label"]
        assert found[TEXTS.index(text)]["probabilities"] == pytest.approx(
            prediction["probabilities"], abs=2e-6
        )
    assert model.predict([]) == []


def test_pairs_get_numbers(tmp_path: Path) -> None:
    make_cell(tmp_path, "regression", "stsb", settings={"max_seq_length": 16})
    model = bert_jax.load_finetuned(tmp_path)
    one, other = model.predict([("the cat", "the dog"), ("the dog", "the cat")])
    assert one.keys() == {"value"}
    assert one != other
    with pytest.raises(UserError, match="was trained on pairs of texts; give each as"):
        model.predict(["the cat"])


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    make_cell(tmp_path / "texts", "classification", "classify", ("a", "b"), settings={"max_seq_length": 16})
    model = bert_jax.load_finetuned(tmp_path / "texts")
    with pytest.raises(UserError, match="takes a list of texts, not one string"):
        model.predict("the cat")
    with pytest.raises(UserError, match="some texts are pairs and some are not"):
        model.predict(["the cat", ("the cat", "the dog")])
    with pytest.raises(UserError, match="was trained on texts on their own; give strings"):
        model.predict([("the cat", "the dog")])
    with_pairs = {"max_seq_length": 16, "pair_column": "other"}
    make_cell(tmp_path / "pairs", "classification", "classify", ("a", "b"), settings=with_pairs)
    pairs = bert_jax.load_finetuned(tmp_path / "pairs")
    assert len(pairs.predict([("the cat", "the dog")])) == 1
    with pytest.raises(UserError, match="was trained on pairs of texts"):
        pairs.predict(["the cat"])
    make_cell(tmp_path / "spans", "spans", "squad", settings={"max_seq_length": 16})
    with pytest.raises(UserError, match="a model of squad is applied to files, by `bert-jax predict`"):
        bert_jax.load_finetuned(tmp_path / "spans")
