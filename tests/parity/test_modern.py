"""The encoder with ModernBERT's parts computes what transformers' ModernBERT computes."""

import dataclasses

import numpy as np
import pytest

from bert_jax.model.encoder import Encoder
from bert_jax.model.heads import LanguageModelHead
from bert_jax.model_config import ModelConfig
from tests.bert_jax.small_run import random_params

pytestmark = pytest.mark.parity

MODEL = ModelConfig(
    vocab_size=50,
    num_layers=4,
    hidden_size=24,
    num_heads=3,
    intermediate_size=20,
    max_position_embeddings=32,
    type_vocab_size=0,
    positions="rotary",
    rotary_base=160_000.0,
    rotary_base_local=100.0,
    normalization_place="pre",
    feed_forward="geglu",
    activation="gelu_exact",
    biases="none",
    attention_window=3,
    global_every=3,
    layer_norm_epsilon=1e-5,
)


def theirs(params: dict, batch: dict) -> tuple[list[np.ndarray], np.ndarray]:
    """Hidden states, of which the last is normalized, and logits."""
    import torch
    import transformers

    config = transformers.ModernBertConfig(
        vocab_size=MODEL.vocab_size,
        hidden_size=MODEL.hidden_size,
        intermediate_size=MODEL.intermediate_size,
        num_hidden_layers=MODEL.num_layers,
        num_attention_heads=MODEL.num_heads,
        max_position_embeddings=MODEL.max_position_embeddings,
        local_attention=2 * MODEL.attention_window,
        global_attn_every_n_layers=MODEL.global_every,
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": MODEL.rotary_base},
            "sliding_attention": {"rope_type": "default", "rope_theta": MODEL.rotary_base_local},
        },
        pad_token_id=0,
        cls_token_id=1,
        sep_token_id=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    config._attn_implementation = "eager"
    model = transformers.ModernBertForMaskedLM(config).eval()
    encoder, head = params["encoder"], params["language_model"]
    embeddings, width = encoder["embeddings"], MODEL.hidden_size
    weights = {
        "model.embeddings.tok_embeddings.weight": embeddings["word_embeddings"]["embedding"],
        "model.embeddings.norm.weight": embeddings["layer_norm"]["scale"],
        "model.final_norm.weight": encoder["final_layer_norm"]["scale"],
        "head.dense.weight": head["dense"]["kernel"].T,
        "head.norm.weight": head["layer_norm"]["scale"],
        "decoder.weight": embeddings["word_embeddings"]["embedding"],
        "decoder.bias": head["bias"],
    }
    for i in range(MODEL.num_layers):
        layer, prefix = encoder[f"layer_{i}"], f"model.layers.{i}"
        if i > 0:
            weights[f"{prefix}.attn_norm.weight"] = layer["attention_layer_norm"]["scale"]
        kernels = [
            layer["attention"][name]["kernel"].reshape(width, width) for name in ("query", "key", "value")
        ]
        weights |= {
            f"{prefix}.attn.Wqkv.weight": np.concatenate([kernel.T for kernel in kernels]),
            f"{prefix}.attn.Wo.weight": layer["attention"]["output"]["kernel"].reshape(width, width).T,
            f"{prefix}.mlp_norm.weight": layer["output_layer_norm"]["scale"],
            f"{prefix}.mlp.Wi.weight": np.concatenate(
                [layer["gate"]["kernel"].T, layer["intermediate"]["kernel"].T]
            ),
            f"{prefix}.mlp.Wo.weight": layer["output"]["kernel"].T,
        }
    model.load_state_dict({name: torch.tensor(np.ascontiguousarray(x)) for name, x in weights.items()})
    ids, mask = (torch.tensor(batch[name]).long() for name in ("input_ids", "input_mask"))
    with torch.no_grad():
        outputs = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    return [states.numpy() for states in outputs.hidden_states], outputs.logits.numpy()


@pytest.mark.parametrize("global_every", [3, 2])
def test_states_and_logits_are_those_of_transformers(global_every: int) -> None:
    random = np.random.default_rng(0)
    params = random_params(MODEL)
    ids = random.integers(5, MODEL.vocab_size, (2, 14), dtype=np.int32)
    mask = (np.arange(14) < np.array([[14], [9]])).astype(np.int32)
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids)}
    encoder = Encoder(dataclasses.replace(MODEL, global_every=global_every))

    states = encoder.apply({"params": params["encoder"]}, batch, True, method="hidden_states")
    table = params["encoder"]["embeddings"]["word_embeddings"]["embedding"]
    logits = LanguageModelHead(MODEL).apply({"params": params["language_model"]}, states[-1], table[None])
    their_states, their_logits = theirs(params, batch)
    real = mask > 0
    apart = [
        np.abs(np.asarray(x)[real] - y[real]).max()
        for x, y in zip([*states[:-1], logits], [*their_states[:-1], their_logits], strict=True)
    ]
    if global_every == MODEL.global_every:
        assert max(apart) < 1e-4
    else:  # The layers' windows show.
        assert apart[-1] > 1e-3
