"""A worker of a study: it takes the next free job, does it and records what came of it, until none is left.

Jobs run in this process, one after the other, so that they share what is imported and compiled. The processes
of a slice are one worker while they pretrain: process 0 takes the jobs, and records them.
"""

import contextlib
import functools
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from bert_jax import exit_status
from bert_jax.objectives import objective_name
from bert_jax.parallel import processes
from bert_jax.parallel.interrupt import Interrupt, listen
from bert_jax.parallel.leases import Leases
from bert_jax.parallel.processes import RefusedByAllError
from bert_jax.pretraining.arguments import Pretrain
from bert_jax.pretraining.run import pretrain
from bert_jax.studies.directory import (
    JOB_FILE,
    LEASES_DIRECTORY,
    LOG_FILE,
    Ended,
    read_ended,
    write_ended,
)
from bert_jax.studies.measuring import Interrupted, measure
from bert_jax.studies.places import Place
from bert_jax.studies.plan import Job, MeasuringJob, Plan, PretrainingJob
from bert_jax.training.accounting import run_flops
from bert_jax.training.nonfinite import NonFiniteError
from bert_jax.workdir import directory as workdir
from data_pipeline.errors import UserError, may_pass
from data_pipeline.stand_in import pull_files, pull_part, push_part

HAND_OVER = 3
"""Exit status of a worker: what is left is for workers of the other round (`places.py`)."""

_ENDED, _OF_OTHERS, _UNDER_WAY = "ended", "of others", "under way"
"""Why no job can be taken: all have ended; the free ones are not for this worker; none is free."""
_SECONDS_BETWEEN_LOOKS = 2.0


def work(
    plan: Plan,
    directory: Path,
    tasks: str,
    place: Place,
    after_job: Callable[[], None],
    *,
    init_from: Path | None = None,
    leaves: bool = False,
) -> int:
    """Does the jobs that no other worker does.

    Args:
      tasks: directory of the tasks' files.
      place: which of the jobs this worker does.
      after_job: called after each job of this worker.
      init_from: directory of the model of `plan.initial`.
      leaves: whether to end while other workers have all that is left.

    Returns:
      0 when every job has ended, failed ones included, or it leaves; 75 if it was interrupted; 69 if a disk
      failed; HAND_OVER.
    """
    leases = Leases(directory / LEASES_DIRECTORY, parent=place.parent)
    workdir.keep_compiled(directory)  # for all jobs, as far as they compute the same
    jobs = {str(job.path): job for job in plan.jobs}
    requests = Interrupt.num_requests
    while True:
        with contextlib.ExitStack() as lease:
            taken = processes.broadcast_from_first(
                functools.partial(_take, plan, directory, place, leases, lease)
            )
            if taken in jobs and (status := _do(jobs[taken], plan, directory, tasks, init_from)):
                return status
        if taken in jobs:
            processes.broadcast_from_first(after_job)
            if Interrupt.num_requests > requests:  # in the last step of the job, which ended all the same
                return exit_status.SAVED
        elif taken == _ENDED or (taken == _UNDER_WAY and leaves):
            return 0
        elif taken == _OF_OTHERS or place.jobs == "pretrainings":
            return HAND_OVER
        elif _wait_interrupted():
            return exit_status.SAVED


def _take(plan: Plan, directory: Path, place: Place, leases: Leases, lease: contextlib.ExitStack) -> str:
    """Takes the next free job of a place, and puts its lease into `lease`.

    Returns the path of the job, or why none can be taken.
    """
    pull_files(directory, f"*/{JOB_FILE}")
    found = _ENDED
    last_seed = max(seed for _, seed in plan.runs)
    for job in sorted(plan.jobs, key=lambda job: (not place.has(job), *_turn(job, last_seed))):
        if read_ended(directory / job.path):
            continue
        if found == _ENDED:
            found = _UNDER_WAY
        if not _is_ready(job, directory):
            continue
        with contextlib.ExitStack() as attempt:
            if not attempt.enter_context(leases.hold(job.path)) or workdir.is_in_use(directory / job.path):
                continue
            pull_files(directory, f"{job.path}/{JOB_FILE}")
            if read_ended(directory / job.path):  # another worker ended it just before
                continue
            if not place.has(job):
                return _OF_OTHERS
            lease.enter_context(attempt.pop_all())
            return str(job.path)
    return found


