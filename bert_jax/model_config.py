"""Settings of the encoder: its sizes, and its parts by name, as a frozen dataclass on the standard library.

They are values: hashable, comparable, printable. Impossible combinations are refused when a value is made.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

from data_pipeline.checks import (
    LARGEST,
    check_above_zero,
    check_dropout_rate,
    check_not_negative,
    check_positive,
    check_types,
)
from data_pipeline.errors import UserError

Positions = Literal["learnt", "rotary", "sinusoidal", "none"]
Normalization = Literal["layer_norm", "rms_norm"]
NormalizationPlace = Literal["post", "pre", "normformer"]
FurtherNormalization = Literal["same", "none"]
FeedForward = Literal["dense", "geglu", "swiglu"]
Biases = Literal["all", "norms", "none"]
Pooler = Literal["tanh", "gelu_exact", "relu", "transform"]
Segments = Literal["learnt", "none"]
Projection = Literal["linear", "none"]
GeneratorEmbeddings = Literal["shared", "own"]
Attention = Literal["bidirectional", "causal", "anticausal", "joined"]
Activation = Literal["gelu_tanh", "gelu_exact", "relu", "silu"]
DType = Literal["float32", "bfloat16"]
AttentionKernel = Literal["auto", "none"]

MODEL_SIZES = {
    "vocab_size": LARGEST,
    "num_layers": 1024,  # each is a module of its own, for which memory is taken before anything is computed
    "hidden_size": LARGEST,
    "num_heads": LARGEST,
    "intermediate_size": LARGEST,
    "max_position_embeddings": LARGEST,
    "type_vocab_size": LARGEST,
}
"""The fields of ModelConfig that are sizes, each at least 1, and the largest value of each;
type_vocab_size may also be 0."""
OPTIONAL_SIZES = ("embedding_size", "layer_groups")
"""The fields of ModelConfig that are sizes or None; the shapes of parameters depend on them."""
MODEL_PARTS = (
    "positions",
    "normalization",
    "normalization_place",
    "embedding_normalization",
    "query_key_normalization",
    "feed_forward",
    "biases",
)
"""The fields of ModelConfig that name a part of the encoder with parameters of its own."""

PREDICTS_FROM: Mapping[Attention, int] = {"bidirectional": 0, "causal": -1, "anticausal": 1}
"""Attention -> the position from which the language model head predicts a token, relative to its own; joined
models have another head."""

DIRECTIONS: Mapping[Attention, str] = {
    "bidirectional": "both ways",
    "causal": "left to right",
    "anticausal": "right to left",
    "joined": "left to right and right to left, apart",
}
"""Attention -> how a model with it reads, for messages."""

DROPOUT_RATES = ("dropout_rate", "attention_dropout_rate")
"""The fields of ModelConfig that are dropout probabilities."""

_OF_A_RUN = ("attention", *DROPOUT_RATES, "initializer_range", "dtype", "attention_kernel")
"""The fields of ModelConfig that a run may choose for a model that it starts from."""

# Smaller blocks are slower: their products are too small for an accelerator's matrix unit.
_SMALLEST_BLOCK = 64


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Shape, parts and arithmetic of the encoder (paper, section 3; google-research/bert modeling.py)."""

    vocab_size: int = 30522
    """Rows of the word embedding; at least the size of the corpus's vocabulary."""
    num_layers: int = 12
    """Number of Transformer layers."""
    hidden_size: int = 768
    """Width of the layers."""
    num_heads: int = 12
    """Attention heads of a layer; divides hidden_size."""
    intermediate_size: int = 3072
    """Width inside the feed-forward layers; 4 x hidden_size in the paper."""
    max_position_embeddings: int = 512
    """Maximum length of a sequence, in tokens."""
    type_vocab_size: int = 2
    """Number of segments; 0: no segment embeddings."""
    embedding_size: int | None = None
    """Width of the embeddings; None: hidden_size. If it differs, a linear layer projects them to hidden_size,
    and the language model head projects back."""
    layer_groups: int | None = None
    """Number of groups of consecutive layers that share parameters. 1: all layers share them (ALBERT). None:
    each layer has its own. Divides num_layers."""
    positions: Positions = "learnt"
    """How the model knows the order of tokens. learnt: a learned vector for each position is added to the
    embeddings. sinusoidal: fixed sines and cosines are added. rotary: queries
    and keys are rotated by angles that grow with the position. none: only a
    causal mask or an attention window then tells the order."""
    rotary_base: float = 10_000.0
    """Base of rotary positions (rope_theta in transformers): the longest
    wavelength is about 2 pi times this many tokens."""
    rotary_base_local: float | None = None
    """The same in layers with an attention window; None: as elsewhere."""
    normalization: Normalization = "layer_norm"
    """layer_norm: mean 0 and variance 1 over the hidden size, then a learned scale and bias. rms_norm:
    mean square 1, then a learned scale."""
    normalization_place: NormalizationPlace = "post"
    """post: after each residual sum, `norm(x + sublayer(x))`. pre: before each sublayer, `x +
    sublayer(norm(x))`, and after the last layer. normformer: as pre, and also
    of attention's output, and inside the feed-forward layer before its last
    product."""
    embedding_normalization: FurtherNormalization = "same"
    """Normalization of the sum of the embeddings. none: there is none. same: as
    model.normalization. With place pre or normformer it is also the first
    layer's normalization before attention, unless a linear layer follows the
    embeddings (embedding_size) or layers have the same parameters
    (layer_groups)."""
    query_key_normalization: FurtherNormalization = "none"
    """Normalization of each head's queries and keys before they are
    multiplied. same: as model.normalization. none: there is none."""
    feed_forward: FeedForward = "dense"
    """dense: linear, activation, linear. geglu, swiglu: GELU(xW) * xV or SiLU(xW) * xV, then linear;
    intermediate_size is the width of both W and V, so two thirds of dense's gives as many parameters."""
    biases: Biases = "all"
    """all: linear layers and normalizations have biases. norms: only
    normalizations. none: neither. Output layers always have one."""
    attention: Attention = "bidirectional"
    """What a position may attend to. bidirectional: its whole sequence. causal: itself and the positions
    to its left. anticausal: itself and those to its right. joined: the
    layers are two stacks, one causal and one anticausal, each with half the
    width, heads and feed-forward width, whose outputs are concatenated."""
    attention_window: int | None = None
    """How many tokens to each side a position may attend to; None: all."""
    global_every: int | None = None
    """With a window: every N-th layer, beginning with the first, attends to the whole sequence. None: all
    layers have the window."""
    dropout_rate: float = 0.1
    """Dropout probability on the embeddings and on the outputs of attention and of the feed-forward layer."""
    attention_dropout_rate: float = 0.1
    """Dropout probability on the attention probabilities."""
    activation: Activation = "gelu_tanh"
    """Of dense feed-forward layers and of heads. gelu_tanh: google-research/bert since 2019-02. gelu_exact:
    erf, what Hugging Face calls "gelu". geglu has either GELU, and swiglu always SiLU."""
    pooler: Pooler = "tanh"
    """What stands between the last layer and an output layer of fine-tuning. tanh, gelu_exact, relu: a linear
    layer on [CLS] with this activation; heads of tokens have none.
    transform: linear layer, activation and normalization as in the language
    model head, on [CLS] and for heads of tokens on each of them (ModernBERT)."""
    layer_norm_epsilon: float = 1e-12
    """Added to the variance, or in rms_norm to the mean square."""
    initializer_range: float = 0.02
    """Standard deviation of the initial normal distribution, before it is cut at two standard deviations."""
    dtype: DType = "float32"
    """dtype of activations; parameters and losses are always float32."""
    attention_kernel: AttentionKernel = "auto"
    """auto: a fused kernel in bfloat16, where it applies: on TPUs for lengths that
    are multiples of 128 and head widths that are multiples of 16; on NVIDIA GPUs
    from the A100 on for lengths that are multiples of 64 and head widths of 16,
    32 or 64; for at most 2048 positions. On a CPU, without gradients, more than
    256 queries are computed in blocks. none: always XLA's operations. The two
    settings round differently, and the kernels draw different dropout."""

    def __post_init__(self) -> None:
        check_types(self, "model.")
        for name, most in MODEL_SIZES.items():
            if (name, getattr(self, name)) != ("type_vocab_size", 0):
                check_positive(f"model.{name}", getattr(self, name), most)
        for name in OPTIONAL_SIZES:
            if getattr(self, name) is not None:
                check_positive(f"model.{name}", getattr(self, name))
        if self.hidden_size % self.num_heads:
            raise UserError(
                f"model.num_heads ({self.num_heads}) does not divide model.hidden_size ({self.hidden_size}); "
                f"valid: {_divisors(self.hidden_size)}"
            )
        for name in DROPOUT_RATES:
            check_dropout_rate(f"model.{name}", getattr(self, name))
        check_above_zero("model.layer_norm_epsilon", self.layer_norm_epsilon)
        check_not_negative("model.initializer_range", self.initializer_range)
        self._check_parts()

    def _check_parts(self) -> None:
        if self.positions == "rotary" and self.head_width % 2:
            raise UserError(
                "model.positions rotary needs heads of an even width; model.hidden_size "
                f"{self.hidden_size} / model.num_heads {self.num_heads} is {self.head_width}"
            )
        if self.positions == "sinusoidal" and self.embedding_width % 2:
            name = "hidden_size" if self.embedding_size is None else "embedding_size"
            raise UserError(
                f"model.positions sinusoidal needs an even model.{name}; it is {self.embedding_width}"
            )
        check_above_zero("model.rotary_base", self.rotary_base)
        if self.rotary_base_local is not None:
            check_above_zero("model.rotary_base_local", self.rotary_base_local)
            if self.positions != "rotary" or self.attention_window is None:
                raise UserError(
                    "model.rotary_base_local needs model.positions rotary and model.attention_window"
                )
        if self.attention_window is not None:
            check_positive("model.attention_window", self.attention_window)
        if self.global_every is not None:
            check_positive("model.global_every", self.global_every)
            if self.attention_window is None:
                raise UserError("model.global_every needs model.attention_window; without it all are global")
        self._check_groups()
        self._check_stacks()
        if self.feed_forward == "geglu" and not self.activation.startswith("gelu"):
            raise UserError(
                "model.feed_forward geglu has model.activation gelu_tanh or gelu_exact, "
                f"not {self.activation}"
            )

    def _check_groups(self) -> None:
        if self.layer_groups is None:
            return
        if self.num_layers % self.layer_groups:
            raise UserError(
                f"model.layer_groups ({self.layer_groups}) does not divide model.num_layers "
                f"({self.num_layers}); valid: {_divisors(self.num_layers)}"
            )
        if self.global_every is not None:
            raise UserError(
                "model.global_every makes layers differ, and with model.layer_groups they are the same"
            )

    def _check_stacks(self) -> None:
        for name in ("hidden_size", "num_heads", "intermediate_size"):
            if self.attention == "joined" and getattr(self, name) % 2:
                raise UserError(
                    f"model.attention joined needs an even model.{name}; it is {getattr(self, name)}"
                )

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_heads

    @property
    def segments(self) -> Segments:
        """Whether the model has segment embeddings."""
        return "learnt" if self.type_vocab_size else "none"

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings, and of the last layer of the language model head."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def embedding_projection(self) -> Projection:
        """What takes the embeddings to the width of the layers."""
        return "none" if self.embedding_width == self.hidden_size else "linear"

    @property
    def num_distinct_layers(self) -> int:
        """How many layers have parameters of their own."""
        return self.num_layers if self.layer_groups is None else self.layer_groups

    @property
    def stacks(self) -> tuple["ModelConfig", ...]:
        """The settings of each stack of layers: this one's own, or those of the two that are joined."""
        if self.attention != "joined":
            return (self,)
        directions: tuple[Attention, ...] = ("causal", "anticausal")
        return tuple(
            dataclasses.replace(
                self,
                hidden_size=self.hidden_size // 2,
                num_heads=self.num_heads // 2,
                intermediate_size=self.intermediate_size // 2,
                embedding_size=self.embedding_width,
                attention=direction,
            )
            for direction in directions
        )

    @property
    def has_normalized_input(self) -> bool:
        """Whether the embeddings' normalization stands for that of the first layer's attention.

        It does not where a linear layer is between the two, or where other layers share the first one's
        parameters.
        """
        return (
            self.normalization_place != "post"
            and self.embedding_normalization == "same"
            and self.embedding_width == self.hidden_size
            and self.layer_groups in (None, self.num_layers)
        )

    def attention_block(self, length: int) -> int | None:
        """Size of the blocks in which a layer with a window computes its scores, each with its neighbours'
        keys; None where it computes all scores: without a window, or if blocks save less than half of them.
        """
        if self.attention_window is None:
            return None
        block = max(self.attention_window, _SMALLEST_BLOCK)
        return block if 2 * 3 * block <= length else None

    def of_layer(self, number: int) -> "ModelConfig":
        """The settings of one layer, which is either without an attention window or with it throughout."""
        if self.attention_window is None:
            return self
        if self.global_every is not None and number % self.global_every == 0:
            return dataclasses.replace(self, attention_window=None, global_every=None, rotary_base_local=None)
        base = self.rotary_base if self.rotary_base_local is None else self.rotary_base_local
        return dataclasses.replace(self, rotary_base=base, global_every=None)


def _divisors(number: int) -> str:
    lower = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return ", ".join(map(str, sorted({*lower, *(number // d for d in lower)})))


MODEL_SHAPE = tuple(field.name for field in dataclasses.fields(ModelConfig) if field.name not in _OF_A_RUN)
"""The fields of ModelConfig that trained parameters depend on."""
