"""Checkpoints of a run: written by Orbax in the background, whole or absent, and checked when read."""

import concurrent.futures
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp

from bert_jax.parallel import processes
from bert_jax.retention import Kept
from bert_jax.training.checkpoint_files import DAMAGED_DIRECTORY, ITEM, files_of
from data_pipeline.errors import Unfinished, UserError

State = TypeVar("State")

_OTHER_ARRAYS = re.compile(r"^(\S+):\n +- (?:Source|Item):", re.MULTILINE)
"""The names of arrays that Orbax gives when a checkpoint has others than it is to restore."""
_SHOWN = 6
_FULL = ("No space left on device", "Disk quota exceeded")
"""What the system says of a full disk."""


class Checkpoints:
    """The checkpoints in a work directory; one save at a time runs in the background.

    Every process of a run has one, and all call its methods together. Only the steps that process 0 sees
    count: a network file system's cache may show the others a checkpoint that is gone, or not yet a new one.
    """

    def __init__(self, workdir: Path, kept: Kept) -> None:
        _hush_orbax()
        self._files = files_of(workdir)
        self._kept = kept
        self._steps: list[int] = processes.broadcast_from_first(self._tidy)
        self._saving: int | None = None
        self._reported: set[int] = set()
        """Steps whose checkpoint could not be deleted; each is reported once."""
        self._background = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        self._save: concurrent.futures.Future[list[int]] | None = None
        options = ocp.AsyncOptions(
            # Orbax calls this when all files are written, just before their directory is finished.
            post_finalization_callback=self._add_checksums,
            # If this fails in the background, Orbax's other threads wait five minutes for it.
            create_directories_asynchronously=False,
        )
        of_items = ocp.CompositeOptions(async_options=options)
        handler = ocp.CompositeCheckpointHandler(composite_options=of_items)
        self._checkpointer = ocp.AsyncCheckpointer(handler, async_options=options)

    def save(self, step: int, state: Any) -> None:
        """Starts to save, after waiting for the previous save.

        If the previous save failed, says so and returns only when this one is done.

        Raises:
          Unfinished: this save failed (disk full, no permission), or with several processes the previous one.
        """
        fault = self._attempt(self._await_save)
        if fault:
            if processes.count() > 1:
                raise self._unfinished(fault)
            print(f"{self._describe(fault)}; trying that of step {step}", flush=True)
        self._saving = step
        if error := self._attempt(lambda: self._begin_save(step, state)):
            raise self._unfinished(error)
        if fault:
            self.wait()

    def wait(self) -> None:
        """Waits until no save is under way. Raises Unfinished if one failed."""
        if error := self._attempt(self._await_save):
            raise self._unfinished(error)

    def check(self) -> None:
        """Raises Unfinished if this one of several processes could not save its part; does not wait.

        The others wait for it until it ends. A single process reports it at the next save instead.
        """
        if processes.count() > 1 and self._save is not None and self._save.done():
            self.wait()

    def restore_newest(self, abstract_state: State) -> State | None:
        """The newest state that is whole, or None if there is no checkpoint.

        A damaged checkpoint is reported and moved to `damaged-checkpoints`, and the one before it is tried.

        Raises:
          UserError: there are checkpoints, and all of them are damaged, or have other arrays than the state.
          Unfinished: a checkpoint cannot be read, which does not mean that it is damaged.
        """
        step = processes.broadcast_from_first(self._newest_whole)
        if step is None:
            return None
        self._steps = [earlier for earlier in self._steps if earlier <= step]
        args = ocp.args.Composite(**{ITEM: ocp.args.StandardRestore(abstract_state)})
        try:
            return self._checkpointer.restore(self._files.path(step), args=args)[ITEM]
        except ValueError as error:
            others = _OTHER_ARRAYS.findall(str(error))
            if not others:
                raise
            more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
            raise UserError(
                f"the checkpoint of step {step} in {self._files.place} was written by other code, whose "
                f"arrays differ: {', '.join(others[:_SHOWN])}{more}; go on with that code, or name another "
                "directory (--init-from starts from the parameters alone)"
            ) from None

    def close(self) -> None:
        """Waits for the save under way and stops the threads. Raises Unfinished if that save failed."""
        self.wait()
        self._background.shutdown()
        if error := self._attempt(self._checkpointer.close):
            raise self._unfinished(error)

    def _tidy(self) -> list[int]:
        """Removes what a killed run left half-written; returns the steps of the finished checkpoints."""
        self._files.tidy()
        return self._files.steps()

    def _begin_save(self, step: int, state: Any) -> None:
        args = ocp.args.Composite(**{ITEM: ocp.args.StandardSave(state)})
        # By force, because a directory of this step that is still there does not count.
        self._checkpointer.save(self._files.path(step), args, force=True)
        self._save = self._background.submit(self._finish_save, [*self._steps, step])

    def _finish_save(self, steps: list[int]) -> list[int]:
        """Waits for Orbax to finish the last of these steps, then deletes those that do not stay.

        Returns the steps whose checkpoints are there now. Those that cannot be deleted are tried again after
        the next save.
        A process of several whose part fails does not wait for the others here.
        """
        self._checkpointer.wait_until_finished()
        stay = self._kept.of(steps)
        if processes.is_first():
            stay += [step for step in steps if step not in stay and not self._remove(step)]
        return sorted(stay)

    def _remove(self, step: int) -> bool:
        """Deletes a checkpoint and returns whether that succeeded; of each that stays, says so once."""
        try:
            self._files.remove(step)
        except (OSError, UserError) as error:
            if step not in self._reported:
                self._reported.add(step)
                print(
                    f"note: the checkpoint of step {step} in {self._files.place} cannot be deleted "
                    f"({_gist(error)}); each save tries again",
                    flush=True,
                )
            return False
        return True

    def _await_save(self) -> None:
        save, self._save = self._save, None  # an error is raised once
        if save is not None:
            self._steps = save.result()

    def _newest_whole(self) -> int | None:
        """Step of the newest checkpoint that is not damaged, or None if there are no checkpoints.

        Damaged ones that are newer are moved aside.
        """
        for step in reversed(self._steps):
            try:
                fault = self._files.find_fault(step)
            except OSError as error:
                raise Unfinished(
                    f"the checkpoint of step {step} cannot be read ({error}); run the same command again"
                ) from error
            if fault is None:
                return step
            print(f"checkpoint of step {step} is damaged ({fault}); trying the one before", flush=True)
            self._files.put_aside(step)
        if self._steps:
            raise UserError(
                f"every checkpoint in {self._files.place} is damaged; they are now in {DAMAGED_DIRECTORY} "
                f"beside it; run the same command again to begin anew"
            )
        return None

    def _add_checksums(self) -> None:
        assert self._saving is not None
        self._files.add_checksums(self._saving)

    def _attempt(self, action: Callable[[], Any]) -> Exception | None:
        """Runs one stage of a save and returns the storage error it raised, or None.

        Out-of-memory and lost-process errors propagate.
        """
        try:
            action()
        except (jax.errors.JaxRuntimeError, TimeoutError):
            raise  # not the disk: memory, or another process
        except Exception as error:
            return error
        return None

    def _unfinished(self, error: Exception) -> Unfinished:
        room = "make room and " if _gist(error) in _FULL else ""
        unfinished = Unfinished(f"{self._describe(error)}; {room}run the same command again")
        unfinished.__cause__ = error
        return unfinished

    def _describe(self, error: Exception) -> str:
        last = max(self._files.steps(), default=None)
        kept = "there is no earlier one" if last is None else f"that of step {last} is kept"
        where = f"step {self._saving} in {self._files.place}"
        return f"saving the checkpoint of {where} failed ({_gist(error)}), {kept}"


