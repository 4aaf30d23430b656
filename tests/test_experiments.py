"""The named experiments: they equal their golden files and the papers' settings."""

import pytest

from bert_jax.studies.plan import make_plan
from experiments import EXPERIMENTS, STUDIES
from tests.golden.make_experiments_golden import DIRECTORY, STUDIES_DIRECTORY, golden, golden_study


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_resolved_values_are_the_golden_ones(name: str) -> None:
    path = DIRECTORY / f"{name}.txt"
    stored = path.read_text(encoding="utf-8") if path.exists() else None
    assert golden(name) == stored, (
        f"experiment {name} no longer resolves to {path}; if that is meant, run "
        "`python -m tests.golden.make_experiments_golden` and commit the diff"
    )


@pytest.mark.parametrize("name", STUDIES)
def test_jobs_of_studies_are_the_golden_ones(name: str) -> None:
    path = STUDIES_DIRECTORY / f"{name}.txt"
    stored = path.read_text(encoding="utf-8") if path.exists() else None
    assert golden_study(name) == stored, (
        f"study {name} no longer has the jobs of {path}; if that is meant, run "
        "`python -m tests.golden.make_experiments_golden` and commit the diff"
    )


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in DIRECTORY.glob("*.txt")} == set(EXPERIMENTS)
    assert {path.stem for path in STUDIES_DIRECTORY.glob("*.txt")} == set(STUDIES)


def test_table_6_sizes_are_those_of_their_names() -> None:
    for name, experiment in EXPERIMENTS.items():
        if name.startswith("size_"):
            model = experiment.model
            assert name == f"size_{model.num_layers}_{model.hidden_size}_{model.num_heads}"
            assert model.intermediate_size == 4 * model.hidden_size


def test_table_8_shares_are_those_of_their_names() -> None:
    for name, experiment in EXPERIMENTS.items():
        if name.startswith("mask_"):
            masking = experiment.data.masking
            shares = [round(100 * share) for share in (masking.mask, masking.same, masking.random)]
            assert name == "mask_" + "_".join(map(str, shares))


def test_best_small_is_the_arm_of_its_study() -> None:
    study = STUDIES["best_small"]
    scale = study.scales["small"]
    best = EXPERIMENTS["best_small"]
    plan = make_plan(study, "small", scale, {"data.corpus": best.data.corpus})
    assert plan.experiments["best_small"] == best
    assert scale.first_seed == STUDIES["departures"].scales["small"].seeds
