"""Notes at the start of a run on data that suit the experiment badly."""

from dataclasses import replace

import pytest

from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.pretraining.data import check_exclusions, note_unusual
from bert_jax.training.program import make_program
from data_pipeline.config import Phase
from data_pipeline.errors import UserError
from experiments import EXPERIMENTS
from experiments.base import BASE


def test_too_few_slots_for_the_masking_rate_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    phases = (Phase(fraction=0.5), Phase(max_seq_length=512, max_predictions_per_seq=20, fraction=0.5))
    note_unusual({"base": replace(BASE, data=replace(BASE.data, phases=phases))})
    assert capsys.readouterr().out.splitlines() == [
        "note: of 512 tokens at most 20 are predicted, 3.9% rather than 15%; "
        "data.phases.1.max_predictions_per_seq 77 has room for all"
    ]


def test_a_warm_up_that_does_not_end_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    note_unusual({"base": replace(BASE, num_train_steps=5000)})
    assert capsys.readouterr().out.splitlines() == [
        "note: the learning rate still rises at the last of 5,000 steps, "
        "as --optimizer.warmup-steps is 10,000"
    ]


def test_a_rotary_base_without_rotary_positions_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    note_unusual({"base": replace(BASE, model=replace(BASE.model, rotary_base=160000.0))})
    assert capsys.readouterr().out.splitlines() == [
        "note: --model.rotary-base 160000 has no effect, as --model.positions is learnt"
    ]


def test_settings_without_effect_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    optimizer = replace(BASE.optimizer, warmup_steps=0, warmup_from=0.5)
    model = replace(BASE.model, attention_window=16, global_every=1)
    note_unusual({"base": replace(BASE, optimizer=optimizer, model=model)})
    assert capsys.readouterr().out.splitlines() == [
        "note: --optimizer.warmup-from 0.5 has no effect, as --optimizer.warmup-steps is 0",
        "note: --model.attention-window 16 has no effect: --model.global-every is 1",
    ]


def test_what_is_kept_from_decay_must_be_in_a_name() -> None:
    small = replace(
        BASE, model=replace(BASE.model, num_layers=1, hidden_size=16, num_heads=2, intermediate_size=16)
    )

    def check(*words: str) -> None:
        run = replace(small, optimizer=replace(small.optimizer, decay_exclusions=words))
        check_exclusions(make_program(PretrainingTask(run.objective, run.model), run))

    check("bias", "norm", "embeddings")
    with pytest.raises(UserError, match=r"decay_exclusions has 'biases', which is in no .* bias,"):
        check("layer_norm", "biases")


def test_what_several_experiments_have_in_common_is_noted_once(capsys: pytest.CaptureFixture[str]) -> None:
    short = replace(BASE, num_train_steps=5000)
    note_unusual({"short": short, "other": replace(short, seed=1)})
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("note: the learning rate")
    note_unusual({"short": short, "base": BASE, "other": replace(short, seed=1)})
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("note: short, other: the learning rate")


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_no_experiment_is_unusual(experiment: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    note_unusual({"base": experiment})
    assert capsys.readouterr().out == ""
