"""Several processes that are one run: how they meet, agree, are interrupted and end.

Only this module asks which process this is. With one process, the functions that exchange something
just do their local part.
"""

import contextlib
import itertools
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.exit_status import MAY_PASS, report, write_error
from bert_jax.parallel import interrupt
from bert_jax.parallel.interrupt import Interrupt
from data_pipeline.errors import Unfinished, UserError, may_pass
from data_pipeline.interrupts import handled

T = TypeVar("T")

_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
# INTERNAL may be a bug, which would recur, unless it comes from a barrier, from Gloo (exchange on CPUs), or
# from NCCL (on GPUs) when another process has gone.
_PEER_LOST = re.compile(
    r"(UNAVAILABLE|ABORTED|CANCELLED|DEADLINE_EXCEEDED): |.*(\bGloo\b|Barrier Id: |remote process exited)",
    re.DOTALL,
)
"""What a JaxRuntimeError says when another process is gone."""

_CONNECT_VARIABLE, _HEARTBEAT_VARIABLE = "BERT_JAX_CONNECT_SECONDS", "BERT_JAX_HEARTBEAT_SECONDS"
_CONNECT_SECONDS, _HEARTBEAT_SECONDS = 300, 100
_barriers = itertools.count()
"""Numbers of the barriers, which all processes have in the same order; each needs a name of its own."""
_STEPS_KEY = "bert_jax/steps"
"""Where the coordinator keeps the steps of each process."""


class RefusedByAllError(UserError):
    """Bad input that every process of the run knows of, so that all end together."""


class UnfinishedByAllError(RefusedByAllError, Unfinished):
    """A failure that may pass and that every process of the run knows of."""


def run_distributed(action: Callable[[], int]) -> int:
    """Runs `action`, the first to touch a device, as one of the processes of a run; returns its exit status.

    A process that fails alone ends at once, without the shutdown exchange that jax does at exit, which
    would wait for the others: they may learn of the failure only from this process's end.

    Raises:
      UserError: this process does not know who the others are, or all refuse their input together.
      Unfinished: the processes did not meet.
    """
    start()
    try:
        _connect()
        return action()
    except RefusedByAllError:
        raise
    except BaseException as error:
        if _is_peer_lost(error):
            _complain(f"lost the other processes of the run ({_first_line(error)}); their logs say why")
            status = MAY_PASS
        else:
            status = report(error)
        with contextlib.suppress(OSError):  # their reader may have gone
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def count() -> int:
    """Number of processes."""
    return jax.process_count()


def is_first() -> bool:
    """Whether this is process 0, which writes the files that only one process writes."""
    return jax.process_index() == 0


def file_suffix() -> str:
    """Suffix that distinguishes files that each process writes for itself; empty with one process."""
    return f".process-{jax.process_index()}-of-{count()}" if count() > 1 else ""


def run_on_all(action: Callable[[], T]) -> T:
    """Runs an action in every process and returns its local result once it has succeeded in all.

    Raises:
      UserError: in all processes, if the action failed in one of them; Unfinished if the failure may pass.
    """
    return _vote(action)[0]


def broadcast_from_first(action: Callable[[], T]) -> T:
    """Runs an action in process 0 alone and returns its result, a JSON value, in all processes.

    Raises:
      UserError: in all processes, if the action failed; Unfinished if the failure may pass.
    """
    _, everyone = _vote(lambda: action() if is_first() else None)
    return everyone[0]


