"""Which process trains which trial: each trial once, one process at a time."""

import os
import threading
from pathlib import Path

from bert_jax.finetuning_config import Trial
from bert_jax.parallel.interrupt import Interrupt
from bert_jax.tasks.finetuning.turns import Turns

TRIALS = [Trial(1e-3, 8, 1.0, seed) for seed in range(3)]


class Done(set[Trial]):
    def turns(self, directory: Path, waits: bool = False) -> Turns:
        return Turns(directory, TRIALS, self.__contains__, None if waits else os.getppid())


def test_a_process_gets_what_no_other_has(tmp_path: Path) -> None:
    done, interrupt = Done(), Interrupt()
    first = done.turns(tmp_path).take(interrupt)
    trial = next(first)
    others = []
    for other in done.turns(tmp_path).take(interrupt):
        others.append(other)
        done.add(other)
    assert [trial, *others] == TRIALS
    done.add(trial)
    assert list(first) == []
    assert done.turns(tmp_path).unfinished() == []


def test_who_waits_takes_over_what_another_leaves(tmp_path: Path) -> None:
    done, interrupt = Done(TRIALS[1:]), Interrupt()
    leaving = done.turns(tmp_path).take(interrupt)
    assert next(leaving) == TRIALS[0]
    taken = []

    def wait() -> None:
        for trial in done.turns(tmp_path, waits=True).take(interrupt):
            taken.append(trial)
            done.add(trial)

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(1.5)
    assert taken == []
    leaving.close()  # without a result
    waiting.join()
    assert taken == TRIALS[:1]


def test_a_request_to_stop_ends_it_after_the_trial(tmp_path: Path) -> None:
    interrupt = Interrupt()
    turns = Done().turns(tmp_path, waits=True).take(interrupt)
    next(turns)
    interrupt.signal_name = "SIGTERM"
    assert list(turns) == []
