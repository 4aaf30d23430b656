"""The models that objectives pretrain, but for those of ELECTRA and SpanBERT."""

from typing import TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.model.encoder import Encoder, JoinedEncoder, make_encoder
from bert_jax.model.heads import LanguageModelHead, NextSentenceHead, Pooler
from bert_jax.model.masked_tokens import fill_in
from bert_jax.model.packed_rows import instance_starts
from bert_jax.model.sampling import choose_sequences
from bert_jax.model_config import ModelConfig
from bert_jax.task import Batch

Logits: TypeAlias = tuple[jax.Array, jax.Array]
"""float32 logits of the language model, [B, P, V], and of next sentence prediction, [B, 2], or [B, K, 2]
for a packed batch."""


class BertForPreTraining(nn.Module):
    """BERT with its pretraining heads, which predict the masked tokens and the next sentence.

    The parameters are the same whatever is trained, so that a checkpoint of one objective can start another;
    an objective without next sentence prediction leaves the pooler and the next sentence head as initialised.
    """

    config: ModelConfig

    def setup(self) -> None:
        self.encoder = make_encoder(self.config)
        self.pooler = Pooler(self.config)
        self.language_model = LanguageModelHead(self.config)
        self.next_sentence = NextSentenceHead(self.config)

    def __call__(self, batch: Batch, deterministic: bool) -> Logits:
        """Logits of both heads.

        Args:
          batch: int `input_ids`, `input_mask`, `segment_ids` [B, T] and `masked_lm_positions`
            [B, P]; in a packed batch also `instance_starts` [B, K]. Other keys are ignored.
          deterministic: False applies dropout, which needs a "dropout" key.
        """
        predicting, cls = self.encode(batch, deterministic)
        logits = self.language_model(predicting, self.encoder.word_embedding_table())
        return logits, self.next_sentence(self.pooler(cls))

    def encode(self, batch: Batch, deterministic: bool) -> tuple[jax.Array, jax.Array]:
        """Hidden states to predict tokens from, [B, P, D], and those of [CLS], [B, D], or [B, K, D] for a
        packed batch."""
        # The heads read only [CLS] and the masked positions, so the last layer computes no others.
        starts_BK = instance_starts(batch)
        columns = jnp.concatenate([starts_BK, batch["masked_lm_positions"]], axis=1)
        states_BQD = self.encoder(batch, deterministic, columns)
        if "instance_starts" not in batch:
            return states_BQD[:, 1:], states_BQD[:, 0]
        cls_BKD, predicting_BPD = jnp.split(states_BQD, [starts_BK.shape[1]], axis=1)
        return predicting_BPD, cls_BKD


class BertForNextTokens(BertForPreTraining):
    """As `BertForPreTraining`, but the language model predicts the next token of each position.

    Its logits are [B, T - 1, V]. Reads no `masked_lm_positions`. With anticausal attention the next token is
    the one to the left.
    """

    def encode(self, batch: Batch, deterministic: bool) -> tuple[jax.Array, jax.Array]:
        """As in the base class, with every position but the last to predict from, [B, T - 1, D]."""
        sequence_BTD = self.encoder(batch, deterministic)
        is_reversed = self.config.attention == "anticausal"
        predicting = sequence_BTD[:, 1:] if is_reversed else sequence_BTD[:, :-1]
        if "instance_starts" not in batch:
            return predicting, sequence_BTD[:, 0]
        return predicting, jnp.take_along_axis(sequence_BTD, batch["instance_starts"][..., None], axis=1)


class BertForCausalThenMasked(BertForNextTokens):
    """Predicts the next token of each position, causally, where a batch has no slots for masked tokens; the
    masked tokens where it has."""

    def encode(self, batch: Batch, deterministic: bool) -> tuple[jax.Array, jax.Array]:
        """As in `BertForPreTraining`; without slots as in `BertForNextTokens`."""
        if batch["masked_lm_positions"].shape[-1]:
            return BertForPreTraining.encode(self, batch, deterministic)
        return super().encode({**batch, "is_causal": jnp.ones(batch["input_ids"].shape, bool)}, deterministic)


class HybridModel(nn.Module):
    """Predicts tokens from the position before them, in some sequences causally (`objectives/hybrid.py`)."""

    config: ModelConfig
    causal_fraction: float
    """Fraction of the sequences that are read causally, without masks."""

    def setup(self) -> None:
        self.encoder = Encoder(self.config)
        self.next_token = LanguageModelHead(self.config)

    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        """float32 logits [B, T - 1, V] of the tokens after each position.

        Args:
          batch: as of `BertForPreTraining`, with `masked_lm_ids` and `masked_lm_weights` [B, P].
          deterministic: False applies dropout, which needs a "dropout" key.
        """
        is_causal = choose_sequences(batch, self.causal_fraction)
        input_ids = jnp.where(is_causal, fill_in(batch, batch["masked_lm_ids"]), batch["input_ids"])
        read = {**batch, "input_ids": input_ids, "is_causal": is_causal}
        states_BTD = self.encoder(read, deterministic)
        return self.next_token(states_BTD[:, :-1], self.encoder.word_embedding_table())


class JoinedLanguageModel(nn.Module):
    """Predicts the next token from those to its left, and the one before from those to its right
    (`objectives/ltr_rtl.py`). The two directions share embeddings and head, as in ELMo."""

    config: ModelConfig

    def setup(self) -> None:
        self.encoder = JoinedEncoder(self.config)
        self.neighbour_token = LanguageModelHead(self.config.stacks[0])

    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        """float32 logits [B, 2 x (T - 1), V]: of the tokens after each position but the last, and then of
        those before each position but the first.

        Args:
          batch: int `input_ids`, `input_mask` and `segment_ids` [B, T]; in a packed batch also
            `instance_starts` [B, K]. Other keys are ignored.
          deterministic: False applies dropout, which needs a "dropout" key.
        """
        left, right = self.encoder.each(batch, deterministic)
        states = jnp.concatenate([left[:, :-1], right[:, 1:]], axis=1)
        return self.neighbour_token(states, self.encoder.word_embedding_table())
