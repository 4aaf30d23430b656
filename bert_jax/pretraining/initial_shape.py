"""The shape that a pretraining run takes over from the model that it starts from; needs no jax."""

import dataclasses
from collections.abc import Collection
from typing import Protocol

from bert_jax.model.size import POSITION_ROWS
from bert_jax.model_config import MODEL_SHAPE, ModelConfig
from bert_jax.objectives import objective_name
from bert_jax.objectives.experiment import Experiment
from data_pipeline.errors import UserError

OF_ROTARY = ("rotary_base", "rotary_base_local")
"""Settings of rotary positions, which a run may change: no array depends on them."""


class ShapedModel(Protocol):
    """A model without its arrays; a `PretrainedModel` is one, too."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def config(self) -> ModelConfig:
        """Its shape."""


@dataclasses.dataclass(frozen=True)
class InitialModel:
    """The model that runs start from, without its arrays."""

    name: str
    fingerprint: str
    """`PretrainedModel.fingerprint`."""
    config: ModelConfig


def take_shape(
    experiment: Experiment,
    given: Collection[str],
    model: ShapedModel,
    vocabulary_size: int,
) -> Experiment:
    """The experiment with the shape of the model that it starts from.

    There may be more word embeddings than the model has: as many as a flag asks for, or else as many as
    the corpus's vocabulary needs. A flag can ask for more positions, and for another base of rotary ones.

    Args:
      given: names of the fields that flags set.
      vocabulary_size: number of ids of the corpus's vocabulary; 0 if that is not known.

    Raises:
      UserError: a flag asks for another shape than the model's, a phase has longer sequences than the model
        takes, or the objective needs one stack of layers where the model has two, or two where it has one.
    """
    stacks, have = len(experiment.model.stacks), len(model.config.stacks)
    if stacks != have:
        raise UserError(
            f"objective {objective_name(experiment.objective)} needs a model of {stacks} stack(s) of layers; "
            f"the model of --init-from, {model.name}, has {have}"
        )
    # The waves of sinusoidal positions are as high as the initial parameters.
    waves = ("initializer_range",) if model.config.positions == "sinusoidal" else ()
    names = (*MODEL_SHAPE, *waves)
    theirs = {name: getattr(model.config, name) for name in names}
    wanted = {name: getattr(experiment.model, name) for name in names}
    asked = [name for name in names if f"model.{name}" in given]
    rows = wanted["vocab_size"] if "vocab_size" in asked else vocabulary_size
    free = set(OF_ROTARY) if model.config.positions == "rotary" else set()
    if not POSITION_ROWS[model.config.positions]:
        free.add("max_position_embeddings")
    shape = {**theirs, **{name: wanted[name] for name in asked if name in free}}
    shape["vocab_size"] = max(rows, theirs["vocab_size"])
    if "max_position_embeddings" in asked:
        longest = max(wanted["max_position_embeddings"], shape["max_position_embeddings"])
        shape["max_position_embeddings"] = longest
    differing = [
        f"model.{name} is {wanted[name]}, not {shape[name]}" for name in asked if wanted[name] != shape[name]
    ]
    if differing:
        raise UserError(
            f"the model of --init-from, {model.name}, has another shape: {'; '.join(differing)}; "
            f"leave these out, and the run takes its shape"
        )
    return dataclasses.replace(experiment, model=dataclasses.replace(experiment.model, **shape))
