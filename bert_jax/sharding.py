"""Where each array of a state lives on a mesh with the axes data, fsdp and tensor.

A table from the end of a parameter's path to mesh axes. Optimizer moments have the same paths as
their parameters and so the same places; a dimension that an axis does not divide is kept whole.
"""

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.tree_util import DictKey, tree_map_with_path

from bert_jax.config import ParallelConfig
from data_pipeline.errors import UserError

AXES = ("data", "fsdp", "tensor")
# Rows of a batch are spread over these; tensor devices share rows.
BATCH_AXES = ("data", "fsdp")
BATCH_SPEC = PartitionSpec(BATCH_AXES)

_TABLE: dict[tuple[str, ...], tuple[str | None, ...]] = {
    ("word_embeddings", "embedding"): ("tensor", "fsdp"),
    ("query", "kernel"): ("fsdp", "tensor", None),
    ("key", "kernel"): ("fsdp", "tensor", None),
    ("value", "kernel"): ("fsdp", "tensor", None),
    ("attention", "output", "kernel"): ("tensor", None, "fsdp"),
    ("intermediate", "kernel"): ("fsdp", "tensor"),
    ("output", "kernel"): ("tensor", "fsdp"),
    ("dense", "kernel"): ("fsdp", None),
}


def make_mesh(config: ParallelConfig, devices: list[jax.Device] | None = None) -> Mesh:
    """A mesh of all devices; those that fsdp and tensor do not take are data-parallel.

    Raises:
      UserError: fsdp x tensor does not divide the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    inner = config.fsdp * config.tensor
    if len(devices) % inner:
        raise UserError(
            f"parallel.fsdp x parallel.tensor is {inner}, which does not divide {len(devices)} devices"
        )
    shape = (len(devices) // inner, config.fsdp, config.tensor)
    return jax.make_mesh(shape, AXES, axis_types=(AxisType.Auto,) * 3, devices=devices)


def state_sharding(mesh: Mesh, abstract_state):  # type: ignore[no-untyped-def]
    """A NamedSharding for each array of a state (a tree of ShapeDtypeStruct)."""

    def place(path: tuple, leaf: jax.ShapeDtypeStruct) -> NamedSharding:
        names = tuple(key.key for key in path if isinstance(key, DictKey))
        return NamedSharding(mesh, _spec(mesh, names, leaf.shape))

    return tree_map_with_path(place, abstract_state)


def _spec(mesh: Mesh, names: tuple[str, ...], shape: tuple[int, ...]) -> PartitionSpec:
    # The longest matching suffix decides: "attention, output" before "output".
    for suffix in sorted(_TABLE, key=len, reverse=True):
        if names[-len(suffix) :] == suffix:
            axes = _TABLE[suffix]
            sizes = np.array([mesh.shape[axis] if axis else 1 for axis in axes])
            divides = np.array(shape) % sizes == 0
            return PartitionSpec(*(a if ok else None for a, ok in zip(axes, divides, strict=True)))
    return PartitionSpec()
