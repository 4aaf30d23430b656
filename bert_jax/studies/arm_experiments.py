"""The experiment of each arm: what the study, its scale and the command line make of it together."""

import dataclasses
from collections.abc import Collection, Mapping
from fractions import Fraction

from bert_jax.objectives import Objective
from bert_jax.objectives.experiment import Experiment
from bert_jax.pretraining.initial_shape import InitialModel, take_shape
from bert_jax.studies.changes import value_of, with_changes
from bert_jax.study import Changes, Finetuned, Scale, Study
from bert_jax.training.accounting import run_flops
from bert_jax.workdir.config_text import differences, flatten
from data_pipeline.checks import check_positive
from data_pipeline.errors import UserError

_OF_THE_CORPUS = ("data.corpus", "model.vocab_size")
_SCHEDULE = ("optimizer.warmup_steps", "optimizer.decay_start")
_SAME_FOR_ALL = {"data.corpus": "--corpus", "seed": "the number of seeds"}


def arm_experiments(
    study: Study,
    scale: Scale,
    changes: Changes,
    budget_flops: float | None,
    steps: Mapping[str, int],
    initial: InitialModel | None,
) -> tuple[dict[str, Experiment], tuple[str, ...], dict[str, str]]:
    """The experiments of all arms, with seed 0.

    Args:
      study: at this scale (`Study.at`).
      scale: the other arguments are those of `make_plan`, which has the same errors.

    Returns:
      `Plan.experiments`, `Plan.changed` and `Plan.unfit`.
    """
    planned = {name: _experiment(study, scale, name, {}) for name in study.arms}
    _check_common(study, planned, changes)
    others = {path: value for path, value in changes.items() if path not in ("num_train_steps", *_SCHEDULE)}
    experiments = {name: _experiment(study, scale, name, others) for name in study.arms}
    unfit: dict[str, str] = {}
    if initial is not None:
        experiments, unfit = _in_shape_of(initial, experiments, study.base, others)
    experiments = _with_lengths(study, scale, experiments, changes, budget_flops, steps)
    of_scale, base = flatten(planned[study.base]), flatten(experiments[study.base])
    return experiments, tuple(differences(of_scale, base, ("data.corpus",))), unfit


def _check_common(study: Study, planned: Mapping[str, Experiment], changes: Changes) -> None:
    """Raises UserError if `changes` set something in which arms differ, or the number of layers although a
    measure freezes a fixed number."""
    for path in (path for path in changes if path not in _OF_THE_CORPUS):
        values = {name: value_of(experiment, path) for name, experiment in planned.items()}
        others = [name for name, value in values.items() if value != values[study.base]]
        if others:
            raise UserError(
                f"study {study.name}: arm {others[0]} differs from the base in {path}, so a flag cannot set "
                f"it for all arms; write a study of your own (--file)"
            )
    if "model.num_layers" in changes:
        of_arms = {name: arm.finetuning for name, arm in study.arms.items()}
        of_measures = {m.column: m.flags for m in study.measures if isinstance(m, Finetuned)}
        for name, flags in {**of_arms, **of_measures}.items():
            if "frozen_layers" in flags:
                raise UserError(
                    f"study {study.name}: {name} freezes {flags['frozen_layers']} layers, so a flag cannot "
                    f"set model.num_layers; write a study of your own (--file)"
                )


def _experiment(study: Study, scale: Scale, name: str, changes: Changes) -> Experiment:
    arm, where = study.arms[name], f"study {study.name}, arm {name}"
    for path, flag in _SAME_FOR_ALL.items():
        if path in arm.changes or path in scale.changes:
            raise UserError(f"{where}: {path} is the same for all arms; it is given by {flag}")
    if "model.vocab_size" in arm.changes:
        raise UserError(f"{where}: model.vocab_size is that of the corpus for all arms; leave it out")
    objective = {**scale.changes, **arm.changes}.get("objective")
    if objective is None:
        return with_changes(arm.experiment, {**scale.changes, **arm.changes, **changes}, where)
    if not isinstance(objective, Objective):
        raise UserError(f"{where}: objective is {objective!r}; it must be one of bert_jax.objectives")
    of_scale = {path: value for path, value in scale.changes.items() if path != "objective"}
    trained = with_changes(arm.experiment, of_scale, where).with_objective(objective)
    return with_changes(trained, {**arm.changes, "objective": objective, **changes}, where)


