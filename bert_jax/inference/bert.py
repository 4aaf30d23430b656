"""Applies a pretrained model to texts: vectors, hidden states, attention maps, masked tokens.

Texts are sorted by length and padded to a few lengths, so that few programs are compiled and
little padding is computed; results come back without padding, in the order of the texts.

Shapes: T tokens of one text, D hidden size, N heads.
"""

import dataclasses
import functools
import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Encoding, Tokenizer

from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.inference.fill_mask import fill_mask
from bert_jax.inference.padding import batches_by_length, padded_lengths
from bert_jax.model.encoder import STACKS
from bert_jax.model.pretraining import BertForPreTraining
from bert_jax.model_config import ModelConfig
from data_pipeline.corpus.truncation import truncated_lengths
from data_pipeline.errors import UserError

Text = str | tuple[str, str]
Output = Literal["pooled_output", "sequence_output", "embedding_output", "hidden_states", "attention_maps"]
Arrays = dict[str, np.ndarray]

# Axes of one text's array that index its tokens.
_PADDED_AXES: dict[Output, tuple[int, ...]] = {
    "pooled_output": (),
    "sequence_output": (0,),
    "embedding_output": (0,),
    "hidden_states": (1,),
    "attention_maps": (2, 3),
}
_TOKENS_IN_A_BATCH = 4096
_TEXTS_IN_A_PART = 64


@dataclasses.dataclass(frozen=True, eq=False)
class Encoded:
    """The results of `Bert.encode`, one list element or row for each text; None if not asked for."""

    tokens: list[list[str]]
    """The T tokens of each text, including [CLS] and [SEP]."""
    cut: int
    """Number of texts that were truncated to the model's positions."""
    pooled_output: np.ndarray | None = None
    """float32 [texts, D]: what the pooler (`model.pooler`) gives at [CLS]; in BERT tanh of a linear layer,
    trained by the task for pairs of segments."""
    sequence_output: list[np.ndarray] | None = None
    """float32 [T, D]: the output of the last layer."""
    embedding_output: list[np.ndarray] | None = None
    """float32 [T, D]: the input of the first layer."""
    hidden_states: list[np.ndarray] | None = None
    """float32 [layers, T, D]: outputs of the layers asked for, or the embedding output and all layers'."""
    attention_maps: list[np.ndarray] | None = None
    """float32 [layers, N, T, T]: attention probabilities of all layers; axes -2 and -1 are query and key."""


