"""Commands that read and write gs:// directly, against a server of buckets."""

import contextlib
import dataclasses
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.auth.exceptions import DefaultCredentialsError

from bert_jax.cli.buckets import run_with_buckets
from bert_jax.cli.flags.fill_mask import FillMask
from bert_jax.cli.main import main
from bert_jax.formats.model_source import ModelSource
from bert_jax.parallel import bucket_lease, leases, processes
from bert_jax.parallel.lease_store import LeaseObjects
from bert_jax.pretraining import evaluate_run
from bert_jax.studies.directory import (
    Ended,
    claim,
    forget_failures,
    forget_what_others_retry,
    read_ended,
    write_ended,
    write_progress,
)
from bert_jax.studies.plan import make_plan
from bert_jax.studies.report import write_report
from bert_jax.training.checkpoint_files import DIRECTORY, files_of
from bert_jax.training.failures import storage_errors_as_unfinished
from bert_jax.training.nonfinite import report_nonfinite
from bert_jax.workdir import directory as workdir
from bert_jax.workdir.record import check_last_start
from data_pipeline import bucket, bucket_client
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.errors import Unfinished, UserError
from data_pipeline.stand_in import (
    COMPILED_DIRECTORY,
    LEASE_FILE,
    directory_of_run,
    fetch,
    place_for,
    push,
    shared_directory,
    upload,
)
from tests.bert_jax.small_run import make_run, trainable_params
from tests.bert_jax.studies.small_results import results
from tests.bert_jax.studies.small_study import STUDY as TINY_STUDY
from tests.bucket_server import BucketServer, serve
from tests.conftest import Refused
from tests.pod import Pod
from tests.test_finetune import command as finetuning
from tests.test_finetune import write_table
from tests.tiny_run import arguments, assert_same_run, command, environment
from tests.tiny_study import outcomes, run_killed, start_worker, study, write_data

RUN = "gs://bucket/runs/mine"
STUDY = "gs://bucket/studies/tiny"
GRID = "gs://bucket/grids/tiny"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketServer]:
    with serve() as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("BERT_JAX_CACHE", str(tmp_path / "cache"))
        bucket_client.client.cache_clear()
        yield running
    bucket_client.client.cache_clear()


def copy_of(url: str, directory: Path) -> Path:
    """All objects of a directory, checkpoints among them, as files."""
    source = bucket.BucketDirectory(url)
    source.download(directory, source.list())
    return directory


def in_bucket(corpus: Path, *flags: str) -> list[str]:
    """The arguments of a tiny run in the bucket, into which its corpus is copied."""
    there = {"run": RUN, "corpus": "gs://bucket/corpora/tiny"}
    upload(corpus, bucket.BucketDirectory(there["corpus"]))
    return [there.get(word, word) for word in arguments(Path("run"), Path("corpus"), *flags)]


