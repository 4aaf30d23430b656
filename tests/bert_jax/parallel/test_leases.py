"""Who does a job: one worker at a time, and another one once the first no longer renews its lease."""

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from bert_jax.parallel import leases as module
from bert_jax.parallel.lease_store import LeaseFiles
from bert_jax.parallel.leases import Leases, _process_began

JOB = PurePosixPath("base/seed-0/pretraining")


@pytest.fixture(autouse=True)
def lost(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set in place of ending this process when it loses a lease; a test that expects that clears it."""
    event = threading.Event()
    monkeypatch.setattr(module, "end_process", event.set)
    yield event
    assert not event.is_set()


def leases(directory: Path, renewal: float = 0.02) -> Leases:
    return Leases(directory, seconds_between_renewals=renewal)


def test_one_worker_has_a_job_until_it_gives_it_back(tmp_path: Path) -> None:
    first, second = leases(tmp_path), leases(tmp_path)
    with first.hold(JOB) as has:
        assert has
        assert second.owner(JOB) is not None
        with second.hold(JOB) as also:
            assert not also
        with second.hold(PurePosixPath("mlm/seed-0/pretraining")) as other:
            assert other
    assert second.owner(JOB) is None
    with second.hold(JOB) as has:
        assert has


def test_a_name_may_begin_with_that_of_another_job(tmp_path: Path) -> None:
    job, other = (PurePosixPath(f"base/seed-0/{name}") for name in ("mrpc", "mrpc.5"))
    with leases(tmp_path).hold(job):
        for _ in range(2):
            with leases(tmp_path).hold(other) as has:
                assert has
        time.sleep(0.2)  # some renewals


ORPHAN = """
import os, sys, time
from pathlib import Path, PurePosixPath
from bert_jax.parallel.leases import Leases
parent = os.getpid()
is_worker, seconds = sys.argv[1] == "True", float(sys.argv[2])
if os.fork():
    time.sleep(seconds)
    sys.exit()
time.sleep(0.2)
leases = Leases(Path("leases"), seconds_between_renewals=0.1, parent=parent if is_worker else None)
with leases.hold(PurePosixPath("job")):
    time.sleep(2)
Path("ended").touch()
"""


@pytest.mark.parametrize("seconds", [0.7, 0], ids=["with the lease", "before"])
@pytest.mark.parametrize("is_worker", [True, False])
def test_a_process_outlives_its_parent_unless_it_is_a_worker(
    is_worker: bool, seconds: float, tmp_path: Path
) -> None:
    """Whether the parent ends while its child has the lease, or before the child takes it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ORPHAN, str(is_worker), str(seconds)]
    # The pipe is open until the child has ended too.
    said = subprocess.run(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, check=True).stderr
    assert (tmp_path / "ended").exists() != is_worker
    assert (b"the one that started this has ended" in said) == is_worker


def dead(directory: Path, change: dict[str, str]) -> None:
    """Leaves the lease of a worker that no longer lives, as one of another machine if `change` says so."""
    with leases(directory, renewal=100).hold(JOB):
        (path,) = directory.glob("base--*")
        lease = json.loads(path.read_text())
    path.write_text(json.dumps({**lease, "ended": False, "pid": 2**22 + 1, **change}))


def test_the_job_of_a_process_that_is_gone_is_free_at_once(tmp_path: Path) -> None:
    dead(tmp_path, {})
    with leases(tmp_path).hold(JOB) as has:
        assert has


@pytest.mark.parametrize("writes", [True, False], ids=["of another machine", "empty, as its writer died"])
def test_a_lease_that_stays_unchanged_is_free(
    writes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS_UNTIL_FREE", 0.1)
    if writes:
        dead(tmp_path, {"host": "elsewhere"})
    else:
        (tmp_path / "base--seed-0--pretraining.1").touch()
    other = leases(tmp_path)
    with other.hold(JOB) as has:
        assert not has
    time.sleep(0.15)
    with other.hold(JOB) as has:
        assert has


def test_who_waits_for_a_job_has_it_once_it_is_given_back(tmp_path: Path) -> None:
    order = []

    def wait() -> None:
        with leases(tmp_path).hold_when_free(JOB):
            order.append("second")

    with leases(tmp_path).hold(JOB):
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.3)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


