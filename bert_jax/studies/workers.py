"""Starts the workers of a study on this machine and waits for them, round after round."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax import exit_status
from bert_jax.studies.places import Place
from bert_jax.studies.worker import HAND_OVER
from data_pipeline.interrupts import handled

_WORST = (exit_status.FAILED, exit_status.BAD_INPUT)
_CONNECT_SECONDS = {"BERT_JAX_CONNECT_SECONDS": "86400"}
"""The hosts of a slice meet to pretrain when each is done with its measures."""


def run_workers(argv: Sequence[str], rounds: Sequence[Sequence[Place]]) -> int:
    """Runs workers at the places of one round after the other, until those of the first report that all is
    done.

    Args:
      argv: the command line after `bert-jax study`.
      rounds: from `find_places`.

    Returns:
      0, or the worst status of a worker; 75 if a signal asked to stop and no worker failed.
    """
    workers: list[subprocess.Popen[bytes]] = []
    with _passed_on(workers) as asked_to_stop:
        while True:
            for places in rounds:
                status = _run_round(argv, places, workers, asked_to_stop)
                if status == 0 and places is rounds[0]:
                    return status
                if asked_to_stop and status not in _WORST:
                    return exit_status.SAVED
                if status not in (0, HAND_OVER):
                    return status


def _run_round(
    argv: Sequence[str],
    places: Sequence[Place],
    workers: list[subprocess.Popen[bytes]],
    asked_to_stop: Sequence[int],
) -> int:
    """Runs a worker at each place, listed in `workers` meanwhile; returns the worst status."""
    # -P: the packages of this process, whatever lies in the current directory.
    command = [sys.executable, "-P", "-m", "bert_jax.cli.main", "study", *argv]
    for place in places:
        workers.append(subprocess.Popen(command, env={**_CONNECT_SECONDS, **place.environment}))
    if asked_to_stop:  # before all of them were listed
        for worker in workers:
            worker.terminate()
    statuses = [worker.wait() for worker in workers]
    for worker, status in zip(workers, statuses, strict=True):
        if status < 0 and not asked_to_stop:  # a worker that is still starting cannot save anything
            name = signal.Signals(-status).name
            print(f"worker {worker.pid} was ended by {name}; run the same command again", file=sys.stderr)
    workers.clear()
    found = [exit_status.MAY_PASS if status < 0 else status for status in statuses]
    return max(found, key=lambda status: (status in _WORST, status), default=0)


@contextlib.contextmanager
def _passed_on(workers: Sequence[subprocess.Popen[bytes]]) -> Iterator[list[int]]:
    """Inside the block SIGTERM and SIGINT go to the workers; yields a list of the signals that came."""
    came: list[int] = []

    def pass_on(number: int, _: Any) -> None:
        # From a terminal, SIGINT has reached the workers by itself, and another one would end them at once.
        is_first = number not in came
        came.append(number)
        for worker in workers:
            worker.send_signal(signal.SIGTERM if is_first else number)

    with handled({signal.SIGINT: pass_on, signal.SIGTERM: pass_on}):
        yield came
