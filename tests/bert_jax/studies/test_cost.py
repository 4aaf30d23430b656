"""What `--plan` says that the jobs of a study cost."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bert_jax.formats.model_source import ModelSource
from bert_jax.studies import cost
from bert_jax.studies.check_data import Loaded
from bert_jax.studies.cost import Cost, _alike, costs
from bert_jax.studies.measuring import finetune_arguments
from bert_jax.studies.plan import MeasuringJob
from bert_jax.studies.show import show_plan
from bert_jax.study import Arm, HeldoutLM
from bert_jax.training.accounting import run_flops
from bert_jax.training.progress import duration
from tests.bert_jax.studies.small_study import TINY, TOPIC, plan_of

SPEED = 1e6


@pytest.fixture(scope="module")
def found() -> dict[str, Cost]:
    """Of the jobs of a base, of an arm whose encoder is frozen, and of one that is fine-tuned for longer."""
    plan = plan_of(
        arms={
            "base": Arm(TINY),
            "frozen": Arm(TINY, finetuning={"frozen_layers": 1}),
            "longer": Arm(TINY, finetuning={"epochs": (3.0,)}),
        },
        measures=(TOPIC, HeldoutLM("LM", "bits_per_byte")),
    )
    loaded = {
        job.data_key: Loaded(
            finetune_arguments(TOPIC.task, job.flags, ModelSource(Path("run")), "topic", Path("output")),
            train_rows=100,
            train_tokens=1000,
            evaluated_tokens=0,
            metrics={},
            fingerprints=("", ""),
        )
        for job in plan.jobs
        if isinstance(job, MeasuringJob) and job.measure is TOPIC
    }
    return {str(path): cost for path, cost in costs(plan, loaded, lambda *_: SPEED).items()}


def test_each_arm_has_the_cost_of_its_own_flags(found: dict[str, Cost]) -> None:
    base, frozen, longer = (found[f"{arm}/seed-0/classify"] for arm in ("base", "frozen", "longer"))
    assert base.seconds == base.flops / SPEED > 0
    assert longer.flops == 3 * base.flops
    # Of the grid's 2 x 2 trials of an epoch, one pass forward is left for all of them.
    assert frozen.flops == pytest.approx(base.flops / 4 / 3)


def test_only_checkpoints_take_disk(found: dict[str, Cost]) -> None:
    bytes_of_one = 3 * 4 * TINY.objective.num_parameters(TINY.model)
    pretraining = found["base/seed-0/pretraining"]
    assert pretraining == Cost(run_flops(TINY), run_flops(TINY) / SPEED, TINY.keep_checkpoints * bytes_of_one)
    assert found["base/seed-0/classify"].disk == bytes_of_one
    (heldout,) = (cost for path, cost in found.items() if "held" in path and "base" in path)
    assert heldout == Cost(0.0, 0.0, 0)


def test_moments_in_bfloat16_are_those_of_pretraining_alone() -> None:
    optimizer = dataclasses.replace(TINY.optimizer, moment_dtype="bfloat16")
    plan = plan_of(arms={"base": Arm(dataclasses.replace(TINY, optimizer=optimizer))}, measures=(TOPIC,))
    parameters = TINY.objective.num_parameters(TINY.model)
    pretraining, finetuning = (cost.disk for cost in costs(plan, {}, lambda *_: SPEED).values())
    assert pretraining == TINY.keep_checkpoints * parameters * (4 + 2 * 2)
    assert finetuning == parameters * (4 + 2 * 4)


def test_more_workers_than_jobs_take_as_long_as_a_model_and_its_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(arms={"base": Arm(TINY)}, measures=(TOPIC,))
    hours = {job.path: Cost(1.0, 3600.0, 0) for job in plan.jobs}
    show_plan(plan, tmp_path, hours, {}, 16, retry=False)
    assert (
        f"about {duration(len(plan.jobs) / plan.scale.seeds * 3600)} with 16 workers"
        in capsys.readouterr().out
    )


def test_settings_that_a_compiled_step_does_not_depend_on_are_measured_once() -> None:
    schedule = {"warmup_from": 0.5, "warmup_steps": 3, "decay_shape": "cosine", "learning_rate": 0.1}
    other = dataclasses.replace(TINY, optimizer=dataclasses.replace(TINY.optimizer, **schedule), seed=7)
    assert _alike(other) == _alike(TINY)
    wider = dataclasses.replace(TINY, model=dataclasses.replace(TINY.model, intermediate_size=256))
    assert _alike(wider) != _alike(TINY)


def finetuning_flops(evaluated_tokens: int, **flags: Any) -> float:
    plan = plan_of(arms={"base": Arm(TINY, finetuning=flags)}, measures=(TOPIC,))
    (job,) = (job for job in plan.jobs if isinstance(job, MeasuringJob) and "seed-0" in str(job.path))
    arguments = finetune_arguments(TOPIC.task, job.flags, ModelSource(Path("run")), "topic", Path("output"))
    data = Loaded(arguments, 100, 1000, evaluated_tokens, {}, ("", ""))
    return costs(plan, {job.data_key: data}, lambda *_: 1.0)[job.path].flops


def test_evaluated_tokens_cost_a_pass_forward_of_each_epoch_or_of_all_trials() -> None:
    assert finetuning_flops(500) == pytest.approx(finetuning_flops(0) * (1 + 0.5 / 3))
    frozen = [finetuning_flops(tokens, frozen_layers=1) for tokens in (500, 0)]
    assert frozen[0] == pytest.approx(frozen[1] * 1.5)


def test_a_series_of_checkpoints_takes_disk_beside_the_newest() -> None:
    run = dataclasses.replace(TINY, num_train_steps=100, keep_every=30, keep_checkpoints=2)
    (found, *_) = costs(plan_of(arms={"base": Arm(run)}), {}, lambda *_: 1.0).values()
    assert found.disk == (2 + 3) * 3 * 4 * run.objective.num_parameters(run.model)


def test_the_step_that_compiles_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    step = SimpleNamespace(step=0)
    program = SimpleNamespace(
        put=lambda batch: batch, init=lambda: step, train_step=lambda *_: step, flops=lambda batch: 12.0
    )
    clock = iter([0, 100, 100, 101, 101, 103, 103, 106])
    monkeypatch.setattr(cost, "make_program", lambda *_: program)
    monkeypatch.setattr(cost.time, "perf_counter", lambda: next(clock))
    assert cost._measure.__wrapped__(TINY, TINY.data.phases[0]) == 6.0
