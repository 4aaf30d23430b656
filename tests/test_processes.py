"""Several processes as one run: same batches and results as one process, whatever happens to them.

`BERT_JAX_POD_KILLS=10 pytest -m slow tests/test_processes.py` kills more often, ten times by each of two
signals, and kills runs of up to four processes too.
"""

import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from bert_jax.training.checkpoints import saved_steps
from bert_jax.training.metric_log import METRICS_FILE, read_rows
from tests.pod import PATIENCE_SECONDS, Pod, reserved_port
from tests.recorded_run import digest, read_record
from tests.tiny_run import (
    arguments,
    assert_same_run,
    command,
    deterministic_rows,
    ended,
    environment,
    final_state,
    write_corpus,
)

ROOT = Path(__file__).parents[1]
KILLS = int(os.environ.get("BERT_JAX_POD_KILLS", "1"))
long = pytest.mark.skipif(KILLS < 2, reason="set BERT_JAX_POD_KILLS to 2 or more kills by each signal")

# Without dropout, whose bits depend on how a batch is spread, layouts differ by rounding alone.
FLAGS = (
    "--model.dropout-rate",
    "0",
    "--model.attention-dropout-rate",
    "0",
    "--optimizer.learning-rate",
    "1e-3",
)
STEPS = 80
SHORT = ("--num-train-steps", str(STEPS), "--eval-every", "40", "--log-every", "5")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of everything: the corpus, logs, work directories and records."""
    directory = tmp_path_factory.mktemp("processes")
    write_corpus(directory / "corpus")
    return directory


def pod(
    directory: Path,
    run: str,
    count: int,
    *flags: str,
    seconds_per_step: float | Sequence[float] = 0.0,
    **variables: str,
) -> Pod:
    """A run of `count` processes that record their batches; each may take its own time for a batch."""
    line = arguments(directory / run, directory / "corpus", "--distributed", *FLAGS, *SHORT, *flags)
    seconds = [seconds_per_step] * count if isinstance(seconds_per_step, float) else seconds_per_step
    program = [sys.executable, "-m", "tests.recorded_run", str(directory / f"{run}.record")]
    commands = [[*program, str(of_process), *line] for of_process in seconds]
    return Pod(commands, directory / f"{run}.log", environment() | variables)


@pytest.fixture(scope="module")
def undisturbed(directory: Path) -> Path:
    """The work directory of a run that one process finished."""
    with pod(directory, "undisturbed", 1) as process:
        assert process.wait() == [0], process.said(0)
    return directory / "undisturbed"


def wait_for(pod: Pod, is_time: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_time():
        assert pod.is_running(), pod.said(0) + pod.said(1)
        assert time.monotonic() < deadline
        time.sleep(0.02)


def steps_logged(workdir: Path) -> int:
    return max((row["step"] for row in read_rows(workdir / METRICS_FILE)), default=0)


def assert_same_batches(directory: Path, run: str, steps: int = STEPS) -> None:
    """Asserts that every row of every step was made, with the same content as in the undisturbed run."""
    expected, actual = read_record(directory / "undisturbed.record"), read_record(directory / f"{run}.record")
    assert expected.keys() == {(step, row) for step in range(steps) for row in range(8)}
    assert all(len(digests) == 1 for digests in expected.values())
    assert actual == expected


@pytest.mark.slow
def test_killed_preempted_and_resumed_by_one_it_ends_like_one_undisturbed(
    directory: Path, undisturbed: Path
) -> None:
    workdir = directory / "disturbed"
    with pod(directory, "disturbed", 2, "--parallel.mode", "pmap", seconds_per_step=0.05) as killed:
        wait_for(killed, lambda: bool(saved_steps(workdir)))
        killed.send(0, signal.SIGKILL)
        began = time.monotonic()
        _, other = killed.wait(60)
        assert other in (69, -signal.SIGABRT)
        assert "another task died" in killed.said(1) or "lost the other processes" in killed.said(1)
        print(f"the other process ended {time.monotonic() - began:.1f} s later with status {other}")

    before = steps_logged(workdir)
    with pod(directory, "disturbed", 2, seconds_per_step=0.1) as preempted:
        wait_for(preempted, lambda: steps_logged(workdir) > before)
        preempted.send(1, signal.SIGTERM)
        assert preempted.wait() == [75, 75], preempted.said(0) + preempted.said(1)
        assert "saved; run the same command again" in preempted.said(0)
    stopped = saved_steps(workdir)[-1]
    assert before < stopped < STEPS

    with pod(directory, "disturbed", 1) as last:
        assert last.wait() == [0], last.said(0)
        assert f"resuming from step {stopped} of {STEPS}" in last.said(0)
    assert_same_batches(directory, "disturbed")
    assert_close(workdir, undisturbed)


@pytest.mark.slow
def test_an_evaluation_under_way_is_left_in_all_processes(directory: Path) -> None:
    workdir = directory / "evaluating"
    flags = ("--num-train-steps", "10", "--eval-examples", "64", "--checkpoint-every", "5")

    def evaluated() -> list[int]:
        return [row["step"] for row in read_rows(workdir / METRICS_FILE) if row["split"] == "heldout"]

    flags = (*flags, "--eval-every", "4", "--log-every", "4")
    with pod(directory, "evaluating", 2, *flags, seconds_per_step=0.5) as preempted:
        wait_for(preempted, lambda: steps_logged(workdir) == 4)
        preempted.send(1, signal.SIGTERM)
        assert preempted.wait() == [75, 75], preempted.said(0) + preempted.said(1)
    assert (saved_steps(workdir), evaluated()) == ([4], [])
    with pod(directory, "evaluating", 2, *flags) as last:
        assert last.wait() == [0, 0], last.said(0)
    assert evaluated() == [4, 8, 10]


@pytest.mark.slow
def test_the_process_that_waits_longest_for_its_data_is_named(directory: Path) -> None:
    # A batch takes a second, so that even on a busy machine a training step is faster.
    flags = ("--num-train-steps", "10", "--log-every", "5")
    with pod(directory, "unequal", 2, *flags, seconds_per_step=(0.0, 1.0)) as processes:
        assert processes.wait() == [0, 0], processes.said(0) + processes.said(1)
    rows = [row for row in read_rows(directory / "unequal" / METRICS_FILE) if row["split"] == "train"]
    timing = rows[-1]["timing"]  # the first row may have found batches ready
    assert timing["waiting_process"] == 1
    assert timing["waiting_for_data"] > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_steps_of_several_processes_equal_those_of_one(directory: Path, count: int) -> None:
    ours = steps(directory, count, "pmap", "tensor_accumulated", "tensor_everywhere")
    for name, expected in steps(directory, 1, "one_device").items():
        if "/params/" in name or "/sums/" in name:
            for mode in ("pmap", "tensor_accumulated", "tensor_everywhere"):
                actual = ours[name.replace("one_device", mode, 1)]
                np.testing.assert_allclose(actual, expected, atol=2e-6, rtol=2e-6, err_msg=f"{mode}: {name}")


def steps(directory: Path, count: int, *modes: str) -> dict[str, np.ndarray]:
    """The arrays that `eight_devices` computes in `count` processes."""
    output = directory / f"steps-{count}.npz"
    line = [sys.executable, "-m", "tests.bert_jax.eight_devices", str(output), *modes]
    with Pod([line] * count, directory / "steps.log", environment()) as pod:
        assert pod.wait() == [0] * count, pod.said(0)
    return dict(np.load(output))


ALONE = """
import os, sys, jax
from bert_jax.parallel import processes

