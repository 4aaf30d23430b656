"""The attention kernels compute what the plain operations compute, with the dropout of their own generator.

On a TPU its kernel itself runs; elsewhere, and that of GPUs everywhere, jax interprets it: a GPU would round
the float32 products of these tests.
"""

import contextlib
import dataclasses
import functools
import itertools
import types
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from jax.sharding import AxisType

from bert_jax.model import attention_kernel_gpu, attention_tiling, threefry
from bert_jax.model.attention import (
    Projections,
    attend,
    attend_fused,
    attend_fused_on_gpu,
    attend_plainly,
    attention_bias,
    attention_scores,
)
from bert_jax.model.attention_tiling import Step
from bert_jax.model.dropout import RESOLUTION, num_dropped
from bert_jax.model.encoder import Encoder
from bert_jax.model_config import ModelConfig

INTERPRET = jax.default_backend() != "tpu"
ROWS, LENGTH, HEADS, WIDTH = 2, 256, 4, 16
RATE = 0.1

MASK = np.arange(LENGTH) < np.array([[100], [LENGTH]])
INSTANCES = np.where(np.arange(LENGTH) < 140, 0, 140) * np.ones((ROWS, 1), int)
BIASES = {
    "padded": attention_bias(ModelConfig(), jnp.asarray(MASK)),
    "causal": attention_bias(ModelConfig(attention="causal"), jnp.asarray(MASK)),
    "window": attention_bias(ModelConfig(attention_window=9), jnp.asarray(MASK), jnp.asarray(INSTANCES)),
    "packed": attention_bias(ModelConfig(), jnp.asarray(MASK), jnp.asarray(INSTANCES)),
}


def normal(number: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(number), shape)


PROJECTIONS: Projections = tuple(
    (normal(i, ROWS, LENGTH, HEADS, WIDTH), normal(3 + i, HEADS, WIDTH)) for i in range(3)
)
# A different weight for each output, so that no gradient is zero by symmetry.
WEIGHTS = normal(6, ROWS, LENGTH, HEADS, WIDTH)


def attend_with_the_kernels_draws(
    projections: Projections,
    bias: jax.Array,
    key: jax.Array,
    rate: float,
    kept: Callable[[jax.Array, float], jax.Array],
) -> jax.Array:
    """Attention by its definition, except that a kernel's generator chooses what is dropped."""
    q, k, v = ((product + offset).swapaxes(1, 2) for product, offset in projections)
    kept_BNTQ = kept(jax.random.bits(key, (2,), jnp.uint32), rate)
    scale = RESOLUTION / (RESOLUTION - num_dropped(rate))
    probabilities = jax.nn.softmax(attention_scores(q, k, bias)) * scale
    return jnp.einsum("bnqt,bntk->bqnk", jnp.where(kept_BNTQ.swapaxes(2, 3), probabilities, 0.0), v)


def kept(words: jax.Array, first_head: int, rate: float) -> jax.Array:
    head = jnp.uint32(first_head)
    return threefry.keep(words[0], words[1], head, (HEADS, LENGTH, LENGTH), num_dropped(rate))


def kept_on_tpu(words: jax.Array, rate: float) -> jax.Array:
    """bool [B, N, T, Q], which scores the kernel of TPUs keeps."""
    return jnp.stack([kept(words, row * HEADS, rate) for row in range(ROWS)])


