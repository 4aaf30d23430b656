"""A worker of a study: it takes the next free job, does it and records what came of it, until none is left.

Jobs run in this process, one after the other, so that they share what is imported and compiled.
"""

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import jax

from bert_jax import exit_status
from bert_jax.objectives import objective_name
from bert_jax.parallel.interrupt import listen
from bert_jax.pretraining.arguments import Pretrain
from bert_jax.pretraining.run import pretrain
from bert_jax.studies.directory import (
    LEASES_DIRECTORY,
    LOG_FILE,
    Ended,
    read_ended,
    write_ended,
)
from bert_jax.parallel.leases import Leases
from bert_jax.studies.measuring import Interrupted, measure
from bert_jax.studies.plan import Job, Measuring, Plan, Pretraining
from bert_jax.training.nonfinite import NonFiniteError
from bert_jax.workdir import directory as workdir
from data_pipeline.errors import UserError, may_pass

_SECONDS_BETWEEN_LOOKS = 2.0


def work(
    plan: Plan, directory: Path, tasks: str, after_job: Callable[[], None], leases: Leases | None = None
) -> int:
    """Does the jobs that no other worker does, until all have ended.

    Args:
      plan: of the study.
      directory: of the study.
      tasks: directory of the tasks' files.
      after_job: called after each job of this worker.
      leases: those of this worker; None for the usual times.

    Returns:
      0 when every job has ended, failed ones included; 75 if it was interrupted; 69 if a disk failed.
    """
    leases = leases or Leases(directory / LEASES_DIRECTORY)
    workdir.keep_compiled(directory)  # for all jobs, as far as they compute the same
    while True:
        waiting = False
        for job in plan.jobs:
            if read_ended(directory, job):
                continue
            if not _is_ready(job, directory):
                waiting = True
                continue
            with leases.hold(job.path, _end_now) as taken:
                if not taken or _is_in_use(directory / job.path):
                    waiting = True
                    continue
                if read_ended(directory, job):  # another worker ended it just before
                    continue
                status = _do(job, plan, directory, tasks)
            if status:
                return status
            after_job()
            break  # look again from the start: jobs may have become free
        else:
            if not waiting:
                return 0
            if _wait_interrupted():
                return exit_status.SAVED


def _is_ready(job: Job, directory: Path) -> bool:
    """Whether the model of a measure is pretrained. If that failed, so has the measure."""
    if isinstance(job, Pretraining):
        return True
    ended = read_ended(directory, job.model)
    if ended and ended.error:
        write_ended(directory, job, Ended(job.settings, 0.0, "", error="its model could not be pretrained"))
        return False
    return ended is not None


def _do(job: Job, plan: Plan, directory: Path, tasks: str) -> int:
    """Does a job, its output in its log; returns 0 if it ended, failed or not, else why the worker ends."""
    began = time.perf_counter()
    found: tuple[dict, ...] = ()
    error = ""
    _say(f"{job.path}: begun")
    try:
        with _log(directory / job.path):
            match job:
                case Pretraining():
                    status = _pretrain(job, plan, directory)
                case Measuring():
                    found, status = measure(job, directory, tasks), 0
    except (Interrupted, KeyboardInterrupt):
        status = exit_status.SAVED
    except NonFiniteError as problem:
        status, error = exit_status.FAILED, str(problem)
    except (UserError, OSError) as problem:
        if may_pass(problem):
            _say(f"bert-jax: error: {problem}")
            return exit_status.MAY_PASS
        status, error = exit_status.BAD_INPUT, " ".join(str(problem).split())
    except Exception as problem:  # a defect must not stop the other jobs
        with _log(directory / job.path):
            traceback.print_exc()
        status, error = (
            exit_status.FAILED,
            f"{type(problem).__name__}: {problem}; {LOG_FILE} has the traceback",
        )
    if status in (exit_status.SAVED, exit_status.MAY_PASS):
        return status
    if status and not error:
        error = f"ended with status {status}; its {LOG_FILE} says why"
    seconds = time.perf_counter() - began
    devices = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    write_ended(directory, job, Ended(job.settings, seconds, devices, found, error))
    _say(f"{job.path}: {error or 'done'}, {seconds:.0f} s")
    return 0


def _pretrain(job: Pretraining, plan: Plan, directory: Path) -> int:
    arm = job.path.parts[0]
    return pretrain(
        Pretrain(
            name=f"{plan.study.name}/{arm}",
            workdir=directory / job.path,
            objective=objective_name(job.experiment.objective),
            experiment=job.experiment,
        )
    )


@contextlib.contextmanager
def _log(directory: Path) -> Iterator[None]:
    """What is printed inside the block goes to the job's log."""
    directory.mkdir(parents=True, exist_ok=True)
    with (
        (directory / LOG_FILE).open("a", encoding="utf-8", buffering=1) as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        yield


def _is_in_use(directory: Path) -> bool:
    """Whether a process that lost its lease, but lives, still writes to a job's directory."""
    try:
        with workdir.lock(directory):
            return False
    except UserError:
        return True


def _wait_interrupted() -> bool:
    """Waits until it is time to look again; returns whether somebody asked to stop meanwhile."""
    with listen() as interrupt:
        end = time.monotonic() + _SECONDS_BETWEEN_LOOKS
        while time.monotonic() < end and interrupt.signal_name is None:
            time.sleep(0.1)
        return interrupt.signal_name is not None


def _end_now() -> None:
    """Ends the process, whose job another worker has taken over, before it writes anything more."""
    os._exit(exit_status.MAY_PASS)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