def run():
    processes.run_on_all(lambda: None)
    if jax.process_index() == 1:
        {happens}
    processes.run_on_all(lambda: None)
    return 0

sys.exit(processes.run_distributed(run))
"""
"""A run of two processes; once they have met, something happens in one of them."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("happens", "status", "said"),
    [
        ("os._exit(3)", 3, ""),
        # XLA reports INTERNAL, as it does for a lost process.
        ("jax.block_until_ready(jax.pure_callback(lambda: 1 / 0, jax.numpy.int32(0)))", 1, "Traceback"),
        ("jax.ffi.ffi_call('no_such_kernel', jax.numpy.int32(0))()", 1, "Traceback"),
    ],
)
def test_a_process_that_fails_is_told_from_those_that_lose_it(
    happens: str, status: int, said: str, directory: Path, tmp_path: Path
) -> None:
    line = [sys.executable, "-c", ALONE.format(happens=happens)]
    with Pod([line] * 2, tmp_path / "log", environment()) as pod:
        assert pod.wait() == [69, status], pod.said(0) + pod.said(1)
        assert "lost the other processes" in pod.said(0)
        assert said in pod.said(1)
        assert "lost the other processes" not in pod.said(1)


@pytest.mark.slow
def test_what_nccl_says_of_a_lost_process_is_known(directory: Path, tmp_path: Path) -> None:
    message = "INTERNAL: NCCL operation failed: remote process exited or there was a network error"
    line = [sys.executable, "-c", ALONE.format(happens=f"raise jax.errors.JaxRuntimeError({message!r})")]
    with Pod([line] * 2, tmp_path / "log", environment()) as pod:
        assert pod.wait() == [69, 69], pod.said(0) + pod.said(1)
        assert "lost the other processes" in pod.said(1)