def kept_on_gpu(
    words: jax.Array, rate: float, shape: tuple[int, int, int] = (ROWS, HEADS, LENGTH)
) -> jax.Array:
    """bool [B, N, T, Q], which scores the kernel of GPUs keeps."""
    seed = jnp.array([*words, 0, 0], jnp.uint32)
    stored = attention_kernel_gpu.keep_words(seed, shape, HEADS, num_dropped(rate))
    by_block = [(stored >> i) & 1 for i in range(shape[2] // 64)]
    return jnp.concatenate(by_block, axis=3).swapaxes(2, 3) == 1


def value_and_gradients(attend: Callable[[Projections], jax.Array], weights: jax.Array) -> list[np.ndarray]:
    def loss(projections: Projections) -> tuple[jax.Array, jax.Array]:
        mixed = attend(projections)
        return (mixed * weights).sum(), mixed

    gradients, mixed = jax.jit(jax.grad(loss, has_aux=True))(PROJECTIONS)
    return [np.asarray(array) for array in (mixed, *jax.tree.leaves(gradients))]


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("dropout", ["without_dropout", "with_dropout"])
@pytest.mark.parametrize(("queries", "takes_output"), [(LENGTH, True), (LENGTH, False), (128, True)])
def test_outputs_and_gradients_are_those_of_the_plain_operations(
    bias: str, dropout: str, queries: int, takes_output: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Step, "takes_output", takes_output)
    if queries < LENGTH:
        monkeypatch.setattr(attention_tiling, "_MOST_SCORES", queries * LENGTH)
    assert attention_tiling.step_of(HEADS, WIDTH, LENGTH).queries == queries
    key = jax.random.key(9) if dropout == "with_dropout" else None
    fused = functools.partial(attend_fused, interpret=INTERPRET)
    check_outputs_and_gradients(fused, kept_on_tpu, BIASES[bias], key)


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("dropout", ["without_dropout", "with_dropout"])
def test_those_of_the_gpu_kernel_are_too(bias: str, dropout: str) -> None:
    key = jax.random.key(9) if dropout == "with_dropout" else None
    fused = functools.partial(attend_fused_on_gpu, interpret=True)
    # No loss depends on a position that sees none; the gradient's rounding there is that of scores of -10000.
    sees = (BIASES[bias] == 0).any(axis=3).swapaxes(1, 2)[..., None]
    check_outputs_and_gradients(fused, kept_on_gpu, BIASES[bias], key, WEIGHTS * sees)


@pytest.mark.parametrize("queries", [LENGTH, 128])
@pytest.mark.parametrize("biased", [(), (2,)])
def test_a_bias_that_is_missing_is_one_of_zeros(
    biased: tuple[int, ...], queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_tiling, "_MOST_SCORES", queries * LENGTH)

    def loss(biases: list[jax.Array | None], products: list[jax.Array]) -> jax.Array:
        projections = tuple(zip(products, biases, strict=True))
        fused = functools.partial(attend_fused, interpret=INTERPRET)
        return (fused(projections, BIASES["padded"], None, 0.0) * WEIGHTS).sum()

    products = [product for product, _ in PROJECTIONS]
    missing = [bias if i in biased else None for i, (_, bias) in enumerate(PROJECTIONS)]
    zeros = [bias if i in biased else 0 * bias for i, (_, bias) in enumerate(PROJECTIONS)]
    gradients = jax.jit(jax.grad(loss, argnums=(0, 1)))
    of_biases, of_products = gradients(missing, products)
    expected_of_biases, expected_of_products = gradients(zeros, products)
    assert [bias is not None for bias in of_biases] == [i in biased for i in range(3)]
    for i in biased:
        np.testing.assert_array_equal(of_biases[i], expected_of_biases[i])
    np.testing.assert_array_equal(of_products, expected_of_products)


@pytest.mark.parametrize("window", [None, 64])
@pytest.mark.parametrize("rate", [0.0, RATE])
def test_in_bfloat16_gradients_are_those_of_float32_within_its_rounding(
    window: int | None, rate: float
) -> None:
    length = 512  # of which a window has tiles

    def gradients(projections: Projections) -> list[np.ndarray]:
        def loss(projections: Projections) -> jax.Array:
            mixed = attend_fused(projections, bias, jax.random.key(9), rate, window, INTERPRET)
            return (mixed * weights).sum(dtype=jnp.float32)

        return [np.asarray(x, np.float32) for x in jax.tree.leaves(jax.jit(jax.grad(loss))(projections))]

    bias = attention_bias(ModelConfig(attention_window=window), jnp.ones((1, length), int))
    weights = normal(6, 1, length, HEADS, WIDTH)
    projections = tuple((normal(i, 1, length, HEADS, WIDTH), normal(3 + i, HEADS, WIDTH)) for i in range(3))
    low = tuple((product.astype(jnp.bfloat16), offset) for product, offset in projections)
    exact = tuple((product.astype(jnp.float32), offset) for product, offset in low)
    expected = gradients(exact)
    for number, (array, wanted) in enumerate(zip(gradients(low), expected, strict=True)):
        size = np.sqrt(np.mean(wanted**2))
        if wanted.ndim == 2:  # of a bias, a sum over positions, which for the keys is nothing but rounding
            size = np.sqrt(length * np.mean(expected[number - 1] ** 2))
        assert np.sqrt(np.mean((array - wanted) ** 2)) < 0.025 * size


def check_outputs_and_gradients(
    fused: Callable[..., jax.Array],
    kept: Callable[[jax.Array, float], jax.Array],
    bias: jax.Array,
    key: jax.Array | None,
    weights: jax.Array = WEIGHTS,
) -> None:
    plain = functools.partial(attend_with_the_kernels_draws, kept=kept) if key is not None else attend_plainly
    arguments = {"bias": bias, "key": key, "rate": RATE}
    expected = value_and_gradients(functools.partial(plain, **arguments), weights)
    ours = value_and_gradients(functools.partial(fused, **arguments), weights)
    for array, wanted in zip(ours, expected, strict=True):
        # The gradient of the keys' bias is zero but for the rounding of a sum over 256 positions.
        np.testing.assert_allclose(array, wanted, rtol=2e-5, atol=5e-5)


def test_the_plain_operations_drop_probabilities_and_scale_the_others_up() -> None:
    eye = jnp.broadcast_to(jnp.eye(LENGTH)[:, None], (ROWS, LENGTH, HEADS, LENGTH))
    projections = (*PROJECTIONS[:2], (eye, jnp.zeros((HEADS, LENGTH))))
    attend_to_each = functools.partial(attend_plainly, projections, BIASES["padded"])
    left = np.asarray(attend_to_each(jax.random.key(9), RATE)).swapaxes(1, 2)
    queries, keys = ((product + offset).swapaxes(1, 2) for product, offset in PROJECTIONS[:2])
    probabilities = np.asarray(jax.nn.softmax(attention_scores(queries, keys, BIASES["padded"])))
    np.testing.assert_allclose(left[left > 0], probabilities[left > 0] / (1 - RATE), rtol=1e-4)
    # The standard deviation of the dropped share is 0.0009.
    assert abs((left[probabilities > 0] == 0).mean() - RATE) < 0.004


def test_the_generator_is_threefry() -> None:
    key, counters = jnp.array([3, 5], jnp.uint32), jnp.arange(64, dtype=jnp.uint32) * 12345
    ours = threefry.threefry2x32((key[0], key[1]), (counters[:32], counters[32:]), rounds=20)
    np.testing.assert_array_equal(jnp.concatenate(ours), threefry_2x32(key, counters))


@pytest.mark.parametrize("prng", ["rbg", "threefry2x32"])
def test_each_element_has_bits_of_its_own(prng: str) -> None:
    key = jax.random.key(7, impl=prng)
    bits = threefry.random_bits(key, (2, 3, 4, 5))
    key0, key1 = jax.random.bits(key, (2,), jnp.uint32)
    row, column = jnp.indices((2, 3 * 4 * 5), jnp.uint32)
    expected, _ = threefry.threefry2x32((key0, key1), (row, column), rounds=13)
    np.testing.assert_array_equal(bits.reshape(2, -1), expected)
    assert len(np.unique(bits)) == bits.size


def test_draws_drop_their_share_and_differ_by_head_and_key() -> None:
    words = jnp.array([[1, 2], [1, 3]], jnp.uint32)
    ours, later, other = kept(words[0], 0, RATE), kept(words[0], 4, RATE), kept(words[1], 0, RATE)
    for draws in (ours, later, other):
        # The share's standard deviation is 0.0012 over 4 heads.
        assert abs(float((~draws).mean()) - RATE) < 0.005
    # Two independent draws agree where both keep or both drop.
    agreement = (1 - RATE) ** 2 + RATE**2
    quarters = itertools.combinations(jnp.split(ours, 4, axis=1), 2)  # a block of words gives all four
    for left, right in ((ours, later), (ours, other), (ours[:2], ours[2:]), *quarters):
        assert abs(float((left == right).mean()) - agreement) < 0.015


def test_only_sizes_that_fill_registers_and_fit_are_taken() -> None:
    taken = [t for t in range(1, 2500) if attention_tiling.fits(t, t, 64, jnp.bfloat16)]
    assert taken == list(range(128, 2049, 128))
    assert not attention_tiling.fits(21, 128, 64, jnp.bfloat16)  # the last layer's predicted positions
    assert not attention_tiling.fits(128, 128, 64, jnp.float32)
    assert not attention_tiling.fits(128, 128, 24, jnp.bfloat16)


@pytest.mark.parametrize(("length", "bits"), [(64, 8), (192, 8), (512, 8), (576, 16), (1088, 32), (2048, 32)])
def test_the_gpu_kernel_keeps_a_bit_for_each_score(length: int, bits: int) -> None:
    seed, shape = jnp.array([5, 6, 0, 0], jnp.uint32), (1, HEADS, length)
    assert attention_kernel_gpu.keep_words(seed, shape, HEADS, num_dropped(0.5)).dtype == f"uint{bits}"
    kept_NTQ = np.asarray(kept_on_gpu(seed[:2], 0.5, shape))[0]
    # The standard deviation of the share is at most 0.004.
    assert abs(kept_NTQ.mean() - 0.5) < 0.015
    for columns in (kept_NTQ.swapaxes(1, 2), kept_NTQ):
        assert len(np.unique(columns.reshape(-1, length), axis=0)) == HEADS * length


def test_the_gpu_kernel_takes_what_fills_its_blocks() -> None:
    taken = [t for t in range(1, 2500) if attention_kernel_gpu.fits(t, t, 64, jnp.bfloat16)]
    assert taken == list(range(64, 2049, 64))
    assert not attention_kernel_gpu.fits(21, 128, 64, jnp.bfloat16)  # the last layer's predicted positions
    assert not attention_kernel_gpu.fits(128, 128, 64, jnp.float32)
    assert not attention_kernel_gpu.fits(128, 128, 96, jnp.bfloat16)


@pytest.mark.parametrize(
    ("capabilities", "taken"),
    [
        (("8.0",), True),
        (("9.0", "9.0"), True),
        (("7.5",), False),
        (("9.0", "7.0"), False),
        (("gfx90a",), True),
    ],
)
def test_older_gpus_are_left_to_the_plain_operations(
    capabilities: tuple[str, ...], taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = [types.SimpleNamespace(platform="gpu", compute_capability=number) for number in capabilities]
    monkeypatch.setattr(jax, "local_devices", lambda: gpus)
    assert attention_kernel_gpu.fits(128, 128, 64, jnp.bfloat16) == taken


@pytest.mark.parametrize(("dtype", "kernels"), [("bfloat16", 3), ("float32", 0)])
def test_a_program_for_gpus_has_the_kernel(dtype: str, kernels: int) -> None:
    def gradients(projections: Projections, bias: jax.Array, key: jax.Array) -> Projections:
        return jax.grad(lambda p: attend(p, bias, key, RATE, False).astype(jnp.float32).sum())(projections)

    projections = tuple((product.astype(dtype), offset) for product, offset in PROJECTIONS)
    arguments = jax.eval_shape(lambda: (projections, BIASES["packed"], jax.random.key(0)))
    # From 0.11 on jax asks which GPU it is, where none is present.
    gpu = jax.sharding.AbstractDevice("NVIDIA H100", num_cores=None, platform="gpu")
    mesh = jax.sharding.AbstractMesh((1,), ("x",), (AxisType.Explicit,), abstract_device=gpu)
    with jax.sharding.use_abstract_mesh(mesh):
        traced = jax.jit(gradients).trace(*arguments)
        program = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert program.count("xla.gpu.triton") == kernels


@pytest.mark.parametrize(
    ("heads", "width", "length", "window", "step"),
    [
        (12, 64, 128, None, Step(12, 128, 128)),
        (40, 64, 128, None, Step(20, 128, 128)),
        (12, 64, 256, None, Step(6, 256, 256)),
        (12, 64, 512, None, Step(2, 512, 512)),
        (12, 64, 640, None, Step(1, 640, 640)),
        (12, 64, 1024, None, Step(1, 512, 1024)),
        (12, 64, 2048, None, Step(1, 256, 2048)),
        (12, 64, 384, 64, Step(3, 384, 384)),
        (8, 256, 256, None, Step(4, 256, 256)),
    ],
)
def test_a_step_has_as_much_as_fits(
    heads: int, width: int, length: int, window: int | None, step: Step
) -> None:
    assert attention_tiling.step_of(heads, width, length, window) == step


V4, V5E = ("TPU v4", 16 * 2**20), ("TPU v5 lite", 32 * 2**20)


@pytest.mark.parametrize(
    ("chip", "sizes", "heads_of_step", "keys"),
    [
        (V5E, (12, 64, 512, 64), 12, 256),
        (V5E, (12, 64, 1024, 64), 6, 256),
        (V5E, (12, 64, 1024, 65), 4, 384),
        (V5E, (12, 192, 1024, 64), 3, 256),
        (V5E, (12, 64, 2048, 256), 1, 640),
        (V4, (12, 64, 512, 64), 6, 256),
        (V4, (12, 64, 1024, 64), 4, 256),
        (V4, (12, 64, 2048, 64), 2, 256),
        (V4, (12, 64, 2048, 256), 1, 640),
        (V4, (12, 128, 2048, 256), 1, None),
        (V5E, (12, 16, 2048, 321), 12, None),
    ],
)
def test_tiles_of_a_window_fit_the_chip(
    chip: tuple[str, int], sizes: tuple[int, int, int, int], heads_of_step: int, keys: int | None
) -> None:
    name, memory = chip
    with on_chip(name):
        step = attention_tiling.step_of(*sizes)
    length = sizes[2]
    if keys is None:
        assert (step.margin, step.keys, step.memory) == (0, length, None)
    else:
        assert step == Step(heads_of_step, length, keys, (keys - 128) // 2, memory)


@pytest.mark.parametrize(("chip", "heads"), [(V5E, 12), (V4, 6)])
def test_the_forward_pass_without_dropout_takes_more_heads_in_a_window(
    chip: tuple[str, int], heads: int
) -> None:
    with on_chip(chip[0]):
        assert attention_tiling.step_of(12, 64, 1024, 64, is_light=True).heads == heads
    assert attention_tiling.step_of(12, 64, 1024, is_light=True) == Step(1, 512, 1024)


@pytest.mark.parametrize("chip", ["TPU v4", "TPU v5"])
@pytest.mark.parametrize("window", [None, 1, 64, 128, 200, 320, 384, 1024])
def test_steps_divide_heads_and_sequences(chip: str, window: int | None) -> None:
    with on_chip(chip):
        for heads, width in itertools.product((1, 12, 40), range(16, 257, 16)):
            for length in range(128, 2049, 128):
                step = attention_tiling.step_of(heads, width, length, window)
                assert heads % step.heads == length % step.queries == 0
                assert step.queries % 128 == step.keys % 128 == 0


def on_chip(name: str) -> contextlib.AbstractContextManager:
    """Has a kernel made for a TPU that is not there."""
    device = jax.sharding.AbstractDevice(name, num_cores=1, platform="tpu")
    mesh = jax.sharding.AbstractMesh((1,), ("x",), (AxisType.Explicit,), abstract_device=device)
    return jax.sharding.use_abstract_mesh(mesh)


def test_a_bias_of_each_head_is_left_to_the_plain_operations() -> None:
    """A position encoding such as ALiBi needs one; dtype and length here are ones that the kernel takes."""
    projections = jax.tree.map(lambda x: x.astype(jnp.bfloat16), PROJECTIONS)
    slopes = jnp.arange(1.0, HEADS + 1)[:, None, None]
    distance = jnp.abs(jnp.arange(LENGTH)[:, None] - jnp.arange(LENGTH))
    bias = BIASES["padded"] - (slopes * distance)[None]
    assert attention_tiling.fits(LENGTH, LENGTH, WIDTH, jnp.bfloat16)
    mixed = jax.jit(attend, static_argnums=(3, 4))(projections, bias, None, 0.0, True)
    np.testing.assert_array_equal(
        mixed, jax.jit(attend_plainly, static_argnums=3)(projections, bias, None, 0.0)
    )


@pytest.mark.parametrize("seen", ["padded", "causal"])
def test_on_cpu_long_queries_are_taken_in_blocks_where_there_are_no_gradients(seen: str) -> None:
    length = 300  # two whole blocks and a part of a third
    random = np.random.default_rng(4)
    shapes = [((2, length, 2, 8), (2, 8))] * 3
    projections = tuple(tuple(random.normal(size=shape).astype(np.float32) for shape in s) for s in shapes)
    masked = np.arange(length) >= np.array([[length], [211]])
    hidden = masked[:, None, None, :]
    if seen == "causal":
        hidden = hidden | ~np.tri(length, dtype=bool)
    bias = np.where(hidden, np.float32(-10000), np.float32(0))

    with jax.default_device(jax.devices("cpu")[0]):
        in_blocks = jax.jit(attend, static_argnums=(3, 4))(projections, bias, None, 0.0, True)
        np.testing.assert_allclose(
            in_blocks, attend_plainly(projections, bias, None, 0.0), rtol=1e-5, atol=1e-6
        )


def test_on_cpu_the_encoder_takes_blocks_but_in_training() -> None:
    config = ModelConfig(
        vocab_size=50, num_layers=1, hidden_size=16, num_heads=2, intermediate_size=16, dropout_rate=0.0
    )
    config = dataclasses.replace(config, attention_dropout_rate=0.0)
    ids = jnp.ones((1, 300), jnp.int32)
    batch = {"input_ids": ids, "input_mask": ids, "segment_ids": ids}
    shapes = jax.eval_shape(
        functools.partial(Encoder(config).init, deterministic=True), jax.random.key(0), batch
    )

    def program(config: ModelConfig, deterministic: bool) -> str:
        apply = jax.jit(functools.partial(Encoder(config).apply, deterministic=deterministic))
        return apply.trace(shapes, batch).lower(lowering_platforms=("cpu",)).as_text()

    whole, *blocks = (f"tensor<1x2x{rows}x300xf32>" for rows in (300, 128, 44))
    in_blocks = program(config, deterministic=True)
    assert whole not in in_blocks
    assert all(block in in_blocks for block in blocks)
    assert whole in program(config, deterministic=False)
    assert whole in program(dataclasses.replace(config, attention_kernel="none"), deterministic=True)


def test_on_cpu_nothing_depends_on_the_kernel() -> None:
    config = ModelConfig(
        vocab_size=50, num_layers=1, hidden_size=32, num_heads=2, intermediate_size=32, dtype="bfloat16"
    )
    ids = jnp.arange(2 * LENGTH).reshape(2, LENGTH) % 50
    batch = {"input_ids": ids, "input_mask": jnp.ones_like(ids), "segment_ids": jnp.zeros_like(ids)}
    params = jax.jit(functools.partial(Encoder(config).init, deterministic=True))(jax.random.key(0), batch)

    def outputs(config: ModelConfig) -> np.ndarray:
        apply = functools.partial(Encoder(config).apply, deterministic=False)
        return np.asarray(jax.jit(apply)(params, batch, rngs={"dropout": jax.random.key(1)}), np.float32)

    none = dataclasses.replace(config, attention_kernel="none")
    with jax.default_device(jax.devices("cpu")[0]):
        np.testing.assert_array_equal(outputs(config), outputs(none))
