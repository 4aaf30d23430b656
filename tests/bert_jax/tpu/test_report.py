"""The real compiler on a small model: what the report says agrees with what is known of the step."""

import dataclasses

import pytest
from flax.traverse_util import flatten_dict

from bert_jax.config import ParallelConfig
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import MaskedLMAndNSP
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.tpu.report import Report, TooLarge, compile_step
from bert_jax.tpu.topology import open_slice
from data_pipeline.config import DataConfig, Phase
from tests.bert_jax.tpu.small_step import MODEL, PHASE

pytestmark = pytest.mark.tpu


def compile_model(
    model: ModelConfig, phase: Phase = PHASE, rows: int = 32, topology: str = "v5e:2x2"
) -> Report:
    experiment = Experiment(model=model, data=DataConfig(phases=(phase,)), global_batch_size=rows)
    return compile_step(experiment, phase, open_slice(topology))


@pytest.fixture(scope="module")
def report() -> Report:
    return compile_model(MODEL)


@pytest.fixture(scope="module")
def without_kernel() -> Report:
    return compile_model(dataclasses.replace(MODEL, attention_kernel="none"))


def test_gradients_are_added_over_chips(report: Report) -> None:
    exchanged = sum(o.count * o.result_bytes for o in report.costs.exchanges)
    assert {o.kind for o in report.costs.exchanges} == {"all-reduce"}
    # Gradients of kernels are bfloat16, all others float32. That of the word embeddings is exchanged once, of
    # the position embeddings only the rows in use.
    in_use = dataclasses.replace(MODEL, max_position_embeddings=PHASE.max_seq_length)
    params = flatten_dict(PretrainingTask(MaskedLMAndNSP(), in_use).abstract_params())
    expected = sum(leaf.size * (2 if path[-1] == "kernel" else 4) for path, leaf in params.items())
    assert expected <= exchanged <= 1.001 * expected
    # Each of four chips sends 3/4 of that twice, over two links of 50 GB/s.
    at_once = 1.5 * exchanged / 100e9
    hidden = sum(o.count * o.hidden_cycles for o in report.costs.exchanges) / 1.5e9
    assert max(0.0, at_once - hidden) <= report.exchanging_seconds <= at_once * (1 + 1e-9)
    assert report.seconds == report.computing_seconds + report.exchanging_seconds


def test_with_fsdp_gathers_run_beside_products_and_gradients_are_scattered() -> None:
    model = dataclasses.replace(MODEL, hidden_size=512, num_heads=8, intermediate_size=2048)
    experiment = Experiment(
        model=model,
        data=DataConfig(phases=(PHASE,)),
        parallel=ParallelConfig(fsdp=4),
        global_batch_size=256,
    )
    exchanges = compile_step(experiment, PHASE, open_slice("v6e:2x2")).costs.exchanges
    kinds = {exchange.kind for exchange in exchanges}
    # Products that are cut into pieces would pass these on.
    assert "collective-permute" not in kinds
    feed_forward = 512 * 2048 * 2
    gathers = [e for e in exchanges if e.kind == "all-gather" and e.result_bytes == feed_forward]
    assert any(exchange.hidden_cycles for exchange in gathers)
    scattered = sum(e.count * e.result_bytes for e in exchanges if e.kind == "reduce-scatter")
    assert 4 * scattered >= 2 * (4 * 512 * 512 + 2 * 512 * 2048) * 2


def test_arithmetic_is_near_that_of_the_model(report: Report) -> None:
    # The last layer's feed-forward part is computed at 17 of 128 positions.
    assert 0.5 * report.model_flops < report.compiled_flops < 1.1 * report.model_flops


def test_memory_holds_the_state(report: Report) -> None:
    state = 3 * 4 * MaskedLMAndNSP().num_parameters(MODEL)
    assert state <= report.memory.arguments <= 1.2 * state
    assert report.memory.outputs < 1e6  # the new state is written over the old one


