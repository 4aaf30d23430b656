"""The initial state of a run that starts from a pretrained model's parameters, perhaps for longer inputs."""

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.training.program import Program
from bert_jax.training.train_step import TrainState
from data_pipeline.errors import UserError

Path: TypeAlias = tuple[str, ...]

ROWS_OF_TOKENS: frozenset[Path] = frozenset(
    (
        ("encoder", "embeddings", "word_embeddings", "embedding"),
        ("language_model", "bias"),
        ("next_token", "bias"),
        ("neighbour_token", "bias"),
        ("span_boundary", "language_model", "bias"),
        ("generator", "language_model", "bias"),
        ("generator", "encoder", "embeddings", "word_embeddings", "embedding"),
    )
)
"""Parameters with a row for each token, where a module has them. The embeddings are also the output layer."""

_POSITIONS = ("position_embeddings", "embedding")
"""How the path of a table of learned positions ends: a generator may have its own."""


def start_from(program: Program, pretrained: Mapping[str, Any], growing: Collection[Path] = ()) -> TrainState:
    """A state at step 0 with the parameters of a pretrained model.

    Parameters that it lacks (a new head, perhaps the pooler) are drawn from the run's seed; moments
    start from zero. All processes of a run must pass the same arrays.

    Args:
      pretrained: nested numpy arrays under the names of `BertForPreTraining`, or of the task's own module.
      growing: paths of arrays that may have fewer rows than the task's; the missing rows are drawn as for
        a new model.

    Raises:
      UserError: an array of the encoder is missing, or an array has the wrong shape.
    """
    places = flatten_dict(program.abstract_state().params)
    given = flatten_dict(dict(pretrained))
    _check(places, given, growing)
    taken = {path: given[path].astype(place.dtype) for path, place in places.items() if path in given}
    whole = {
        path: _spread(array, places[path])
        for path, array in taken.items()
        if array.shape == places[path].shape
    }
    state = program.init_without(whole.keys())
    params = flatten_dict(state.params) | whole
    for path, rows in taken.items():
        if path not in whole:
            params[path] = _with_first_rows(params[path], rows, places[path])
    # In the order of the module, which checkpoints and summaries follow.
    return state.replace(params=unflatten_dict({path: params[path] for path in places}))  # type: ignore[attr-defined]


def with_repeated_positions(pretrained: Mapping[str, Any], num_positions: int) -> dict[str, Any]:
    """A model's parameters, with learned positions repeated from the first one on until there are enough.

    So neighbours are at known distances from the start, but where a repetition begins; drawn positions would
    have to be learned first (Beltagy et al. 2020, "Longformer", arXiv 2004.05150, section 5).

    Args:
      pretrained: nested numpy arrays; left as it is if it has no learned positions.
      num_positions: at least as many as the model has.
    """
    return unflatten_dict(
        {
            path: np.resize(array, (num_positions, array.shape[1])) if path[-2:] == _POSITIONS else array
            for path, array in flatten_dict(dict(pretrained)).items()
        }
    )


def _spread(array: np.ndarray, place: jax.ShapeDtypeStruct) -> jax.Array:
    return jax.make_array_from_callback(array.shape, place.sharding, lambda index: array[index])


def _with_first_rows(drawn: jax.Array, rows: np.ndarray, place: jax.ShapeDtypeStruct) -> jax.Array:
    """`drawn` with its first rows replaced by `rows`; each device replaces those that it holds."""
    padding = ((0, len(drawn) - len(rows)), *((0, 0),) * (rows.ndim - 1))
    given = _spread(np.pad(rows, padding), place)

    def choose(drawn: jax.Array, given: jax.Array) -> jax.Array:
        numbers = jax.lax.broadcasted_iota(jnp.int32, given.shape, 0)
        return jnp.where(numbers < len(rows), given, drawn)

    return jax.jit(choose, out_shardings=place.sharding)(drawn, given)


def _check(
    places: Mapping[Path, jax.ShapeDtypeStruct], given: Mapping[Path, Any], growing: Collection[Path]
) -> None:
    for path, place in places.items():
        if path not in given:
            if path[0] == "encoder":
                raise UserError(f"the model has no {'/'.join(path)}")
        elif given[path].shape != place.shape and not (
            path in growing and _has_fewer_rows(given[path].shape, place.shape)
        ):
            raise UserError(
                f"the model's {'/'.join(path)} is {list(given[path].shape)}; it must be {list(place.shape)}"
            )


def _has_fewer_rows(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    return shape[1:] == whole[1:] and shape[0] < whole[0]