class Bert:
    """A pretrained model on the default device, ready to be applied to texts."""

    def __init__(self, pretrained: PretrainedModel) -> None:
        self.pretrained = pretrained
        self._on_device = dataclasses.replace(pretrained, params=jax.device_put(pretrained.params))

    def encode(
        self,
        texts: Iterable[Text],
        outputs: Sequence[Output] | None = None,
        layers: Sequence[int] | None = None,
    ) -> Encoded:
        """Runs the model on texts.

        Args:
          texts: strings, or pairs of strings for the segments A and B. A text longer than the model's
            positions is truncated as in pretraining, the longer segment first, with a warning.
          outputs: fields of `Encoded` to fill; None asks for the sequence output, and for the
            pooled output if the model has a pooler.
          layers: layers to return in `hidden_states`: 0 for the embedding output, i for layer i, -1
            for the last one; None returns all.

        Raises:
          UserError: `texts` is one string; an output or layer does not exist; `layers` is empty; the pooled
            output is asked for and the model has no pooler.
        """
        if isinstance(texts, str):
            raise UserError("encode takes a list of texts, not one string")
        texts, outputs = list(texts), self._default_outputs() if outputs is None else tuple(outputs)
        parts = list(self.encode_parts(texts, outputs, layers))
        cut = sum(part.cut for part in parts)
        if cut:
            longest = self.pretrained.config.max_position_embeddings
            warnings.warn(f"{cut} of {len(texts)} texts were cut to {longest} tokens", stacklevel=2)
        joined: dict[str, Any] = {
            name: [row for part in parts for row in getattr(part, name)] for name in ("tokens", *outputs)
        }
        if "pooled_output" in outputs:
            width = self.pretrained.config.hidden_size
            joined["pooled_output"] = np.array(joined["pooled_output"], np.float32).reshape(-1, width)
        return Encoded(cut=cut, **joined)

    def encode_parts(
        self, texts: Iterable[Text], outputs: Sequence[Output], layers: Sequence[int] | None = None
    ) -> Iterator[Encoded]:
        """Like `encode`, for any number of texts: yields the results of 64 texts at a time, in order.

        Raises:
          UserError: an output or layer does not exist; `layers` is empty; the pooled output is asked for and
            the model has no pooler.
        """
        if isinstance(outputs, str):
            raise UserError(f"outputs is {outputs!r}; it must be a list of names")
        names, depth = tuple(outputs), self.pretrained.config.num_layers
        for name in names:
            if name not in _PADDED_AXES:
                raise UserError(f"unknown output {name!r}; valid: {', '.join(_PADDED_AXES)}")
        if layers is not None and not len(layers):
            raise UserError(f"layers is empty; give some of {-depth - 1} to {depth}, or None for all")
        for layer in () if layers is None else layers:
            if not -depth - 1 <= layer <= depth:
                raise UserError(f"the model has no layer {layer}; valid: {-depth - 1} to {depth}")
        if "pooled_output" in names:
            self.pretrained.require("pooler", "the pooled output")
        kept = tuple(range(depth + 1) if layers is None else layers)
        remaining = iter(texts)
        while part := list(itertools.islice(remaining, _TEXTS_IN_A_PART)):
            encodings, cut = tokenize(
                self.pretrained.tokenizer, part, self.pretrained.config.max_position_embeddings
            )
            yield self._encode_part(encodings, cut, names, kept)

    def fill_mask(self, text: str, top_k: int = 5) -> list[list[tuple[str, float]]]:
        """The likeliest (token, probability) pairs for each [MASK] of a text; see `inference.fill_mask`."""
        return fill_mask(self._on_device, text, top_k)

    def _default_outputs(self) -> tuple[Output, ...]:
        pooled: tuple[Output, ...] = ("pooled_output",) if "pooler" in self.pretrained.params else ()
        return ("sequence_output", *pooled)

    def _encode_part(
        self, encodings: list[Encoding], cut: int, outputs: tuple[Output, ...], layers: tuple[int, ...]
    ) -> Encoded:
        for encoding in encodings:
            self.pretrained.check_ids(encoding.ids)
        rows: list[Arrays] = [{} for _ in encodings]
        config, params = self.pretrained.config, self._on_device.params
        lengths = padded_lengths(config.max_position_embeddings)
        sizes = [len(encoding) for encoding in encodings]
        for indices, shape in batches_by_length(sizes, lengths, _TOKENS_IN_A_BATCH):
            batch = _pad([encodings[i] for i in indices], shape)
            arrays = jax.device_get(_forward(config, outputs, layers, params, batch))
            for row, index in enumerate(indices):
                size = len(encodings[index])
                rows[index] = {
                    name: _without_padding(array[row], _PADDED_AXES[name], size)
                    for name, array in arrays.items()
                }
        return Encoded(
            tokens=[e.tokens for e in encodings],
            cut=cut,
            **{name: [row[name] for row in rows] for name in outputs},  # type: ignore[arg-type]
        )