def largest_draw(report: Report) -> int:
    return max(o.result_bytes for o in report.costs.unpriced if o.kind == "rng-bit-generator")


def test_every_chip_draws_the_bits_of_its_own_rows(report: Report, without_kernel: Report) -> None:
    hidden_states_of_8_rows, probabilities_of_8_rows = 8 * 128 * 128, 8 * 2 * 128 * 128
    assert largest_draw(report) == hidden_states_of_8_rows * 2  # the attention kernel draws its own bits
    assert largest_draw(without_kernel) == probabilities_of_8_rows * 2


def test_the_attention_kernel_is_part_of_the_estimate(report: Report, without_kernel: Report) -> None:
    assert without_kernel.costs.kernel_cycles == 0
    # One of the two layers uses the kernel, forward and backward. The lower bound is its arithmetic on the
    # score arrays: some 60 operations an element on 4 x 1024 lanes. The upper bound is four times that.
    elements = 8 * 2 * 128 * 128
    assert 60 * elements / 4096 < report.costs.kernel_cycles < 240 * elements / 4096
    assert report.costs.cycles < without_kernel.costs.cycles


def test_rotary_positions_have_a_kernel_that_moves_their_arrays(report: Report) -> None:
    rotary = dataclasses.replace(MODEL, positions="rotary")
    rotated = compile_model(rotary)
    # Queries and keys of the first layer and keys of the last are rotated, and their gradients rotated back.
    # Each of these reads and writes 8 rows in bfloat16, at 819 GB/s and 1.5 GHz.
    moving = 6 * 2 * 2 * 8 * 128 * 128 / 819e9 * 1.5e9
    assert moving < rotated.costs.kernel_cycles - report.costs.kernel_cycles < 4 * moving
    without = compile_model(dataclasses.replace(rotary, attention_kernel="none"))
    assert rotated.costs.cycles < without.costs.cycles


def test_the_kernel_costs_less_without_dropout(report: Report) -> None:
    without = compile_model(dataclasses.replace(MODEL, attention_dropout_rate=0.0))
    # The forward pass draws the bits. The backward pass takes as long as moving its arrays.
    assert without.costs.kernel_cycles < 0.85 * report.costs.kernel_cycles


def test_the_kernel_takes_long_sequences_and_windows_cost_their_share(report: Report) -> None:
    phase = Phase(max_seq_length=1024, max_predictions_per_seq=16)
    long = dataclasses.replace(MODEL, max_position_embeddings=1024)
    whole = compile_model(long, phase, rows=4).costs.kernel_cycles
    # A row on each chip instead of eight, each with 64 times the scores, of which a step has more.
    assert 4 * report.costs.kernel_cycles < whole < 10 * report.costs.kernel_cycles
    in_window = compile_model(dataclasses.replace(long, attention_window=64), phase, rows=4)
    # A query has 256 keys instead of 1,024; with two heads there is little work in a step.
    assert in_window.costs.kernel_cycles < 0.5 * whole


@pytest.mark.parametrize("topology", ["v4:2x2x1", "v5e:2x2"])
def test_the_tiles_of_a_window_fit_the_vector_memory(topology: str) -> None:
    length = 1024
    model = dataclasses.replace(
        MODEL, hidden_size=768, num_heads=12, max_position_embeddings=length, attention_window=64
    )
    phase = Phase(max_seq_length=length, max_predictions_per_seq=16)
    # So many rows that their arrays do not fit it before the kernel begins.
    assert compile_model(model, phase, rows=64, topology=topology).costs.kernel_cycles > 0


def test_a_step_that_does_not_fit_says_what_it_takes() -> None:
    experiment = Experiment(model=MODEL, data=DataConfig(phases=(PHASE,)), global_batch_size=4 * 2**16)
    with pytest.raises(TooLarge, match=r"it takes \S+ of 15.75G"):
        compile_step(experiment, PHASE, open_slice("v5e:2x2"))
