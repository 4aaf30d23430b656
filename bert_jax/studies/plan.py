"""Which runs a study needs, in order: a pure function of the study, its scale and where its data is.

A job is what one process does at a time: a pretraining, or a measure of a pretrained model. What it is
follows from its settings; where its results lie is a path that a person can read. Arms of equal settings
share a job, which lies at the first one's path.
"""

import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from bert_jax.objectives import objective_name
from bert_jax.objectives.experiment import Experiment
from bert_jax.pretraining.initial_shape import InitialModel
from bert_jax.studies.arm_experiments import arm_experiments
from bert_jax.study import (
    HELDOUT_LENGTH,
    Arm,
    Changes,
    Finetuned,
    HeldoutLM,
    Measure,
    MinimalPairs,
    Probe,
    Scale,
    Study,
)
from bert_jax.workdir.config_text import flatten
from data_pipeline.errors import UserError

# Fields of a measure that the settings of a job already have in another form.
_SAID_OTHERWISE = ("flags", "variant", "every")


@dataclasses.dataclass(frozen=True)
class PretrainingJob:
    """One arm pretrained with one seed."""

    path: PurePosixPath
    """Its work directory, inside the study's directory."""
    experiment: Experiment
    init_fingerprint: str = ""
    """Of the model that it starts from; empty if its parameters are drawn at random."""

    @property
    def settings(self) -> dict[str, Any]:
        """What its result depends on."""
        initial = {"init_fingerprint": self.init_fingerprint} if self.init_fingerprint else {}
        return {**flatten(self.experiment), **initial}


@dataclasses.dataclass(frozen=True, eq=False)
class MeasuringJob:
    """One measure of one pretrained model."""

    path: PurePosixPath
    model: PretrainingJob
    step: int
    """Of the checkpoint."""
    measure: Measure
    flags: Changes
    """Flags of `bert-jax finetune`: the measure's, overridden by the arm's, then the scale's (probes ignore
    the arm's). For HeldoutLM: max_seq_length."""

    @property
    def settings(self) -> dict[str, Any]:
        """What its result depends on, besides the model and the data."""
        own = {name: value for name, value in self.measure.of_job().items() if name not in _SAID_OTHERWISE}
        return {"measure": self.measure.name, "step": self.step, **own, **self.flags}

    @property
    def data_key(self) -> tuple[str, str]:
        """Of the data that it loads: equal for jobs of one measure with the same flags."""
        return self.measure.name, str(self.flags)

    @property
    def identity(self) -> tuple[PurePosixPath, str]:
        """The model and the settings; jobs of one identity are done once."""
        return self.model.path, json.dumps(self.settings, sort_keys=True)


Job: TypeAlias = PretrainingJob | MeasuringJob


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The jobs of a study, and which of them each cell of its table comes from."""

    study: Study
    """At this scale (`Study.at`)."""
    scale_name: str
    scale: Scale
    experiments: Mapping[str, Experiment]
    """Arm -> its settings, with seed 0."""
    changed: tuple[str, ...]
    """What flags, budget and corpus changed in the base that the scale has, `setting before -> now`."""
    jobs: tuple[Job, ...]
    """Each after those that it needs."""
    runs: Mapping[tuple[str, int], PretrainingJob]
    """(arm, seed) -> its pretraining."""
    measured: Mapping[tuple[str, int], tuple[MeasuringJob, ...]]
    """(arm, seed) -> its measures."""
    initial: InitialModel | None = None
    """The model that the pretrainings start from, but for those from scratch."""
    unfit: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Arm that cannot start from that model, and so has no jobs -> why."""

    def check_devices(self, num_devices: int) -> None:
        """Raises UserError unless every arm can be pretrained on so many devices."""
        for arm, experiment in self.experiments.items():
            try:
                experiment.check_devices(num_devices)
            except UserError as error:
                raise UserError(f"arm {arm}: {error}") from None


