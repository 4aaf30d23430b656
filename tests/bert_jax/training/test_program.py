"""Every way of spreading a step over devices computes what one device computes."""

import dataclasses
from typing import Literal

import jax
import numpy as np
import pytest

from bert_jax.config import ParallelConfig
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import LeftToRight, MaskedLMAndNSP
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.parallel.sharding import join_blocks
from bert_jax.training.program import COMPILER_OPTIONS, compiler_options, make_program
from data_pipeline.config import DataConfig, MaskingConfig, Phase
from data_pipeline.errors import UserError
from tests.bert_jax.results_on_devices import assert_equal, run_on_eight_devices
from tests.bert_jax.tpu.small_step import MODEL, PHASE

MODES = ("accumulated", "jit", "pmap", "fsdp", "tensor_accumulated", "tensor_everywhere", "pmap_then_jit")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """What `eight_devices` computed."""
    output = tmp_path_factory.mktemp("parallel") / "results.npz"
    return run_on_eight_devices("eight_devices", output)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["params", "sums"])
@pytest.mark.parametrize("mode", MODES)
def test_two_steps_equal_those_of_one_device(results: dict[str, np.ndarray], mode: str, part: str) -> None:
    assert_equal(results, mode, part)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["evaluation", "outputs"])
@pytest.mark.parametrize("mode", ["jit", "pmap"])
def test_evaluation_equals_that_of_one_device(results: dict[str, np.ndarray], mode: str, part: str) -> None:
    # Logits also reflect the small differences that the parameters have after two steps.
    assert_equal(results, mode, part, tolerance=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["jit", "pmap"])
def test_packed_rows_are_learnt_from_as_by_one_device(results: dict[str, np.ndarray], mode: str) -> None:
    assert_equal(results, mode, "packed", tolerance=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["pmap", "tensor_accumulated"])
def test_packed_rows_are_pretrained_on_as_by_one_device(results: dict[str, np.ndarray], mode: str) -> None:
    assert_equal(results, mode, "packed_pretraining")
    assert results["one_device/packed_pretraining/sums/examples"] > 16  # instances, in fewer rows


@pytest.mark.slow
def test_two_steps_changed_the_parameters_and_counted(results: dict[str, np.ndarray]) -> None:
    assert results["one_device/sums/steps"] == 2
    assert results["one_device/sums/examples"] == 2 * 14
    assert np.abs(results["one_device/params/language_model/bias"]).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["one_device", "pmap", "fsdp", "tensor_accumulated"])
@pytest.mark.parametrize("name", ["encoder/embeddings/word_embeddings/embedding", "language_model/bias"])
def test_rows_of_new_tokens_are_drawn_and_all_others_given(
    results: dict[str, np.ndarray], mode: str, name: str
) -> None:
    given, grown = results[f"{mode}/given/{name}"], results[f"{mode}/grown/{name}"]
    np.testing.assert_array_equal(grown[:21], given)
    drawn = results[f"one_device/drawn/{name}"]
    assert len(grown) == len(drawn) == 36
    np.testing.assert_allclose(grown[21:], drawn[21:], atol=1e-6)


@pytest.mark.slow
def test_sharded_states_are_sharded(results: dict[str, np.ndarray]) -> None:
    modes = ("jit", "pmap", "fsdp", "tensor_accumulated")
    shapes = [tuple(results[f"{mode}/shard_shape"]) for mode in modes]
    assert shapes == [(36, 16), (36, 16), (36, 2), (9, 16)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["one_device", *MODES])
def test_abstract_state_describes_the_state(results: dict[str, np.ndarray], mode: str) -> None:
    assert results[f"{mode}/is_as_abstract"]


@pytest.mark.slow
def test_devices_drop_different_elements(results: dict[str, np.ndarray]) -> None:
    left = results["dropout/8/rbg"]
    assert len(np.unique(left, axis=0)) == len(left)
    assert abs(left.mean() - 1) < 0.12  # four standard deviations


@pytest.mark.slow
def test_devices_of_pmap_drop_different_elements(results: dict[str, np.ndarray]) -> None:
    losses = results["pmap/dropout"]
    assert np.diff(np.sort(losses)).min() > 1e-4


@pytest.mark.slow
def test_threefry_drops_the_same_elements_however_rows_are_spread(results: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(results["dropout/8/threefry2x32"], results["dropout/1/threefry2x32"])


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["tpu", "tpu in a window", "gpu"])
def test_the_attention_kernel_drops_the_same_however_rows_and_heads_are_spread(
    kernel: str, results: dict[str, np.ndarray]
) -> None:
    left = results[f"attention/{kernel}/8"]  # [row, query, head, width]: how many keys each query keeps
    np.testing.assert_array_equal(left, results[f"attention/{kernel}/1"])
    heads = left[..., 0].swapaxes(1, 2).reshape(-1, left.shape[1])
    assert len(np.unique(heads, axis=0)) == len(heads)


@pytest.mark.slow
def test_vectors_are_turned_the_same_however_rows_and_heads_are_spread(
    results: dict[str, np.ndarray],
) -> None:
    np.testing.assert_array_equal(results["rotation/8"], results["rotation/1"])


@dataclasses.dataclass(frozen=True)
class Device:
    platform: str
    device_kind: str


CPU, GPU = Device("cpu", "cpu"), Device("gpu", "NVIDIA H200")
V5E, V6E = Device("tpu", "TPU v5 lite"), Device("tpu", "TPU v6 lite")


