"""A work directory: it remembers its run, and lets no other in."""

import dataclasses
import fcntl
import json
from pathlib import Path

import pytest

from bert_jax.workdir import (
    FILE_NAME,
    RunRecord,
    check_mark,
    check_same_run,
    flatten,
    lock,
    mark,
    read_record,
    write_record,
)
from data_pipeline.errors import UserError
from experiments import EXPERIMENTS

BASE = EXPERIMENTS["base"]
RECORD = RunRecord("base", BASE, "fingerprint", ({"command": "bert-jax pretrain base"},))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_record_survives_the_file(name: str, tmp_path: Path) -> None:
    record = dataclasses.replace(RECORD, experiment=EXPERIMENTS[name])
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_changed_settings_are_refused_and_shown(tmp_path: Path) -> None:
    model = dataclasses.replace(BASE.model, num_layers=6)
    now = dataclasses.replace(RECORD, experiment=dataclasses.replace(BASE, model=model, seed=7))
    with pytest.raises(UserError, match=r"seed 0 -> 7; model\.num_layers 12 -> 6"):
        check_same_run(tmp_path, RECORD, now)


def test_other_phases_are_refused(tmp_path: Path) -> None:
    data = dataclasses.replace(BASE.data, phases=(dataclasses.replace(BASE.data.phases[0], fraction=1.0),))
    now = dataclasses.replace(RECORD, experiment=dataclasses.replace(BASE, data=data))
    with pytest.raises(UserError, match=r"phases\.0\.fraction 0\.9 -> 1\.0.*phases\.1\S* 512 -> unset"):
        check_same_run(tmp_path, RECORD, now)


def test_other_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="text or the vocabulary"):
        check_same_run(tmp_path, RECORD, dataclasses.replace(RECORD, corpus_fingerprint="another"))


def test_length_cadence_place_and_devices_may_change(tmp_path: Path) -> None:
    now = dataclasses.replace(
        BASE,
        num_train_steps=5,
        log_every=1,
        eval_every=2,
        eval_examples=3,
        checkpoint_every=4,
        keep_checkpoints=5,
        keep_every=8,
        data=dataclasses.replace(BASE.data, corpus="elsewhere"),
        parallel=dataclasses.replace(BASE.parallel, fsdp=2, tensor=2),
    )
    check_same_run(tmp_path, RECORD, dataclasses.replace(RECORD, experiment=now))


def test_a_setting_newer_than_the_file_has_its_default(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    content = json.loads((tmp_path / FILE_NAME).read_text())
    del content["init_from"], content["experiment"]["keep_every"]
    (tmp_path / FILE_NAME).write_text(json.dumps(content))
    assert read_record(tmp_path) == RECORD
    del content["corpus_fingerprint"]
    (tmp_path / FILE_NAME).write_text(json.dumps(content))
    with pytest.raises(UserError, match="corpus_fingerprint"):
        read_record(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", "{}", json.dumps({"experiment_name": "x", "experiment": {}})])
def test_damaged_config_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(UserError, match=FILE_NAME):
        read_record(tmp_path)


def test_lock_is_exclusive_and_a_leftover_file_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with lock(tmp_path), (tmp_path / "lock").open("a") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with lock(tmp_path):
        pass


def test_a_bucket_is_refused_rather_than_made_a_local_folder() -> None:
    with (
        pytest.raises(UserError, match=r"gs://bucket/runs/base is not a folder; mount the bucket"),
        lock(Path("gs://bucket/runs/base")),
    ):
        pass


def test_another_folder_of_the_same_name_is_noticed(tmp_path: Path) -> None:
    with lock(tmp_path):
        token = mark(tmp_path)
        check_mark(tmp_path, token)
        mark(tmp_path)
        with pytest.raises(UserError, match="not the folder that process 0 works in"):
            check_mark(tmp_path, token)


def test_flatten_names_every_value() -> None:
    flat = flatten(BASE)
    assert flat["data.phases.1.max_seq_length"] == 512
    assert flat["optimizer.decay_exclusions.0"] == "bias"
    assert flat["num_train_steps"] == 1_000_000