@contextlib.contextmanager
def held_on_first(resource: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    """Inside the block process 0 holds the resource; a UserError in taking it is raised in all."""
    with contextlib.ExitStack() as stack:
        broadcast_from_first(lambda: stack.enter_context(resource))
        yield


def check_same(values: Callable[[], Mapping[str, Any]], remedy: str) -> None:
    """Checks that some values are equal in all processes.

    Args:
      values: returns JSON values by their names.
      remedy: what would make them equal.

    Raises:
      UserError: in all processes, naming what differs and in which process.
    """
    if count() == 1:
        return
    _, everyone = _vote(lambda: dict(values()))
    first = everyone[0]
    for number, theirs in enumerate(everyone):
        differing = [name for name in {**first, **theirs} if theirs.get(name) != first.get(name)]
        if differing:
            listed = "; ".join(
                f"{name} {theirs.get(name)} instead of {first.get(name)}" for name in differing
            )
            raise RefusedByAllError(
                f"process {number} of {count()} differs from process 0: {listed}; {remedy}"
            )


def all_reduce_sum(array: np.ndarray) -> np.ndarray:
    """The sum over processes of int64 arrays of one shape."""
    if count() == 1:
        return array
    # jax has no int64 by default.
    halves = multihost_utils.process_allgather(np.ascontiguousarray(array).view(np.uint32))
    return np.ascontiguousarray(halves).view(np.int64).sum(axis=0)


def all_reduce_max(value: float) -> tuple[float, int]:
    """The highest of the processes' values, and the number of a process that has it."""
    if count() == 1:
        return value, 0
    values = multihost_utils.process_allgather(np.float32(value))
    return float(values.max()), int(values.argmax())


def barrier() -> None:
    """Waits until all processes are here, through the coordinator and for as long as at the start.

    On CPUs the processes that exchange something for the first time wait only 30 s for each other, which a
    busy machine takes longer to compile. Where something is compiled first, they meet before it is run.
    """
    if count() > 1:
        wait = ocp.multihost.get_barrier_sync_fn(processes=set(range(count())))
        wait(
            key=f"bert_jax/barrier/{next(_barriers)}",
            timeout_ms=1000 * number_from(_CONNECT_VARIABLE, _CONNECT_SECONDS),
        )


def publish_step(step: int) -> None:
    """Tells the others how many steps this process has done, if they can still be reached."""
    if count() > 1:
        client = ocp.multihost.get_jax_distributed_client()
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            client.key_value_set(f"{_STEPS_KEY}/{jax.process_index()}", str(step), allow_overwrite=True)


def published_steps() -> dict[int, int]:
    """Number of a process -> its steps, as it last told; nothing if it cannot be asked."""
    if count() == 1:
        return {}
    try:
        told = ocp.multihost.get_jax_distributed_client().key_value_dir_get(_STEPS_KEY)
    except jax.errors.JaxRuntimeError:
        return {}
    return {int(key.rpartition("/")[2]): int(step) for key, step in told}


def listen() -> contextlib.AbstractContextManager[Interrupt]:
    """As `interrupt.listen`, but processes that have met stop after the same step."""
    # `count` does not decide: SIGTERM goes to jax in a run of --distributed with one process, too.
    return _listen_on_all() if jax.distributed.is_initialized() else interrupt.listen()


@contextlib.contextmanager
def _listen_on_all() -> Iterator[Interrupt]:
    """Listens through jax, whose own handler of SIGTERM was installed when the processes met.

    It tells the other processes, and they agree on the next step that none of them has done.
    """
    shared = _SharedInterrupt()
    with handled({signal.SIGINT: shared.pass_on}):
        yield shared


_asked = itertools.count(1)


class _SharedInterrupt(Interrupt):
    _came = "SIGTERM"
    """The signal that came here, or with which jax stops the other processes."""

    def requested(self) -> bool:
        # jax says it once; after the last step the loop asks again, in the evaluation.
        if self.signal_name:
            return True
        # Counted over all runs of this process: jax stops at exactly the question after the newest one, which
        # may lie beyond the end of the run in which the signal came.
        reached = multihost_utils.reached_preemption_sync_point(next(_asked))
        if reached:
            self.signal_name = self._came
            Interrupt.num_requests += 1
        return reached

    def pass_on(self, _: int, __: FrameType | None) -> None:
        """Makes Ctrl-C do what SIGTERM does; a second Ctrl-C ends the process."""
        self._came = "SIGINT"
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        line = "SIGINT: saving after this step in all processes; a second Ctrl-C ends at once, without saving"
        interrupt.answer(f"{line}\n")
        os.kill(os.getpid(), signal.SIGTERM)


def number_from(variable: str, default: T) -> int | T:
    """The whole number in an environment variable, or the default where it is not set.

    Raises UserError if it is something else.
    """
    text = os.environ.get(variable)
    if text is None:
        return default
    if not text.isdecimal():
        raise UserError(f"the environment variable {variable} is {text!r}; it must be a whole number")
    return int(text)


def start() -> None:
    """Joins the run's processes; discards the standard output of all but process 0.

    On Cloud TPU, Slurm, Kubernetes and Open MPI, jax finds the processes itself.

    Raises:
      UserError: jax does not find them, and the environment variables do not name them.
      Unfinished: another process was lost meanwhile.
    """
    seconds = number_from(_CONNECT_VARIABLE, _CONNECT_SECONDS)
    heartbeat = number_from(_HEARTBEAT_VARIABLE, _HEARTBEAT_SECONDS)
    count, number = number_from("JAX_NUM_PROCESSES", None), number_from("JAX_PROCESS_ID", None)
    watch = threading.Timer(seconds, _give_up, (seconds,))
    watch.daemon = True
    watch.start()
    try:
        jax.distributed.initialize(
            num_processes=count,
            process_id=number,
            # Later than `_give_up`, because jax ends the process with a stack trace.
            initialization_timeout=2 * seconds,
            heartbeat_timeout_seconds=heartbeat,
        )
    except (RuntimeError, ValueError, IndexError) as error:  # IndexError: no port
        if _is_peer_lost(error):
            raise Unfinished(f"the processes of --distributed did not meet ({_first_line(error)})") from None
        no_port = f"{_VARIABLES[0]} is {os.environ.get(_VARIABLES[0])!r}, without a port"
        reason = no_port if isinstance(error, IndexError) else _first_line(error)
        raise UserError(
            f"the processes of --distributed did not meet ({reason}); outside a cluster that jax knows, "
            f"{', '.join(_VARIABLES)} must say host:port of process 0, how many, and which"
        ) from None
    finally:
        watch.cancel()
    if not is_first():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _connect() -> None:
    """Exchanges something for the first time, which is when the processes connect to each other."""
    everywhere = NamedSharding(Mesh(np.array(jax.devices()), ("devices",)), PartitionSpec())
    ones = jax.make_array_from_callback(
        (jax.device_count(),),
        NamedSharding(everywhere.mesh, PartitionSpec("devices")),
        lambda _: np.ones(1, np.int32),
    )
    add = jax.jit(jnp.sum, out_shardings=everywhere).lower(ones).compile()
    barrier()
    jax.block_until_ready(add(ones))


def _give_up(seconds: int) -> None:
    address, process = os.environ.get(_VARIABLES[0]), os.environ.get(_VARIABLES[2])
    who = f"the coordinator at {address}" if address else "the coordinator"
    if process is None:
        what = f"the processes of --distributed did not meet in {seconds} s"
    elif int(process) == 0:
        what = f"{who} (this process) waited {seconds} s for the other processes"
    else:
        what = f"{who} could not be reached in {seconds} s"
    _complain(f"{what}; start all processes at once, with the same address, and let its port through")
    os._exit(MAY_PASS)


def _vote(action: Callable[[], T]) -> tuple[T, list[Any]]:
    """Runs an action in every process; returns its local result, and a list of the results of all processes
    (None for those that are not JSON values). Raises RefusedByAllError in all if it failed in one of several.

    Every exchange sends the same kind of message, a value or an error, so a process learns of another's
    failure even if that happened in a different exchange.
    """
    if count() == 1:
        value = action()
        return value, [value]
    mine: dict[str, Any]
    try:
        value = action()
        mine = {"value": value if isinstance(value, str | int | float | dict | list) else None}
    except RefusedByAllError:
        raise
    except (UserError, OSError) as error:
        mine = {"error": str(error), "may_pass": may_pass(error)}
    ballots = _exchange(mine)
    said = [ballot.get("error") for ballot in ballots]
    for number, message in enumerate(said):
        if message is not None:
            everywhere = len(set(said)) == 1
            kind = UnfinishedByAllError if ballots[number]["may_pass"] else RefusedByAllError
            raise kind(message if everywhere else f"process {number} of {count()}: {message}")
    return value, [ballot["value"] for ballot in ballots]


def _exchange(value: Any) -> list[Any]:
    """The JSON values of all processes, in the order of the processes."""
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.int32(len(text)))
    filled_up = np.zeros(sizes.max(), np.uint8)
    filled_up[: len(text)] = text
    rows = multihost_utils.process_allgather(filled_up)
    return [json.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]


def _is_peer_lost(error: BaseException) -> bool:
    # What jax raises when a collective operation breaks off, and Orbax when a barrier does.
    return isinstance(error, TimeoutError) or (
        isinstance(error, jax.errors.JaxRuntimeError) and _PEER_LOST.match(str(error)) is not None
    )


def _complain(message: str) -> None:
    write_error(f"bert-jax: error: {' '.join(message.split())}\n")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200]
