"""The model that is pretrained: encoder, pooler, language model head and next sentence head."""

import functools
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ModelConfig
from bert_jax.model.encoder import Encoder
from bert_jax.model.heads import LanguageModelHead, NextSentenceHead, Pooler
from bert_jax.task import Batch


class BertForPreTraining(nn.Module):
    """BERT with its pretraining heads.

    All objectives have the same parameters, so that a checkpoint of one can start another; an objective
    without next sentence prediction leaves the pooler and the next sentence head as initialised.
    """

    config: ModelConfig

    def setup(self) -> None:
        self.encoder = Encoder(self.config)
        self.pooler = Pooler(self.config)
        self.language_model = LanguageModelHead(self.config)
        self.next_sentence = NextSentenceHead(self.config)

    def __call__(self, batch: Batch, deterministic: bool) -> tuple[jax.Array, jax.Array]:
        """Logits of both heads.

        Args:
          batch: int `input_ids`, `input_mask`, `segment_ids` [B, T] and `masked_lm_positions`
            [B, P]; in a packed batch also `instance_starts` [B, K]. Other keys are ignored.
          deterministic: False applies dropout, which needs a "dropout" key.

        Returns:
          float32 language model logits [B, P, V] at the masked positions, or [B, T-1, V] for the
          left-to-right objective, where position t predicts token t + 1; and float32 next
          sentence logits [B, 2], or [B, K, 2] for a packed batch.
        """
        if "instance_starts" in batch:
            predicting, pooling = self._encode_packed(batch, deterministic)
        elif self.config.learns.predicts == "next_tokens":
            pooling = self.encoder(batch, deterministic)
            predicting = pooling[:, :-1]
        else:
            # The heads read only [CLS] and the masked positions, so the last layer computes no others.
            positions = jnp.pad(batch["masked_lm_positions"], ((0, 0), (1, 0)))
            pooling = self.encoder(batch, deterministic, positions)
            predicting = pooling[:, 1:]
        logits = self.language_model(predicting, self.encoder.word_embedding_table())
        return logits, self.next_sentence(self.pooler(pooling))

    def _encode_packed(self, batch: Batch, deterministic: bool) -> tuple[jax.Array, jax.Array]:
        """Hidden states to predict tokens from, [B, P or T-1, D], and those of each [CLS], [B, K, 1, D]."""
        starts = batch["instance_starts"]
        if self.config.learns.predicts == "next_tokens":
            sequence_BTD = self.encoder(batch, deterministic)
            cls_BKD = jnp.take_along_axis(sequence_BTD, starts[..., None], axis=1)
            return sequence_BTD[:, :-1], cls_BKD[:, :, None]
        positions = jnp.concatenate([starts, batch["masked_lm_positions"]], axis=1)
        states_BQD = self.encoder(batch, deterministic, positions)
        cls_BKD, predicting = jnp.split(states_BQD, [starts.shape[1]], axis=1)
        return predicting, cls_BKD[:, :, None]


def abstract_params(config: ModelConfig) -> Mapping[str, Any]:
    """Shapes and dtypes of all parameters of a model; computes nothing."""
    ids = jnp.zeros((1, 2), jnp.int32)
    batch = dict.fromkeys(("input_ids", "input_mask", "segment_ids", "masked_lm_positions"), ids)
    init = functools.partial(BertForPreTraining(config).init, deterministic=True)
    return jax.eval_shape(init, jax.random.key(0), batch)["params"]
