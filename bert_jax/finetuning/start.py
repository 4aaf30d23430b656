"""The state that fine-tuning begins with: a pretrained model's parameters under a new head."""

from collections.abc import Mapping
from typing import Any

import jax
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.parallel import Program
from bert_jax.train_step import TrainState
from data_pipeline.errors import UserError


def start_from(program: Program, pretrained: Mapping[str, Any]) -> TrainState:
    """A state at step 0 whose parameters are the pretrained ones where there are such.

    What the pretrained model lacks, the new head and perhaps the pooler, is drawn from the run's
    seed; moments start from zero.

    Args:
      program: compiled fine-tuning task.
      pretrained: nested numpy arrays under the names of `BertForPreTraining`.

    Raises:
      UserError: an array of the encoder is missing or has another shape.
    """
    state = program.init()
    fresh, given = flatten_dict(state.params), flatten_dict(dict(pretrained))
    merged = {}
    for path, array in fresh.items():
        if path not in given:
            if path[0] == "encoder":
                raise UserError(f"the model has no {'/'.join(path)}")
            merged[path] = array
        elif given[path].shape != array.shape:
            raise UserError(
                f"the model's {'/'.join(path)} is {list(given[path].shape)}; it must be {list(array.shape)}"
            )
        else:
            merged[path] = jax.device_put(given[path].astype(array.dtype), array.sharding)
    return state.replace(params=unflatten_dict(merged))  # type: ignore[attr-defined]