def _turn(job: Job, last_seed: int) -> tuple[int, bool, float]:
    """Jobs are done in the order of this: seed by seed, and of a seed the arm that costs most first.

    In the last seed the measures come after all pretrainings. So a study has results early, and ends with
    short jobs, which workers share, and not with a long one for one of them alone.
    """
    pretraining = job if isinstance(job, PretrainingJob) else job.model
    seed = pretraining.experiment.seed
    return seed, seed == last_seed and job is not pretraining, -run_flops(pretraining.experiment)


def _is_ready(job: Job, directory: Path) -> bool:
    """Whether the model of a measure is pretrained. If that failed, so has the measure."""
    if isinstance(job, PretrainingJob):
        return True
    ended = read_ended(directory / job.model.path)
    if ended and ended.error:
        write_ended(directory, job, Ended(job.settings, 0.0, "", error="its model could not be pretrained"))
        return False
    return ended is not None


def _do(job: Job, plan: Plan, directory: Path, tasks: str, init_from: Path | None) -> int:
    """Does a job, its output in its log; returns 0 if it ended, failed or not, else why the worker ends."""
    began = time.perf_counter()
    found: tuple[dict, ...] = ()
    error = ""
    # On all hosts of a slice: by these lines tpu_host.sh knows what a host works at.
    print(f"{job.path}: begun", file=sys.stderr, flush=True)
    try:
        pull_part(directory, str(job.path), leaves_checkpoints=isinstance(job, PretrainingJob))
        with _log(directory / job.path):
            match job:
                case PretrainingJob():
                    status = _pretrain(job, plan, directory, init_from)
                case MeasuringJob():
                    found, status = _measure(job, directory, tasks), 0
    except (Interrupted, KeyboardInterrupt):
        return exit_status.SAVED
    except Exception as problem:  # even a defect must not stop the other jobs
        if processes.count() > 1 and not isinstance(problem, NonFiniteError | RefusedByAllError):
            raise  # the other processes do not know of it
        if may_pass(problem):
            _say(f"bert-jax: error: {problem}")
            return exit_status.MAY_PASS
        error, status = _describe(problem, directory / job.path), 0
    if status in (exit_status.SAVED, exit_status.MAY_PASS):
        return status
    if status:
        error = f"ended with status {status}; its {LOG_FILE} says why"
    seconds = time.perf_counter() - began
    devices = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    if processes.is_first():
        write_ended(directory, job, Ended(job.settings, seconds, devices, found, error))
    _say(f"{job.path}: {error or 'done'}, {seconds:.0f} s")
    return 0


def _describe(problem: Exception, directory: Path) -> str:
    """Why a job failed, in one line; the traceback of a defect goes to its log."""
    if isinstance(problem, UserError | OSError | NonFiniteError):
        return " ".join(str(problem).split())
    with _log(directory):
        traceback.print_exception(problem)
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}; {LOG_FILE} has the traceback"


def _pretrain(job: PretrainingJob, plan: Plan, directory: Path, init_from: Path | None) -> int:
    arm = job.path.parts[0]
    return pretrain(
        Pretrain(
            name=f"{plan.study.name}/{arm}",
            workdir=directory / job.path,
            objective=objective_name(job.experiment.objective),
            experiment=job.experiment,
            init_from=init_from if job.init_fingerprint else None,
            given=frozenset(job.settings),  # the plan has given it the model's shape
            distributed=processes.count() > 1,
        )
    )


def _measure(job: MeasuringJob, directory: Path, tasks: str) -> tuple[dict[str, Any], ...]:
    """Measures a model, which another machine may have pretrained; what it leaves is for all machines."""
    pull_part(directory, str(job.model.path), leaves_checkpoints=True)
    try:
        return measure(job, directory, tasks)
    finally:
        push_part(directory, str(job.path))


@contextlib.contextmanager
def _log(directory: Path) -> Iterator[None]:
    """What is printed inside the block goes to the job's log."""
    directory.mkdir(parents=True, exist_ok=True)
    with (
        (directory / f"{LOG_FILE}{processes.file_suffix()}").open("a", encoding="utf-8", buffering=1) as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        yield


def _wait_interrupted() -> bool:
    """Waits until it is time to look again; returns whether somebody asked to stop meanwhile."""
    with listen() as interrupt:
        end = time.monotonic() + _SECONDS_BETWEEN_LOOKS
        while time.monotonic() < end and interrupt.signal_name is None:
            time.sleep(0.1)
        return interrupt.signal_name is not None


def _say(line: str) -> None:
    if processes.is_first():
        print(line, file=sys.stderr, flush=True)
