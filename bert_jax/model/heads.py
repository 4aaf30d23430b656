"""Modules on top of the encoder: pooler (of fine-tuning too), language model head, next sentence head,
replaced token head, span boundary head.

Shapes: B batch, T length, D hidden, E embedding width, P predictions, V vocabulary,
N copies of the word embeddings.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.model.feed_forward import activation, gelu_exact
from bert_jax.model.linear import Linear, initializer
from bert_jax.model.normalization import make_norm
from bert_jax.model.size import SPAN_POSITION_WIDTH, SPAN_POSITIONS
from bert_jax.model.word_embeddings import multiply_by_words
from bert_jax.model_config import ModelConfig


class Pooler(nn.Module):
    """A linear layer and what `ModelConfig.pooler` names, [..., D] for states of [CLS], [..., D].

    BERT's is tanh (modeling.py:219).
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = Linear(self.config, (self.config.hidden_size,), name="dense")(x)
        match self.config.pooler:
            case "tanh":
                return jnp.tanh(x)
            case "gelu_exact":
                return gelu_exact(x)
            case "relu":
                return nn.relu(x)
            case "transform":
                return make_norm(self.config, "layer_norm")(activation(self.config, x))


class LanguageModelHead(nn.Module):
    """Logits of all vocabulary ids at some positions (run_pretraining.py:240).

    Dense to the width of the embeddings, activation and normalization (in BERT, GELU and LayerNorm), then a
    product with the word embeddings and a bias of its own.
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, x_BPD: jax.Array, embeddings_NVE: jax.Array) -> jax.Array:
        """float32 logits [B, P, V] for hidden states [B, P, D] and `WordEmbeddings.copies_NVE`."""
        width = self.config.embedding_width
        x_BPE = activation(self.config, Linear(self.config, (width,), name="dense")(x_BPD))
        x_BPE = make_norm(self.config, "layer_norm")(x_BPE)
        bias_V = self.param("bias", nn.initializers.zeros, (self.config.vocab_size,))
        logits = multiply_by_words(x_BPE.reshape(-1, width), embeddings_NVE)
        return _add_bias(logits, bias_V).reshape(*x_BPE.shape[:-1], -1)


@jax.custom_vjp
def _add_bias(logits_MV: jax.Array, bias_V: jax.Array) -> jax.Array:
    """The sum, with a gradient of its own."""
    return logits_MV + bias_V


def _bias_gradients(_: None, gradients_MV: jax.Array) -> tuple[jax.Array, jax.Array]:
    # On CPU, XLA's sum over the rows of so wide an array takes more than ten times as long as a product.
    bias = jax.lax.platform_dependent(
        gradients_MV,
        cpu=lambda gradients: jnp.ones(len(gradients), gradients.dtype) @ gradients,
        default=lambda gradients: gradients.sum(0),
    )
    return gradients_MV, bias


_add_bias.defvjp(lambda logits_MV, bias_V: (logits_MV + bias_V, None), _bias_gradients)


class NextSentenceHead(nn.Module):
    """float32 logits [..., 2] of "B follows A" (0) and "B is random" (1) from pooled vectors [..., D]."""

    config: ModelConfig

    @nn.compact
    def __call__(self, pooled: jax.Array) -> jax.Array:
        return Linear(self.config, (2,), result=jnp.float32, name="dense")(pooled)


class ReplacedTokenHead(nn.Module):
    """float32 logits [..., T] of "this token was replaced" from hidden states [..., T, D]."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x_TD: jax.Array) -> jax.Array:
        x_TD = activation(self.config, Linear(self.config, (self.config.hidden_size,), name="dense")(x_TD))
        return Linear(self.config, (1,), result=jnp.float32, name="prediction")(x_TD).squeeze(-1)


class SpanBoundaryHead(nn.Module):
    """Logits of masked tokens from the tokens around their spans (SpanBERT, section 3.2).

    Dense, activation and normalization, and then a language model head, which is a second such layer and a
    product with the word embeddings.
    """

    config: ModelConfig

    @nn.compact
    def __call__(
        self, left_BPD: jax.Array, right_BPD: jax.Array, places_BP: jax.Array, embeddings_NVE: jax.Array
    ) -> jax.Array:
        """float32 logits [B, P, V].

        Args:
          left_BPD, right_BPD: hidden states of the tokens before and after each masked token's span.
          places_BP: int, tokens of the span that are before the masked one; from `SPAN_POSITIONS` on all
            places have the last embedding.
          embeddings_NVE: `WordEmbeddings.copies_NVE`.
        """
        config = self.config
        embed = nn.Embed(
            SPAN_POSITIONS, SPAN_POSITION_WIDTH, embedding_init=initializer(config), name="positions"
        )
        positions = embed(jnp.minimum(places_BP, SPAN_POSITIONS - 1)).astype(config.dtype)
        around = jnp.concatenate([left_BPD, right_BPD, positions], axis=-1)
        x_BPD = activation(config, Linear(config, (config.hidden_size,), name="dense")(around))
        x_BPD = make_norm(config, "layer_norm")(x_BPD)
        return LanguageModelHead(config, name="language_model")(x_BPD, embeddings_NVE)
