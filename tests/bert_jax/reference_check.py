"""Runs our model on another implementation's weights and measures how far the results differ."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.formats.families.bert import BERT
from bert_jax.formats.tensors import from_tensors, to_tensors
from bert_jax.model.pretraining import BertForPreTraining
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import LeftToRight, MaskedLMAndNSP, Objective
from bert_jax.objectives.task import PretrainingTask
from tests.golden.make_model_golden import GOLDEN, SIZES

Arrays = dict[str, np.ndarray]


def model_config(case: str) -> ModelConfig:
    """Our configuration for a case of `make_model_golden`."""
    return ModelConfig(
        vocab_size=SIZES["vocab_size"],
        hidden_size=SIZES["hidden_size"],
        num_layers=SIZES["num_hidden_layers"],
        num_heads=SIZES["num_attention_heads"],
        intermediate_size=SIZES["intermediate_size"],
        max_position_embeddings=SIZES["max_position_embeddings"],
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        activation="gelu_exact" if case == "gelu_exact" else "gelu_tanh",
        attention="causal" if case == "ltr" else "bidirectional",
    )


def differences(case: str, weights: Arrays, batch: Arrays, expected: Arrays) -> dict[str, float]:
    """The largest absolute difference of every array of `expected`."""
    ours = _compute(model_config(case), weights, batch)
    return {name: float(np.abs(ours[name] - array).max()) for name, array in expected.items()}


def _compute(config: ModelConfig, weights: Arrays, batch: Arrays) -> Arrays:
    table = BERT.entries(config)
    objective = LeftToRight() if config.attention == "causal" else MaskedLMAndNSP()
    shapes, model = PretrainingTask(objective, config).abstract_params(), objective.module(config)
    params = from_tensors(weights, table, shapes, "bert.", GOLDEN)
    if config.attention == "causal":  # the reference has no pooler; ours needs one, with any values
        absent = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        params = {**absent, **params}
    gradient = jax.value_and_grad(functools.partial(_loss, objective, model), has_aux=True)
    (loss, (logits, states, pooled)), gradients = jax.jit(gradient)(params, batch)
    return {
        "hidden_states": np.stack(states),
        "pooled": np.asarray(pooled),
        "mlm_logits": np.asarray(logits[0]),
        "nsp_logits": np.asarray(logits[1]),
        "loss": np.asarray(loss),
        **{f"gradient/{name}": array for name, array in to_tensors(gradients, table).items()},
    }


def _loss(
    objective: Objective, model: BertForPreTraining, params: dict, batch: dict
) -> tuple[jax.Array, tuple]:
    variables = {"params": params}
    logits = model.apply(variables, batch, deterministic=True)
    batch = {name: jnp.asarray(value) for name, value in batch.items()}
    loss = objective.loss(objective.numerators(logits, batch), objective.denominators(batch))
    return loss, (logits, *model.apply(variables, batch, method=_encode))


def _encode(model: BertForPreTraining, batch: dict) -> tuple[list[jax.Array], jax.Array]:
    """All positions of all layers, and the pooled vector."""
    states = model.encoder.hidden_states(batch, deterministic=True)
    return states, model.pooler(states[-1][:, 0])
