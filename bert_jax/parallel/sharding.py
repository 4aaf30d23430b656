"""How each array of a state is sharded over a mesh with the axes data, fsdp and tensor.

A table maps the end of a parameter's path to mesh axes. Optimizer moments have the same paths as
their parameters and so the same sharding. A dimension that its mesh axis does not divide is not split, and an
array of another rank than its row in the table is replicated.
"""

import itertools
import operator
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.tree_util import tree_map_with_path

from bert_jax.config import ParallelConfig
from bert_jax.mesh import AXES
from bert_jax.parameter_paths import names_of

# Mesh axes of each dimension; an axis named for two splits the first that it divides. Where there is a
# choice, fsdp does not split the hidden size where a TPU lays it out in registers of 128: a quarter of
# BERT-BASE's 768 does not fill them, and XLA then sums the whole gradient on each chip instead of scattering
# it.
_TABLE: dict[tuple[str, ...], tuple[tuple[str, ...], ...]] = {
    ("word_embeddings", "embedding"): (("tensor", "fsdp"), ("fsdp",)),
    ("query", "kernel"): ((), ("tensor",), ("fsdp",)),
    ("key", "kernel"): ((), ("tensor",), ("fsdp",)),
    ("value", "kernel"): ((), ("tensor",), ("fsdp",)),
    ("attention", "output", "kernel"): (("tensor",), ("fsdp",), ()),
    ("intermediate", "kernel"): (("fsdp",), ("tensor",)),
    ("gate", "kernel"): (("fsdp",), ("tensor",)),
    ("output", "kernel"): (("tensor", "fsdp"), ()),
    ("dense", "kernel"): (("fsdp",), ()),
    ("embeddings_project", "kernel"): (("fsdp",), ()),
}


def make_mesh(config: ParallelConfig, devices: list[jax.Device]) -> Mesh:
    """A mesh of these devices, whose number fsdp x tensor divides; the third axis, data, has the quotient."""
    shape = (len(devices) // (config.fsdp * config.tensor), config.fsdp, config.tensor)
    # Not jax.make_mesh, which refuses most shapes that would split an axis of the slice's own grid.
    grid = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * 3)


def state_sharding(mesh: Mesh, abstract_state):  # type: ignore[no-untyped-def]
    """A NamedSharding for each array of a state (a tree of ShapeDtypeStruct)."""

    def place(path: tuple, leaf: jax.ShapeDtypeStruct) -> NamedSharding:
        return NamedSharding(mesh, _spec(mesh, names_of(path), leaf.shape))

    return tree_map_with_path(place, abstract_state)


class BatchRows:
    """The rows of a batch that this process's devices hold, and so the only ones it has to make.

    They are taken from the sharding: on a TPU slice they need not be adjacent, and processes that
    share a tensor axis hold the same rows. With one process they are all rows.
    """

    def __init__(self, sharding: NamedSharding) -> None:
        """
        Args:
          sharding: how the first axis of a batch is split over the devices of all processes.
        """
        self._sharding = sharding
        devices = sharding.num_devices
        self._num_blocks = devices // sharding.shard_shape((devices,))[0]
        holders: dict[int, list[jax.Device]] = {}
        for device, index in sharding.devices_indices_map((self._num_blocks,)).items():
            holders.setdefault(self._first(index, self._num_blocks), []).append(device)
        here = sharding.addressable_devices
        self._blocks = [block for block in sorted(holders) if not here.isdisjoint(holders[block])]
        first = [min(holders[block], key=lambda device: device.id) for block in self._blocks]
        self._counted_here = np.array([device in here for device in first])

    @property
    def num_blocks_here(self) -> int:
        """Number of equal blocks of rows held here; devices that share rows hold the same block."""
        return len(self._blocks)

    def ranges(self, batch_size: int) -> tuple[tuple[int, int], ...]:
        """The rows of a batch of this size that are held here, as half-open ranges, ascending."""
        return join_blocks(self._blocks, batch_size // self._num_blocks)

    def put(self, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        """Device arrays of the whole batch, to which this process contributes the rows held here."""
        return {name: self._put(rows) for name, rows in batch.items()}

    def counted_here(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The rows held here that this process counts; over all processes, each row is counted once."""
        kept = {name: self._by_block(rows)[self._counted_here] for name, rows in batch.items()}
        return {name: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]) for name, x in kept.items()}

    def _put(self, rows: np.ndarray) -> jax.Array:
        blocks = dict(zip(self._blocks, self._by_block(rows), strict=True))
        size = len(rows) // len(self._blocks)
        shape = (size * self._num_blocks, *rows.shape[1:])
        return jax.make_array_from_callback(
            shape, self._sharding, lambda index: blocks[self._first(index, shape[0]) // size]
        )

    @staticmethod
    def _first(index: tuple[slice, ...] | None, num_rows: int) -> int:
        return index[0].indices(num_rows)[0] if index else 0

    def _by_block(self, rows: np.ndarray) -> np.ndarray:
        return split_rows(rows, len(self._blocks))


def split_rows(rows: np.ndarray, parts: int) -> np.ndarray:
    """[B, ...] as [parts, B / parts, ...]; other axes may be empty, such as the mask slots of an LTR run."""
    return rows.reshape(parts, len(rows) // parts, *rows.shape[1:])


def join_blocks(blocks: Sequence[int], size: int) -> tuple[tuple[int, int], ...]:
    """Half-open ranges of the rows of blocks of one size; [0, 1, 4] of size 2 are (0, 4) and (8, 10)."""
    # In a run of consecutive blocks, the difference between number and place in the list is constant.
    runs = itertools.groupby(enumerate(blocks), lambda pair: pair[1] - pair[0])
    spans = [[block for _, block in run] for _, run in runs]
    return tuple((span[0] * size, (span[-1] + 1) * size) for span in spans)


def _spec(mesh: Mesh, names: tuple[str, ...], shape: tuple[int, ...]) -> PartitionSpec:
    # The longest matching suffix decides: "attention, output" before "output".
    for suffix in sorted(_TABLE, key=len, reverse=True):
        axes = _TABLE[suffix]
        if names[-len(suffix) :] == suffix and len(axes) == len(shape):
            return PartitionSpec(*_dividing(mesh, axes, shape))
    return PartitionSpec()


def _dividing(mesh: Mesh, axes: tuple[tuple[str, ...], ...], shape: tuple[int, ...]) -> list[tuple[str, ...]]:
    """For each dimension the first of its axes, as many as divide its size together and are still free."""
    chosen: list[tuple[str, ...]] = []
    for named, size in zip(axes, shape, strict=True):
        free = [axis for axis in named if axis not in itertools.chain(*chosen)]
        numbers = itertools.accumulate((mesh.shape[axis] for axis in free), operator.mul)
        chosen.append(tuple(free[: sum(size % number == 0 for number in numbers)]))
    return chosen
