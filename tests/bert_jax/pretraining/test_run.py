"""The step of a later phase is compiled before the run begins, and not again when the phase begins."""

import contextlib
import dataclasses
import types
from collections.abc import Iterator

import jax.monitoring
import numpy as np
import pytest

from bert_jax.config import ParallelConfig, ParallelMode
from bert_jax.objectives import MaskedLMAndNSP
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.parallel.compiler_memory import COMPILED
from bert_jax.pretraining.run import compile_later_phases
from bert_jax.training.program import Program, make_program
from data_pipeline.config import DataConfig, Phase
from tests.bert_jax.tiny_model import TINY

SHORT = Phase(max_seq_length=8, max_predictions_per_seq=2, fraction=0.5)
LONG = Phase(max_seq_length=12, max_predictions_per_seq=4, fraction=0.5)
TASK = PretrainingTask(MaskedLMAndNSP(), TINY)
EXPERIMENT = Experiment(
    model=TINY, data=DataConfig(phases=(SHORT, LONG)), num_train_steps=20, global_batch_size=4
)


@contextlib.contextmanager
def compilations() -> Iterator[list[float]]:
    """The seconds of each compilation inside the block."""
    seen: list[float] = []

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event == COMPILED:
            seen.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["jit", "pmap"])
def test_a_later_phase_begins_without_compiling(
    mode: ParallelMode, shared_programs: dict, capsys: pytest.CaptureFixture[str]
) -> None:
    shared_programs.clear()
    experiment = dataclasses.replace(EXPERIMENT, parallel=ParallelConfig(mode=mode))
    program = make_program(TASK, experiment)
    assert compile_later_phases(program, 9) > 0
    assert capsys.readouterr().out == "compiling the step for 4 x 12, from step 10 on\n"

    batch = {
        name: np.zeros(leaf.shape, leaf.dtype)
        for name, leaf in TASK.abstract_batch(LONG, rows=4, max_instances_per_row=1).items()
    }
    state = program.init()
    with compilations() as seen:
        program.train_step(state, program.put(batch), np.float32(0))
    assert seen == []


def test_each_size_of_batch_is_compiled_once_and_ahead(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = dataclasses.replace(
        EXPERIMENT.data, batch_schedule=((0.2, 0.5), (0.3, 1.0), (0.4, 0.5), (0.75, 0.5))
    )
    experiment = dataclasses.replace(EXPERIMENT, data=data)
    compiled = []

    def lower(self: Program, batch: dict[str, np.ndarray]) -> types.SimpleNamespace:
        shape = batch["input_ids"].shape
        return types.SimpleNamespace(compile=lambda: compiled.append(shape))

    monkeypatch.setattr(Program, "lower_train_step", lower)
    compile_later_phases(make_program(TASK, experiment), 0)
    assert compiled == [(4, 8), (2, 12), (4, 12)]
    steps = {4: "4 x 8", 10: "2 x 12", 15: "4 x 12"}
    said = capsys.readouterr().out.splitlines()
    assert said == [f"compiling the step for {shape}, from step {step} on" for step, shape in steps.items()]


@pytest.mark.parametrize("step", [10, 15, 20])
def test_a_phase_that_has_begun_is_not_compiled_ahead(step: int, capsys: pytest.CaptureFixture[str]) -> None:
    compile_later_phases(make_program(TASK, EXPERIMENT), step)
    assert capsys.readouterr().out == ""