def _in_shape_of(
    initial: InitialModel, experiments: Mapping[str, Experiment], base: str, changes: Collection[str]
) -> tuple[dict[str, Experiment], dict[str, str]]:
    """The arms' experiments in the shape of the model that they start from, and why some cannot have it.

    The sizes of base and scale give way to the model's. What an arm has otherwise than the base does not, as
    it is what the arm is about; nor do `changes`, the names of settings that flags give.

    Raises:
      UserError: the base cannot have it.
    """
    of_base = flatten(experiments[base].model, "model")
    fitting: dict[str, Experiment] = {}
    unfit: dict[str, str] = {}
    for name, experiment in experiments.items():
        model = flatten(experiment.model, "model")
        asked = {path for path, value in model.items() if value != of_base[path]}.union(changes)
        try:
            fitting[name] = take_shape(
                experiment, asked - {"model.vocab_size"}, initial, experiment.model.vocab_size
            )
        except UserError as error:
            unfit[name] = str(error)
    if base in unfit:
        raise UserError(f"arm {base}: {unfit[base]}")
    return fitting, unfit


def _with_lengths(
    study: Study,
    scale: Scale,
    experiments: Mapping[str, Experiment],
    changes: Changes,
    budget_flops: float | None,
    steps: Mapping[str, int],
) -> dict[str, Experiment]:
    """The arms' experiments with as many steps as `make_plan` says."""
    if "num_train_steps" in changes:
        asked = changes["num_train_steps"]
        experiments = {name: with_steps(run, asked) for name, run in experiments.items()}
    if budget_flops is None and scale.equal_flops:
        budget_flops = run_flops(experiments[study.base])
    # Flags count more than what follows from the number of steps.
    given = {path: value for path, value in changes.items() if path in _SCHEDULE}
    sized: dict[str, Experiment] = {}
    for name, experiment in experiments.items():
        if budget_flops is not None:
            experiment = with_budget(experiment, budget_flops)
        if name in steps:
            experiment = with_steps(experiment, steps[name])
        sized[name] = with_changes(experiment, given, f"study {study.name}, arm {name}")
    return sized


def with_budget(experiment: Experiment, flops: float) -> Experiment:
    """The experiment with as many steps as a number of floating-point operations allows.

    Raises UserError if the budget is below one step.
    """
    one = Fraction(run_flops(experiment)) / experiment.num_train_steps
    steps = int(Fraction(flops) / one)
    if float((steps + 1) * one) <= flops:  # a budget that was rounded to a float may be a little less
        steps += 1
    if not steps:
        raise UserError(f"--budget-flops {flops:g} is below one step of {float(one):.2g}; give more")
    return with_steps(experiment, steps)


def with_steps(experiment: Experiment, steps: int) -> Experiment:
    """The experiment with another number of steps.

    Its schedule keeps its shape: warm-up ends, and the decay starts, after the same fraction of the steps.
    """
    check_positive("num_train_steps", steps)
    scale, start = steps / experiment.num_train_steps, experiment.optimizer.decay_start
    warmup = round(experiment.optimizer.warmup_steps * scale)
    if isinstance(start, int) and start:
        begin = min(round(start * scale), steps - 1)
        start, warmup = begin, min(warmup, begin)
    optimizer = dataclasses.replace(experiment.optimizer, warmup_steps=warmup, decay_start=start)
    return dataclasses.replace(experiment, num_train_steps=steps, optimizer=optimizer)
