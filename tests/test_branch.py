"""A run that branches from another one's checkpoint: same results, other settings, and what is refused."""

import shutil
from pathlib import Path

import orbax.checkpoint as ocp
import pytest

from bert_jax.cli.main import main
from bert_jax.pretraining.begin import check_same_origin
from bert_jax.training.checkpoint_files import DIRECTORY
from bert_jax.training.checkpoints import saved_steps
from bert_jax.training.metric_log import METRICS_FILE, read_rows
from bert_jax.workdir.record import BranchPoint, read_record
from data_pipeline.errors import UserError
from tests.tiny_run import WORDS, arguments, assert_same_run, deterministic_rows, write_corpus

SHORT = (
    "--num-train-steps",
    "40",
    "--eval-every",
    "10",
    "--checkpoint-every",
    "10",
    "--keep-checkpoints",
    "4",
)


@pytest.fixture(scope="module")
def first(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work directory of a run of 40 steps, with the checkpoints of 10, 20, 30 and 40."""
    workdir = tmp_path_factory.mktemp("branch") / "first"
    assert main(arguments(workdir, corpus, *SHORT)) == 0
    return workdir


def test_with_the_same_settings_it_is_the_same_run(first: Path, corpus: Path, tmp_path: Path) -> None:
    assert main(arguments(tmp_path, corpus, *SHORT, "--branch-from", str(first), "--branch-step", "20")) == 0
    assert saved_steps(tmp_path) == [20, 30, 40]
    assert_same_run(tmp_path, first)


def test_with_other_settings_it_is_a_run_of_its_own(
    first: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = ("--seed", "1", "--optimizer.learning-rate", "1e-3", "--num-train-steps", "50")
    line = arguments(tmp_path, corpus, *SHORT, *other, "--branch-from", str(first), "--branch-step", "30")
    assert main(line) == 0
    said = capsys.readouterr().out
    assert "branched from first at step 30; " in said
    for change in ("seed 0 -> 1", "optimizer.learning_rate 0.01 -> 0.001", "num_train_steps 40 -> 50"):
        assert change in said
    assert "resuming from step 30 of 50" in said
    rows = {row["step"]: row for row in deterministic_rows(tmp_path) if row["split"] == "train"}
    before = {row["step"]: row for row in deterministic_rows(first) if row["split"] == "train"}
    assert sorted(rows) == [10, 20, 30, 40, 50]
    assert [rows[step] == before[step] for step in (10, 20, 30, 40)] == [True, True, True, False]
    assert read_record(tmp_path).branched_from == BranchPoint("first", 30)
    # Once begun, the run is independent: the same command resumes it, with or without the flag.
    assert main(line) == 0
    assert main(arguments(tmp_path, corpus, *SHORT, *other)) == 0
    assert "branched" not in capsys.readouterr().out
    assert read_record(tmp_path).branched_from == BranchPoint("first", 30)
    assert len(read_rows(tmp_path / METRICS_FILE)) == len(deterministic_rows(tmp_path))


def test_a_branch_killed_in_its_first_save_begins_again(first: Path, corpus: Path, tmp_path: Path) -> None:
    line = arguments(tmp_path, corpus, *SHORT, "--branch-from", str(first), "--branch-step", "30")
    assert main(line) == 0
    shutil.rmtree(tmp_path / DIRECTORY)
    (tmp_path / DIRECTORY / f"30{ocp.path.step.TMP_DIR_SUFFIX}123").mkdir(parents=True)
    assert main(line) == 0
    assert saved_steps(tmp_path) == [30, 40]


def test_a_branch_that_has_lost_its_checkpoints_does_not_begin_at_step_0(
    first: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = arguments(tmp_path, corpus, *SHORT)
    branched = [*line, "--branch-from", str(first), "--branch-step", "30"]
    assert main(branched) == 0
    shutil.rmtree(tmp_path / DIRECTORY)
    before = (tmp_path / "config.json").read_bytes()
    capsys.readouterr()
    assert main(line) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path} holds a run that branched from first at step 30 and has no checkpoint" in said
    assert (tmp_path / "config.json").read_bytes() == before
    assert main(branched) == 0
    assert saved_steps(tmp_path) == [30, 40]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--model.hidden-size", "32"), "does not fit: model.hidden_size 16 -> 32; undo these changes"),
        (
            ("--optimizer.name", "lamb", "--optimizer.bias-correction", "adam"),
            "does not fit: optimizer.name adamw -> lamb",
        ),
        (
            ("--optimizer.moment-dtype", "bfloat16"),
            "does not fit: optimizer.moment_dtype float32 -> bfloat16; undo these changes",
        ),
        (("--objective.z-loss", "1e-4"), "does not fit: objective.z_loss 0.0 -> 0.0001; undo these changes"),
        (("--model.pooler", "transform"), "does not fit: model.pooler tanh -> transform"),
        (("--objective", "mlm"), "does not fit: objective mlm_nsp -> mlm"),
        (("--branch-step", "25"), "has no checkpoint of step 25; there are [10, 20, 30, 40]"),
        ((), "is at step 40; give --num-train-steps above that, or --branch-step one of"),
        (
            ("--num-train-steps", "25"),
            "give --num-train-steps above that, or --branch-step one of [10, 20]\n",
        ),
        (("--num-train-steps", "5"), "is at step 40; give --num-train-steps above that\n"),
        (("--init-from", "x"), "give --branch-from or --init-from, not both"),
    ],
)
def test_what_cannot_be_is_refused(
    flags: tuple[str, ...],
    message: str,
    first: Path,
    corpus: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(arguments(tmp_path, corpus, *SHORT, "--branch-from", str(first), *flags)) == 2
    (line,) = capsys.readouterr().err.splitlines(keepends=True)
    assert message in line
    assert not (tmp_path / "config.json").exists()


def test_a_run_that_began_otherwise_is_refused(
    first: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = arguments(first, corpus, *SHORT, "--branch-from", str(tmp_path / "gone"))
    assert main(line) == 2
    assert "first holds a run that began at step 0, not one from gone of --b" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "step", "wanted"),
    [
        ("first", None, None),
        ("first", 30, None),
        ("first", 20, "first at step 20"),
        ("second", None, "second"),
        ("second", 30, "second at step 30"),
    ],
)
def test_the_origin_must_be_that_of_the_record(
    name: str, step: int | None, wanted: str | None, tmp_path: Path
) -> None:
    recorded = BranchPoint("first", 30)
    if wanted is None:
        check_same_origin(tmp_path, recorded, tmp_path / name, step)
        return
    with pytest.raises(UserError, match=f"branched from {recorded}, not one from {wanted} of --branch-from"):
        check_same_origin(tmp_path, recorded, tmp_path / name, step)


def test_another_vocabulary_is_refused(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_corpus(tmp_path / "corpus", words=WORDS[::-1])
    flags = ("--branch-from", str(first), "--num-train-steps", "50")
    assert main(arguments(tmp_path / "w", other, *SHORT, *flags)) == 2
    assert "has another vocabulary than the run in" in capsys.readouterr().err
    assert main(arguments(tmp_path / "w", other, *SHORT, "--branch-step", "3")) == 2
    assert "--branch-step goes with --branch-from only" in capsys.readouterr().err
