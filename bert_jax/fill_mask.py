"""Guesses masked tokens with a trained model: from an export, or straight from a run's folder."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from bert_jax.config import ModelConfig
from bert_jax.export import CONFIG_FILE, WEIGHTS_FILE, find_tokenizer
from bert_jax.huggingface import from_config, from_tensors
from bert_jax.huggingface_tokenizer import MASK, TOKENIZER_FILE, read_tokenizer, special_id
from bert_jax.model.pretraining import BertForPreTraining
from data_pipeline.errors import UserError


@dataclasses.dataclass(frozen=True, eq=False)
class PretrainedModel:
    """A model with what is needed to apply it to text."""

    config: ModelConfig
    params: dict[str, Any]
    """Nested float32 arrays, as `BertForPreTraining` takes them."""
    tokenizer: Tokenizer


def load_model(directory: Path) -> PretrainedModel:
    """Reads an exported model, or the newest checkpoint of a run's work directory.

    Raises:
      UserError: the folder is neither, or a file in it is damaged or of another kind of model.
    """
    try:
        config = json.loads((directory / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(
            f"{directory} is not a model: it has no readable {CONFIG_FILE}; name a folder made by "
            f"`bert-jax export`, or the work directory of a run"
        ) from None
    if isinstance(config, dict) and "experiment" in config:
        return _load_run(directory)
    return _load_export(directory, config if isinstance(config, dict) else {})


def fill_mask(model: PretrainedModel, text: str, top_k: int = 5) -> list[list[tuple[str, float]]]:
    """The likeliest tokens for each [MASK] of a text.

    Args:
      model: what `load_model` gave.
      text: with at least one [MASK].
      top_k: tokens for each mask.

    Returns:
      For each [MASK], in order, (token, probability) from the likeliest down. Tokens are as the
      vocabulary has them. All masks are filled from the same text, each without knowing the others.

    Raises:
      UserError: no [MASK]; too long for the model; the model was trained left to right.
    """
    ids = _encode(model, text)
    positions = np.flatnonzero(ids == special_id(model.tokenizer, MASK))
    if not len(positions):
        raise UserError(f"no {MASK} in {text!r}; write {MASK} where a token is to be guessed")
    tokens = {index: token for token, index in model.tokenizer.get_vocab().items()}
    logits = np.array(_masked_logits(model.config, model.params, ids[None], positions[None])[0])
    # Rows without a token: padding of the vocabulary.
    logits[:, [index not in tokens for index in range(logits.shape[-1])]] = -np.inf
    return [_likeliest(row, tokens, top_k) for row in np.asarray(jax.nn.softmax(logits))]


def _likeliest(row: np.ndarray, tokens: dict[int, str], top_k: int) -> list[tuple[str, float]]:
    best = np.argsort(-row, kind="stable")[: min(top_k, len(tokens))]
    return [(tokens[int(index)], float(row[index])) for index in best]


def _encode(model: PretrainedModel, text: str) -> np.ndarray:
    if model.config.attention == "causal":
        raise UserError("the model was trained left to right; only a bidirectional one fills masks")
    ids = np.array(model.tokenizer.encode(text).ids, np.int32)
    longest = model.config.max_position_embeddings
    if len(ids) > longest:
        raise UserError(
            f"a text of {len(ids)} tokens, [CLS] and [SEP] counted, is too long; "
            f"the model takes {longest}: {text[:40]!r}..."
        )
    return ids


@functools.partial(jax.jit, static_argnums=0)
def _masked_logits(config: ModelConfig, params: dict, ids: jax.Array, positions: jax.Array) -> jax.Array:
    batch = {
        "input_ids": ids,
        "input_mask": jnp.ones_like(ids),
        "segment_ids": jnp.zeros_like(ids),
        "masked_lm_positions": positions,
    }
    return BertForPreTraining(config).apply({"params": params}, batch, deterministic=True)[0]


def _load_run(workdir: Path) -> PretrainedModel:
    from bert_jax.checkpoints import load_params
    from bert_jax.workdir import read_record

    record = read_record(workdir)
    tokenizer = read_tokenizer(find_tokenizer(workdir, record))
    _, params = load_params(workdir)
    return PretrainedModel(dataclasses.replace(record.experiment.model, dtype="float32"), params, tokenizer)


def _load_export(directory: Path, fields: dict[str, Any]) -> PretrainedModel:
    config = from_config(fields)
    try:
        tensors = load_file(directory / WEIGHTS_FILE)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{directory / WEIGHTS_FILE} cannot be read: {error}") from None
    try:
        tokenizer = Tokenizer.from_file(str(directory / TOKENIZER_FILE))
    except Exception as error:  # the library raises nothing narrower
        raise UserError(f"{directory / TOKENIZER_FILE} cannot be read: {error}") from None
    return PretrainedModel(config, from_tensors(tensors, config), tokenizer)
