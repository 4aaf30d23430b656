"""Workers of a study on this machine, and the signals that reach them."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from bert_jax import exit_status
from bert_jax.parallel.interrupt import listen
from bert_jax.studies.directory import Ended, write_ended
from bert_jax.studies.places import Place
from bert_jax.studies.plan import Job
from bert_jax.studies.worker import HAND_OVER, work
from bert_jax.studies.workers import run_workers
from bert_jax.study import Arm, HeldoutLM, Scale
from tests.bert_jax.studies.small_study import TINY, plan_of


def test_sigterm_while_workers_start_says_that_all_is_saved(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def stop() -> None:
        while signal.getsignal(signal.SIGTERM) == before:  # it would end the tests
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)

    stopping = threading.Thread(target=stop)
    stopping.start()
    argv = ("table5", f"--output={tmp_path / 'study'}")
    assert run_workers(argv, ((Place(), Place()),)) == exit_status.SAVED
    stopping.join()
    assert capfd.readouterr().err == ""
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_this_process_alone_reaches_its_workers(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = tmp_path / "working"
    worker = tmp_path / "worker"
    worker.write_text(f"#!/bin/bash\ntouch {working}\nexec sleep 20\n")
    worker.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(worker))

    def stop() -> None:
        while not working.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    stopping = threading.Thread(target=stop)
    stopping.start()
    began = time.monotonic()
    assert run_workers((), ((Place(),),)) == exit_status.SAVED
    stopping.join()
    assert time.monotonic() - began < 20, "it waited until the worker ended by itself"


def test_a_signal_that_comes_as_a_job_ends_stops_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Job] = []

    def end(job: Job, *_: object) -> int:
        done.append(job)
        write_ended(tmp_path, job, Ended(job.settings, 1.0, "1 x cpu"))
        with listen():
            os.kill(os.getpid(), signal.SIGTERM)
        return 0

    monkeypatch.setattr("bert_jax.studies.worker._do", end)
    assert work(plan_of(), tmp_path, "tasks", Place(), lambda: None) == exit_status.SAVED
    assert len(done) == 1


def test_the_costliest_arm_comes_first_and_measures_of_the_last_seed_come_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def end(job: Job, *_: object) -> int:
        done.append(str(job.path))
        write_ended(tmp_path, job, Ended(job.settings, 1.0, "1 x cpu"))
        return 0

    monkeypatch.setattr("bert_jax.studies.worker._do", end)
    plan = plan_of(
        scales={"one": Scale(seeds=2, first_seed=3)},
        arms={"base": Arm(TINY), "wide": Arm(TINY, {"model.intermediate_size": 256})},
        measures=(HeldoutLM("LM", "bits_per_byte"),),
    )
    assert work(plan, tmp_path, "tasks", Place(), lambda: None) == 0
    assert done == [
        "wide/seed-3/pretraining",
        "wide/seed-3/heldout",
        "base/seed-3/pretraining",
        "base/seed-3/heldout",
        "wide/seed-4/pretraining",
        "base/seed-4/pretraining",
        "wide/seed-4/heldout",
        "base/seed-4/heldout",
    ]


def test_the_worst_status_is_that_of_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = [exit_status.SAVED, exit_status.FAILED, HAND_OVER]

    class Ended:
        def __init__(self, command: list[str], env: object) -> None:
            self.status = ended.pop()

        def wait(self) -> int:
            return self.status

    monkeypatch.setattr("bert_jax.studies.workers.subprocess.Popen", Ended)
    assert run_workers((), ((Place(), Place(), Place()),)) == exit_status.FAILED


def test_the_status_of_a_worker_is_that_of_the_study(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = ("table5", "--no-such-flag", f"--output={tmp_path / 'study'}")
    assert run_workers(argv, ((Place(),),)) == exit_status.BAD_INPUT
    assert "no-such-flag" in capfd.readouterr().err
