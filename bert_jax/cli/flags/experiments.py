"""The flags of `bert-jax experiments`."""

import dataclasses
from typing import Annotated

import tyro


@dataclasses.dataclass(frozen=True)
class Experiments:
    """List the named experiments with their sizes, or show all settings of one.

    Parameters include the pretraining heads. Tokens (with padding) and FLOPs (forward and
    backward) are for the whole run.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = ""
    """Experiment to show in full; without it, all are listed."""
