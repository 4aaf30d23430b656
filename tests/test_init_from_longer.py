"""Pretraining on longer inputs than those of the model that it starts from, and beyond 512 positions."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.formats.open_model import open_model
from bert_jax.objectives.ltr_rtl import LeftToRightAndRightToLeft
from bert_jax.pretraining.init_from import describe_positions
from bert_jax.pretraining.initial_shape import take_shape
from bert_jax.training.checkpoints import load_params
from bert_jax.training.warm_start import with_repeated_positions
from bert_jax.workdir.record import read_record
from data_pipeline.config import Phase
from data_pipeline.errors import UserError
from experiments import EXPERIMENTS
from tests.tiny_run import ONE_STEP, arguments, assert_close, deterministic_rows, further


@pytest.fixture(scope="module")
def learnt(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work directory of a run with 32 learnt positions."""
    workdir = tmp_path_factory.mktemp("learnt") / "short"
    assert main(arguments(workdir, corpus, "--num-train-steps", "30")) == 0
    return workdir


def positions_of(params: dict) -> np.ndarray:
    return params["encoder"]["embeddings"].pop("position_embeddings")["embedding"]


@pytest.mark.slow
def test_learnt_positions_are_repeated(
    corpus: Path, learnt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workdir, longer = tmp_path / "w", ("--model.max-position-embeddings", "80")
    assert main(further(workdir, corpus, learnt, *longer, *ONE_STEP)) == 0
    line = "model.max_position_embeddings 32 -> 80: the model's 32 position embeddings repeated\n"
    assert line in capsys.readouterr().out
    before, after = load_params(learnt)[1], load_params(workdir)[1]
    short, long = positions_of(before), positions_of(after)
    assert_close(long, np.concatenate([short, short, short[:16]]))
    assert_close(after, before)
    # What it knew it still knows, at the lengths that it has seen.
    assert main(["evaluate", "--workdir", str(learnt)]) == 0
    (known,) = json.loads((learnt / "evaluation-30.json").read_text())
    first = next(row for row in deterministic_rows(workdir) if row["split"] == "heldout")
    assert first["step"] == 0
    assert first["mlm_loss"] == pytest.approx(known["mlm_loss"], rel=1e-5)
    assert main(further(workdir, corpus, learnt, *longer, *ONE_STEP, "--num-train-steps", "2")) == 0
    said = capsys.readouterr().out
    assert "resuming from step 1 of 2" in said
    assert "repeated" not in said


@pytest.mark.slow
def test_longer_phases_and_packed_rows_beyond_512(corpus: Path, learnt: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "w"
    flags = (
        *("--model.max-position-embeddings", "640", "--data.max-instances-per-row", "3"),
        *("--data.phases.0.max-seq-length", "640", "--data.phases.0.max-predictions-per-seq", "96"),
        *("--global-batch-size", "2", "--eval-examples", "4", "--num-train-steps", "3"),
    )
    assert main(further(workdir, corpus, learnt, *flags)) == 0
    rows = [row for row in deterministic_rows(workdir) if row["split"] == "heldout"]
    assert [row["step"] for row in rows] == [0, 3]
    assert all(np.isfinite(row["mlm_loss"]) for row in rows)
    exported = tmp_path / "exported"
    assert main(["export", "--workdir", str(workdir), "--output", str(exported)]) == 0
    assert json.loads((exported / "config.json").read_text())["max_position_embeddings"] == 640
    assert json.loads((exported / "tokenizer_config.json").read_text())["model_max_length"] == 640
    assert positions_of(open_model(exported).params).shape == (640, 16)


def test_stacks_of_layers_that_the_model_lacks_are_refused(learnt: Path) -> None:
    model, experiment = (
        open_model(learnt),
        EXPERIMENTS["quickstart_bert"].with_objective(LeftToRightAndRightToLeft()),
    )
    with pytest.raises(UserError, match=r"objective ltr_rtl needs a model of 2 stack\(s\) .*, has 1"):
        take_shape(experiment, (), model, 0)


def test_rotary_positions_have_any_number_and_another_base(corpus: Path, learnt: Path) -> None:
    opened, named = open_model(learnt), EXPERIMENTS["quickstart_bert"]
    model = dataclasses.replace(opened, config=dataclasses.replace(opened.config, positions="rotary"))
    data = dataclasses.replace(named.data, corpus=str(corpus), phases=(Phase(16, 4),))
    wanted = dataclasses.replace(named.model, rotary_base=160_000.0, max_position_embeddings=24)
    experiment = dataclasses.replace(named, data=data, model=wanted)
    assert describe_positions(model, take_shape(experiment, (), model, 0).model) == []
    shape = take_shape(experiment, ("model.rotary_base", "model.max_position_embeddings"), model, 0).model
    assert describe_positions(model, shape) == [
        "model.max_position_embeddings 32 -> 24",
        "model.rotary_base 10000.0 -> 160000.0",
    ]


def test_the_waves_of_sinusoidal_positions_stay_as_high(corpus: Path, learnt: Path) -> None:
    opened, named = open_model(learnt), EXPERIMENTS["quickstart_bert"]
    config = dataclasses.replace(opened.config, positions="sinusoidal", initializer_range=0.5)
    model = dataclasses.replace(opened, config=config)
    experiment = dataclasses.replace(
        named, data=dataclasses.replace(named.data, corpus=str(corpus), phases=(Phase(16, 4),))
    )
    assert take_shape(experiment, (), model, 0).model.initializer_range == 0.5
    with pytest.raises(UserError, match=r"model\.initializer_range is 0\.08, not 0\.5"):
        take_shape(experiment, {"model.initializer_range"}, model, 0)
    assert take_shape(experiment, (), opened, 0).model.initializer_range == 0.08


@pytest.mark.slow
def test_a_run_begins_with_another_rotary_base(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path / "turned", corpus, "--model.positions", "rotary", *ONE_STEP)) == 0
    flags = ("--model.rotary-base", "500", "--eval-examples", "8")
    assert main(further(tmp_path / "w", corpus, tmp_path / "turned", *flags, *ONE_STEP)) == 0
    assert "model.rotary_base 10000.0 -> 500.0\n" in capsys.readouterr().out
    before, after = load_params(tmp_path / "turned")[1], load_params(tmp_path / "w")[1]
    assert_close(after, before)
    assert read_record(tmp_path / "w").experiment.model.rotary_base == 500


def test_what_the_model_cannot_give_is_one_line(
    corpus: Path, learnt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags, message in (
        (("--model.max-position-embeddings", "24"), "model.max_position_embeddings is 24, not 32; leave"),
        (("--model.rotary-base", "500"), "another shape: model.rotary_base is 500.0, not 10000.0; leave"),
        (("--model.positions", "rotary"), "another shape: model.positions is rotary, not learnt; leave"),
        (
            ("--data.phases.0.max-seq-length", "40"),
            "(40) is longer than model.max_position_embeddings (32); pass --model.max-position-embeddings "
            "40, or at most 32 as --data.phases.0.max-seq-length",
        ),
    ):
        assert main(further(tmp_path / "w", corpus, learnt, *flags)) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
        assert not (tmp_path / "w" / "config.json").exists()


def test_a_generators_own_positions_are_repeated_too() -> None:
    table = np.arange(6.0).reshape(3, 2)
    embeddings = {"encoder": {"embeddings": {"position_embeddings": {"embedding": table}}}}
    longer = with_repeated_positions({**embeddings, "generator": embeddings}, 5)
    for part in (longer, longer["generator"]):
        found = part["encoder"]["embeddings"]["position_embeddings"]["embedding"]
        np.testing.assert_array_equal(found, table[[0, 1, 2, 0, 1]])