HANGS = """
import sys, time, jax
from bert_jax.parallel import processes
from bert_jax.parallel.watchdog import watch

def wait_for_a_disk():
    time.sleep(100)

def run():
    with watch(7) as watchdog:
        if jax.process_index() == 1:
            wait_for_a_disk()
        watchdog.report(8)
        processes.run_on_all(lambda: None)
    return 0

sys.exit(processes.run_distributed(run))
"""
"""A run of two processes, of which one does not come to the exchange after step 8."""


@pytest.mark.slow
def test_all_say_where_they_hang_and_who_is_behind(directory: Path, tmp_path: Path) -> None:
    with Pod(
        [[sys.executable, "-c", HANGS]] * 2,
        tmp_path / "log",
        {**environment(), "BERT_JAX_HANG_SECONDS": "10"},
    ) as pod:
        assert set(pod.wait()) <= {69, -signal.SIGABRT}, pod.said(0) + pod.said(1)
        assert "in run_on_all" in pod.said(0)
        assert "in wait_for_a_disk" in pod.said(1)
        assert "no step in 10 s, after step 8; process 1 is behind the others" in pod.said(0)


FULL_DISK = """
import resource, signal, sys
from pathlib import Path

import jax
import numpy as np

from bert_jax.parallel import processes
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.retention import Kept

def run():
    place = jax.NamedSharding(jax.make_mesh((4,), ("all",)), jax.P("all"))
    values = np.random.default_rng(0).normal(size=400_000).astype(np.float32)
    array = jax.make_array_from_callback(values.shape, place, lambda index: values[index])
    checkpoints = Checkpoints(Path(sys.argv[1]), Kept(2))
    try:
        checkpoints.save(10, {"array": array})
        checkpoints.wait()
        if not processes.is_first():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        checkpoints.save(20, {"array": array})
        checkpoints.wait()
    finally:
        checkpoints.close()
    return 0

sys.exit(processes.run_distributed(run))
"""
"""Two processes save an array, each its half of it; the second time the disk of one is full."""


@pytest.mark.slow
def test_a_process_whose_part_of_a_save_fails_does_not_wait_for_the_others(
    directory: Path, tmp_path: Path
) -> None:
    line = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    with Pod([line] * 2, tmp_path / "log", environment()) as pod:
        failed, other = pod.processes[1], pod.processes[0]
        assert failed.wait(PATIENCE_SECONDS) == 69, pod.said(1)
        assert other.poll() is None, "it ended before the one that failed: " + pod.said(0)
        assert "saving the checkpoint of step 20" in pod.said(1)
        assert "that of step 10 is kept" in pod.said(1)
        assert "File too large" in pod.said(1)
        assert pod.wait()[0] in (69, -signal.SIGABRT), pod.said(0)
    assert saved_steps(tmp_path) == [10]


