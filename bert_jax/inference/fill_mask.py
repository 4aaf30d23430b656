"""Guesses masked tokens with a pretrained model."""

import functools
import typing
from collections.abc import Sequence

import jax
import numpy as np

from bert_jax.formats.huggingface_tokenizer import special_id
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.inference.padding import padded_count, padded_lengths
from bert_jax.model.pretraining import BertForPreTraining
from bert_jax.model_config import DIRECTIONS, ModelConfig
from data_pipeline.checks import check_positive
from data_pipeline.corpus.special_tokens import special_tokens
from data_pipeline.errors import UserError


def fill_mask(model: PretrainedModel, text: str, top_k: int = 5) -> list[list[tuple[str, float]]]:
    """The likeliest tokens for each [MASK] of a text.

    Args:
      model: as returned by `open_model`.
      text: a text with at least one [MASK], or whatever the model's mask token is.
      top_k: number of tokens for each mask, from 1 to all that the model's vocabulary has.

    Returns:
      For each [MASK], in order, (token, probability) pairs, the likeliest first. Tokens are spelt as
      in the vocabulary. Each mask is predicted independently, with all the others still masked.

    Raises:
      UserError: the text has no [MASK] or is too long for the model; the model reads in one direction
        or has no language model head; `top_k` is out of range.
    """
    ids = _encode(model, text)
    mask = special_tokens(model.tokenizer).mask
    positions = np.flatnonzero(ids == special_id(model.tokenizer, mask))
    if not len(positions):
        raise UserError(f"no {mask} in {text!r}; write {mask} where a token is to be guessed")
    rows = model.config.vocab_size
    tokens = {index: token for token, index in model.tokenizer.get_vocab().items() if index < rows}
    check_positive("top_k", top_k, len(tokens))
    logits = np.array(_masked_logits(model.config, model.params, _pad(model, ids, positions))[0])
    logits = logits[: len(positions)]
    # Embedding rows that pad the vocabulary have no token.
    logits[:, [index not in tokens for index in range(logits.shape[-1])]] = -np.inf
    return [_likeliest(row, tokens, top_k) for row in np.asarray(jax.nn.softmax(logits))]


def _likeliest(row: np.ndarray, tokens: dict[int, str], top_k: int) -> list[tuple[str, float]]:
    best = np.argsort(-row, kind="stable")[:top_k]
    return [(tokens[int(index)], float(row[index])) for index in best]


def _encode(model: PretrainedModel, text: str) -> np.ndarray:
    if model.config.attention != "bidirectional":
        direction = DIRECTIONS[model.config.attention]
        raise UserError(f"the model was trained {direction}; only a bidirectional one fills masks")
    model.require("language_model", "filling masks")
    ids = model.tokenizer.encode(text).ids
    check_fits(model, text, ids)
    return np.array(ids, np.int32)


def check_fits(model: PretrainedModel, text: str, ids: Sequence[int]) -> None:
    """Raises UserError if the ids of a text are too many for the model, or one has no word embedding."""
    model.check_ids(ids)
    longest = model.config.max_position_embeddings
    if len(ids) > longest:
        special = special_tokens(model.tokenizer)
        raise UserError(
            f"a text of {len(ids)} tokens, {special.cls} and {special.sep} counted, is too long; "
            f"the model takes {longest}: {text[:40]!r}..."
        )


def _pad(model: PretrainedModel, ids: np.ndarray, positions: np.ndarray) -> dict[str, np.ndarray]:
    """A batch of one row, padded to one of a few lengths and mask counts so that few programs compile."""
    lengths = padded_lengths(model.config.max_position_embeddings)
    length = next(length for length in lengths if length >= len(ids))
    batch = {name: np.zeros((1, length), np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    batch["input_ids"][0, : len(ids)] = ids
    batch["input_mask"][0, : len(ids)] = 1
    batch["masked_lm_positions"] = np.zeros((1, padded_count(len(positions))), np.int32)
    batch["masked_lm_positions"][0, : len(positions)] = positions
    return batch


@functools.partial(jax.jit, static_argnums=0)
def _masked_logits(config: ModelConfig, params: dict, batch: dict) -> jax.Array:
    """float32 logits [B, P, V] at the masked positions."""
    logits = BertForPreTraining(config).apply({"params": params}, batch, method=logits_at_positions)
    return typing.cast(jax.Array, logits)


def logits_at_positions(model: BertForPreTraining, batch: dict) -> jax.Array:
    """float32 logits [B, P, V] at `masked_lm_positions` [B, P], without a pooler or next sentence head."""
    x_BPD = model.encoder(batch, deterministic=True, columns=batch["masked_lm_positions"])
    return model.language_model(x_BPD, model.encoder.word_embedding_table())