@pytest.mark.slow
def test_a_run_in_a_bucket_is_that_of_a_directory(
    server: BucketServer, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = ("--num-train-steps", "60", "--eval-every", "30")
    assert main(arguments(tmp_path / "here", corpus, *steps)) == 0
    assert main(in_bucket(corpus, *steps)) == 0
    assert_same_run(copy_of(RUN, tmp_path / "copy"), tmp_path / "here")
    # Of the run's files only compiled programs stay on this machine.
    assert [path.name for path in place_for(RUN).iterdir()] == ["compilation-cache"]
    lease = json.loads(bucket.BucketDirectory(RUN).read("lease.json")[0])
    assert lease["ended"]
    assert main(["export", "--workdir", RUN, "--output", "gs://bucket/exported"]) == 0
    assert main(["export", "--workdir", str(tmp_path / "here"), "--output", str(tmp_path / "exported")]) == 0

    def evaluate_beside_another_machine(*arguments: Any) -> dict[str, float]:
        bucket.BucketDirectory(RUN).write("evaluation-60.json", b'[{"corpus": "another"}]')
        return evaluate(*arguments)

    evaluate = evaluate_run.evaluate
    monkeypatch.setattr(evaluate_run, "evaluate", evaluate_beside_another_machine)
    assert main(["evaluate", "--workdir", RUN]) == 0
    # The record says where the corpus lies for every machine.
    shutil.rmtree(tmp_path / "cache")
    assert main(["evaluate", "--workdir", RUN]) == 0
    evaluations = bucket.BucketDirectory(RUN).read("evaluation-60.json")[0]
    assert {row["corpus"] for row in json.loads(evaluations)} == {"another", "gs://bucket/corpora/tiny"}
    exported = copy_of("gs://bucket/exported", tmp_path / "exported-there")
    weights = "model.safetensors"
    assert (exported / weights).read_bytes() == (tmp_path / "exported" / weights).read_bytes()


def test_reading_a_place_leaves_what_a_command_works_on(server: BucketServer, tmp_path: Path) -> None:
    (tmp_path / "done.json").write_text("{}")
    upload(tmp_path / "done.json", bucket.BucketDirectory(f"{GRID}/done.json"))
    trial = place_for(GRID, "@outputs") / "trial.json"
    trial.parent.mkdir(parents=True)
    trial.write_text("{}")
    assert [path.name for path in fetch(GRID).iterdir()] == ["done.json"]
    assert trial.exists()


def test_an_object_in_the_way_of_an_output_is_refused(
    server: BucketServer, tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "texts.txt").write_text("the cat\n")
    (tmp_path / "features.npz").touch()
    upload(tmp_path / "features.npz", bucket.BucketDirectory("gs://bucket/features.npz"))
    flags = ["--model", str(tmp_path), "--input", str(tmp_path / "texts.txt")]
    error = refused(["features", *flags, "--output", "gs://bucket/features.npz"])
    assert "features.npz exists; name another one" in error


def test_a_whole_bucket_is_no_file(tmp_path: Path, refused: Refused) -> None:
    error = refused(["report", str(tmp_path), "--csv", "gs://bucket"])
    assert "--csv gs://bucket is a whole bucket; name an object in it" in error


def test_a_renewal_whose_answer_was_lost_is_no_takeover(server: BucketServer) -> None:
    directory = bucket.BucketDirectory(RUN)
    store = LeaseObjects(directory)
    texts = [json.dumps({"owner": owner, "renewal": n}) for n, owner in enumerate(("a", "a", "a", "b"))]
    taken = store.take("job", 0, texts[0])
    directory.write("job", texts[1].encode(), taken)
    renewed = store.renew("job", taken, texts[2])
    assert store.newest("job") == (renewed, texts[2])
    directory.write("job", texts[3].encode(), renewed)
    assert store.renew("job", renewed, texts[2]) is None
    assert store.newest("job")[1] == texts[3]


def test_missing_credentials_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise DefaultCredentialsError("no credentials")

    monkeypatch.setattr(bucket_client, "client", fail)
    directory = bucket.BucketDirectory(RUN)
    for ask in (directory.list, lambda: directory.read("a"), lambda: directory.write("a", b"")):
        with pytest.raises(UserError, match="may not be used"):
            ask()


def test_a_second_run_in_a_directory_is_refused(
    server: BucketServer, corpus: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_lease, "_SECONDS_BETWEEN_RENEWALS", 0.1)
    with bucket_lease.hold(bucket.BucketDirectory(RUN)):
        error = refused(in_bucket(corpus))
    assert f"{RUN} is in use by {platform.node()}, process {os.getpid()};" in error


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (HTTPStatus.FORBIDDEN, "may not be used"),
        (HTTPStatus.UNAUTHORIZED, "may not be used"),
        (HTTPStatus.NOT_FOUND, "name a bucket that exists"),
    ],
)
def test_a_bucket_that_cannot_be_used_is_one_line(
    server: BucketServer, refused: Refused, status: HTTPStatus, words: str
) -> None:
    server.refusal = status
    assert words in refused(["export", "--workdir", RUN, "--output", "anywhere"])


