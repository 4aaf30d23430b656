"""Any mesh that divides a slice can be laid on it, also where that splits an axis of its grid of chips."""

import numpy as np
import pytest

from bert_jax.config import ParallelConfig
from bert_jax.parallel.sharding import make_mesh
from bert_jax.tpu.topology import open_slice

pytestmark = pytest.mark.tpu


@pytest.mark.parametrize(
    ("name", "fsdp", "tensor"),
    [
        ("v4:4x4x4", 1, 1),
        ("v4:4x4x4", 2, 1),
        ("v4:4x4x4", 4, 2),
        ("v5e:4x8", 2, 2),
        ("v5p:2x4x4", 8, 1),
        ("v6e:8x8", 4, 1),
        ("v6e:4x4", 2, 1),
    ],
)
def test_chips_that_share_the_state_are_neighbours(name: str, fsdp: int, tensor: int) -> None:
    devices = list(open_slice(name).devices)
    mesh = make_mesh(ParallelConfig(fsdp=fsdp, tensor=tensor), devices)
    assert mesh.devices.shape == (len(devices) // (fsdp * tensor), fsdp, tensor)
    assert set(mesh.devices.flat) == set(devices)
    for group in mesh.devices:
        coordinates = np.array([device.coords for device in group.flat])
        assert np.prod(np.ptp(coordinates, axis=0) + 1) == fsdp * tensor
