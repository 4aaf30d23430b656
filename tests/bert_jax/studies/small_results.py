"""Results of studies that were never run, with numbers that can be checked by hand."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.studies.plan import make_plan
from bert_jax.studies.results import Measurement, PretrainedRun, StudyResults
from tests.bert_jax.studies.small_study import STUDY

Scores = Mapping[str, Mapping[int, Mapping[str, Sequence[float]]]]
"""Arm -> pretraining seed -> hyperparameters -> accuracy of each fine-tuning seed, in percent."""


def measurements(scores: Scores) -> list[Measurement]:
    """The measurements of fine-tuned models with these scores, at the end of pretraining."""
    return [
        Measurement(arm, seed, 8, "classify", {"accuracy": score}, hyperparameters, number)
        for arm, seeds in scores.items()
        for seed, trials in seeds.items()
        for hyperparameters, of_seeds in trials.items()
        for number, score in enumerate(of_seeds)
    ]


def one_trial_each(scores: Mapping[str, Sequence[float]]) -> Scores:
    """The scores of arms with one fine-tuning of each pretraining seed."""
    return {
        arm: {seed: {"lr1": [score]} for seed, score in enumerate(of_seeds)}
        for arm, of_seeds in scores.items()
    }


def results(measured: Sequence[Measurement], num_seeds: int = 3, **fields: Any) -> StudyResults:
    """The results of the small study, or of one that differs in some fields, with these measurements."""
    scale = dataclasses.replace(
        STUDY.scales["tiny"], seeds=num_seeds, note="Small, so <b>nothing</b> follows."
    )
    plan = make_plan(STUDY, "tiny", scale, {})
    plan = dataclasses.replace(plan, study=dataclasses.replace(STUDY, **fields))
    runs = [
        PretrainedRun(
            arm,
            seed,
            8,
            [{"step": step, "split": "heldout", "mlm_accuracy": 0.1 * step + 0.01 * seed} for step in (4, 8)],
            seconds=1800.0,
            devices="1 x cpu",
        )
        for arm, seed in plan.runs
    ]
    return StudyResults(plan, runs, measured, len(plan.jobs) - 1, {"mlm/seed-1": "NaN & so"})
