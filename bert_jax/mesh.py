"""The axes of the mesh that mode jit computes on, and the mesh that a function is traced for."""

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
