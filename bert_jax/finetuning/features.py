"""What a head sees of the encoder: some of its layers, and perhaps a BiLSTM on them.

The feature-based approach (Devlin et al. 2019, section 5.3 and Table 7) and the BiLSTM row of Table 5.
"""

from typing import cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ModelConfig
from bert_jax.finetuning.settings import Combination, FeatureConfig
from bert_jax.model.encoder import Encoder
from bert_jax.model.heads import Pooler
from bert_jax.task import Batch


def sequence_features(
    config: ModelConfig, features: FeatureConfig, batch: Batch, deterministic: bool
) -> jax.Array:
    """[B, T, width] in the compute type for the sequences of a batch.

    To be called in a compact module, whose parameters its own become: `encoder`, and what is new.
    """
    encoder = Encoder(config, name="encoder")
    inputs = (batch["input_ids"], batch["input_mask"], batch["segment_ids"])
    if features.layers == (-1,):
        states = [encoder(*inputs, deterministic)]
    else:
        every = encoder.hidden_states(*inputs, deterministic)
        states = [every[layer] for layer in features.layers]
    x = _combine(states, features.combine)
    for number in range(features.lstm_layers):
        lstm = _bidirectional(features.lstm_width, number)
        x = cast(jax.Array, lstm(x, seq_lengths=batch["input_mask"].sum(-1)))
    return x.astype(config.dtype)


def pooled_features(
    config: ModelConfig, features: FeatureConfig, batch: Batch, deterministic: bool
) -> jax.Array:
    """[B, width] in the compute type: one vector for each sequence of a batch.

    - The last layer alone, as in fine-tuning: the pretrained pooler on [CLS].
    - Other layers, or several: what they say at [CLS], without the pooler, which was trained on the
      last layer.
    - With a BiLSTM: its forward direction at the last token beside its backward direction at the
      first, each of which has read the whole sequence.

    In a left-to-right model [CLS] has seen nothing; the last token takes its place, as in GPT.

    To be called as `sequence_features`.
    """
    if features == FeatureConfig():
        return Pooler(config, name="pooler")(_last_layer(config, batch, deterministic))
    sequence_BTW = sequence_features(config, features, batch, deterministic)
    if features.lstm_layers:
        forward, backward = jnp.split(sequence_BTW, 2, axis=-1)
        return jnp.concatenate([_at_last_token(forward, batch)[:, 0], backward[:, 0]], axis=-1)
    if config.attention == "bidirectional":
        return sequence_BTW[:, 0]
    return _at_last_token(sequence_BTW, batch)[:, 0]


class LayerWeights(nn.Module):
    """A weighted sum of arrays of one shape; softmax weights and a scale are learnt."""

    @nn.compact
    def __call__(self, states: list[jax.Array]) -> jax.Array:
        weights = nn.softmax(self.param("weights", nn.initializers.zeros, (len(states),)))
        scale = self.param("scale", nn.initializers.ones, ())
        return scale * sum(w * x for w, x in zip(weights, states, strict=True))


def _last_layer(config: ModelConfig, batch: Batch, deterministic: bool) -> jax.Array:
    """[B, 1, D]: the last layer where it is pooled; at [CLS] it is computed there alone."""
    inputs = (batch["input_ids"], batch["input_mask"], batch["segment_ids"])
    encoder = Encoder(config, name="encoder")
    if config.attention == "bidirectional":
        return encoder(*inputs, deterministic, jnp.zeros((inputs[0].shape[0], 1), jnp.int32))
    return _at_last_token(encoder(*inputs, deterministic), batch)


def _at_last_token(sequence_BTW: jax.Array, batch: Batch) -> jax.Array:
    """[B, 1, W]; of an empty sequence, what is at its first position."""
    last = jnp.maximum(batch["input_mask"].sum(-1) - 1, 0)
    return jnp.take_along_axis(sequence_BTW, last[:, None, None], axis=1)


def _combine(states: list[jax.Array], combination: Combination) -> jax.Array:
    match combination:
        case "concat":
            return jnp.concatenate(states, axis=-1)
        case "sum":
            return sum(states[1:], start=states[0])
        case "weighted":
            return LayerWeights(name="layer_weights")(states)


def _bidirectional(width: int, number: int) -> nn.Bidirectional:
    # Given the lengths of sequences, the backward direction begins at the last real token.
    forward, backward = (
        nn.RNN(nn.OptimizedLSTMCell(width, name=f"lstm_{number}_{direction}"))
        for direction in ("forward", "backward")
    )
    return nn.Bidirectional(forward, backward)
