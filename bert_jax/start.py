"""The state that training begins with where it does not begin anew: a pretrained model's parameters."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.parallel import Program
from bert_jax.train_step import TrainState
from data_pipeline.errors import UserError

Path: TypeAlias = tuple[str, ...]


def start_from(program: Program, pretrained: Mapping[str, Any]) -> TrainState:
    """A state at step 0 whose parameters are the pretrained ones where there are such.

    What the pretrained model lacks, a new head and perhaps the pooler, is drawn from the run's
    seed; moments start from zero. Of several processes, all give the same arrays.

    Args:
      program: compiled task.
      pretrained: nested numpy arrays under the names of `BertForPreTraining`, or of the task's own module.

    Raises:
      UserError: an array of the encoder is missing or has another shape.
    """
    places = flatten_dict(program.abstract_state().params)
    given = flatten_dict(dict(pretrained))
    _check(places, given)
    taken = {
        path: _spread(given[path].astype(place.dtype), place)
        for path, place in places.items()
        if path in given
    }
    state = program.init_without(taken.keys())
    params = flatten_dict(state.params) | taken
    # In the order of the module, which checkpoints and summaries follow.
    return state.replace(params=unflatten_dict({path: params[path] for path in places}))  # type: ignore[attr-defined]


def _spread(array: np.ndarray, place: jax.ShapeDtypeStruct) -> jax.Array:
    return jax.make_array_from_callback(array.shape, place.sharding, lambda index: array[index])


def _check(places: Mapping[Path, jax.ShapeDtypeStruct], given: Mapping[Path, Any]) -> None:
    for path, place in places.items():
        if path not in given:
            if path[0] == "encoder":
                raise UserError(f"the model has no {'/'.join(path)}")
        elif given[path].shape != place.shape:
            raise UserError(
                f"the model's {'/'.join(path)} is {list(given[path].shape)}; it must be {list(place.shape)}"
            )