def make_plan(
    study: Study,
    scale_name: str,
    scale: Scale,
    changes: Changes,
    budget_flops: float | None = None,
    steps: Mapping[str, int] | None = None,
    initial: InitialModel | None = None,
) -> Plan:
    """Every job of a study.

    Args:
      scale: seeds, and what it changes.
      changes: settings of every experiment, after those of scale and arm, such as `data.corpus`.
      budget_flops: floating-point operations of each pretraining, from which the steps follow; None: those
        of the base if the scale has `equal_flops`, or as `changes` or the experiments say.
      steps: of the pretrainings of arms whose steps follow from something else; these count.
      initial: the model whose shape all arms take, and whose parameters those not from scratch; None: every
        arm has its own shape.

    Raises:
      UserError: a setting is unknown, settings contradict each other, `changes` would undo what an arm is
        about, or an arm's objective trains nothing that a measure could be taken of.
    """
    study = study.at(scale)
    experiments, changed, unfit = arm_experiments(study, scale, changes, budget_flops, steps or {}, initial)
    _check_probes(study, experiments)
    jobs = _make_jobs(study, scale, experiments, initial)
    return Plan(study, scale_name, scale, experiments, changed, *jobs, initial, unfit)


def only_arms(plan: Plan, names: Collection[str]) -> Plan:
    """The part of a plan that some arms need, with the base and the arms that they are compared with.

    Jobs keep their paths, also those that lie at the path of an arm that is left out.

    Args:
      plan: of all arms.
      names: of the arms; empty for all.

    Raises:
      UserError: the study has no arm of a name, or an arm cannot start from the initial model.
    """
    arms = plan.study.arms
    if not names and not plan.unfit:
        return plan
    chosen: set[str] = set()
    for name in (plan.study.base, *(names or arms)):
        if name not in arms:
            raise UserError(f"--arms: study {plan.study.name} has no arm {name!r}; valid: {', '.join(arms)}")
        while name and name not in chosen:
            chosen.add(name)
            name = arms[name].compared_with
    if unfit := [name for name in arms if name in chosen and name in plan.unfit]:
        raise UserError(
            f"study {plan.study.name}: cannot start from the model of --init-from: {', '.join(unfit)} "
            f"({unfit[0]}: {plan.unfit[unfit[0]]}); leave them out by --arms {' '.join(plan.experiments)}"
        )
    runs = {key: run for key, run in plan.runs.items() if key[0] in chosen}
    measured = {key: jobs for key, jobs in plan.measured.items() if key[0] in chosen}
    needed = {run.path for run in runs.values()} | {job.path for jobs in measured.values() for job in jobs}
    scale = dataclasses.replace(plan.scale, arms=None, base="", measures=None)
    study = dataclasses.replace(
        plan.study,
        arms={name: arm for name, arm in arms.items() if name in chosen},
        scales={plan.scale_name: scale},
        published={name: row for name, row in plan.study.published.items() if name in chosen},
    )
    return dataclasses.replace(
        plan,
        study=study,
        experiments={name: run for name, run in plan.experiments.items() if name in chosen},
        jobs=tuple(job for job in plan.jobs if job.path in needed),
        runs=runs,
        measured=measured,
    )


def _make_jobs(
    study: Study, scale: Scale, experiments: Mapping[str, Experiment], initial: InitialModel | None
) -> tuple[
    tuple[Job, ...], dict[tuple[str, int], PretrainingJob], dict[tuple[str, int], tuple[MeasuringJob, ...]]
]:
    """`Plan.jobs`, `runs` and `measured`."""
    length = _heldout_length(experiments.values())
    runs: dict[tuple[str, int], PretrainingJob] = {}
    measured: dict[tuple[str, int], tuple[MeasuringJob, ...]] = {}
    known: dict[tuple[Experiment, str], PretrainingJob] = {}
    first: dict[tuple[PurePosixPath, str], MeasuringJob] = {}
    jobs: dict[PurePosixPath, Job] = {}
    for seed in range(scale.first_seed, scale.first_seed + scale.seeds):
        for name, of_arm in experiments.items():
            experiment = dataclasses.replace(of_arm, seed=seed)
            directory = PurePosixPath(name) / f"seed-{seed}"
            start = "" if initial is None or study.arms[name].from_scratch else initial.fingerprint
            own = PretrainingJob(directory / "pretraining", experiment, start)
            run = known.setdefault((experiment, start), own)
            jobs.setdefault(run.path, run)
            runs[name, seed] = run
            measures = _measures(study, scale, name, run, directory, length)
            measured[name, seed] = tuple(first.setdefault(job.identity, job) for job in measures)
            jobs |= {job.path: job for job in measured[name, seed]}
    return tuple(jobs.values()), runs, measured