UNFINISHED = """
import sys
from bert_jax.parallel import processes
from bert_jax.exit_status import report
from data_pipeline.errors import Unfinished, UserError

def read():
    raise {error}

try:
    processes.run_distributed(lambda: processes.broadcast_from_first(read))
except UserError as error:
    sys.exit(report(error))
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("Unfinished('the disk is gone')", "the disk is gone"),
        ("OSError(5, 'Input/output error')", "[Errno 5] Input/output error"),
    ],
)
def test_what_may_pass_in_one_process_may_pass_in_all(
    error: str, said: str, directory: Path, tmp_path: Path
) -> None:
    line = [sys.executable, "-c", UNFINISHED.format(error=error)]
    with Pod([line] * 2, tmp_path / "log", environment()) as pod:
        assert pod.wait() == [69, 69], pod.said(0) + pod.said(1)
        for number in (0, 1):
            assert errors(pod.said(number)) == [f"bert-jax: error: process 0 of 2: {said}"]


@pytest.mark.slow
def test_several_processes_start_from_a_model(directory: Path, undisturbed: Path) -> None:
    """After a tiny step, the run's parameters, split over the processes, are nearly the model's."""
    step = ("--num-train-steps", "1", "--optimizer.learning-rate", "1e-12", "--parallel.fsdp", "2")
    with pod(directory, "further", 2, "--init-from", str(undisturbed), *step) as started:
        assert started.wait() == [0, 0], started.said(0) + started.said(1)
        assert f"starting from {undisturbed.name}\n" in started.said(0)
    expected, actual = final_state(undisturbed), final_state(directory / "further")
    for path, array in expected.items():
        if "params" in path:
            np.testing.assert_allclose(actual[path], array, atol=1e-9, err_msg=path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "difference"),
    [
        (["--seed", "1"], "seed 1 instead of 0"),
        (
            ["--optimizer.decay-exclusions", "bias", "layer_norm", "embeddings"],
            "optimizer.decay_exclusions.2 embeddings instead of None",
        ),
    ],
)
def test_processes_that_disagree_are_named(
    flags: list[str], difference: str, directory: Path, tmp_path: Path
) -> None:
    line = command(*arguments(tmp_path / "refused", directory / "corpus", "--distributed"))
    lines = [line, [*line, *flags]]
    with Pod(lines, tmp_path / "log", environment()) as pod:
        assert pod.wait() == [2, 2]
        for number in (0, 1):
            (line,) = errors(pod.said(number))
            assert f"process 1 of 2 differs from process 0: {difference}; start all with" in line
    assert not (tmp_path / "refused").exists()


@pytest.mark.slow
def test_a_coordinator_out_of_reach_is_named(directory: Path) -> None:
    line = command(*arguments(directory / "alone", directory / "corpus", "--distributed"))
    variables = {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1", "BERT_JAX_CONNECT_SECONDS": "2"}
    with reserved_port() as port:
        address = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}"}
        done = ended(line, **variables, **address)
    assert done.returncode == 69, "another start may find it"
    (message,) = errors(done.stderr)
    assert f"the coordinator at 127.0.0.1:{port} could not be reached in 2 s" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "outside a cluster that jax knows, JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES"),
        (
            {"JAX_COORDINATOR_ADDRESS": "localhost"},
            "(JAX_COORDINATOR_ADDRESS is 'localhost', without a port)",
        ),
        ({"JAX_NUM_PROCESSES": "two"}, "error: the environment variable JAX_NUM_PROCESSES is 'two'; it must"),
    ],
)
def test_variables_that_name_no_processes_are_one_line(
    variables: dict[str, str], message: str, directory: Path
) -> None:
    line = command(*arguments(directory / "alone", directory / "corpus", "--distributed"))
    others = {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0"} if variables else {}
    done = ended(line, **(others | variables))
    assert done.returncode == 2, done.stderr
    (said,) = errors(done.stderr)
    assert message in said


def errors(said: str) -> list[str]:
    return [line for line in said.splitlines() if "bert-jax: error" in line or "Traceback" in line]


@pytest.mark.slow
def test_nan_ends_all_and_each_saves_its_rows(directory: Path) -> None:
    wild = ("--optimizer.learning-rate", "1e38", "--checkpoint-every", "5")
    with pod(directory, "wild", 2, *wild) as pod_:
        assert pod_.wait() == [1, 1], pod_.said(0)
        said = [errors(pod_.said(number)) for number in (0, 1)]
    (identity,) = (directory / "wild" / "nonfinite").glob("*.json")
    record, step = read_record(directory / "wild.record"), json.loads(identity.read_text())["step"]
    for number in (0, 1):
        file = identity.with_suffix(f".process-{number}-of-2.npz")
        assert str(file) in said[number][0]
        rows = dict(np.load(file))
        for place in range(4):
            assert record[step, 4 * number + place] == {digest(rows, place)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "counts", [pytest.param((2, 1, 2, 4), marks=long, id="elastic"), pytest.param((2,), id="fixed")]
)
def test_many_kills(directory: Path, counts: Sequence[int]) -> None:
    """The batches are the same; with a fixed number of processes the results are bitwise the same."""
    draw = random.Random(os.environ.get("BERT_JAX_POD_KILL_SEED", "0"))
    steps = 80 + 40 * KILLS
    length = ("--num-train-steps", str(steps))
    name = "-".join(map(str, counts))
    signals = [signal.SIGTERM, signal.SIGKILL] * KILLS
    draw.shuffle(signals)
    tally: dict[str, int] = {}
    for what, count in zip(signals, itertools.cycle(counts)):
        # One that is killed before all have met keeps the others waiting.
        slowly = {"seconds_per_step": 0.05, "BERT_JAX_CONNECT_SECONDS": "40"}
        with pod(directory, name, count, *length, **slowly) as disturbed:
            statuses = disturb(disturbed, directory / name, what, draw)
        outcome = f"{what.name} in {count}: {sorted(set(statuses))}"
        tally[outcome] = tally.get(outcome, 0) + 1
    for run, count in ((name, counts[0]), (f"whole-{name}", counts[0])):
        with pod(directory, run, count, *length) as last:
            assert last.wait() == [0] * count, last.said(0)
    record = read_record(directory / f"{name}.record")
    assert record.keys() == {(step, row) for step in range(steps) for row in range(8)}
    assert record == read_record(directory / f"whole-{name}.record")
    if len(counts) == 1:
        assert_same_run(directory / name, directory / f"whole-{name}")
    print(f"\n{len(signals)} signals to a run of {steps} steps; exit statuses: {tally}")


def disturb(pod: Pod, workdir: Path, what: signal.Signals, draw: random.Random) -> list[int]:
    """Sends a signal to one of the processes, at its start or a few rows of metrics later."""
    known, wanted = steps_logged(workdir), draw.choice((0, 10, 25, 40))
    moment = time.monotonic() + draw.uniform(0, 6)
    while pod.is_running() and (time.monotonic() < moment or steps_logged(workdir) < known + wanted):
        time.sleep(0.02)
    pod.send(draw.randrange(len(pod.processes)), what)
    return pod.wait()


def assert_close(workdir: Path, expected: Path) -> None:
    """Asserts the same rows and parameters, up to the order in which floats are added."""
    for ours, theirs in zip(deterministic_rows(workdir), deterministic_rows(expected), strict=True):
        assert ours.pop("split") == theirs.pop("split")
        assert ours == pytest.approx(theirs, rel=1e-4)
    left, right = final_state(workdir), final_state(expected)
    for path, array in right.items():
        # A key's bias adds the same to all scores of a query, so its gradient is nothing but rounding.
        if "['key']['bias']" not in path:
            atol = 1e-5 * np.abs(array).max(initial=0.0)
            np.testing.assert_allclose(left[path], array, atol=atol, rtol=0, err_msg=path)
