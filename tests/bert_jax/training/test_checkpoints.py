"""Checkpoints: whole or absent, and a damaged one is never trained on."""

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.parallel import processes
from bert_jax.retention import Kept
from bert_jax.training import checkpoint_files
from bert_jax.training.checkpoint_files import DIRECTORY, files_of
from bert_jax.training.checkpoints import Checkpoints, find_checkpoint, load_params, saved_steps
from data_pipeline.errors import Unfinished, UserError
from tests.damage import flip_a_bit
from tests.full_disk import files_no_larger_than


def state(step: int, size: int = 1000) -> dict:
    value = jax.random.normal(jax.random.key(step), (size,))
    return {"step": jnp.int32(step), "params": {"dense": {"kernel": value}}, "opt_state": (value * 2,)}


ABSTRACT = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state(0))


def save(workdir: Path, *steps: int) -> None:
    checkpoints = Checkpoints(workdir, Kept(2))
    for step in steps:
        checkpoints.save(step, state(step))
    checkpoints.close()


def restore(workdir: Path) -> int | None:
    """The step restored, after comparing every array with what was saved."""
    checkpoints = Checkpoints(workdir, Kept(2))
    restored = checkpoints.restore_newest(ABSTRACT)
    checkpoints.close()
    if restored is None:
        return None
    step = int(restored["step"])
    jax.tree.map(np.testing.assert_array_equal, restored, state(step))
    return step


def wait_for_failed_writers(workdir: Path) -> None:
    """Waits until TensorStore's threads have left the directory of a save that failed.

    Those of other arrays go on for a moment, and make and remove lock files. A run that starts again is
    another process, in which they are gone.
    """
    seen: list[set[Path]] = []
    while len(seen) < 5 or any(files != seen[-1] for files in seen[-5:]):
        time.sleep(0.1)
        seen.append(set(workdir.rglob("*")))


def test_the_newest_is_restored_and_old_ones_are_deleted(tmp_path: Path) -> None:
    assert restore(tmp_path) is None
    save(tmp_path, 10, 20, 30)
    assert saved_steps(tmp_path) == [20, 30]
    assert restore(tmp_path) == 30


def test_a_file_named_as_a_step_is_no_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 10)
    (tmp_path / DIRECTORY / "100").write_text("mine")
    assert saved_steps(tmp_path) == [10]
    assert restore(tmp_path) == 10


def test_every_nth_checkpoint_is_kept_beside_the_newest(tmp_path: Path) -> None:
    for steps in ((10, 20, 30, 40), (50, 60, 65, 70)):
        checkpoints = Checkpoints(tmp_path, Kept(2, (20, 30)))
        for step in steps:
            checkpoints.save(step, state(step))
        checkpoints.close()
    assert saved_steps(tmp_path) == [20, 30, 40, 60, 65, 70]
    assert load_params(tmp_path, 20)[0] == 20


def test_a_checkpoint_that_cannot_be_deleted_is_noted_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))

    checkpoints = Checkpoints(tmp_path, Kept(1))
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_files.shutil, "rmtree", refuse)
        for step in (10, 20, 30):
            checkpoints.save(step, state(step))
        checkpoints.wait()
        # Of step 10 a part may be gone, so it no longer counts.
        assert saved_steps(tmp_path) == [20, 30]
    said = capsys.readouterr().out.splitlines()
    assert [line.split(" in ")[0] for line in said] == [
        "note: the checkpoint of step 10",
        "note: the checkpoint of step 20",
    ]
    assert "cannot be deleted (OSError: [Errno 39] Directory not empty" in said[0]
    checkpoints.save(40, state(40))
    checkpoints.close()
    assert [path.name for path in (tmp_path / DIRECTORY).iterdir()] == ["40"]
    assert capsys.readouterr().out == ""


def data_files(checkpoint: Path) -> list[Path]:
    """All files that arrays are restored from, the largest first."""
    files = [path for path in (checkpoint / "default").rglob("*") if path.is_file()]
    return sorted(files, key=lambda path: -path.stat().st_size)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [flip_a_bit, truncate, Path.unlink])