@pytest.mark.slow
def test_a_file_and_a_directory_are_written(server: BucketServer, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("One sentence.\nAnother one.\n\nA second document.\nIts end.\n" * 20)
    upload(tmp_path / "text.txt", bucket.BucketDirectory("gs://bucket/text.txt"))
    flags = ["--train-vocab", "wordpiece", "--vocab-size", "100", "--holdout", "0.2", "--format", "sentences"]
    assert main(["prepare", "gs://bucket/text.txt", "--output", "gs://bucket/corpus", *flags]) == 0
    assert main(["prepare", str(tmp_path / "text.txt"), "--output", str(tmp_path / "corpus"), *flags]) == 0
    there = copy_of("gs://bucket/corpus", tmp_path / "copy")
    names = {path.name for path in (tmp_path / "corpus").rglob("*") if path.is_file()}
    assert {path.name for path in there.rglob("*") if path.is_file()} == names
    assert main(["inspect", "gs://bucket/corpus", "--examples", "1"]) == 0


def test_runs_are_not_copied_into_a_study_in_a_bucket(
    server: BucketServer, tmp_path: Path, refused: Refused
) -> None:
    error = refused(study(write_data(tmp_path), Path(STUDY), "--reuse", "studies/a"))
    assert f"--reuse copies runs on this machine, and --output {STUDY} is a bucket" in error


def test_what_is_not_there_is_named(server: BucketServer, refused: Refused) -> None:
    assert f"there is nothing at {RUN}" in refused(["export", "--workdir", RUN, "--output", "anywhere"])
    error = refused(["export", "--workdir", "gs://other/run", "--output", "anywhere"])
    assert "gs://other/run: not found" in error
    assert "name a bucket that exists" in error


def test_requests_are_repeated_when_the_bucket_is_busy(server: BucketServer, tmp_path: Path) -> None:
    server.faults = 0.3
    for name in map(str, range(20)):
        (tmp_path / "files" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "files" / name).write_text(name)
    upload(tmp_path / "files", bucket.BucketDirectory("gs://bucket/files"))
    copy = copy_of("gs://bucket/files", tmp_path / "copy")
    assert {path.name: path.read_text() for path in copy.iterdir()} == {str(n): str(n) for n in range(20)}


def test_an_object_is_replaced_only_by_who_has_seen_it(server: BucketServer) -> None:
    directory = bucket.BucketDirectory("gs://bucket/here")
    first = directory.write("name", b"one", generation=0)
    assert first is not None
    assert directory.write("name", b"two", generation=0) is None
    assert directory.write("name", b"one", generation=0) == first  # the same request, sent again
    second = directory.write("name", b"two", generation=first)
    assert second is not None
    assert directory.write("name", b"three", generation=first) is None
    assert directory.read("name") == (b"two", second)


def test_the_lease_of_a_process_that_is_gone_passes_on(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, lost = bucket.BucketDirectory("gs://bucket/here"), threading.Event()
    monkeypatch.setattr(leases, "end_process", lost.set)
    monkeypatch.setattr(bucket_lease, "_SECONDS_BETWEEN_RENEWALS", 0.2)
    with bucket_lease.hold(directory):
        content, generation = directory.read(LEASE_FILE) or (b"", 0)
        gone = {**json.loads(content), "pid": 2**30}
        assert directory.write(LEASE_FILE, json.dumps(gone).encode(), generation)
        with bucket_lease.hold(directory):
            assert lost.wait(10)


def test_texts_are_fetched_whatever_they_are_called(server: BucketServer, tmp_path: Path) -> None:
    names = {"lockheed.txt", "lease.json.txt", "compilation-cache.txt"}
    for name in {*names, "lock"}:
        (tmp_path / name).write_text(name)
    upload(tmp_path, bucket.BucketDirectory("gs://bucket/texts"))
    assert {path.name for path in fetch("gs://bucket/texts").iterdir()} == names


def test_files_that_another_machine_removed_are_removed_here(server: BucketServer, tmp_path: Path) -> None:
    for name in ("kept", "removed"):
        (tmp_path / name).write_text(name)
    directory = bucket.BucketDirectory("gs://bucket/here")
    upload(tmp_path, directory)
    place = fetch(directory.url)
    assert {path.name for path in place.iterdir()} == {"kept", "removed"}
    directory.delete(["removed"])
    assert {path.name for path in fetch(directory.url).iterdir()} == {"kept"}
    assert fetch(f"{directory.url}/kept").read_text() == "kept"


@pytest.mark.parametrize("name", ["/outside.txt", "../outside.txt", "a/../../outside.txt"])
def test_an_object_stays_in_its_directory(server: BucketServer, tmp_path: Path, name: str) -> None:
    directory = bucket.BucketDirectory("gs://bucket/here")
    objects = {name: bucket.Object(0, "", 1)}
    with pytest.raises(UserError, match="leads out of its directory; rename the object"):
        directory.download(tmp_path / "copy", objects)
    # The copy's own path may have "..".
    directory.write("inside.txt", b"inside")
    copy = tmp_path / "a" / ".." / "copy"
    directory.download(copy, directory.list())
    assert (copy / "inside.txt").read_bytes() == b"inside"


def test_what_another_machine_replaces_meanwhile_is_copied_as_it_is_now(
    server: BucketServer, tmp_path: Path
) -> None:
    directory = bucket.BucketDirectory("gs://bucket/here")
    directory.write("study.json", b"old")
    listed = directory.list()
    directory.write("study.json", b"new and longer")
    directory.download(tmp_path, listed)
    assert (tmp_path / "study.json").read_bytes() == b"new and longer"

    (tmp_path / "study.json").unlink()
    directory.delete(["study.json"])
    with pytest.raises(
        Unfinished, match=r"^gs://bucket/here/study.json was deleted while it was copied; run"
    ):
        directory.download(tmp_path, listed)
    assert not (tmp_path / "study.json").exists()


def test_a_damaged_checkpoint_stays_in_the_bucket(server: BucketServer, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    for name in (DIRECTORY, "damaged-checkpoints"):
        upload(tmp_path, bucket.BucketDirectory(f"{RUN}/{name}/5"))
    with directory_of_run(RUN) as directory:
        push(directory)
        assert not (directory / "damaged-checkpoints").exists()
    assert {"checkpoints/5/x", "damaged-checkpoints/5/x"} <= set(bucket.BucketDirectory(RUN).list())


@pytest.mark.usefixtures("server")
def test_damaged_checkpoints_of_one_step_stay_apart_in_the_bucket(tmp_path: Path) -> None:
    for content in ("once", "twice", "again"):
        (tmp_path / "x").write_text(content)
        upload(tmp_path, bucket.BucketDirectory(f"{RUN}/{DIRECTORY}/5"))
        with directory_of_run(RUN) as directory:
            files_of(directory).put_aside(5)
    aside = bucket.BucketDirectory(f"{RUN}/damaged-checkpoints")
    assert [(aside.read(f"{name}/x") or (b"", 0))[0] for name in ("5", "5.1", "5.2")] == [
        *(b"once", b"twice", b"again")
    ]


@pytest.mark.usefixtures("server")
def test_a_relative_cache_is_found_from_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERT_JAX_CACHE", "relative")
    with directory_of_run(RUN) as directory:
        monkeypatch.chdir("/")
        assert directory.is_dir()
        for link in directory.rglob("*"):
            assert link.exists()


def test_checkpoints_of_a_mounted_bucket_are_whole_in_the_bucket_and_the_other_way_round(
    server: BucketServer, tmp_path: Path
) -> None:
    files = {"default/array": b"parameters", "default/d/chunk": b"moments", "_CHECKPOINT_METADATA": b"{}"}
    for name, content in files.items():
        (tmp_path / "saved" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "saved" / name).write_bytes(content)
    run = tmp_path / "mounted"
    run.mkdir()
    files_of(run).take(20, tmp_path / "saved")
    upload(run, bucket.BucketDirectory(RUN))
    with directory_of_run(RUN) as here:
        assert files_of(here).steps() == [20]
        assert files_of(here).find_fault(20) is None
        bucket.BucketDirectory(RUN).write(f"{DIRECTORY}/20/default/array", b"Parameters")
        assert files_of(here).find_fault(20) == "default/array was altered or truncated"
        files_of(here).remove(20)
        files_of(here).take(40, tmp_path / "saved")
    files_of(copy_of(RUN, tmp_path / "copy")).tidy()
    assert files_of(tmp_path / "copy").find_fault(40) is None
    (tmp_path / "copy" / DIRECTORY / "40" / "default" / "array").write_bytes(b"Parameters")
    assert files_of(tmp_path / "copy").find_fault(40) == "default/array was altered or truncated"


def test_a_checkpoint_of_objects_that_were_composed_of_others_is_read_to_be_checked(
    server: BucketServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "saved" / "default").mkdir(parents=True)
    (tmp_path / "saved" / "default" / "array").write_bytes(b"parameters")
    listed = bucket.BucketDirectory.list

    def without_md5(self: bucket.BucketDirectory) -> dict[str, bucket.Object]:
        return {name: dataclasses.replace(found, md5="") for name, found in listed(self).items()}

    with directory_of_run(RUN) as here:
        files_of(here).take(40, tmp_path / "saved")
        monkeypatch.setattr(bucket.BucketDirectory, "list", without_md5)
        assert files_of(here).find_fault(40) is None
        bucket.BucketDirectory(RUN).write(f"{DIRECTORY}/40/default/array", b"Parameters")
        assert files_of(here).find_fault(40) == "default/array was altered or truncated"


def test_what_others_write_beside_a_run_stays(server: BucketServer, tmp_path: Path) -> None:
    """Evaluations of a run in training: a new file, and one that was there at the start and has more rows.

    What the run itself removes is removed.
    """
    run = bucket.BucketDirectory(RUN)
    for name in ("metrics.jsonl", "evaluation-10.json", "curves-of-an-earlier-start"):
        run.write(name, b"old")
    with directory_of_run(RUN) as directory:
        (directory / "metrics.jsonl").write_text("new")
        (directory / "passing").touch()
        (directory / "curves-of-an-earlier-start").unlink()
        push(directory)
        assert set(run.list()) == {"metrics.jsonl", "evaluation-10.json", "passing"}
        (directory / "passing").unlink()
        run.write("evaluation-10.json", b"more rows")
        run.write("evaluation-20.json", b"of another process")
        push(directory)
        push(directory)
    contents = {name: run.read(name)[0] for name in run.list()}  # type: ignore[index]
    assert contents == {
        "metrics.jsonl": b"new",
        "evaluation-10.json": b"more rows",
        "evaluation-20.json": b"of another process",
    }


def test_what_another_machine_saved_before_it_gave_the_directory_back_stays(server: BucketServer) -> None:
    run = bucket.BucketDirectory(RUN)
    for name in ("config.json", "metrics.jsonl", "log.txt", "old"):
        run.write(name, b"first")
    with directory_of_run(RUN) as directory:
        with (directory / "log.txt").open("a") as log:  # as that of a study's job, which is open meanwhile
            log.write(", and more")
        run.write("metrics.jsonl", b"second")
        run.write("new", b"second")
        run.delete(["old"])
        with workdir.lock(directory):
            assert (directory / "metrics.jsonl").read_bytes() == b"second"
            (directory / "config.json").write_bytes(b"third")
    contents = {name: run.read(name)[0] for name in run.list() if name not in ("lock", LEASE_FILE)}  # type: ignore[index]
    assert contents == {
        "config.json": b"third",
        "metrics.jsonl": b"second",
        "log.txt": b"first, and more",
        "new": b"second",
    }


def test_a_killed_process_of_the_same_number_is_cleared_away(server: BucketServer) -> None:
    with directory_of_run(RUN) as directory:
        leftover = directory / "leftover"
    (directory / COMPILED_DIRECTORY).parent.mkdir(parents=True)
    (directory / COMPILED_DIRECTORY).symlink_to("/nowhere")
    leftover.touch()
    with directory_of_run(RUN) as directory:
        assert (directory / COMPILED_DIRECTORY).is_dir()
        assert not leftover.exists()


def test_each_process_leaves_its_rows_of_a_nan_in_the_bucket(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "is_first", lambda: False)
    monkeypatch.setattr(processes, "file_suffix", lambda: ".process-1-of-2")
    with directory_of_run(RUN) as directory:
        error = report_nonfinite(directory, 5, {"input_ids": np.ones([2, 4], np.int32)}, {})
    name = "nonfinite/step-5.process-1-of-2.npz"
    assert str(error).endswith(f"its batch is in {RUN}/{name}")
    assert list(bucket.BucketDirectory(RUN).list()) == [name]


def test_only_leftovers_of_this_machine_are_cleared_away(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "node", lambda: "vm")
    gone, cache = 2**30, place_for("gs://bucket").parent
    for name in (f"@vm-{gone}", f"@vm-2-{gone}"):
        (cache / name).mkdir(parents=True)
    with directory_of_run(RUN):
        assert {path.name for path in cache.glob("@*")} == {f"@vm-2-{gone}", f"@vm-{os.getpid()}"}


@dataclasses.dataclass(frozen=True)
class Output:
    """Flags of a command."""

    output: str = GRID


def test_work_that_was_left_here_replaces_nothing_of_another_machine(server: BucketServer) -> None:
    directory, place = bucket.BucketDirectory(GRID), place_for(GRID, "@outputs")

    def end_early(text: str) -> Callable[[Output], None]:
        def run(args: Output) -> None:
            Path(args.output, "trial").write_text(text)
            raise Unfinished("killed")

        return run

    for text in ("first", "second"):
        with pytest.raises(Unfinished, match="killed"):
            run_with_buckets("finetune", end_early(text), Output())
        directory.upload(place, ["trial"])  # a copy that was cut off
    directory.write("other", b"of another machine")
    with pytest.raises(
        UserError, match=f"^{GRID} was changed .* remove .*tiny.unsaved to go on with what the"
    ):
        run_with_buckets("finetune", end_early("third"), Output())
    place.with_name("tiny.unsaved").unlink()
    run_with_buckets("finetune", lambda _: None, Output())
    assert {name: directory.read(name)[0] for name in ("trial", "other")} == {  # type: ignore[index]
        "trial": b"second",
        "other": b"of another machine",
    }


def test_a_text_is_no_place_in_a_bucket() -> None:
    args, given = FillMask(("gs://x is a [MASK].",), ModelSource(Path("model"))), []
    run_with_buckets("fill-mask", given.append, args)
    assert given == [args]


@pytest.mark.slow
def test_a_killed_grid_goes_on_where_it_was(
    server: BucketServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "model", make_params=trainable_params, num_layers=1)
    (tmp_path / "data").mkdir()
    write_table(tmp_path / "data" / "train.csv", 256, 0)
    write_table(tmp_path / "data" / "dev.csv", 24, 1)
    words = finetuning(tmp_path, output="here")
    assert main(words) == 0
    upload(tmp_path / "data", bucket.BucketDirectory("gs://bucket/topics"))
    places = {str(tmp_path / "here"): GRID, str(tmp_path / "data"): "gs://bucket/topics"}
    for here, place in places.items():
        words = [word.replace(here, place) for word in words]
    process = subprocess.Popen(command(*words), env=environment())
    while not list(place_for(GRID, "@outputs").glob("trials/*/result.json")):
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    lease, _ = bucket.BucketDirectory(GRID).read(LEASE_FILE) or (b"{}", 0)
    assert json.loads(lease)["pid"] == process.pid
    assert not json.loads(lease)["ended"]  # another machine would have been refused
    assert not bucket.BucketDirectory(f"{GRID}/trials").list()
    capsys.readouterr()
    assert main(words) == 0
    assert "trial 1 of 2" not in capsys.readouterr().out
    found = copy_of(GRID, tmp_path / "copy")
    assert (found / "results.json").read_text() == (tmp_path / "here" / "results.json").read_text()
    (record,) = {json.loads(file.read_text())["data"] for file in found.glob("trials/*/config.json")}
    assert record == "gs://bucket/topics"
    assert main(words) == 0  # nothing is left to do


@pytest.mark.usefixtures("server")
def test_what_another_machine_has_done_of_a_study_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = make_plan(TINY_STUDY, "one", TINY_STUDY.scales["one"], {})
    here = shared_directory(STUDY)
    write_progress(here, plan, ["tiny"])
    monkeypatch.setenv("BERT_JAX_CACHE", str(tmp_path / "another machine"))
    there = shared_directory(STUDY)
    write_ended(there, plan.jobs[0], Ended(plan.jobs[0].settings, 1.0, "1 x cpu", error="NaN"))
    write_progress(here, plan, ["tiny"])
    progress = json.loads((bucket.BucketDirectory(STUDY).read("progress.json") or (b"", 0))[0])
    assert (progress["failed"], progress["left"]) == (1, len(plan.jobs) - 1)

    forget_failures(there, plan)
    forget_what_others_retry(here, plan)
    assert read_ended(here / plan.jobs[0].path) is None


@pytest.mark.usefixtures("server")
def test_a_study_that_another_machine_began_meanwhile_is_not_claimed_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = shared_directory(STUDY)
    monkeypatch.setenv("BERT_JAX_CACHE", str(tmp_path / "another machine"))
    there = shared_directory(STUDY)
    begun = {"study": "tiny", "scale": "one", "corpus": "its fingerprint", "seeds": 5}
    claim(there, begun)
    with pytest.raises(UserError, match="scale one -> two"):
        claim(here, {"study": "tiny", "scale": "two"})
    claim(here, {"study": "tiny", "scale": "one"})
    assert json.loads((bucket.BucketDirectory(STUDY).read("study.json") or (b"", 0))[0]) == begun


@pytest.mark.usefixtures("server")
def test_a_report_leaves_what_another_worker_writes(tmp_path: Path) -> None:
    directory = shared_directory(STUDY)
    (directory / "figures").mkdir()
    (directory / "figures" / "differences.svg.partial").touch()
    write_report(directory, results([]))
    names = bucket.BucketDirectory(STUDY).list()
    assert {"results.csv", "report.md", "figures/pretraining-steps.png"} <= set(names)
    assert not [name for name in names if name.endswith(".partial")]


@pytest.mark.slow
def test_three_machines_of_which_one_is_killed_do_every_job_of_a_study_once(
    server: BucketServer, tmp_path: Path
) -> None:
    """The bucket is busy now and then. The report is that of a study in a directory."""
    data, scale = write_data(tmp_path), ("--scale", "three_jobs")
    assert main(study(data, tmp_path / "here", *scale)) == 0
    server.faults = 0.02
    words = [word.replace(str(tmp_path / "there"), STUDY) for word in study(data, tmp_path / "there", *scale)]

    def start(number: int, log: Path) -> subprocess.Popen[bytes]:
        return start_worker(words, log, {"BERT_JAX_CACHE": str(tmp_path / f"machine-{number}")})

    said = run_killed(2, start, tmp_path / "log")
    server.faults = 0.0
    found = copy_of(STUDY, tmp_path / "copy")
    assert outcomes(found) == outcomes(tmp_path / "here")
    assert (found / "results.csv").read_bytes() == (tmp_path / "here" / "results.csv").read_bytes()
    done = [line.split(": done")[0] for line in said.splitlines() if ": done, " in line]
    assert len(done) == len(set(done))
    assert main([*words, "--status"]) == 0


@pytest.mark.slow
def test_two_processes_work_in_a_bucket(server: BucketServer, tmp_path: Path, corpus: Path) -> None:
    """Each has its own copy of the files; the checkpoints are those of both."""
    steps = ("--num-train-steps", "40", "--eval-every", "20", "--distributed")
    lines = {"here": arguments(tmp_path / "here", corpus, *steps), "there": in_bucket(corpus, *steps)}
    for name, words in lines.items():
        with Pod([command(*words)] * 2, tmp_path / f"{name}.log", environment()) as pod:
            assert pod.wait() == [0, 0], pod.said(0) + pod.said(1)
    assert_same_run(copy_of(RUN, tmp_path / "copy"), tmp_path / "here")
    assert not list(tmp_path.glob("cache/bert-jax/@*"))


@pytest.mark.slow
def test_all_processes_go_on_with_what_was_saved_while_they_waited(
    server: BucketServer, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The corpus that a single process made in the directory, after they had copied what was there."""
    monkeypatch.setattr(bucket_lease, "_SECONDS_BETWEEN_RENEWALS", 100.0)
    flags = ("--data.corpus", INSTALLED_DOCUMENTATION, "--num-train-steps", "2", "--distributed")
    words = in_bucket(corpus, *flags)
    with contextlib.ExitStack() as earlier:
        earlier.enter_context(bucket_lease.hold(bucket.BucketDirectory(RUN)))
        with Pod([command(*words)] * 2, tmp_path / "log", environment()) as pod:
            while "was last used by" not in pod.said(0):  # both have copied it before they met
                assert pod.is_running(), pod.said(0) + pod.said(1)
                time.sleep(0.1)
            upload(corpus, bucket.BucketDirectory(f"{RUN}/corpus"))
            earlier.close()
            assert pod.wait() == [0, 0], pod.said(0) + pod.said(1)
            assert "held-out sentences, one word masked:" in pod.said(0)  # by process 0 alone


def test_a_process_whose_copy_lacks_the_present_start_takes_it_for_no_takeover(server: BucketServer) -> None:
    with (
        directory_of_run(RUN) as directory,  # as process 1 has it; process 0 alone writes the record
        pytest.raises(Unfinished, match="a save failed"),
        storage_errors_as_unfinished(directory, lambda: check_last_start(directory, {"host": "here"})),
    ):
        raise Unfinished("a save failed")


@pytest.mark.slow
@pytest.mark.parametrize("failure", ["gone", "checkpoints/20/_CHECKPOINT_METADATA", "checkpoints/20/default"])
def test_a_bucket_that_fails_in_a_save_loses_nothing(
    server: BucketServer, tmp_path: Path, corpus: Path, failure: str
) -> None:
    """It goes away for some time, for which the run waits; or it refuses a token that has run out.

    A refusal comes before anything is written, or in the middle: before the directory in that of the step.
    """
    steps = ("--num-train-steps", "200", "--eval-every", "50")
    assert main(arguments(tmp_path / "here", corpus, *steps)) == 0
    words = in_bucket(corpus, *steps)
    if failure != "gone":
        server.refused_from = failure
    process = subprocess.Popen(command(*words), env=environment(), stderr=subprocess.PIPE, text=True)
    if failure == "gone":
        while not saved(RUN) or all(saved(RUN).values()):
            assert process.poll() is None
        server.gone = True
        time.sleep(10)
        server.gone = False
        assert process.wait(300) == 0
    else:
        _, said = process.communicate(timeout=250)  # Orbax's own limit is 300 s
        assert process.returncode == 2, said
        assert "gcloud auth application-default login" in said.splitlines()[-1]
        assert "Traceback" not in said
        server.refused_from = server.refusal = None
        assert main(words) == 0
    assert_same_run(copy_of(RUN, tmp_path / "copy"), tmp_path / "here")


def saved(url: str) -> dict[str, bool]:
    """The steps of which a run has objects, and whether their checkpoints are finished."""
    found: dict[str, bool] = {}
    for name in bucket.BucketDirectory(f"{url}/checkpoints").list():
        step = name.split("/")[0]
        found[step] = found.get(step, False) or name == f"{step}/commit_success.txt"
    return found


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_like_one_in_a_directory(
    server: BucketServer, tmp_path: Path, corpus: Path
) -> None:
    """Some starts are on another machine, as far as files go; the bucket is busy now and then."""
    server.faults = 0.02
    steps = ("--num-train-steps", "400", "--eval-every", "200")
    words = in_bucket(corpus, *steps)
    draw, kills = random.Random(0), 0
    for number in range(11):
        cache = tmp_path / "cache" / str(number // 2)
        process = subprocess.Popen(command(*words), env={**environment(), "BERT_JAX_CACHE": str(cache)})
        try:
            status = process.wait(draw.uniform(4, 12) if number < 10 else 900)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        if status == 0:
            break
        assert status == -signal.SIGKILL
        kills += 1
    assert status == 0
    assert kills >= 3
    assert main(arguments(tmp_path / "here", corpus, *steps)) == 0
    server.faults = 0.0
    assert_same_run(copy_of(RUN, tmp_path / "copy"), tmp_path / "here")
