"""A discriminator and its generator (Clark et al. 2020, "ELECTRA", arXiv 2003.10555, section 2).

Shapes: B batch, T length, D hidden, E embedding width, P predictions, V vocabulary.
"""

from typing import NamedTuple

import flax.linen as nn
import jax

from bert_jax.model.encoder import Encoder
from bert_jax.model.heads import LanguageModelHead, ReplacedTokenHead
from bert_jax.model.masked_tokens import fill_in
from bert_jax.model.sampling import sample
from bert_jax.model_config import GeneratorEmbeddings, ModelConfig
from bert_jax.task import Batch


class Detection(NamedTuple):
    """What generator and discriminator say of a batch."""

    token_logits: jax.Array
    """float32 [B, P, V]: the generator's, of the masked tokens."""
    replaced_logits: jax.Array
    """float32 [B, T]: the discriminator's, of each token having been replaced."""
    is_replaced: jax.Array
    """bool [B, T]: whether it was; False where the generator drew the token that had been there."""


class Generator(nn.Module):
    """A masked language model with embeddings of its own or those of another encoder."""

    config: ModelConfig

    def setup(self) -> None:
        self.encoder = Encoder(self.config)
        self.language_model = LanguageModelHead(self.config)

    def __call__(self, batch: Batch, deterministic: bool, shared: Encoder | None) -> jax.Array:
        """float32 logits [B, P, V] at `masked_lm_positions`; `shared` is the encoder with its embeddings."""
        embedded_BTE = None if shared is None else shared.embeddings(batch, deterministic)
        states_BPD = self.encoder(batch, deterministic, batch["masked_lm_positions"], embedded_BTE)
        return self.language_model(states_BPD, (shared or self.encoder).word_embedding_table())


class ReplacedTokenModel(nn.Module):
    """The generator fills in the masked tokens; the discriminator says which tokens are not the text's.

    The discriminator is `encoder` and `replaced_token`.
    """

    config: ModelConfig
    """Of the discriminator."""
    generator_config: ModelConfig
    embeddings: GeneratorEmbeddings
    """Whether the generator has the discriminator's, with their normalization, or its own."""

    def setup(self) -> None:
        self.encoder = Encoder(self.config)
        self.generator = Generator(self.generator_config)
        self.replaced_token = ReplacedTokenHead(self.config)

    def __call__(self, batch: Batch, deterministic: bool) -> Detection:
        """What both say of a batch.

        Args:
          batch: int `input_ids`, `input_mask`, `segment_ids` [B, T], `masked_lm_positions`,
            `masked_lm_ids` and float32 `masked_lm_weights` [B, P]; in a packed batch also `instance_starts`
            [B, K]. Other keys are ignored.
          deterministic: False applies dropout, which needs a "dropout" key.

        Samples come from the stream "sampling"; without it, always from the same key.
        """
        shared = self.encoder if self.embeddings == "shared" else None
        logits_BPV = self.generator(batch, deterministic, shared)
        key = self.make_rng("sampling") if self.has_rng("sampling") else jax.random.key(0)
        sampled_BP = sample(jax.lax.stop_gradient(logits_BPV), batch, key)
        original_BT = fill_in(batch, batch["masked_lm_ids"])
        filled_BT = fill_in(batch, sampled_BP)
        states_BTD = self.encoder({**batch, "input_ids": filled_BT}, deterministic)
        return Detection(logits_BPV, self.replaced_token(states_BTD), filled_BT != original_BT)
