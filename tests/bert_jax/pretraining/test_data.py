"""Notes at the start of a run on data that suit the experiment badly."""

from dataclasses import replace

import pytest

from bert_jax.objectives.experiment import Experiment
from bert_jax.pretraining.data import note_unusual
from data_pipeline.config import Phase
from experiments import EXPERIMENTS
from experiments.base import BASE


def test_too_few_slots_for_the_masking_rate_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    phases = (Phase(fraction=0.5), Phase(max_seq_length=512, max_predictions_per_seq=20, fraction=0.5))
    note_unusual(replace(BASE, data=replace(BASE.data, phases=phases)))
    assert capsys.readouterr().out.splitlines() == [
        "note: of 512 tokens at most 20 are predicted, 3.9% rather than 15%; "
        "--data.phases.1.max-predictions-per-seq 77 has room for all"
    ]


def test_a_warm_up_that_does_not_end_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    note_unusual(replace(BASE, num_train_steps=5000))
    assert capsys.readouterr().out.splitlines() == [
        "note: the learning rate still rises at the last of 5,000 steps, "
        "as --optimizer.warmup-steps is 10,000"
    ]


def test_a_rotary_base_without_rotary_positions_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    note_unusual(replace(BASE, model=replace(BASE.model, rotary_base=160000.0)))
    assert capsys.readouterr().out.splitlines() == [
        "note: --model.rotary-base 160000 has no effect, as --model.positions is learnt"
    ]


def test_what_several_experiments_have_in_common_is_noted_once(capsys: pytest.CaptureFixture[str]) -> None:
    short = replace(BASE, num_train_steps=5000)
    note_unusual(short, BASE, replace(short, seed=1))
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_no_experiment_is_unusual(experiment: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    note_unusual(experiment)
    assert capsys.readouterr().out == ""
