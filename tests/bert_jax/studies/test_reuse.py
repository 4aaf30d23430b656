"""Pretrainings taken over from another study: which ones, and what of them."""

import shutil
from pathlib import Path, PurePosixPath

import pytest

from bert_jax.pretraining.initial_shape import InitialModel
from bert_jax.studies.directory import Ended, claim, read_ended, record_inputs_and_seeds, write_ended
from bert_jax.studies.plan import Plan, PretrainingJob, make_plan
from bert_jax.studies.reuse import copy_reusable, find_reusable
from bert_jax.study import Changes
from bert_jax.workdir.record import RunRecord, write_record
from data_pipeline.errors import UserError
from tests.bert_jax.studies.small_study import STUDY, TINY, plan_of

BASE, LTR = PurePosixPath("base/seed-0/pretraining"), PurePosixPath("ltr/seed-0/pretraining")


def done(directory: Path, corpus: str, plan: Plan) -> Path:
    """A study of which the base is pretrained, LTR's pretraining failed, and the others are not begun."""
    claim(directory, {"study": "tiny", "scale": "one"})
    record_inputs_and_seeds(directory, plan, corpus, 30)
    for job in plan.jobs:
        if isinstance(job, PretrainingJob) and job.path in (BASE, LTR):
            error = "NaN" if job.path == LTR else ""
            (directory / job.path).mkdir(parents=True)
            write_record(directory / job.path, RunRecord(job.path.parts[0], job.experiment, corpus))
            write_ended(directory, job, Ended(job.settings, 7.0, "1 x cpu", error=error))
            (directory / job.path / "checkpoints" / "8").mkdir(parents=True)
            (directory / job.path / "checkpoints" / "8" / "arrays").write_bytes(b"parameters")
    return directory


def test_a_run_of_equal_settings_is_copied_whole(tmp_path: Path) -> None:
    other = done(tmp_path / "other", "print", plan_of())
    moved = plan_of({"data.corpus": "elsewhere", "log_every": 1})
    reusable = find_reusable(moved, tmp_path / "new", [other], "print")
    assert reusable == {BASE: other / BASE}
    copy_reusable(tmp_path / "new", reusable)
    assert (tmp_path / "new" / BASE / "checkpoints/8/arrays").read_bytes() == b"parameters"
    (job,) = (job for job in moved.jobs if job.path == BASE)
    ended = read_ended(tmp_path / "new" / job.path)
    assert ended
    assert ended.seconds == 7.0
    assert (other / BASE / "job.json").exists()


@pytest.mark.parametrize("changes", [{"num_train_steps": 9}, {"optimizer.learning_rate": 0.5}])
def test_a_run_with_other_settings_is_not_reused(changes: Changes, tmp_path: Path) -> None:
    other = done(tmp_path / "other", "print", plan_of())
    assert not find_reusable(plan_of(changes), tmp_path / "new", [other], "print")


def test_a_run_from_another_initial_model_is_not_reused(tmp_path: Path) -> None:
    other = done(tmp_path / "other", "print", plan_of())
    model = InitialModel("model", "fingerprint", TINY.model)
    plan = make_plan(STUDY, "one", STUDY.scales["one"], {}, initial=model)
    assert not find_reusable(plan, tmp_path / "new", [other], "print")


def test_a_run_with_another_seed_is_not_reused(tmp_path: Path) -> None:
    other = done(tmp_path / "other", "print", plan_of())
    assert list(find_reusable(plan_of(scale="tiny"), tmp_path / "new", [other], "print")) == [BASE]


def test_kept_checkpoints_serve_a_study_that_keeps_none_but_not_the_other_way_round(tmp_path: Path) -> None:
    keeping = plan_of({"keep_every": 4, "checkpoint_every": 4})
    with_kept = done(tmp_path / "kept", "print", keeping)
    without = done(tmp_path / "without", "print", plan_of())
    reusable = find_reusable(plan_of(), tmp_path / "new", [with_kept], "print")
    assert reusable == {BASE: with_kept / BASE}
    claim(tmp_path / "new", {"study": "tiny", "scale": "one"})
    copy_reusable(tmp_path / "new", reusable)
    record_inputs_and_seeds(tmp_path / "new", plan_of(), "print", 30)  # as the next start of the study does
    assert not find_reusable(keeping, tmp_path / "new", [without], "print")


def test_what_is_begun_stays(tmp_path: Path) -> None:
    other = done(tmp_path / "other", "print", plan_of())
    begun = tmp_path / "new" / BASE
    begun.mkdir(parents=True)
    (begun / "log.txt").write_text("begun")
    assert not find_reusable(plan_of(), tmp_path / "new", [other], "print")
    copy_reusable(tmp_path / "new", {BASE: other / BASE})  # as if it was begun only now
    assert [file.name for file in begun.iterdir()] == ["log.txt"]
    assert len(list(begun.parent.iterdir())) == 1


def test_a_directory_that_is_no_study_or_of_another_corpus_is_refused(tmp_path: Path) -> None:
    other = done(tmp_path / "other", "another print", plan_of())
    with pytest.raises(UserError, match="is a study of another corpus"):
        find_reusable(plan_of(), tmp_path / "new", [other], "print")
    with pytest.raises(UserError, match="holds no study"):
        find_reusable(plan_of(), tmp_path / "new", [tmp_path], "print")


def test_a_run_that_was_published_without_its_checkpoints_is_not_reused(tmp_path: Path) -> None:
    other = done(tmp_path / "other", "print", plan_of())
    shutil.rmtree(other / BASE / "checkpoints")
    assert find_reusable(plan_of(), tmp_path / "new", [other], "print") == {}
