"""The BERT encoder, made of named parts (google-research/bert modeling.py).

The parts that `ModelConfig` names are modules beside this one: `positions`, `normalization`, `feed_forward`,
`attention`.

Shapes: B batch, T length, D hidden, E embedding width, N heads, K head width, F feed-forward width.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bert_jax.model.attention import Attention, Context, attention_bias
from bert_jax.model.dropout import Dropout
from bert_jax.model.feed_forward import feed_forward
from bert_jax.model.linear import Linear, initializer
from bert_jax.model.normalization import (
    after_embeddings,
    after_last_layer,
    around_sublayer,
    inside_sublayer,
    unchanged,
)
from bert_jax.model.packed_rows import instances_of
from bert_jax.model.positions import POSITIONS, positions_of, rotation_of
from bert_jax.model.word_embeddings import WordEmbeddings
from bert_jax.model_config import ModelConfig
from bert_jax.task import Batch

LAYER_INPUT = "layer_input"
"""Name of the values that are enough to compute a layer again (`ParallelConfig.remat`)."""
STACKS = ("left_to_right", "right_to_left")
"""Names of the two of a `JoinedEncoder`, in the order of `ModelConfig.stacks`."""


def make_encoder(config: ModelConfig, name: str | None = None) -> "Encoder | JoinedEncoder":
    """The encoder that `config.attention` asks for."""
    return (JoinedEncoder if config.attention == "joined" else Encoder)(config, name=name)


class Embeddings(nn.Module):
    """Word + position + segment embeddings, normalization, dropout: [B, T, E] in `config.dtype`.

    Embeddings are added in float32, and so are the gradients of each table row: a frequent token's
    gradient is a sum of thousands.
    """

    config: ModelConfig

    def setup(self) -> None:
        config = self.config
        self.word_embeddings = WordEmbeddings(config)
        positions = POSITIONS[config.positions]
        self.position_embeddings = positions and positions(config)
        self.segment_embeddings = (
            nn.Embed(config.type_vocab_size, config.embedding_width, embedding_init=initializer(config))
            if config.type_vocab_size
            else None
        )
        self.layer_norm = after_embeddings(config, "layer_norm")
        self.dropout = Dropout(config.dropout_rate)

    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        x_BTE = self.word_embeddings(batch["input_ids"])
        if self.segment_embeddings is not None:
            x_BTE += self.segment_embeddings(batch["segment_ids"])
        if self.position_embeddings is not None:
            x_BTE += self.position_embeddings(positions_of(x_BTE.shape[-2], instances_of(batch)))
        return self.dropout(self.layer_norm(x_BTE), deterministic)


class Layer(nn.Module):
    """One transformer layer: attention and feed-forward, each with residual, normalization and dropout.

    Args:
      queries_BQD: [B, Q, D] in `config.dtype`, the positions whose outputs are wanted.
      x_BTD: [B, T, D], the positions that they attend to; `queries_BQD` itself if those are all.
      context: of these positions.

    Returns:
      [B, Q, D] in `config.dtype`.
    """

    config: ModelConfig
    """Of this layer (`ModelConfig.of_layer`)."""
    has_normalized_input: bool = False
    """Whether a normalization before attention would be the second in a row, and is left out."""

    @nn.compact
    def __call__(
        self, queries_BQD: jax.Array, x_BTD: jax.Array, context: Context, deterministic: bool
    ) -> jax.Array:
        config = self.config
        before, after = around_sublayer(config, "attention_layer_norm")
        if self.has_normalized_input:
            before = unchanged
        seen_BQD = before(queries_BQD)
        seen_BTD = seen_BQD if x_BTD is queries_BQD else before(x_BTD)
        attended = Attention(config, name="attention")(seen_BQD, seen_BTD, context, deterministic)
        attended = inside_sublayer(config, "attended_layer_norm")(attended)
        x_BQD = after(queries_BQD + Dropout(config.dropout_rate)(attended, deterministic))

        before, after = around_sublayer(config, "output_layer_norm")
        transformed = feed_forward(config, before(x_BQD))
        return after(x_BQD + Dropout(config.dropout_rate)(transformed, deterministic))


class Encoder(nn.Module):
    """Embeddings, perhaps a linear layer that widens them, and `num_layers` layers.

    Layers of a group (`ModelConfig.layer_groups`) are one module, which is applied several times; `layer_0`
    is then the first group's.

    Reads from a batch int `input_ids`, `input_mask` (1 for real tokens, 0 for padding) and `segment_ids`
    (0 for segment A, 1 for segment B), [B, T] each. A packed batch also has `instance_starts` [B, K]
    (`packed_rows.py`): attention then stays inside an instance, and positions count from its beginning. With
    bool `is_causal` [B, T], those positions see none to their right. Other keys are ignored.
    """

    config: ModelConfig

    def setup(self) -> None:
        self.embeddings = Embeddings(self.config)
        config = self.config
        width = config.hidden_size
        self.embeddings_project = Linear(config, (width,)) if config.embedding_width != width else unchanged
        self.distinct_layers = [
            Layer(config.of_layer(i), config.has_normalized_input and i == 0, name=f"layer_{i}")
            for i in range(config.num_distinct_layers)
        ]
        self.final_norm = after_last_layer(config, "final_layer_norm")

    @property
    def layers(self) -> list[Layer]:
        """The layers in the order in which they are applied; those that share parameters are one object."""
        config = self.config
        size = config.num_layers // config.num_distinct_layers
        return [layer for layer in self.distinct_layers for _ in range(size)]

    def __call__(
        self,
        batch: Batch,
        deterministic: bool,
        columns: jax.Array | None = None,
        embedded_BTE: jax.Array | None = None,
    ) -> jax.Array:
        """Hidden states of the last layer, everywhere or in some columns.

        Args:
          batch: with the keys above.
          deterministic: False applies dropout, which needs a "dropout" key.
          columns: int [B, Q] or None for all. Everything in the last layer but its keys and
            values is then computed for these columns alone, which saves most of that layer.
          embedded_BTE: what the embeddings of another encoder give, which this one shares; None: it has its
            own.

        Returns:
          [B, T, D] in `config.dtype`, or [B, Q, D] with `columns`.
        """
        inputs, contexts = self._layer_inputs(batch, deterministic, embedded_BTE)
        x_BTD, context, last = inputs[-1], contexts[-1], self.layers[-1]
        if columns is None:
            return self.final_norm(last(x_BTD, x_BTD, context, deterministic))
        queries_BQD = jnp.take_along_axis(x_BTD, columns[..., None], axis=1)
        return self.final_norm(last(queries_BQD, x_BTD, context.at(columns), deterministic))

    def hidden_states(
        self, batch: Batch, deterministic: bool, embedded_BTE: jax.Array | None = None
    ) -> list[jax.Array]:
        """The first layer's input and every layer's output, num_layers + 1 arrays [B, T, D]; arguments as
        above.

        The last is that of `__call__`. Unless normalization_place is post, the others are not normalized.
        """
        inputs, contexts = self._layer_inputs(batch, deterministic, embedded_BTE)
        last_BTD = self.layers[-1](inputs[-1], inputs[-1], contexts[-1], deterministic)
        return [*inputs, self.final_norm(last_BTD)]

    def _layer_inputs(
        self, batch: Batch, deterministic: bool, embedded_BTE: jax.Array | None
    ) -> tuple[list[jax.Array], list[Context]]:
        """The input of each layer, num_layers arrays [B, T, D], and the context of its attention."""
        if embedded_BTE is None:
            embedded_BTE = self.embeddings(batch, deterministic)
        instances = instances_of(batch)
        positions = positions_of(batch["input_ids"].shape[-1], instances)
        contexts = self._contexts(batch, positions, instances)
        inputs = [checkpoint_name(self.embeddings_project(embedded_BTE), LAYER_INPUT)]
        for layer, context in zip(self.layers[:-1], contexts[:-1], strict=True):
            output = layer(inputs[-1], inputs[-1], context, deterministic)
            inputs.append(checkpoint_name(output, LAYER_INPUT))
        return inputs, contexts

    def _contexts(self, batch: Batch, positions: jax.Array, instances: jax.Array | None) -> list[Context]:
        """The context of each layer; layers with the same settings share it."""
        configs = [layer.config for layer in self.layers]
        seen = (batch["input_mask"], instances, batch.get("is_causal"))
        length = batch["input_mask"].shape[-1]

        def make_context(config: ModelConfig) -> Context:
            rotation = rotation_of(config, length)
            context = Context(attention_bias(config, *seen), positions, positions, rotation)
            if block := config.attention_block(length):
                return context._replace(block_bias=attention_bias(config, *seen, block))
            return context

        context_of = {config: make_context(config) for config in dict.fromkeys(configs)}
        return [context_of[config] for config in configs]

    def word_embedding_table(self) -> jax.Array:
        """float32 [N, V, E]: the copies of the table that the language model head shares."""
        return self.embeddings.word_embeddings.copies_NVE


class JoinedEncoder(nn.Module):
    """Two encoders on the same embeddings, one causal and one anticausal, whose outputs are concatenated.

    Neither sees the other (Peters et al. 2018, "Deep contextualized word representations", arXiv 1802.05365:
    ELMo; Devlin et al. 2019, section 5.1).

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
        """float32 [N, V, E]: the copies of the table that the language model head shares."""
        return self.embeddings.word_embeddings.copies_NVE
