"""Starts local processes that together form one run, each with its share of four CPU devices."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.stand_in_gcloud import free_port

DEVICES = 4
_PORTS = range(10_000, 20_000)
"""Not those that the system gives to outgoing connections, nor those of the slices of `stand_in_gcloud`."""
PATIENCE_SECONDS = 600


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Holds a free port, so that `free_port` gives it to no other test.

    A coordinator can still listen on it, because its socket, like this one, sets SO_REUSEPORT.
    """
    with socket.socket(socket.AF_INET6) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("::", free_port(_PORTS)))
        yield holder.getsockname()[1]


class Pod:
    """A context manager that runs the processes; their output goes to `LOG.0`, `LOG.1`, ..."""

    def __init__(self, commands: list[list[str]], log: Path, environment: dict[str, str]) -> None:
        """
        Args:
          commands: the command line of each process.
          log: path of the log files without their numbers.
          environment: environment variables that all processes share.
        """
        self.logs = [log.with_name(f"{log.name}.{number}") for number in range(len(commands))]
        self._commands = commands
        self._environment = environment
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Pod":
        port = self._stack.enter_context(reserved_port())
        self.processes = [self._start(number, port) for number in range(len(self._commands))]
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._stack.close()

    def end(self) -> None:
        """Kills the processes that still run."""
        for process in self.processes:
            process.kill()
            process.wait()

    def wait(self, seconds: float = PATIENCE_SECONDS) -> list[int]:
        """The exit statuses, once all processes have ended by themselves."""
        deadline = time.monotonic() + seconds
        return [process.wait(max(deadline - time.monotonic(), 0)) for process in self.processes]

    def is_running(self) -> bool:
        return all(process.poll() is None for process in self.processes)

    def send(self, number: int, what: signal.Signals) -> None:
        self.processes[number].send_signal(what)

    def said(self, number: int) -> str:
        return self.logs[number].read_text(errors="replace")

    def _start(self, number: int, port: int) -> subprocess.Popen[bytes]:
        count = len(self._commands)
        flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={DEVICES // count}"
        environment = {
            **self._environment,
            "XLA_FLAGS": flags,
            "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
            "JAX_NUM_PROCESSES": str(count),
            "JAX_PROCESS_ID": str(number),
            # How long the others wait for a process that is killed before all have met.
            "BERT_JAX_CONNECT_SECONDS": self._environment.get("BERT_JAX_CONNECT_SECONDS", "120"),
            "BERT_JAX_HEARTBEAT_SECONDS": os.environ.get("BERT_JAX_HEARTBEAT_SECONDS", "10"),
        }
        with self.logs[number].open("ab") as log:
            return subprocess.Popen(self._commands[number], env=environment, stdout=log, stderr=log)
