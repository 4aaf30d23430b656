"""A run's `config.json`: it describes the run, and a different run in the directory is refused."""

import dataclasses
import json
from pathlib import Path

import pytest

from bert_jax.model_config import MODEL_SHAPE
from bert_jax.objectives.experiment import Experiment
from bert_jax.retention import Kept
from bert_jax.workdir.config_text import _OF_EVERY_MODEL, flatten
from bert_jax.workdir.record import (
    CONFIG_FILE,
    BranchPoint,
    RunRecord,
    check_same_run,
    describe_changes,
    describe_kept,
    read_record,
    write_record,
)
from data_pipeline.errors import UserError
from experiments import EXPERIMENTS

BASE = EXPERIMENTS["base"]
RECORD = RunRecord("base", BASE, "fingerprint", ({"command": "bert-jax pretrain base"},))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_record_survives_the_file(name: str, tmp_path: Path) -> None:
    record = dataclasses.replace(
        RECORD, experiment=EXPERIMENTS[name], branched_from=BranchPoint("other at step 1", 20)
    )
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
    assert [path.name for path in tmp_path.iterdir()] == [CONFIG_FILE]


def test_a_file_from_before_a_setting_of_the_model_means_its_default(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    path = tmp_path / CONFIG_FILE
    content = json.loads(path.read_text(encoding="utf-8"))
    for name in sorted({*MODEL_SHAPE} - {*_OF_EVERY_MODEL}):
        del content["experiment"]["model"][name]
    path.write_text(json.dumps(content), encoding="utf-8")
    assert read_record(tmp_path) == RECORD
    del content["experiment"]["model"]["positions"]
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match="of another version of bert-jax: no positions"):
        read_record(tmp_path)


def test_changed_settings_are_refused_and_shown(tmp_path: Path) -> None:
    model = dataclasses.replace(BASE.model, num_layers=6)
    now = dataclasses.replace(RECORD, experiment=dataclasses.replace(BASE, model=model, seed=7))
    with pytest.raises(UserError, match=r"seed 0 -> 7; model\.num_layers 12 -> 6"):
        check_same_run(tmp_path, RECORD, now, 0)


def test_other_phases_are_refused(tmp_path: Path) -> None:
    data = dataclasses.replace(BASE.data, phases=(dataclasses.replace(BASE.data.phases[0], fraction=1.0),))
    now = dataclasses.replace(RECORD, experiment=dataclasses.replace(BASE, data=data))
    with pytest.raises(UserError, match=r"phases\.0\.fraction 0\.9 -> 1\.0.*phases\.1\S* 512 -> unset"):
        check_same_run(tmp_path, RECORD, now, 0)


def test_other_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="text or the vocabulary"):
        check_same_run(tmp_path, RECORD, dataclasses.replace(RECORD, corpus_fingerprint="another"), 0)


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
        parallel=dataclasses.replace(BASE.parallel, fsdp=2, tensor=2, accumulation_steps=2, remat="layers"),
    )
    check_same_run(tmp_path, RECORD, dataclasses.replace(RECORD, experiment=now), 0)


def keeping(newest: int, every: int | None) -> Experiment:
    return dataclasses.replace(BASE, keep_checkpoints=newest, keep_every=every)


def test_what_one_start_asked_to_keep_all_later_ones_keep(tmp_path: Path) -> None:
    """Whether the previous start or an even earlier one asked for it."""
    first = keeping(10, 50_000)
    record = dataclasses.replace(RECORD, experiment=first, kept=Kept.asked_for_by(first))
    for now, kept in (
        (keeping(3, None), Kept(10, (50_000,))),
        (keeping(3, 20_000), Kept(10, (20_000, 50_000))),
        (keeping(12, 20_000), Kept(12, (20_000, 50_000))),
        (keeping(3, None), Kept(12, (20_000, 50_000))),
    ):
        assert record.kept.union(Kept.asked_for_by(now)) == kept
        write_record(tmp_path, dataclasses.replace(record, experiment=now, kept=kept))
        record = read_record(tmp_path)
        (line,) = describe_kept(kept, now)
        assert (
            f"the {kept.newest} newest checkpoints and those of all steps that {kept.every[0]} divides"
            in line
        )
    fewer = dataclasses.replace(record, kept=Kept(2))  # a user may edit the file like this
    assert fewer.kept.union(Kept.asked_for_by(keeping(3, None))) == Kept(3)
    assert describe_kept(Kept(3), keeping(3, None)) == []
    (line,) = describe_kept(Kept(1, (100,)), keeping(1, None))
    assert "the run keeps the newest checkpoint and those of all steps that 100 divides" in line


def longer(num_train_steps: int) -> RunRecord:
    """BASE, whose first phase is nine tenths of the steps, with another number of them."""
    return dataclasses.replace(RECORD, experiment=dataclasses.replace(BASE, num_train_steps=num_train_steps))


@pytest.mark.parametrize(
    ("step", "num_train_steps"), [(800_000, 1_200_000), (900_000, 1_200_000), (400_000, 500_000)]
)
def test_the_number_of_steps_may_change_while_no_phase_is_over(
    step: int, num_train_steps: int, tmp_path: Path
) -> None:
    check_same_run(tmp_path, RECORD, longer(num_train_steps), step)


@pytest.mark.parametrize(
    ("step", "num_train_steps", "end"),
    [(900_001, 1_200_000, 1_080_000), (1_000_000, 1_200_000, 1_080_000), (500_000, 500_000, 450_000)],
)
def test_a_step_that_is_done_stays_in_its_phase(
    step: int, num_train_steps: int, end: int, tmp_path: Path
) -> None:
    message = (
        rf"end phase 0 at step {end} instead of 900000, .* at step {step}; give --num-train-steps 1000000"
    )
    with pytest.raises(UserError, match=message):
        check_same_run(tmp_path, RECORD, longer(num_train_steps), step)


