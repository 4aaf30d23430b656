"""The BERT encoder: embeddings and post-LN transformer layers (google-research/bert modeling.py).

Shapes: B batch, T length, D hidden, N heads, K head width, F feed-forward width.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bert_jax.config import ModelConfig
from bert_jax.model.attention import Attention, attention_bias
from bert_jax.model.dropout import Dropout
from bert_jax.model.linear import Linear, initializer
from bert_jax.model.packed_rows import instances_of
from bert_jax.task import Batch

LAYER_INPUT = "layer_input"
"""Name of the values that are enough to compute a layer again (`ParallelConfig.remat`)."""


def activation(config: ModelConfig, x: jax.Array) -> jax.Array:
    """GELU, by its tanh approximation or exact."""
    return nn.gelu(x, approximate=config.activation == "gelu_tanh")


def layer_norm(config: ModelConfig, name: str) -> nn.LayerNorm:
    """LayerNorm over the last axis, its statistics in float32.

    The variance is the mean squared deviation. For bfloat16 activations, whose own rounding is far
    coarser, it is the mean square minus the squared mean, which needs only one pass.
    """
    one_pass = config.dtype == "bfloat16"
    return nn.LayerNorm(
        epsilon=config.layer_norm_epsilon, dtype=config.dtype, use_fast_variance=one_pass, name=name
    )


class Embeddings(nn.Module):
    """Word + position + segment embeddings, LayerNorm, dropout.

    Embeddings are added in float32, and so are the gradients of each table row: a frequent token's
    gradient is a sum of thousands.
    """

    config: ModelConfig

    def setup(self) -> None:
        embed = functools.partial(
            nn.Embed,
            features=self.config.hidden_size,
            embedding_init=initializer(self.config),
        )
        self.word_embeddings = embed(self.config.vocab_size)
        self.position_embeddings = embed(self.config.max_position_embeddings)
        self.segment_embeddings = embed(self.config.type_vocab_size)
        self.layer_norm = layer_norm(self.config, "layer_norm")
        self.dropout = Dropout(self.config.dropout_rate)

    def __call__(
        self,
        input_ids: jax.Array,
        segment_ids: jax.Array,
        deterministic: bool,
        instances: jax.Array | None,
    ) -> jax.Array:
        positions = jnp.arange(input_ids.shape[-1])
        if instances is not None:
            # Padding after the last instance may be further from its start than the table has positions.
            positions = jnp.minimum(positions - instances, self.config.max_position_embeddings - 1)
        x_BTD = self.word_embeddings(input_ids) + self.segment_embeddings(segment_ids)
        x_BTD = self.layer_norm(x_BTD + self.position_embeddings(positions))
        return self.dropout(x_BTD, deterministic)


class Layer(nn.Module):
    """One transformer layer, post-LN: `LN(x + dropout(sublayer(x)))` twice.

    Args:
      queries_BQD: [B, Q, D] in `config.dtype`, the positions whose outputs are wanted.
      x_BTD: [B, T, D], the positions that they attend to.
      bias: float32, added to the scores, from `attention_bias`.

    Returns:
      [B, Q, D] in `config.dtype`.
    """

    config: ModelConfig

    @nn.compact
    def __call__(
        self, queries_BQD: jax.Array, x_BTD: jax.Array, bias: jax.Array, deterministic: bool
    ) -> jax.Array:
        config = self.config
        attended = Attention(config, name="attention")(queries_BQD, x_BTD, bias, deterministic)
        attended = Dropout(config.dropout_rate)(attended, deterministic)
        x_BQD = layer_norm(config, "attention_layer_norm")(queries_BQD + attended)

        wide_BQF = Linear(config, (config.intermediate_size,), name="intermediate")(x_BQD)
        narrow_BQD = Linear(config, (config.hidden_size,), name="output")(activation(config, wide_BQF))
        narrow_BQD = Dropout(config.dropout_rate)(narrow_BQD, deterministic)
        return layer_norm(config, "output_layer_norm")(x_BQD + narrow_BQD)


class Encoder(nn.Module):
    """Embeddings and `num_layers` layers.

    Reads from a batch int `input_ids`, `input_mask` (1 for real tokens, 0 for padding) and `segment_ids`
    (0 for segment A, 1 for segment B), [B, T] each. A packed batch also has `instance_starts` [B, K]
    (`packed_rows.py`): attention then stays inside an instance, and positions count from its beginning.
    Other keys are ignored.
    """

    config: ModelConfig

    def setup(self) -> None:
        self.embeddings = Embeddings(self.config)
        self.layers = [Layer(self.config, name=f"layer_{i}") for i in range(self.config.num_layers)]

    def __call__(self, batch: Batch, deterministic: bool, positions: jax.Array | None = None) -> jax.Array:
        """Hidden states of the last layer, everywhere or at some positions.

        Args:
          batch: with the keys above.
          deterministic: False applies dropout, which needs a "dropout" key.
          positions: int [B, Q] or None for all. Everything in the last layer but its keys and
            values is then computed for these positions alone, which saves most of that layer.

        Returns:
          [B, T, D] in `config.dtype`, or [B, Q, D] with `positions`.
        """
        inputs, bias = self._layer_inputs(batch, deterministic)
        x_BTD = inputs[-1]
        if positions is None:
            return self.layers[-1](x_BTD, x_BTD, bias, deterministic)
        queries_BQD = jnp.take_along_axis(x_BTD, positions[..., None], axis=1)
        if bias.shape[2] > 1:  # causal or packed: the bias depends on the query
            bias = jnp.take_along_axis(bias, positions[:, None, :, None], axis=2)
        return self.layers[-1](queries_BQD, x_BTD, bias, deterministic)

    def hidden_states(self, batch: Batch, deterministic: bool) -> list[jax.Array]:
        """The embedding output and every layer's, num_layers + 1 arrays [B, T, D]; arguments as above."""
        inputs, bias = self._layer_inputs(batch, deterministic)
        return [*inputs, self.layers[-1](inputs[-1], inputs[-1], bias, deterministic)]

    def _layer_inputs(self, batch: Batch, deterministic: bool) -> tuple[list[jax.Array], jax.Array]:
        """The input of each layer, num_layers arrays [B, T, D], and the bias of their attention scores."""
        instances = instances_of(batch)
        bias = attention_bias(self.config, batch["input_mask"], instances)
        embedded = self.embeddings(batch["input_ids"], batch["segment_ids"], deterministic, instances)
        inputs = [checkpoint_name(embedded, LAYER_INPUT)]
        for layer in self.layers[:-1]:
            output = layer(inputs[-1], inputs[-1], bias, deterministic)
            inputs.append(checkpoint_name(output, LAYER_INPUT))
        return inputs, bias

    def word_embedding_table(self) -> jax.Array:
        """float32 [vocab_size, D]: the table that the language model head shares."""
        return self.embeddings.word_embeddings.embedding
