"""The trials of a grid dealt out to the chips of a machine: one process a chip, which share it by leases.

Processes and not threads, since a process that sees one chip computes what it would on a machine of one chip:
a trial has the same bits however many run side by side. And when one ends, by a defect or for lack of memory,
another process takes its trial over.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax.parallel.chips import Environment, find_chips
from bert_jax.tasks.finetuning.flags import Finetune

_HELPER = "BERT_JAX_FINETUNE_HELPER"
"""Environment variable of a process that `helpers` started: which process did."""


def parent_of_helper() -> int | None:
    """The process that started this one to train some trials of its grid; None if the user did."""
    parent = os.environ.get(_HELPER)
    return None if parent is None else int(parent)


def take_chip(args: Finetune[Any]) -> tuple[Environment, ...]:
    """Makes this process see one chip if the trials are dealt out; to be called before it touches a device.

    One trial alone is spread over all chips, and so is each trial where the flags ask for a mesh or for pmap.

    Returns:
      The environments of processes for the other chips; empty if the trials are not dealt out.
    """
    parallel = args.training.parallel
    spread = parallel.mode == "pmap" or (parallel.fsdp, parallel.tensor) != (1, 1)
    if parent_of_helper() or spread or len(args.training.trials()) == 1:
        return ()
    first, *others = find_chips().environments
    if others:
        os.environ.update(first)
    return tuple(others)


@contextlib.contextmanager
def helpers(args: Finetune[Any], chips: Sequence[Environment]) -> Iterator[None]:
    """Inside the block a process for each of the chips trains trials of the grid.

    A process ends when no trial is free. Those left at the end of the block save, and end. What they print
    goes to `chip-N.log` in the grid's directory.
    """
    # Of an output in a bucket they share the place of this machine.
    flags = [*args.argv, "--output", str(args.output)]
    command = [sys.executable, "-P", "-m", "bert_jax.cli.main", "finetune", *flags]
    processes = []
    try:
        for number, chip in enumerate(chips, 1):
            with (args.output / f"chip-{number}.log").open("ab") as log:
                environment = {**os.environ, **chip, _HELPER: str(os.getpid())}
                processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