def test_options_are_those_of_the_platform_and_the_kind_of_device() -> None:
    assert compiler_options(GPU) == COMPILER_OPTIONS["gpu"]
    assert compiler_options(CPU) == COMPILER_OPTIONS["cpu"]
    assert compiler_options(V5E) == COMPILER_OPTIONS["tpu"]
    assert compiler_options(V6E) == COMPILER_OPTIONS["tpu"] | COMPILER_OPTIONS["TPU v6 lite"]


def test_options_that_the_environment_names_are_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_deterministic_ops=false --xla_cpu_prefer_vector_width=256")
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_enable_windowed_einsum_for_all_gather=true")
    assert compiler_options(GPU) == {}
    assert compiler_options(CPU) == {"xla_cpu_enable_concurrency_optimized_scheduler": False}
    assert compiler_options(V5E) == {"xla_tpu_enable_windowed_einsum_for_reduce_scatter": False}
    # The name of another option begins with this one's.
    longer = "xla_tpu_enable_async_collective_fusion_fuse_all_gather"
    monkeypatch.setenv("LIBTPU_INIT_ARGS", f"--{longer}=false")
    assert {*COMPILER_OPTIONS["TPU v6 lite"]} - {*compiler_options(V6E)} == {longer}


# That TPU's compiler knows its own is seen by all tests that compile for it.
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_the_compiler_knows_its_options(platform: str) -> None:
    # The compiler of either platform knows the options of both, and refuses unknown ones.
    jax.jit(lambda: jax.numpy.zeros(()), compiler_options=COMPILER_OPTIONS[platform]).lower().compile()


def test_a_batch_that_does_not_divide_is_refused() -> None:
    experiment = Experiment(
        model=ModelConfig(num_layers=1), global_batch_size=10, parallel=ParallelConfig(accumulation_steps=5)
    )
    devices = jax.devices()[:1] * 4  # only their number matters here
    with pytest.raises(UserError, match=r"multiple of 20 .* such as 20"):
        make_program(PretrainingTask(experiment.objective, experiment.model), experiment, devices)


def test_a_batch_that_does_not_divide_for_a_while_is_refused() -> None:
    experiment = Experiment(
        model=ModelConfig(num_layers=1),
        data=DataConfig(batch_schedule=((0.5, 0.25),)),
        global_batch_size=16,
        parallel=ParallelConfig(accumulation_steps=2),
    )
    devices = jax.devices()[:1] * 4
    with pytest.raises(UserError, match=r"batch size is 4; it must be a multiple of 8 .* such as 8"):
        make_program(PretrainingTask(experiment.objective, experiment.model), experiment, devices)
    with pytest.raises(
        UserError, match=r"accumulation_steps \(8\) does not divide a size of the batch \(4\)"
    ):
        dataclasses.replace(experiment, parallel=ParallelConfig(accumulation_steps=8))


def test_a_mesh_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="is 6, which does not divide 4 devices"):
        Experiment(parallel=ParallelConfig(fsdp=3, tensor=2)).check_devices(4)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["jit", "pmap"])
def test_left_to_right_needs_no_slots_for_masks(mode: Literal["jit", "pmap"]) -> None:
    model = ModelConfig(
        vocab_size=50, num_layers=1, hidden_size=8, num_heads=1, intermediate_size=8, attention="causal"
    )
    phase = Phase(max_seq_length=16, max_predictions_per_seq=0)
    data = DataConfig(pairing="contiguous", masking=MaskingConfig(rate=0.0), phases=(phase,))
    task = PretrainingTask(LeftToRight(), model)
    experiment = Experiment(
        objective=task.objective,
        model=model,
        data=data,
        global_batch_size=4,
        parallel=ParallelConfig(mode=mode),
    )
    batch = {name: np.ones(x.shape, x.dtype) for name, x in task.abstract_batch(phase, 4, 1).items()}
    assert "masked_lm_ids" not in batch
    program = make_program(task, experiment)
    state = program.train_step(program.init(), program.put(batch), 1e-3)
    assert np.isfinite(float(state.sums["grad_norm"]))
    empty = {"masked_lm_ids": np.zeros((4, 0), np.int32)}
    assert program.rows.counted_here(empty)["masked_lm_ids"].shape == (4, 0)


@pytest.mark.parametrize("mode", ["jit", "pmap"])
def test_lengths_of_the_attention_kernel_are_traced_in_both_modes(mode: Literal["jit", "pmap"]) -> None:
    experiment = Experiment(model=MODEL, global_batch_size=2, parallel=ParallelConfig(mode=mode))
    batch = {
        name: np.ones(shape.shape, shape.dtype)
        for name, shape in PretrainingTask(MaskedLMAndNSP(), MODEL).abstract_batch(PHASE, 2, 1).items()
    }
    program = make_program(PretrainingTask(MaskedLMAndNSP(), MODEL), experiment)
    # Every platform's branch is traced on any platform. That once raised under pmap, which has its own mesh.
    program.lower_train_step(program.put(batch))


@pytest.mark.parametrize(
    ("blocks", "ranges"),
    [
        ([0, 1, 2, 3], ((0, 8),)),
        ([0, 1, 4, 5], ((0, 4), (8, 12))),
        ([3], ((6, 8),)),
        ([1, 3], ((2, 4), (6, 8))),
    ],
)
def test_rows_that_lie_side_by_side_are_one_range(blocks: list[int], ranges: tuple) -> None:
    assert join_blocks(blocks, 2) == ranges
