"""The TPU kernel of rotary positions against plain operations, interpreted where there is no TPU."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model import rotation_kernel_tpu
from bert_jax.model.positions import rotate_by_kernel, rotate_plainly

BATCH, LENGTH, WIDTH = 2, 128, 64


@pytest.mark.parametrize("heads", [1, 3, 4])
@pytest.mark.parametrize("rows", [(), (BATCH,)], ids=["same in all rows", "packed"])
def test_kernel_rotates_as_plain_operations_do(
    heads: int, rows: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation_kernel_tpu, "_MOST", 2 * WIDTH * LENGTH)  # four heads take two steps
    random = np.random.default_rng(0)
    x, weights = (jnp.asarray(random.normal(size=(BATCH, LENGTH, heads, WIDTH)), jnp.bfloat16) for _ in "xw")
    angles = random.uniform(0, 7, (*rows, LENGTH, WIDTH // 2)).astype(np.float32)

    def train(rotate):  # type: ignore[no-untyped-def]
        def loss(x: jax.Array) -> tuple[jax.Array, jax.Array]:
            rotated = rotate(x, jnp.cos(angles), jnp.sin(angles))
            return (rotated.astype(jnp.float32) * weights).sum(), rotated

        return jax.grad(loss, has_aux=True)(x)

    interpret = jax.default_backend() != "tpu"
    for ours, plain in zip(
        train(functools.partial(rotate_by_kernel, interpret=interpret)), train(rotate_plainly), strict=True
    ):
        assert ours.dtype == jnp.bfloat16
        np.testing.assert_allclose(ours.astype(np.float32), plain.astype(np.float32), rtol=2**-8, atol=1e-6)


def test_sizes_that_the_kernel_takes() -> None:
    assert rotation_kernel_tpu.fits(128, 64, jnp.bfloat16)
    assert not rotation_kernel_tpu.fits(21, 64, jnp.bfloat16)  # the last layer's predicted positions
    assert not rotation_kernel_tpu.fits(128, 64, jnp.float32)
    assert not rotation_kernel_tpu.fits(128, 48, jnp.bfloat16)
    assert not rotation_kernel_tpu.fits(16_384, 64, jnp.bfloat16)
