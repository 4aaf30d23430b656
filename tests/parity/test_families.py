"""Families of models in both directions: transformers' own random weights, and what we write of them."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.cross_entropy import cross_entropy
from bert_jax.formats import huggingface, npz
from bert_jax.formats.convert import convert
from bert_jax.formats.open_model import open_model
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.inference.fill_mask import fill_mask, logits_at_positions
from bert_jax.model.encoder import Encoder
from bert_jax.model.heads import ReplacedTokenHead
from bert_jax.model.pretraining import BertForPreTraining
from bert_jax.objectives import ReplacedTokenDetection
from bert_jax.objectives.task import PretrainingTask
from bert_jax.training.warm_start import with_repeated_positions
from tests.bert_jax.drawn import normal_params
from tests.bert_jax.formats.family_directories import save_tokenizer, small_config, tokenizer_of
from tests.parity.test_convert import load, outputs_of

pytestmark = pytest.mark.parity

SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "type_vocab_size": 2,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {}),
    "roberta": ("Roberta", {"type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "roberta of two segments": ("Roberta", {}),
    "xlm-roberta": ("XLMRoberta", {"type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "distilbert": ("DistilBert", {"dim": 24, "n_layers": 3, "n_heads": 3, "hidden_dim": 20}),
    "distilbert with relu": (
        "DistilBert",
        {"dim": 24, "n_layers": 3, "n_heads": 3, "hidden_dim": 20, "activation": "relu"},
    ),
    "distilbert with waves": (
        "DistilBert",
        {"dim": 24, "n_layers": 3, "n_heads": 3, "hidden_dim": 20, "sinusoidal_pos_embds": True},
    ),
    "megatron-bert": ("MegatronBert", {"hidden_act": "gelu_new"}),
    "electra": ("Electra", {"embedding_size": 16}),
    "electra of one width": ("Electra", {"embedding_size": 24}),
    "albert": ("Albert", {"embedding_size": 16, "hidden_act": "gelu_new"}),
    "albert of two groups": (
        "Albert",
        {"embedding_size": 30, "num_hidden_layers": 4, "num_hidden_groups": 2, "hidden_act": "gelu"},
    ),
    "albert of layers": ("Albert", {"embedding_size": 16, "num_hidden_groups": 3, "hidden_act": "relu"}),
    "modernbert": ("ModernBert", {"num_hidden_layers": 4, "local_attention": 6}),
    "modernbert with biases": (
        "ModernBert",
        {
            "local_attention": 8,
            "global_attn_every_n_layers": 2,
            **dict.fromkeys(("attention_bias", "mlp_bias", "classifier_bias", "norm_bias"), True),
        },
    ),
    "modernbert without windows": ("ModernBert", {"global_attn_every_n_layers": 1, "norm_bias": True}),
    "modernbert of windows": (
        "ModernBert",
        {
            "layer_types": ["sliding_attention"] * 3,
            "local_attention": 5,
            "hidden_activation": "gelu_pytorch_tanh",
            "classifier_activation": "gelu_pytorch_tanh",
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 50.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 30.0},
            },
        },
    ),
}


def model_type(case: str) -> str:
    return case.partition(" ")[0]


def make(case: str, kind: str, directory: Path, **changes: Any):  # type: ignore[no-untyped-def]
    """A model of transformers' with random weights that are not small, saved with a tokenizer."""
    import torch
    import transformers

    prefix, settings = CASES[case]
    tokenizer = tokenizer_of(model_type(case))
    ids = {name: tokenizer.token_to_id(f"[{name.upper()}]") for name in ("pad", "cls", "sep")}
    special = {"pad_token_id": 1} if ids["cls"] is None else {"pad_token_id": ids["pad"]}
    sizes = {} if prefix == "DistilBert" else dict(SIZES)
    if prefix == "ModernBert":
        sizes.pop("type_vocab_size")
        special |= {"cls_token_id": ids["cls"], "sep_token_id": ids["sep"]}
        special |= {"bos_token_id": ids["cls"], "eos_token_id": ids["sep"]}
    config = getattr(transformers, f"{prefix}Config")(
        **{
            "vocab_size": tokenizer.get_vocab_size() + 3,
            "max_position_embeddings": 40,
            **special,
            **sizes,
            **settings,
            **changes,
        }
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = getattr(transformers, f"{prefix}{kind}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.1, 0.3)
        model.tie_weights()
    model.save_pretrained(directory)
    save_tokenizer(directory, model_type(case))
    return model


def make_batch(vocab_size: int, segments: int, length: int = 34) -> dict[str, np.ndarray]:
    random = np.random.default_rng(2)
    lengths = np.array([[length], [9], [3]])
    mask = (np.arange(length) < lengths).astype(np.int32)
    ids = random.integers(5, vocab_size - 10, mask.shape, dtype=np.int32)
    return {
        "input_ids": ids,
        "input_mask": mask,
        "segment_ids": ((np.arange(length) > lengths // 2) * (segments > 1)).astype(np.int32),
        "masked_lm_positions": np.tile(np.arange(length, dtype=np.int32), (3, 1)),
        "labels": np.where(random.random(mask.shape) < 0.4, ids, -100) * mask - 100 * (1 - mask),
    }


def theirs(model: Any, batch: dict[str, np.ndarray], segments: int) -> Any:
    import torch

    pad = model.config.pad_token_id
    inputs = {
        "input_ids": torch.tensor(np.where(batch["input_mask"] > 0, batch["input_ids"], pad)).long(),
        "attention_mask": torch.tensor(batch["input_mask"]).long(),
        "labels": torch.tensor(batch["labels"]).long(),
    }
    if segments:
        inputs["token_type_ids"] = torch.tensor(batch["segment_ids"]).long()
    with torch.no_grad():
        return model(**inputs, output_hidden_states=True)


@pytest.mark.parametrize("case", CASES)
def test_states_logits_and_loss_are_those_of_transformers_both_ways(tmp_path: Path, case: str) -> None:
    their_model = make(case, "ForMaskedLM", tmp_path / "theirs")
    ours = open_model(tmp_path / "theirs")
    assert ours.family == model_type(case)
    assert ours.left_out == ()
    config = ours.config
    batch = make_batch(config.vocab_size, config.type_vocab_size)
    their_outputs = theirs(their_model, batch, config.type_vocab_size)

    module, real = BertForPreTraining(config), batch["input_mask"] > 0

    @jax.jit
    def compute(params: dict) -> tuple:
        states = module.apply(
            {"params": params}, batch, method=lambda m, b: m.encoder.hidden_states(b, deterministic=True)
        )
        return states, module.apply({"params": params}, batch, method=logits_at_positions)

    states, logits = compute(ours.params)
    assert len(states) == len(their_outputs.hidden_states)
    last = -1 if config.normalization_place == "pre" else None
    for our, their in zip(states[:last], their_outputs.hidden_states[:last], strict=True):
        np.testing.assert_allclose(our[real], their.numpy()[real], atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(logits[real], their_outputs.logits.numpy()[real], atol=1e-5, rtol=1e-5)
    assert np.abs(np.asarray(logits[real])).max() > 1
    chosen = batch["labels"] >= 0
    losses, _ = cross_entropy(logits[chosen], batch["labels"][chosen])
    assert float(losses.mean()) == pytest.approx(float(their_outputs.loss), abs=1e-5)

    convert(tmp_path / "theirs", tmp_path / "ours")
    assert open_model(tmp_path / "ours").config == config
    again = load(type(their_model).__name__, tmp_path / "ours")
    found = theirs(again, batch, config.type_vocab_size)
    np.testing.assert_allclose(found.logits.numpy()[real], their_outputs.logits.numpy()[real], atol=1e-5)
    assert {**again.config.to_dict()} == {**again.config.to_dict(), **_kept(their_model.config)}


def _kept(config: Any) -> dict[str, Any]:
    """The settings that an encoder consists of, which are the same after both ways."""
    names = {*SIZES, "hidden_act", "layer_norm_eps", "vocab_size", "dim", "n_layers", "n_heads", "activation"}
    names |= {"pad_token_id", "norm_eps", "norm_bias", "layer_types", "attention_bias", "hidden_activation"}
    told = config.to_dict()
    kept = {name: told[name] for name in names & set(told)}
    return {**kept, **({"hidden_act": "gelu_pytorch_tanh"} if kept.get("hidden_act") == "gelu_new" else {})}


@pytest.mark.parametrize("name", ["roberta", "xlm-roberta", "modernbert", "distilbert"])
def test_the_tokenizer_and_the_masks_of_an_export_are_transformers(tmp_path: Path, name: str) -> None:
    import transformers

    make(name, "ForMaskedLM", tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "ours")
    model = open_model(tmp_path / "ours")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    for pair in (("the cat sat",), ("where is the mat?", "on a dog"), ("",), ("naïve cafés [MASK] </s> x",)):
        assert tokenizer(*pair)["input_ids"] == model.tokenizer.encode(*pair).ids, pair
    text = f"the {tokenizer.mask_token} sat on the mat"
    pipeline = transformers.pipeline("fill-mask", model=str(tmp_path / "ours"))
    found = {row["token"]: row["score"] for row in pipeline(text, top_k=model.config.vocab_size)}
    ours = {model.tokenizer.token_to_id(token): p for token, p in fill_mask(model, text, top_k=5)[0]}
    shares = np.array([[share, found[index]] for index, share in ours.items()])
    np.testing.assert_allclose(shares[:, 0] / shares[0, 0], shares[:, 1] / shares[0, 1], rtol=1e-4)


@pytest.mark.parametrize("case", sorted(set(map(model_type, CASES)) - {"xlm-roberta"}))
def test_the_class_without_heads_goes_both_ways(tmp_path: Path, case: str) -> None:
    their_model = make(case, "Model", tmp_path / "theirs")
    model = convert(tmp_path / "theirs", tmp_path / "ours")
    assert model.left_out == ()
    again = load(type(their_model).__name__, tmp_path / "ours")
    expected = their_model.state_dict()
    found = again.state_dict()
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        rows = 2 if model.family == "roberta" and "position_embeddings" in name else 0
        np.testing.assert_array_equal(found[name][rows:], tensor[rows:])


def test_an_electra_discriminator_goes_both_ways(tmp_path: Path) -> None:
    their_model = make("electra", "ForPreTraining", tmp_path / "theirs")
    model = convert(tmp_path / "theirs", tmp_path / "ours")
    assert model.left_out == ()
    batch = make_batch(model.config.vocab_size, 2)
    expected = theirs(their_model, {**batch, "labels": np.maximum(batch["labels"], 0) > 5}, 2).logits.numpy()
    states = Encoder(model.config).apply({"params": model.params["encoder"]}, batch, True)
    logits = ReplacedTokenHead(model.config).apply({"params": model.params["replaced_token"]}, states)
    real = batch["input_mask"] > 0
    np.testing.assert_allclose(logits[real], expected[real], atol=1e-5, rtol=1e-5)
    again = load("ElectraForPreTraining", tmp_path / "ours")
    found = theirs(again, {**batch, "labels": np.maximum(batch["labels"], 0) > 5}, 2).logits.numpy()
    np.testing.assert_allclose(found[real], expected[real], atol=1e-5)


@pytest.mark.parametrize("embeddings", ["shared", "own"])
def test_a_generator_is_a_masked_language_model_in_transformers(tmp_path: Path, embeddings: str) -> None:
    learns = ReplacedTokenDetection(generator_size=1 / 3, generator_embeddings=embeddings)
    config = small_config("electra")
    shapes = PretrainingTask(learns, config).abstract_params()
    params = normal_params(shapes, seed=0, mean=0.1, deviation=0.3)
    tokenizer = tokenizer_of("electra")
    trained = PretrainedModel("rtd", config, params, tokenizer, vocabulary=None, objective=learns)
    npz_directory = tmp_path / "npz"
    npz_directory.mkdir()
    npz.write(npz_directory, trained)
    model = convert(npz_directory, tmp_path / "hf", part="generator")
    assert (model.config.hidden_size, model.config.embedding_size) == (8, 16)

    batch = make_batch(config.vocab_size, 2)
    their_model = load("ElectraForMaskedLM", tmp_path / "hf")
    ids = np.where(batch["input_mask"] > 0, batch["input_ids"], their_model.config.pad_token_id)
    inputs = {**batch, "input_ids": ids, "masked_lm_ids": ids, "masked_lm_weights": 1.0 * batch["input_mask"]}
    expected = learns.module(config).apply({"params": params}, inputs, True).token_logits
    found = theirs(their_model, batch, 2).logits.numpy()
    real = batch["input_mask"] > 0
    np.testing.assert_allclose(expected[real], found[real], atol=1e-5, rtol=1e-5)
    assert np.abs(found[real]).max() > 0.5


@pytest.mark.parametrize("case", ["bert", "roberta", "modernbert"])
def test_a_model_of_repeated_positions_computes_the_same_beyond_512(tmp_path: Path, case: str) -> None:
    make(case, "ForMaskedLM", tmp_path / "theirs")
    short = open_model(tmp_path / "theirs")
    config = dataclasses.replace(short.config, max_position_embeddings=600)
    longer = dataclasses.replace(short, config=config, params=with_repeated_positions(short.params, 600))
    (tmp_path / "longer").mkdir()
    huggingface.write(tmp_path / "longer", longer)
    again = load(huggingface.transformers_class(longer), tmp_path / "longer")
    batch = make_batch(config.vocab_size, config.type_vocab_size, length=600)
    found = theirs(again, batch, config.type_vocab_size).logits.numpy()
    logits = BertForPreTraining(config).apply({"params": longer.params}, batch, method=logits_at_positions)
    real = batch["input_mask"] > 0
    assert real.sum(axis=1).max() == 600
    np.testing.assert_allclose(logits[real], found[real], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("case", ["bert", "megatron-bert", "albert"])
def test_the_heads_of_pretraining_go_both_ways(tmp_path: Path, case: str) -> None:
    their_model = make(case, "ForPreTraining", tmp_path / "theirs")
    model = convert(tmp_path / "theirs", tmp_path / "ours")
    assert (model.left_out, model.missing) == ((), ())
    again = load(type(their_model).__name__, tmp_path / "ours")
    found, expected = again.state_dict(), their_model.state_dict()
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor)
    batch = make_batch(model.config.vocab_size, 2)
    module = BertForPreTraining(model.config)
    _, pair = module.apply({"params": model.params}, batch, True)
    outputs = outputs_of(their_model, batch)
    theirs_pair = outputs["sop_logits" if case == "albert" else "seq_relationship_logits"]
    np.testing.assert_allclose(pair, theirs_pair, atol=1e-5, rtol=1e-5)
