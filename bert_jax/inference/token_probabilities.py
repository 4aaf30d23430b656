"""How likely a model finds given tokens in rows of ids, some of which may be masked.

Shapes: N rows, T columns, B rows of a batch, P predictions of a row.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.inference.fill_mask import logits_at_positions
from bert_jax.inference.padding import batches_by_length, padded_count, padded_lengths
from bert_jax.model.pretraining import BertForPreTraining
from bert_jax.model_config import PREDICTS_FROM, ModelConfig

# With more, the logits of 30,522 ids do not fit the caches of a CPU: at 3072 they take a third longer.
TOKENS_IN_A_BATCH = 1536
# One batch alone leaves a core of a CPU idle wherever an operation is too small to be split.
_BATCHES_AT_ONCE = 3

_Arrays: TypeAlias = tuple[np.ndarray, ...]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def token_log_probabilities(
    model: PretrainedModel,
    input_ids: np.ndarray,
    sizes: np.ndarray,
    targets: np.ndarray,
    predicted: np.ndarray,
    lengths: Sequence[int] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Predicts tokens: a masked model in their own columns, others from the columns beside them.

    Args:
      model: with a language model head.
      input_ids: int [N, T], with [CLS], with masks where the model is to see them; T at most the model's
        positions.
      sizes: int [N], tokens of each row; the others are padding.
      targets: int [N, T], the right ids.
      predicted: bool [N, T], which tokens are predicted; never the first or the last of a row.
      lengths: ascending, to which rows are padded, T the last; None: few of them (`padded_lengths`).

    Returns:
      Log-probabilities in nats, float64 [N, T], and whether no other token is likelier, bool [N, T]; 0 and
      False where nothing is predicted.
    """
    params = jax.device_put(model.params)
    offset = PREDICTS_FROM[model.config.attention]
    most = padded_count(int(predicted.sum(axis=1).max()))
    log_p, likeliest = np.zeros(targets.shape), np.zeros(targets.shape, bool)
    lengths = lengths or padded_lengths(input_ids.shape[1])

    def predict(plan: tuple[np.ndarray, tuple[int, int]]) -> tuple[_Arrays, _Arrays]:
        chosen, (size, length) = plan
        row, column = np.nonzero(predicted[chosen])
        slot = np.concatenate([np.arange(count) for count in np.bincount(row, minlength=1)])
        batch = _make_batch(input_ids[chosen, :length], sizes[chosen], size, min(most, length))
        batch["masked_lm_positions"][row, slot] = column + offset
        batch["targets"][row, slot] = targets[chosen[row], column]
        of_slots = jax.device_get(log_probabilities(model.config, params, batch))
        return (chosen[row], column), tuple(array[row, slot] for array in of_slots)

    for places, found in several_at_once(predict, batches_by_length(sizes, lengths, TOKENS_IN_A_BATCH)):
        log_p[places], likeliest[places] = found
    return log_p, likeliest


def _make_batch(ids: np.ndarray, sizes: np.ndarray, size: int, slots: int) -> dict[str, np.ndarray]:
    """A batch of `size` rows whose `masked_lm_positions` and `targets` [B, P] are still to be filled in."""
    length = ids.shape[1]
    batch = {name: np.zeros((size, length), np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    batch |= {name: np.zeros((size, slots), np.int32) for name in ("masked_lm_positions", "targets")}
    batch["input_ids"][: len(ids)] = ids
    batch["input_mask"][: len(ids)] = np.arange(length) < sizes[:, None]
    return batch


def several_at_once(compute: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Yields compute(item) of each item, in order. A few are computed at once, each in a thread."""
    with ThreadPoolExecutor(_BATCHES_AT_ONCE) as threads:
        yield from threads.map(compute, items)


@functools.partial(jax.jit, static_argnums=0)
def log_probabilities(config: ModelConfig, params: dict, batch: dict) -> tuple[jax.Array, jax.Array]:
    """Of the `targets` [B, P] at `masked_lm_positions` [B, P]: log-probabilities, float32 [B, P], and whether
    no other token is likelier, bool [B, P]."""
    model = BertForPreTraining(config)
    logits = cast(jax.Array, model.apply({"params": params}, batch, method=logits_at_positions))
    chosen = jnp.take_along_axis(logits, batch["targets"][..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1), chosen >= logits.max(axis=-1)