@pytest.mark.slow
def test_a_lease_that_is_renewed_is_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_UNTIL_FREE", 5.0)
    first, second = leases(tmp_path), leases(tmp_path)
    first._owner["host"] = "elsewhere"  # so that only renewals tell that it lives
    with first.hold(JOB):
        end = time.monotonic() + 7.0
        while time.monotonic() < end:
            with second.hold(JOB) as has:
                assert not has
            time.sleep(0.1)


def test_file_times_do_not_matter(tmp_path: Path) -> None:
    first, second = leases(tmp_path), leases(tmp_path)
    first._owner["host"] = "elsewhere"
    with first.hold(JOB):
        for path in tmp_path.glob("base--*"):
            os.utime(path, (0, 0))
        with second.hold(JOB) as has:
            assert not has


def test_a_worker_that_loses_its_lease_ends(tmp_path: Path, lost: threading.Event) -> None:
    with leases(tmp_path).hold(JOB):
        (path,) = tmp_path.glob("base--*.1")
        path.with_suffix(".2").write_text(path.read_text())
        assert lost.wait(60)
    lost.clear()


def _take(directory: Path, start: Any, taken: "multiprocessing.Queue[bool]", answered: Any) -> None:
    mine = leases(directory)
    start.wait()
    with mine.hold(JOB) as has:
        taken.put(has)
        answered.wait()  # a job that is given back at once would be another worker's next


def test_of_many_that_take_a_job_at_once_one_has_it(tmp_path: Path) -> None:
    dead(tmp_path, {})
    context = multiprocessing.get_context("fork")
    taken: multiprocessing.Queue[bool] = context.Queue()
    start, answered = context.Barrier(8), context.Event()
    workers = [context.Process(target=_take, args=(tmp_path, start, taken, answered)) for _ in range(8)]
    for worker in workers:
        worker.start()
    answers = [taken.get(timeout=60) for _ in workers]
    answered.set()
    for worker in workers:
        worker.join()
    assert sorted(answers) == [False] * 7 + [True]


def test_a_worker_that_looked_long_ago_does_not_take_a_generation_that_has_passed(tmp_path: Path) -> None:
    slow = leases(tmp_path)
    dead(tmp_path, {})  # the slow worker sees generation 1, and wants to make generation 2
    for _ in range(2):  # meanwhile another one has the job, and then a third one, which removes generation 2
        dead(tmp_path, {})
    with leases(tmp_path).hold(JOB) as has:
        assert has
        assert slow._store.take("--".join(JOB.parts), 1, "{}") is None
        assert [path.suffix for path in tmp_path.glob("base--*")] == [".4"]


def test_a_zombie_is_gone(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with leases(tmp_path, renewal=100).hold(JOB):
        (path,) = tmp_path.glob("base--*")
        lease = json.loads(path.read_text())
    lease |= {"ended": False, "pid": child.pid, "process_began": _process_began(child.pid)}
    path.write_text(json.dumps(lease))
    assert leases(tmp_path).owner(JOB) is not None
    child.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while leases(tmp_path).owner(JOB) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert leases(tmp_path).owner(JOB) is None  # though nobody has asked for its status
    child.wait()


def test_a_take_removes_older_leases_and_an_error_of_opening_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LeaseFiles(tmp_path)
    (tmp_path / "job.3").write_text("{}")
    assert store.take("job", 3, "mine") == 4
    assert [path.name for path in tmp_path.iterdir()] == ["job.4"]

    # Another worker takes the number while this one cannot open a file.
    def fail(self: Path, mode: str = "r", **_: Any) -> Any:
        os.close(os.open(self, os.O_CREAT))
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(OSError, match="too many open files"):
        store.take("job", 4, "mine")
    assert (tmp_path / "job.5").exists()
