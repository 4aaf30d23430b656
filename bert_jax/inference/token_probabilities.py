"""How likely a model finds given tokens in rows of ids, some of which may be masked.

Shapes: N rows, T columns, B rows of a batch, P predictions of a row.
"""

import functools
import typing

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.inference.fill_mask import logits_at_positions
from bert_jax.inference.padding import batches_by_length, padded_count, padded_lengths
from bert_jax.model.pretraining import BertForPreTraining
from bert_jax.model_config import PREDICTS_FROM, ModelConfig

# With more, the logits of 30,522 ids do not fit the caches of a CPU: at 2048 they take a fifth longer.
TOKENS_IN_A_BATCH = 1024


def token_log_probabilities(
    model: PretrainedModel,
    input_ids: np.ndarray,
    sizes: np.ndarray,
    targets: np.ndarray,
    predicted: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Predicts tokens: a masked model in their own columns, others from the columns beside them.

    Args:
      model: with a language model head.
      input_ids: int [N, T], with [CLS], with masks where the model is to see them; T at most the model's
        positions.
      sizes: int [N], tokens of each row; the others are padding.
      targets: int [N, T], the right ids.
      predicted: bool [N, T], which tokens are predicted; never the first or the last of a row.

    Returns:
      Log-probabilities in nats, float64 [N, T], and whether no other token is likelier, bool [N, T]; 0 and
      False where nothing is predicted.
    """
    params = jax.device_put(model.params)
    offset = PREDICTS_FROM[model.config.attention]
    most = padded_count(int(predicted.sum(axis=1).max()))
    computed = []
    lengths = padded_lengths(input_ids.shape[1])
    for chosen, (size, length) in batches_by_length(sizes, lengths, TOKENS_IN_A_BATCH):
        row, column = np.nonzero(predicted[chosen])
        slot = np.concatenate([np.arange(count) for count in np.bincount(row, minlength=1)])
        batch = _make_batch(input_ids[chosen, :length], sizes[chosen], size, min(most, length))
        batch["masked_lm_positions"][row, slot] = column + offset
        batch["targets"][row, slot] = targets[chosen[row], column]
        found = log_probabilities(model.config, params, batch)
        computed.append(((row, slot), (chosen[row], column), found))
    log_p, likeliest = np.zeros(targets.shape), np.zeros(targets.shape, bool)
    for slots, columns, found in computed:
        log_p[columns], likeliest[columns] = (array[slots] for array in jax.device_get(found))
    return log_p, likeliest


def _make_batch(ids: np.ndarray, sizes: np.ndarray, size: int, slots: int) -> dict[str, np.ndarray]:
    """A batch of `size` rows whose `masked_lm_positions` and `targets` [B, P] are still to be filled in."""
    length = ids.shape[1]
    batch = {name: np.zeros((size, length), np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    batch |= {name: np.zeros((size, slots), np.int32) for name in ("masked_lm_positions", "targets")}
    batch["input_ids"][: len(ids)] = ids
    batch["input_mask"][: len(ids)] = np.arange(length) < sizes[:, None]
    return batch


@functools.partial(jax.jit, static_argnums=0)
def log_probabilities(config: ModelConfig, params: dict, batch: dict) -> tuple[jax.Array, jax.Array]:
    """Of the `targets` [B, P] at `masked_lm_positions` [B, P]: log-probabilities, float32 [B, P], and whether
    no other token is likelier, bool [B, P]."""
    model = BertForPreTraining(config)
    logits = typing.cast(jax.Array, model.apply({"params": params}, batch, method=logits_at_positions))
    chosen = jnp.take_along_axis(logits, batch["targets"][..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1), chosen >= logits.max(axis=-1)