def test_a_damaged_file_means_the_checkpoint_before(
    damage: Callable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 10, 20)
    damage(data_files(tmp_path / DIRECTORY / "20")[0])
    assert restore(tmp_path) == 10
    (line,) = capsys.readouterr().out.splitlines()
    assert "step 20 is damaged" in line
    assert (tmp_path / "damaged-checkpoints" / "20").is_dir()


def test_a_file_that_cannot_be_read_is_not_taken_for_damaged(tmp_path: Path) -> None:
    save(tmp_path, 10, 20)
    file = data_files(tmp_path / DIRECTORY / "20")[0]
    good = file.rename(tmp_path / "good")
    file.symlink_to("/proc/self/mem")  # opens, but reading its beginning is an input/output error
    with pytest.raises(Unfinished, match=r"step 20 cannot be read \(.*Input/output error.*again"):
        restore(tmp_path)
    good.replace(file)
    assert restore(tmp_path) == 20


def test_a_flipped_bit_in_any_file_is_found(tmp_path: Path) -> None:
    save(tmp_path, 10)
    directory = tmp_path / DIRECTORY / "10"
    for path in data_files(directory):
        content = path.read_bytes()
        flip_a_bit(path)
        assert files_of(tmp_path).find_fault(10) is not None, path
        path.write_bytes(content)
    assert files_of(tmp_path).find_fault(10) is None


@pytest.mark.parametrize("content", [None, "", "{", "[]"])
def test_damaged_checksums_mean_a_damaged_checkpoint(content: str | None, tmp_path: Path) -> None:
    save(tmp_path, 10, 20)
    path = tmp_path / DIRECTORY / "20" / "checksums.json"
    path.unlink() if content is None else path.write_text(content)
    assert restore(tmp_path) == 10


def test_a_step_can_be_saved_again_after_its_damage(tmp_path: Path) -> None:
    save(tmp_path, 10, 20)
    flip_a_bit(data_files(tmp_path / DIRECTORY / "20")[0])
    assert restore(tmp_path) == 10
    save(tmp_path, 20)
    assert restore(tmp_path) == 20


def test_damaged_checkpoints_of_one_step_are_numbered(tmp_path: Path) -> None:
    save(tmp_path, 1)
    for step in (1000, 100, 10, 10, 10):
        save(tmp_path, step)
        flip_a_bit(data_files(tmp_path / DIRECTORY / str(step))[0])
        assert restore(tmp_path) == 1
    aside = {path.name for path in (tmp_path / "damaged-checkpoints").iterdir()}
    assert aside == {"1000", "100", "10", "10.1", "10.2"}


def test_a_checkpoint_that_another_process_put_aside_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 10, 20)
    checkpoints = Checkpoints(tmp_path, Kept(2))
    # Process 0 found step 20 damaged; this process's listing, over a network, still has it.
    monkeypatch.setattr(processes, "broadcast_from_first", lambda _: 10)
    restored = checkpoints.restore_newest(ABSTRACT)
    assert restored is not None
    assert int(restored["step"]) == 10
    checkpoints.save(15, state(15))
    checkpoints.close()
    assert 15 in saved_steps(tmp_path)


def test_nothing_but_damaged_checkpoints_is_an_error(tmp_path: Path) -> None:
    save(tmp_path, 10)
    flip_a_bit(data_files(tmp_path / DIRECTORY / "10")[0])
    with pytest.raises(UserError, match="every checkpoint"):
        restore(tmp_path)


def test_a_checkpoint_of_other_code_is_named_with_the_arrays_that_differ(tmp_path: Path) -> None:
    save(tmp_path, 1)
    checkpoints = Checkpoints(tmp_path, Kept(2))
    expected = {**ABSTRACT, "params": {"dense": {"scale": ABSTRACT["params"]["dense"]["kernel"]}}}
    message = r"step 1 in .* arrays differ: params\.dense\.kernel, params\.dense\.scale; go on with that code"
    with pytest.raises(UserError, match=message):
        checkpoints.restore_newest(expected)
    checkpoints.close()


def test_half_written_leftovers_are_removed(tmp_path: Path) -> None:
    save(tmp_path, 10)
    leftover = tmp_path / DIRECTORY / "20.orbax-checkpoint-tmp"
    (leftover / "default").mkdir(parents=True)
    assert saved_steps(tmp_path) == [10]
    assert restore(tmp_path) == 10
    assert not leftover.exists()


