"""Which trials of a grid this process trains: those that no other does, each under a lease."""

import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path, PurePosixPath

from bert_jax.finetuning_config import Trial
from bert_jax.parallel.interrupt import Interrupt
from bert_jax.parallel.leases import Leases

_LEASES_DIRECTORY = "leases"
_SECONDS_BETWEEN_LOOKS = 0.5


class Turns:
    """The turns of one of the processes that share a grid."""

    def __init__(
        self,
        output: Path,
        trials: Sequence[Trial],
        is_finished: Callable[[Trial], bool],
        parent: int | None,
    ) -> None:
        """
        Args:
          output: directory of the grid.
          trials: of the grid.
          is_finished: whether a trial has a result.
          parent: the process that started this one for some of the trials; None if the user did. That one
            waits for trials that others train, to take over what they leave.
        """
        self._trials, self._is_finished, self._waits = trials, is_finished, parent is None
        self._leases = Leases(output / _LEASES_DIRECTORY, parent=parent)

    def unfinished(self) -> list[Trial]:
        """The trials without a result."""
        return [trial for trial in self._trials if not self._is_finished(trial)]

    def take(self, interrupt: Interrupt) -> Generator[Trial, None, None]:
        """Yields trials one at a time, each while this process holds its lease, until none is left for it.

        Ends early if somebody asks to stop. A trial that is left without a result is yielded again.
        """
        said = False
        while (left := self.unfinished()) and not interrupt.signal_name:
            for trial in left:
                with self._leases.hold(PurePosixPath(trial.name)) as has:
                    if has and not self._is_finished(trial):  # another process may have ended it just before
                        yield trial
                        break
            else:
                if not self._waits:
                    return
                if not said:
                    print(f"waiting for trials of other processes: {len(left)}", flush=True)
                    said = True
                time.sleep(_SECONDS_BETWEEN_LOOKS)

    def alone(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Inside the block no other process of the grid is in a block of the same name."""
        return self._leases.hold_when_free(PurePosixPath(name))
