"""A masked language model that also predicts masked spans from the tokens around them (Joshi et al. 2020,
"SpanBERT", arXiv 1907.10529, section 3.2).

Shapes: B batch, T length, D hidden, E embedding width, P predictions, V vocabulary.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.model.encoder import Encoder
from bert_jax.model.heads import LanguageModelHead, SpanBoundaryHead
from bert_jax.model_config import ModelConfig
from bert_jax.task import Batch


class SpanPredictions(NamedTuple):
    """float32 logits of the masked tokens, [B, P, V]."""

    token_logits: jax.Array
    """From each token's own position."""
    boundary_logits: jax.Array
    """From the two tokens around its span."""


class SpanBoundaryModel(nn.Module):
    """Encoder, language model head and span boundary head."""

    config: ModelConfig

    def setup(self) -> None:
        self.encoder = Encoder(self.config)
        self.language_model = LanguageModelHead(self.config)
        self.span_boundary = SpanBoundaryHead(self.config)

    def __call__(self, batch: Batch, deterministic: bool) -> SpanPredictions:
        """Logits of both heads.

        Args:
          batch: int `input_ids`, `input_mask`, `segment_ids` [B, T], `masked_lm_positions` and float32
            `masked_lm_weights` [B, P]; in a packed batch also `instance_starts` [B, K]. Other keys are
            ignored.
          deterministic: False applies dropout, which needs a "dropout" key.
        """
        positions_BP = batch["masked_lm_positions"]
        first_BP, last_BP = span_ends(batch)
        columns = jnp.concatenate([positions_BP, first_BP - 1, last_BP + 1], axis=1)
        own_BPD, left_BPD, right_BPD = jnp.split(self.encoder(batch, deterministic, columns), 3, axis=1)
        table = self.encoder.word_embedding_table()
        places_BP = jnp.maximum(positions_BP - first_BP, 0)
        boundary_logits = self.span_boundary(left_BPD, right_BPD, places_BP, table)
        return SpanPredictions(self.language_model(own_BPD, table), boundary_logits)


def span_ends(batch: Batch) -> tuple[jax.Array, jax.Array]:
    """The first and the last position, int [B, P] each, of the span that each masked token is part of.

    A span is a run of adjacent masked positions, so that the tokens beside it are never masked; where the
    text begins or ends, they are special tokens. Slots without weight give 1 and 1.
    """
    used_BP = batch["masked_lm_weights"] > 0
    beyond = jnp.iinfo(jnp.int32).max
    positions_BP = jnp.where(used_BP, batch["masked_lm_positions"], beyond)
    is_apart = jnp.diff(positions_BP, axis=1) != 1
    begins_BP = jnp.pad(is_apart, ((0, 0), (1, 0)), constant_values=True)
    ends_BP = jnp.pad(is_apart, ((0, 0), (0, 1)), constant_values=True)
    # Positions ascend.
    first_BP = jax.lax.cummax(jnp.where(begins_BP, positions_BP, 0), axis=1)
    last_BP = jax.lax.cummin(jnp.where(ends_BP, positions_BP, beyond), axis=1, reverse=True)
    return jnp.where(used_BP, first_BP, 1), jnp.where(used_BP, last_BP, 1)
