"""The commands with models of other families: what takes a BERT takes a RoBERTa and a ModernBERT."""

import json
from pathlib import Path

import numpy as np
import pytest

import bert_jax
from bert_jax.cli.main import main
from bert_jax.formats import huggingface
from bert_jax.formats.open_model import open_model
from bert_jax.objectives import MaskedLM
from tests.bert_jax.formats.family_directories import TEXTS, small_model


@pytest.fixture(params=["modernbert", pytest.param("roberta", marks=pytest.mark.slow)])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A small masked language model of a family."""
    made = tmp_path / request.param
    made.mkdir()
    huggingface.write(made, small_model(request.param, MaskedLM(), ("encoder", "language_model")))
    return made


def write_data(directory: Path, rows: list[dict]) -> Path:
    directory.mkdir()
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    for split in ("train", "dev"):
        (directory / f"{split}.jsonl").write_text(lines)
    return directory


def finetune(task: str, model: Path, data: Path, output: Path, *flags: str) -> int:
    training = ["--epochs", "1", "--batch-size", "4", "--learning-rate", "1e-3"]
    return main(
        ["finetune", task, f"--model={model}", f"--data={data}", f"--output={output}", *training, *flags]
    )


def test_texts_are_encoded_masks_filled_and_sentences_scored(directory: Path, tmp_path: Path) -> None:
    model = bert_jax.load_model(directory)
    out = model.encode([TEXTS[0], (TEXTS[1], TEXTS[2])], ["sequence_output", "hidden_states"])
    assert all(np.isfinite(states).all() for states in out.sequence_output)
    assert len(out.tokens[1]) == out.sequence_output[1].shape[0]
    mask = "<mask>" if "roberta" in directory.name else "[MASK]"
    assert len(model.fill_mask(f"the {mask} sat", top_k=2)[0]) == 2
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{text}\n" for text in TEXTS))
    flags = [f"--model={directory}", f"--input={texts}", f"--output={tmp_path / 'features.npz'}"]
    assert main(["features", *flags, "--pooling", "mean"]) == 0
    assert np.isfinite(np.load(tmp_path / "features.npz")["layer_-1"]).all()
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"sentence_good": TEXTS[0], "sentence_bad": TEXTS[1]}) + "\n")
    output = tmp_path / "pairs"
    assert main(["minimal-pairs", f"--model={directory}", f"--data={pairs}", f"--output={output}"]) == 0
    assert main(["convert", f"--model={directory}", f"--output={tmp_path / 'npz'}", "--format=npz"]) == 0
    assert open_model(tmp_path / "npz").family == directory.name


def test_a_classifier_of_pairs_is_trained_applied_and_exported(directory: Path, tmp_path: Path) -> None:
    rows = [{"text": a, "pair": b, "label": "same" if a == b else "other"} for a in TEXTS for b in TEXTS]
    data, output = write_data(tmp_path / "data", rows), tmp_path / "out"
    assert finetune("classify", directory, data, output, "--pair-column=pair", "--max-seq-length=40") == 0
    found = bert_jax.load_finetuned(output).predict([(TEXTS[0], TEXTS[1]), (TEXTS[2], TEXTS[2])])
    assert {one["label"] for one in found} <= {"same", "other"}
    assert main(["convert", f"--model={output}", f"--output={tmp_path / 'hf'}"]) == 0
    settings = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert settings["model_type"] == directory.name
    assert settings["architectures"][0].endswith("ForSequenceClassification")
    read = open_model(tmp_path / "hf")
    assert read.config.pooler == open_model(directory).config.pooler


@pytest.mark.slow
def test_words_are_tagged(directory: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    lines = "".join(
        f"{word}\t{'B-X' if word == 'cat' else 'O'}\n" for word in ["the", "cat", "sat", "on", "the", "mat"]
    )
    for split in ("train", "dev"):
        (data / f"{split}.txt").write_text((lines + "\n") * 4)
    assert finetune("ner", directory, data, tmp_path / "out", "--max-seq-length=30") == 0
    (tags,) = bert_jax.load_finetuned(tmp_path / "out").predict([["a", "cat"]])
    assert len(tags) == 2
    assert main(["convert", f"--model={tmp_path / 'out'}", f"--output={tmp_path / 'hf'}"]) == 0


@pytest.mark.slow
def test_answers_are_slices_of_the_passage(directory: Path, tmp_path: Path) -> None:
    context = "the cat sat on the mat where a dog saw the cat here"
    answers = [{"text": "a dog", "answer_start": context.index("a dog")}]
    question = {"id": "1", "question": "where is the mat?", "answers": answers}
    content = {
        "version": "1.1",
        "data": [{"title": "a", "paragraphs": [{"context": context, "qas": [question]}]}],
    }
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "dev"):
        (data / f"{split}-v1.1.json").write_text(json.dumps(content))
    flags = ["--max-seq-length=40", "--max-query-length=12", "--doc-stride=8"]
    assert finetune("squad", directory, data, tmp_path / "out", *flags) == 0
    (found,) = bert_jax.load_finetuned(tmp_path / "out").predict([{"question": "where?", "context": context}])
    assert found["text"] == ("" if found["start"] is None else context[found["start"] : found["end"]])