def _measures(
    study: Study, scale: Scale, name: str, run: PretrainingJob, directory: PurePosixPath, heldout_length: int
) -> Iterator[MeasuringJob]:
    """The measures of an arm with one seed, as if no other arm shared them."""
    arm, where = study.arms[name], f"study {study.name}, arm {name}"
    unique: dict[str, Measure] = {}
    for measure in study.measures:
        if arm.has(measure):
            unique.setdefault(measure.name, measure)
    for measure in unique.values():
        objective = run.experiment.objective
        if isinstance(measure, HeldoutLM | MinimalPairs) and "language_model" not in objective.trained_parts:
            raise UserError(
                f"{where}: objective {objective_name(objective)} trains no language model head, which "
                f"measure {measure.name} needs; leave it out of the arm's `measured`"
            )
        flags = _flags(measure, arm, scale, run.experiment, heldout_length)
        for flag, value in flags.items():
            if not _is_json(value):
                raise UserError(f"{where}: {flag} is {value!r}; flags are numbers, text or tuples of them")
        for step in _steps(where, measure, run.experiment):
            last = step == run.experiment.num_train_steps
            path = directory / (measure.name if last else f"{measure.name}-step-{step}")
            yield MeasuringJob(path, run, step, measure, flags)


def _flags(
    measure: Measure, arm: Arm, scale: Scale, experiment: Experiment, heldout_length: int
) -> dict[str, Any]:
    """`MeasuringJob.flags` of a measure of an arm."""
    match measure:
        case Probe():
            return {**measure.flags, **scale.finetuning, **measure.flags_of(experiment.model.num_layers)}
        case Finetuned():
            return {**measure.flags, **arm.finetuning, **scale.finetuning}
        case HeldoutLM():
            # Left out where it is the default, as in the records of jobs of earlier versions.
            usual = min(HELDOUT_LENGTH, experiment.model.max_position_embeddings)
            return {} if heldout_length == usual else {"max_seq_length": heldout_length}
    return {}


def _is_json(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_json, value))
    return value is None or isinstance(value, str | int | float)


def _heldout_length(experiments: Iterable[Experiment]) -> int:
    """The length of the held-out sequences of all arms: every arm was pretrained on sequences so long."""
    longest = (max(phase.max_seq_length for phase in run.data.phases) for run in experiments)
    return min(HELDOUT_LENGTH, *longest)


def _check_probes(study: Study, experiments: Mapping[str, Experiment]) -> None:
    """Raises UserError if a column shows a layer that no arm with its measure has."""
    for measure in study.measures:
        if isinstance(measure, Probe) and measure.layer is not None:
            arms = [name for name in experiments if study.arms[name].has(measure)]
            layers = [experiments[name].model.num_layers for name in arms]
            if measure.layer > max(layers, default=measure.layer):
                raise UserError(
                    f"study {study.name}: {measure.column} shows layer {measure.layer}, but the models have "
                    f"at most {max(layers)}"
                )


def _steps(where: str, measure: Measure, experiment: Experiment) -> list[int]:
    """The steps whose checkpoints are measured. Raises UserError if some are not kept."""
    last = experiment.num_train_steps
    every = measure.every if isinstance(measure, Finetuned) else None
    if every is None:
        return [last]
    if experiment.keep_every is None or every % experiment.keep_every:
        raise UserError(
            f"{where}: {measure.column} is measured every {every} steps, and keep_every is "
            f"{experiment.keep_every}; set keep_every to {every}"
        )
    return [*range(every, last, every), last]
