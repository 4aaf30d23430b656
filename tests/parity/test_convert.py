"""Exports as transformers reads them: no key missing or left over, the same logits, the same ids."""

from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.formats.convert import convert
from bert_jax.formats.open_model import open_model
from bert_jax.inference.fill_mask import fill_mask
from bert_jax.model_config import ModelConfig
from bert_jax.training.checkpoints import load_params
from tests.bert_jax.small_run import TEXTS, make_run

pytestmark = pytest.mark.parity

FAULTS = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")


def load(loader: str, directory: Path):  # type: ignore[no-untyped-def]
    """The model in float32 without dropout, after checking what transformers says of the keys."""
    import transformers

    kind = getattr(transformers, loader)
    model, report = kind.from_pretrained(directory, output_loading_info=True)
    assert {fault: list(report[fault]) for fault in FAULTS if report[fault]} == {}
    return model.eval()


def padded_batch(config: ModelConfig) -> dict[str, np.ndarray]:
    random = np.random.default_rng(2)
    lengths = np.array([[12], [7], [3]])
    mask = (np.arange(12) < lengths).astype(np.int32)
    return {
        "input_ids": random.integers(0, config.vocab_size, mask.shape, dtype=np.int32),
        "input_mask": mask,
        "segment_ids": (np.arange(12) > lengths // 2).astype(np.int32),
        "masked_lm_positions": np.tile(np.arange(12, dtype=np.int32), (3, 1)),
    }


def outputs_of(model, batch: dict[str, np.ndarray]):  # type: ignore[no-untyped-def]
    import torch

    names = {"input_ids": "input_ids", "attention_mask": "input_mask", "token_type_ids": "segment_ids"}
    with torch.no_grad():
        return model(**{their: torch.tensor(batch[our]).long() for their, our in names.items()})


@pytest.mark.parametrize("objective", ["mlm_nsp", "mlm", "ltr"])
def test_transformers_loads_it_and_gives_the_same_logits(tmp_path: Path, objective: str) -> None:
    experiment, _ = make_run(tmp_path / "run", objective=objective)
    output = tmp_path / "model"
    convert(tmp_path / "run", output)
    config, batch = experiment.model, padded_batch(experiment.model)
    _, params = load_params(tmp_path / "run")
    module = experiment.objective.module(config)
    lm, nsp = jax.jit(lambda p, b: module.apply({"params": p}, b, True))(params, batch)
    if objective == "ltr":
        model = load("BertLMHeadModel", output)
        np.testing.assert_allclose(outputs_of(model, batch).logits[:, :-1], lm, atol=1e-5, rtol=0)
    elif objective == "mlm":
        model = load("BertForMaskedLM", output)
        np.testing.assert_allclose(outputs_of(model, batch).logits, lm, atol=1e-5, rtol=0)
    else:
        outputs = outputs_of(load("BertForPreTraining", output), batch)
        np.testing.assert_allclose(outputs.prediction_logits, lm, atol=1e-5, rtol=0)
        np.testing.assert_allclose(outputs.seq_relationship_logits, nsp, atol=1e-5, rtol=0)


@pytest.mark.parametrize("casing", ["cased", "uncased"])
@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_auto_tokenizer_gives_the_same_ids(tmp_path: Path, kind: str, casing: str) -> None:
    import transformers

    _, ours = make_run(tmp_path / "run", kind=kind, casing=casing)
    output = tmp_path / "model"
    convert(tmp_path / "run", output)
    tokenizer = transformers.AutoTokenizer.from_pretrained(output)
    for text in TEXTS:
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == ours.encode(text), text
        assert tokenizer(text)["input_ids"] == [ours.cls_id, *ours.encode(text), ours.sep_id], text
    pair = tokenizer("the cat", "a dog")
    second = len(ours.encode("a dog")) + 1
    assert pair["token_type_ids"] == [0] * (len(pair["input_ids"]) - second) + [1] * second
    names = ("pad", "unk", "cls", "sep", "mask")
    assert [getattr(tokenizer, f"{n}_token_id") for n in names] == [getattr(ours, f"{n}_id") for n in names]
    assert tokenizer.model_max_length == 24


def test_fill_mask_agrees_with_their_pipeline(tmp_path: Path) -> None:
    import transformers

    make_run(tmp_path / "run")
    output = tmp_path / "model"
    convert(tmp_path / "run", output)
    pipeline = transformers.pipeline("fill-mask", model=str(output))
    text = "the [MASK] sat on the mat"
    ours = dict(fill_mask(open_model(output), text, top_k=5)[0])
    model = {row["token_str"]: row["score"] for row in pipeline(text, top_k=100)}
    assert set(ours) < set(model)
    # Theirs shares some probability with the rows that have no token.
    shares = np.array([[share, model[token]] for token, share in ours.items()])
    np.testing.assert_allclose(shares[:, 0] / shares[0, 0], shares[:, 1] / shares[0, 1], rtol=1e-4)