def saved_steps(workdir: Path) -> list[int]:
    """Steps of the finished checkpoints of a run, oldest first."""
    return files_of(workdir).steps()


def find_checkpoint(workdir: Path, step: int | None = None) -> int:
    """The step of an undamaged checkpoint of a run, which may be training; None takes the newest.

    Raises:
      UserError: there is no such checkpoint, or it is damaged.
    """
    files = files_of(workdir)
    steps = files.steps()
    if not steps:
        raise UserError(f"{workdir} has no checkpoint yet; `bert-jax pretrain` writes them")
    found = steps[-1] if step is None else step
    if found not in steps:
        raise UserError(f"{workdir} has no checkpoint of step {step}; there are {steps}")
    if fault := files.find_fault(found):
        if found not in files.steps():  # the run has deleted it meanwhile, as it has a newer one
            return find_checkpoint(workdir, step)
        raise UserError(
            f"checkpoint {found} in {files.place} is damaged ({fault}); copy it there again, or take that of "
            "another step"
        )
    return found


def load_params(workdir: Path, step: int | None = None) -> tuple[int, dict[str, Any]]:
    """Parameters of a checkpoint as numpy arrays, without a device and without optimizer state.

    One process of a run may call this alone.

    Args:
      workdir: directory of a run.
      step: which checkpoint; None takes the newest.

    Returns:
      The step and the nested dict of float32 arrays.

    Raises:
      UserError: there is no such checkpoint, or it is damaged.
    """
    step = find_checkpoint(workdir, step)
    _hush_orbax()
    alone = ocp.options.MultiprocessingOptions(primary_host=None, active_processes={jax.process_index()})
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(), multiprocessing_options=alone) as checkpointer:
        source = files_of(workdir).path(step) / ITEM
        tree = checkpointer.metadata(source).item_metadata.tree["params"]
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), shapes)
        restore = ocp.args.PyTreeRestore(
            item={"params": shapes}, restore_args={"params": as_numpy}, partial_restore=True
        )
        return step, checkpointer.restore(source, args=restore)["params"]


def _hush_orbax() -> None:
    # Orbax logs a traceback for errors that this module reports in one line, and asyncio one for each array
    # that fails after the first.
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _gist(error: Exception) -> str:
    """An exception in a few words, short enough for a sentence."""
    text = " ".join(str(error).split())
    for cause in (*_FULL, "File too large", "Permission denied"):
        if cause in text:
            return cause
    return f"{type(error).__name__}: {text[:200]}"
