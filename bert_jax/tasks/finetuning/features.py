"""What a head sees of the encoder: some of its layers, and optionally a BiLSTM on top of them.

The feature-based approach (Devlin et al. 2019, section 5.3 and Table 7) and the BiLSTM row of Table 5.
"""

from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.finetuning_config import Combination, FineTuningConfig
from bert_jax.model.encoder import make_encoder
from bert_jax.model.heads import Pooler
from bert_jax.model.packed_rows import instance_masks, instance_starts, is_instance
from bert_jax.model_config import ModelConfig
from bert_jax.task import Batch
from data_pipeline.tasks.finetuning.rows import FEATURES


def sequence_features(config: FineTuningConfig, batch: Batch, deterministic: bool) -> jax.Array:
    """[B, T, width] in the model's dtype: the features of every position of a batch.

    To be called in a compact module, which gets the parameters: `encoder`, and those of new layers.
    """
    features = config.features
    x = _combine(_layers(config, batch, deterministic), features.combine)
    for number in range(features.lstm_layers):
        x = _bidirectional_lstm(x, batch, features.lstm_width, f"lstm_{number}")
    return x.astype(config.model.dtype)


def token_features(config: FineTuningConfig, batch: Batch, deterministic: bool) -> jax.Array:
    """As `sequence_features`, for a head that sees every token: where the pooler is one for all of them, the
    last layer alone passes through it."""
    sequence_BTW = sequence_features(config, batch, deterministic)
    if config.model.pooler == "transform" and config.features.are_plain(config.model.num_layers):
        return Pooler(config.encoder, name="pooler")(sequence_BTW)
    return sequence_BTW


def pooled_features(config: FineTuningConfig, batch: Batch, deterministic: bool) -> jax.Array:
    """[B x K, width] in the model's dtype: one vector for each instance of a batch (`model/packed_rows.py`).

    - The last layer alone, as in fine-tuning: the pretrained pooler's output at [CLS].
    - Other layers, or several: their states at [CLS], without the pooler, which was trained on the
      last layer.
    - With a BiLSTM: the concatenation of its forward state at the last token and its backward state at
      the first, each of which has read the whole sequence.

    In a left-to-right model [CLS] has seen no text; the last token takes its place, as in GPT. In a
    right-to-left one [CLS] has seen all. Where the two are joined, each half of the vector comes from where
    its direction has seen all.

    To be called as `sequence_features`.
    """
    features, encoder = config.features, config.encoder
    if features.are_plain(encoder.num_layers):
        return Pooler(encoder, name="pooler")(_last_layer(encoder, batch, deterministic))
    sequence_BTW = sequence_features(config, batch, deterministic)
    first, last = (
        _at(sequence_BTW, columns).reshape(-1, sequence_BTW.shape[-1])
        for columns in (instance_starts(batch), _last_tokens(batch))
    )
    if features.lstm_layers:
        return _one_each(last, first, features.lstm_width)
    return _where_all_is_seen(encoder, first, last)


class LayerWeights(nn.Module):
    """A weighted sum of arrays of the same shape; its softmax weights and a scale are learned."""

    @nn.compact
    def __call__(self, states: list[jax.Array]) -> jax.Array:
        weights = nn.softmax(self.param("weights", nn.initializers.zeros, (len(states),)))
        scale = self.param("scale", nn.initializers.ones, ())
        return scale * sum(w * x for w, x in zip(weights, states, strict=True))


def _layers(config: FineTuningConfig, batch: Batch, deterministic: bool) -> list[jax.Array]:
    """[B, T, D] of each layer that the head sees: computed before, or now."""
    if FEATURES in batch:
        return [batch[FEATURES][:, :, number] for number in range(len(config.features.layers))]
    states = make_encoder(config.encoder, "encoder").hidden_states(batch, deterministic)
    return [states[layer] for layer in config.features.layers]


def _last_layer(config: ModelConfig, batch: Batch, deterministic: bool) -> jax.Array:
    """[B x K, D]: the last layer at the positions to pool, and computed only there."""
    first, last = instance_starts(batch), _last_tokens(batch)
    joined = jnp.concatenate([first, last], axis=1)
    columns = {"causal": last, "joined": joined}.get(config.attention, first)
    if FEATURES in batch:
        states = _at(batch[FEATURES][:, :, 0], columns)
    else:
        states = make_encoder(config, "encoder")(batch, deterministic, columns)
    if config.attention == "joined":
        states = _where_all_is_seen(config, *jnp.split(states, 2, axis=1))
    return states.reshape(-1, states.shape[-1])


def _last_tokens(batch: Batch) -> jax.Array:
    """int32 [B, K]: the column of each instance's last token; 0 for an empty instance."""
    return (instance_masks(batch) * jnp.arange(batch["input_ids"].shape[-1])).max(axis=-1)


def _at(sequence_BTW: jax.Array, columns_BK: jax.Array) -> jax.Array:
    """[B, K, W]: the vectors in the given columns of each line."""
    return jnp.take_along_axis(sequence_BTW, columns_BK[..., None], axis=1)


def _where_all_is_seen(config: ModelConfig, first: jax.Array, last: jax.Array) -> jax.Array:
    """Of states of an instance's first and last token, [..., W], what has read the whole instance."""
    match config.attention:
        case "causal":
            return last
        case "joined":
            return _one_each(last, first, config.hidden_size // 2)
        case "bidirectional" | "anticausal":
            return first


def _one_each(forward: jax.Array, backward: jax.Array, width: int) -> jax.Array:
    """[..., W]: vectors of `width` alternate between two directions, of which each has its own array."""
    pairs = (*forward.shape[:-1], -1, 2, width)
    chosen = jnp.stack([forward.reshape(pairs)[..., 0, :], backward.reshape(pairs)[..., 1, :]], axis=-2)
    return chosen.reshape(forward.shape)


def _combine(states: list[jax.Array], combination: Combination) -> jax.Array:
    match combination:
        case "concat":
            return jnp.concatenate(states, axis=-1)
        case "sum":
            return sum(states[1:], start=states[0])
        case "weighted":
            return LayerWeights(name="layer_weights")(states)
        case "each":
            (alone,) = states
            return alone


class _InstanceLSTMCell(nn.OptimizedLSTMCell):
    """An LSTM cell that begins anew where the last of its inputs' channels is 1."""

    def __call__(self, carry: Any, inputs: jax.Array) -> Any:
        begins = inputs[..., -1:]
        carry = jax.tree.map(lambda state: state * (1 - begins), carry)
        return super().__call__(carry, inputs[..., :-1])


def _bidirectional_lstm(x_BTW: jax.Array, batch: Batch, width: int, name: str) -> jax.Array:
    """[B, T, 2 x width]: the states of both directions, which read one instance at a time and no padding."""

    def read(direction: str, first_BK: jax.Array) -> jax.Array:
        is_first_BKT = first_BK[..., None] == jnp.arange(x_BTW.shape[1])
        begins_BT = (is_first_BKT & is_instance(batch)[..., None]).any(axis=1)
        cell = _InstanceLSTMCell(width, name=f"{name}_{direction}")
        rnn = nn.RNN(cell, reverse=direction == "backward", keep_order=True)
        inputs = jnp.concatenate([x_BTW, begins_BT[..., None].astype(x_BTW.dtype)], axis=-1)
        return cast(jax.Array, rnn(inputs))

    forward, backward = read("forward", instance_starts(batch)), read("backward", _last_tokens(batch))
    return jnp.concatenate([forward, backward], axis=-1)
