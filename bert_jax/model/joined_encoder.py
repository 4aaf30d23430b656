"""An encoder that reads left to right and right to left, without either seeing the other (Peters et al. 2018,
"Deep contextualized word representations", arXiv 1802.05365: ELMo; Devlin et al. 2019, section 5.1).

Shapes: B batch, T length, D hidden, E embedding width.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.model.encoder import Embeddings, Encoder
from bert_jax.model_config import ModelConfig
from bert_jax.task import Batch

STACKS = ("left_to_right", "right_to_left")
"""Names of the two, in the order of `ModelConfig.stacks`."""


def make_encoder(config: ModelConfig, name: str | None = None) -> "Encoder | JoinedEncoder":
    """The encoder that `config.attention` asks for."""
    return (JoinedEncoder if config.attention == "joined" else Encoder)(config, name=name)


class JoinedEncoder(nn.Module):
    """Two encoders on the same embeddings, one causal and one anticausal, whose outputs are concatenated.

    Methods are those of `Encoder`, and so are the shapes: each of the two has half of D.
    """

    config: ModelConfig

    def setup(self) -> None:
        self.embeddings = Embeddings(self.config)
        self.stacks = [
            Encoder(config, name=name) for config, name in zip(self.config.stacks, STACKS, strict=True)
        ]

    def __call__(self, batch: Batch, deterministic: bool, columns: jax.Array | None = None) -> jax.Array:
        """[B, T, D], or [B, Q, D] with `columns`; as `Encoder`."""
        states = self.each(batch, deterministic, columns)
        return jnp.concatenate(states, axis=-1)

    def each(
        self, batch: Batch, deterministic: bool, columns: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """What each of the two gives, [B, T, D / 2] or [B, Q, D / 2]."""
        embedded_BTE = self.embeddings(batch, deterministic)
        left, right = (stack(batch, deterministic, columns, embedded_BTE) for stack in self.stacks)
        return left, right

    def hidden_states(self, batch: Batch, deterministic: bool) -> list[jax.Array]:
        """As `Encoder.hidden_states`."""
        embedded_BTE = self.embeddings(batch, deterministic)
        each = [stack.hidden_states(batch, deterministic, embedded_BTE) for stack in self.stacks]
        return [jnp.concatenate(states, axis=-1) for states in zip(*each, strict=True)]

    def word_embedding_table(self) -> jax.Array:
        """float32 [vocab_size, E]: the table that the language model head shares."""
        return self.embeddings.word_embeddings.embedding
