"""A text in a row of its own without padding, and a model's log-probabilities for all of its positions."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.model.pretraining import BertForPreTraining
from bert_jax.model_config import ModelConfig


def unpadded_row(ids: Sequence[int] | np.ndarray) -> dict[str, jax.Array]:
    row = jnp.asarray(ids)[None]
    return {"input_ids": row, "input_mask": jnp.ones_like(row), "segment_ids": jnp.zeros_like(row)}


def log_probabilities(model: PretrainedModel, ids: Sequence[int] | np.ndarray) -> np.ndarray:
    """[T, V]"""
    logits = _apply_everywhere(model.config, model.params, unpadded_row(ids))
    return np.asarray(jax.nn.log_softmax(logits[0]), np.float64)


@functools.partial(jax.jit, static_argnums=0)
def _apply_everywhere(config: ModelConfig, params: dict, batch: dict[str, jax.Array]) -> jax.Array:
    return BertForPreTraining(config).apply({"params": params}, batch, method=_logits_everywhere)


def _logits_everywhere(model: BertForPreTraining, batch: dict[str, jax.Array]) -> jax.Array:
    states = model.encoder(batch, deterministic=True)
    return model.language_model(states, model.encoder.word_embedding_table())