# TensorStore reports the failure to an event loop that asyncio has closed by then.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 10)
    checkpoints = Checkpoints(tmp_path, Kept(2))

    def save_and_wait() -> None:
        checkpoints.save(20, state(20, size=100_000))
        checkpoints.wait()

    with (
        files_no_larger_than(50_000),
        pytest.raises(Unfinished, match=r"step 20 .*File too large.* that of step 10 is kept; run the"),
    ):
        save_and_wait()
    checkpoints.close()
    wait_for_failed_writers(tmp_path)
    assert restore(tmp_path) == 10


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_disk_that_has_room_again_gets_the_next_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = Checkpoints(tmp_path, Kept(2))
    checkpoints.save(5, state(5))
    checkpoints.save(10, state(10))
    with files_no_larger_than(50_000):
        checkpoints.save(20, state(20, size=100_000))
        assert checkpoints._save is not None
        while not checkpoints._save.done():  # it fails before its result is asked for
            time.sleep(0.01)
    checkpoints.save(30, state(30))
    assert saved_steps(tmp_path) == [10, 30]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("saving the checkpoint of step 20 in ")
    checkpoints.save(40, state(40))
    checkpoints.close()
    assert saved_steps(tmp_path) == [30, 40]
    wait_for_failed_writers(tmp_path)
    assert restore(tmp_path) == 40


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_disk_that_stays_full_ends_the_run_at_the_next_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = Checkpoints(tmp_path, Kept(2))
    checkpoints.save(10, state(10))
    with files_no_larger_than(50_000):
        checkpoints.save(20, state(20, size=100_000))
        with pytest.raises(Unfinished, match=r"step 30 .* that of step 10 is kept"):
            checkpoints.save(30, state(30, size=100_000))
    (line,) = capsys.readouterr().out.splitlines()
    assert "step 20" in line
    assert line.endswith("that of step 10 is kept; trying that of step 30")


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.ENOSPC, "make room and run"), (errno.EDQUOT, "make room and run"), (errno.EIO, "run")],
)
def test_room_is_asked_for_only_where_there_is_none(tmp_path: Path, number: int, advice: str) -> None:
    checkpoints = Checkpoints(tmp_path, Kept(2))
    said = str(checkpoints._unfinished(OSError(number, os.strerror(number))))
    assert said.endswith(f"there is no earlier one; {advice} the same command again")
    checkpoints.close()


def test_parameters_alone_are_loaded_as_numpy(tmp_path: Path) -> None:
    save(tmp_path, 10, 20)
    step, params = load_params(tmp_path, 10)
    assert step == 10
    assert type(params["dense"]["kernel"]) is np.ndarray
    np.testing.assert_array_equal(params["dense"]["kernel"], state(10)["params"]["dense"]["kernel"])
    assert load_params(tmp_path)[0] == 20


def test_a_checkpoint_that_its_run_deletes_meanwhile_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_fault = checkpoint_files._find_fault

    def train_on(checkpoint: Path) -> str | None:
        if checkpoint.name == "10":
            save(tmp_path, 20)
            shutil.rmtree(checkpoint, ignore_errors=True)
        return find_fault(checkpoint)

    for step, newest in ((None, 20), (10, None)):
        shutil.rmtree(tmp_path / DIRECTORY, ignore_errors=True)
        save(tmp_path, 10)
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint_files, "_find_fault", train_on)
            if newest:
                assert find_checkpoint(tmp_path, step) == newest
            else:
                with pytest.raises(UserError, match=r"no checkpoint of step 10; there are \[20\]"):
                    find_checkpoint(tmp_path, step)


def test_loading_what_is_not_there_says_what_is(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint yet"):
        load_params(tmp_path)
    save(tmp_path, 10, 20)
    with pytest.raises(UserError, match=r"no checkpoint of step 15; there are \[10, 20\]"):
        load_params(tmp_path, 15)


def test_checksums_cover_every_data_file(tmp_path: Path) -> None:
    save(tmp_path, 10)
    directory = tmp_path / DIRECTORY / "10"
    sums = json.loads((directory / "checksums.json").read_text())
    written = {str(p.relative_to(directory)) for p in data_files(directory) if p.name != "commit_success.txt"}
    assert set(sums) - {"default/commit_success.txt"} == written
