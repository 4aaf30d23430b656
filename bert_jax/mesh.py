"""The axes of the mesh that mode jit computes on, and the mesh that a function is traced for."""

import math

import jax
from jax.sharding import AbstractMesh, PartitionSpec

AXES = ("data", "fsdp", "tensor")
# Rows of a batch are spread over these; tensor devices share rows.
BATCH_AXES = ("data", "fsdp")
BATCH_SPEC = PartitionSpec(BATCH_AXES)


def mesh_in_use() -> AbstractMesh | None:
    """The mesh from `make_mesh` that a function is traced for; its arrays are then global.

    None where arrays belong to one device: without a mesh, and in pmap, which has a mesh of its own.
    """
    mesh = jax.sharding.get_abstract_mesh()
    return mesh if mesh.axis_names == AXES else None


def batch_parts() -> int:
    """The number of parts that a batch's rows have on the mesh in use; 1 without a mesh."""
    mesh = mesh_in_use()
    return math.prod(mesh.shape[axis] for axis in BATCH_AXES) if mesh else 1


def head_axes(mesh: AbstractMesh, num_heads: int) -> tuple[str, ...]:
    """The axes of a mesh that heads are spread over: tensor, if it divides their number."""
    return ("tensor",) if num_heads % mesh.shape["tensor"] == 0 else ()