def test_a_step_that_is_done_keeps_its_batch_size(tmp_path: Path) -> None:
    data = dataclasses.replace(BASE.data, batch_schedule=((0.25, 0.5),))
    experiment = dataclasses.replace(BASE, data=data)
    before = dataclasses.replace(RECORD, experiment=experiment)
    now = dataclasses.replace(before, experiment=dataclasses.replace(experiment, num_train_steps=1_200_000))
    check_same_run(tmp_path, before, now, 250_000)
    with pytest.raises(
        UserError, match="phase 0 and its batches of 128 rows at step 300000 instead of 250000"
    ):
        check_same_run(tmp_path, before, now, 250_001)
    assert (
        "phases and batch sizes end at 300000, 1080000, 1200000"
        in describe_changes(experiment, now.experiment)[0]
    )


def test_a_step_beyond_the_last_is_refused(tmp_path: Path) -> None:
    check_same_run(tmp_path, longer(800), longer(800), 800)
    with pytest.raises(UserError, match="is at step 801, beyond num_train_steps 800; give a larger"):
        check_same_run(tmp_path, RECORD, longer(800), 801)


def test_what_a_change_does_is_said() -> None:
    assert describe_changes(BASE, BASE) == []
    (line,) = describe_changes(BASE, longer(1_200_000).experiment)
    assert "num_train_steps 1000000 -> 1200000" in line
    assert "phases end at 1080000, 1200000" in line
    assert "the learning rate is that of the new schedule" in line
    masking = dataclasses.replace(BASE.data.masking, rate=0.3, last_rate=0.15)
    data = dataclasses.replace(longer(1_200_000).experiment.data, masking=masking)
    (line,) = describe_changes(BASE, dataclasses.replace(longer(1_200_000).experiment, data=data))
    assert "the learning and masking rates are those of the new schedule" in line


@pytest.mark.parametrize(
    ("settings", "changed", "effect"),
    [
        ({"remat": "layers"}, "remat none -> layers", "rounded"),
        ({"fsdp": 2}, "fsdp 1 -> 2", "rounded"),
        ({"accumulation_steps": 4}, "accumulation_steps 1 -> 4", "dropout"),
        ({"tensor": 2, "fsdp": 2}, "fsdp 1 -> 2; parallel.tensor 1 -> 2", "dropout"),
        ({"mode": "pmap"}, "mode jit -> pmap", "dropout"),
    ],
)
def test_what_a_layout_changes_is_said(settings: dict, changed: str, effect: str) -> None:
    parallel = dataclasses.replace(BASE.parallel, **settings)
    (line,) = describe_changes(BASE, dataclasses.replace(BASE, parallel=parallel))
    assert f"parallel.{changed}: the run goes on, but not bit for bit" in line
    assert effect in line
    model = dataclasses.replace(BASE.model, dropout_rate=0.0, attention_dropout_rate=0.0)
    without = dataclasses.replace(BASE, model=model)
    (line,) = describe_changes(without, dataclasses.replace(without, parallel=parallel))
    assert "rounded" in line


def test_turning_the_attention_kernel_off_is_said() -> None:
    model = dataclasses.replace(BASE.model, attention_kernel="none")
    (line,) = describe_changes(BASE, dataclasses.replace(BASE, model=model))
    assert "model.attention_kernel auto -> none: the run goes on, but not bit for bit: dropout" in line


def test_a_setting_newer_than_the_file_has_its_default(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    content = json.loads((tmp_path / CONFIG_FILE).read_text())
    del content["init_from"], content["experiment"]["keep_every"]
    del content["experiment"]["model"]["attention_kernel"]
    (tmp_path / CONFIG_FILE).write_text(json.dumps(content))
    assert read_record(tmp_path) == RECORD
    missing = dict(content["experiment"]["model"])
    for name in ("num_heads", "attention"):
        content["experiment"]["model"] = {key: missing[key] for key in missing if key != name}
        (tmp_path / CONFIG_FILE).write_text(json.dumps(content))
        with pytest.raises(UserError, match=name):
            read_record(tmp_path)
    content["experiment"]["model"] = missing
    objective = content["experiment"].pop("objective")
    (tmp_path / CONFIG_FILE).write_text(json.dumps(content))
    with pytest.raises(UserError, match="objective"):
        read_record(tmp_path)
    content["experiment"]["objective"] = objective
    del content["corpus_fingerprint"]
    (tmp_path / CONFIG_FILE).write_text(json.dumps(content))
    with pytest.raises(UserError, match="corpus_fingerprint"):
        read_record(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", "{}", json.dumps({"experiment_name": "x", "experiment": {}})])
def test_damaged_config_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / CONFIG_FILE).write_text(content)
    with pytest.raises(UserError, match=CONFIG_FILE):
        read_record(tmp_path)


def test_a_value_where_an_object_should_stand_is_refused(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    content = json.loads((tmp_path / CONFIG_FILE).read_text())
    content["branched_from"] = "first at step 30"
    (tmp_path / CONFIG_FILE).write_text(json.dumps(content))
    with pytest.raises(UserError, match="'first at step 30' stands where the settings of BranchPoint should"):
        read_record(tmp_path)
    content["branched_from"] = ""
    (tmp_path / CONFIG_FILE).write_text(json.dumps(content))
    assert read_record(tmp_path) == RECORD


def test_flatten_names_every_value() -> None:
    flat = flatten(BASE)
    assert flat["data.phases.1.max_seq_length"] == 512
    assert flat["optimizer.decay_exclusions.0"] == "bias"
    assert flat["num_train_steps"] == 1_000_000
