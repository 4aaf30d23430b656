"""TPU slices by name, such as v5e:4x4, as devices that programs can be compiled for but not run on."""

import contextlib
import dataclasses
import importlib.util
import math
import os
import re
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh

from bert_jax.training.accounting import PEAK_FLOPS
from data_pipeline.errors import UserError

_FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_PARTS_OF_A_CUBE = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")

# Environment variables that libtpu needs on a machine without a TPU.
_NO_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    # libtpu's lock keeps two processes from using one TPU; here there is none.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


@dataclasses.dataclass(frozen=True)
class Chip:
    """A TPU generation, according to its data sheet (cloud.google.com/tpu/docs)."""

    peak_flops: float
    """Dense bfloat16 FLOP/s."""
    hbm_gib: int
    hbm_bandwidth: float
    """Bytes a second."""
    link_bandwidth: float
    """Bytes a second that a link to a neighbouring chip carries in one direction."""
    clock_hz: float
    """Clock that converts the compiler's cycle estimates to seconds; the rate at which fully busy matrix
    units reach `peak_flops`."""
    shapes: tuple[str, ...]
    """Shapes of the slices of one pod, except those made of whole cubes."""
    most_in_cubes: int = 0
    """Chips in the largest slice made of cubes of 4x4x4 chips; 0 if there are no such slices."""
    cores: int = 1
    """TensorCores of one device."""
    devices: int = 1
    """Devices of one chip; the other values are those of a device."""


CHIPS = {
    "v4": Chip(PEAK_FLOPS["v4"], 32, 1.228e12, 50e9, 1.05e9, _PARTS_OF_A_CUBE, 4096, cores=2),
    "v5e": Chip(PEAK_FLOPS["v5e"], 16, 0.819e12, 50e9, 1.5e9, _FLAT),
    "v5p": Chip(PEAK_FLOPS["v5p"], 95, 2.765e12, 100e9, 1.75e9, _PARTS_OF_A_CUBE, 6144, cores=2),
    "v6e": Chip(PEAK_FLOPS["v6"], 32, 1.638e12, 100e9, 1.75e9, _FLAT),
    # The links of a chip are shared by its two devices, which have a link of their own between them.
    "tpu7x": Chip(PEAK_FLOPS["tpu7x"], 96, 3.69e12, 50e9, 2.2e9, _PARTS_OF_A_CUBE, 9216, devices=2),
}


@dataclasses.dataclass(frozen=True)
class Slice:
    """A TPU slice: connected chips of one kind."""

    name: str
    chip: Chip
    sides: tuple[int, ...]
    """Chips along each dimension."""
    devices: tuple[jax.Device, ...]
    """They hold no arrays."""

    def in_use(self) -> contextlib.AbstractContextManager:
        """Has kernels made for these devices, while it is entered, by their sizes."""
        return jax.set_mesh(Mesh(np.array(self.devices[:1]), ("device",)))

    @property
    def bandwidth(self) -> float:
        """Bytes a second that a device can send to others, over all links of its chip.

        Slices of whole cubes, and flat ones of 16 chips along a side, close into rings: there a chip has two
        neighbours along the side. A side of 2 has one link; along an open line what passes is what one link
        carries.
        """
        in_cubes = len(self.sides) == 3 and all(side % 4 == 0 for side in self.sides)
        links = [
            min(side - 1, 2 if in_cubes or (len(self.sides) == 2 and side == 16) else 1)
            for side in self.sides
        ]
        return sum(links) * self.chip.link_bandwidth


def open_slice(name: str) -> Slice:
    """The devices of a slice.

    Sets environment variables that libtpu reads and makes the CPU jax's own platform, so call it
    before jax has looked for devices.

    Args:
      name: chip and shape, such as v5e:4x4 or v5p:2x2x4.

    Raises:
      UserError: there is no such slice, or libtpu is not installed.
    """
    chip, shape = _parse(name)
    if importlib.util.find_spec("libtpu") is None:
        raise UserError("the TPU compiler is not installed: pip install -c constraints.txt -e '.[tpu]'")
    for variable, value in _NO_TPU.items():
        os.environ.setdefault(variable, value)
    jax.config.update("jax_platforms", "cpu")
    options: dict[str, Any] = {}
    if chip.cores > 1:
        options["chip_config_name"] = "megacore"  # libtpu then shows the cores as one device
    if shape == "1x1":
        options["chips_per_host_bounds"] = (1, 1, 1)
    description = topologies.get_topology_desc(name, "tpu", **options)
    sides = tuple(int(side) for side in shape.split("x"))
    return Slice(name, chip, sides, tuple(description.devices))


def _parse(name: str) -> tuple[Chip, str]:
    kind, _, shape = name.partition(":")
    if kind not in CHIPS:
        raise UserError(f"no topology {name!r}; it is a chip ({', '.join(CHIPS)}) and a shape, as v5e:4x4")
    chip = CHIPS[kind]
    if shape in chip.shapes or 0 < _chips_in_cubes(shape) <= chip.most_in_cubes:
        return chip, shape
    valid = ", ".join(f"{kind}:{shape}" for shape in chip.shapes)
    if chip.most_in_cubes:
        valid += f", and {kind}:AxBxC of up to {chip.most_in_cubes} chips, A <= B <= C multiples of 4"
    raise UserError(f"no topology {name!r}; valid: {valid}")


def _chips_in_cubes(shape: str) -> int:
    """Number of chips in a slice of whole cubes; 0 if the shape is not one."""
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){2}", shape, re.ASCII):
        return 0
    sides = [int(side) for side in shape.split("x")]
    return math.prod(sides) if sides == sorted(sides) and all(side % 4 == 0 for side in sides) else 0