def tokenize(tokenizer: Tokenizer, texts: Sequence[Text], longest: int) -> tuple[list[Encoding], int]:
    """Encodes texts, cut to at most `longest` tokens; and how many were cut.

    Of a pair, the longer text loses tokens, of equal ones the second: as in pretraining, while `tokenizers`
    would cut the first.

    Args:
      tokenizer: one that does not truncate.
      texts: strings, or pairs of strings.
      longest: most tokens of an encoding, with those that are added.
    """
    pairs = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
    firsts = tokenizer.encode_batch([first for first, *_ in pairs], add_special_tokens=False)
    # As second texts, so that their type ids are 1.
    given = [("", second) for _, *others in pairs for second in others]
    seconds = iter(tokenizer.encode_batch(given, add_special_tokens=False))
    encodings, cut = [], 0
    for pair, first in zip(pairs, firsts, strict=True):
        second = next(seconds) if len(pair) == 2 else None
        sizes = len(first), 0 if second is None else len(second)
        room = longest - tokenizer.num_special_tokens_to_add(second is not None)
        kept = [int(size) for size in truncated_lengths(*sizes, room)]
        cut += sum(kept) < sum(sizes)
        rest = None if second is None else _first_tokens(second, kept[1])
        encodings.append(tokenizer.post_process(_first_tokens(first, kept[0]), rest))
    return encodings, cut


def _first_tokens(encoding: Encoding, count: int) -> Encoding:
    """The first `count` tokens alone; plain truncation would keep the others in `overflowing`."""
    if len(encoding) <= count:
        return encoding
    encoding.truncate(len(encoding) - count, direction="left")
    return Encoding.merge(encoding.overflowing[::-1], growing_offsets=False)


def _pad(encodings: list[Encoding], shape: tuple[int, int]) -> Arrays:
    """A batch of three int32 arrays of a shape, whose further rows are empty."""
    batch = {name: np.zeros(shape, np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    for row, encoding in enumerate(encodings):
        batch["input_ids"][row, : len(encoding)] = encoding.ids
        batch["segment_ids"][row, : len(encoding)] = encoding.type_ids
        batch["input_mask"][row, : len(encoding)] = 1
    return batch


def _without_padding(array: np.ndarray, axes: tuple[int, ...], size: int) -> np.ndarray:
    """The part of an array without padding, copied so that the padding's memory is freed."""
    for axis in axes:
        array = array[(slice(None),) * axis + (slice(size),)]
    return array.copy()


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _forward(
    config: ModelConfig, outputs: tuple[Output, ...], layers: tuple[int, ...], params: dict, batch: dict
) -> dict[str, jax.Array]:
    """The outputs asked for, with texts on the first axis; XLA leaves out the computation of the others."""
    wants_pooled = "pooled_output" in outputs
    (states, pooled), kept = BertForPreTraining(config).apply(
        {"params": params}, batch, wants_pooled, method=_encode, mutable=["intermediates"]
    )
    found = {
        "pooled_output": lambda: pooled,
        "sequence_output": lambda: states[-1],
        "embedding_output": lambda: states[0],
        "hidden_states": lambda: jnp.stack([states[i] for i in layers], axis=1),
        "attention_maps": lambda: _attention_maps(config, kept["intermediates"]["encoder"]),
    }
    return {name: found[name]() for name in outputs}


def _attention_maps(config: ModelConfig, encoder: dict) -> jax.Array:
    """float32 [B, layers, N, T, T] of what an encoder's layers have kept; the heads of joined stacks come one
    after the other."""
    stacks = [encoder[name] for name in STACKS] if config.attention == "joined" else [encoder]
    # A layer that is applied several times has kept the probabilities of each time.
    by_stack = [
        [
            probabilities
            for i in range(config.num_distinct_layers)
            for probabilities in stack[f"layer_{i}"]["attention"]["attention_probabilities"]
        ]
        for stack in stacks
    ]
    layers = [jnp.concatenate(heads, axis=1) for heads in zip(*by_stack, strict=True)]
    return jnp.stack(layers, axis=1)


def _encode(
    model: BertForPreTraining, batch: dict, wants_pooled: bool
) -> tuple[list[jax.Array], jax.Array | None]:
    states = model.encoder.hidden_states(batch, deterministic=True)
    return states, model.pooler(states[-1][:, 0]) if wants_pooled else None
