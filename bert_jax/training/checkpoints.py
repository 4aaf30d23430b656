"""Checkpoints of a run: written by Orbax in the background, whole or absent, and checked when read.

Orbax renames a finished folder into place, so a killed run leaves no partial checkpoint. Orbax does
not notice a flipped bit in the arrays' files, so each checkpoint also holds its files' SHA-256.
"""

import concurrent.futures
import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from bert_jax.parallel import processes
from data_pipeline.atomic import synchronize
from data_pipeline.errors import Unfinished, UserError

State = TypeVar("State")

FOLDER = "checkpoints"
_DAMAGED_FOLDER = "damaged-checkpoints"
_CHECKSUMS = "checksums.json"
_POLL_SECONDS = 0.01
_ITEM = "default"  # Orbax's name of the only item of a checkpoint


class Checkpoints:
    """The checkpoints in a work directory; one save at a time runs in the background.

    Every process of a run has one, and all call its methods together.
    """

    def __init__(
        self, workdir: Path, keep: int, say: Callable[[str], None], keep_every: Collection[int] = ()
    ) -> None:
        """Args:
        workdir: the folder of the run.
        keep: how many of the newest checkpoints to keep.
        say: prints a line.
        keep_every: checkpoints at multiples of one of these numbers of steps are kept as well.
        """
        _hush_orbax()
        self._workdir = workdir
        self._folder = workdir / FOLDER
        self._say = say
        self._keep_every = keep_every
        self._saving: int | None = None
        options = ocp.CheckpointManagerOptions(
            preservation_policy=_preservation(keep, keep_every),
            cleanup_tmp_directories=True,
            async_options=ocp.options.AsyncOptions(post_finalization_callback=self._add_checksums),
        )
        self._manager = _Manager(self._folder.absolute(), options=options)

    def stays(self, step: int) -> bool:
        """Whether `keep_every` keeps the checkpoint of a step."""
        return any(step % steps == 0 for steps in self._keep_every)

    def save(self, step: int, state: Any) -> None:
        """Starts to save, after waiting for the previous save. Does nothing if the step is already saved.

        If the previous save failed, says so and returns only when this one is done.

        Raises:
          Unfinished: this save failed (disk full, no permission), or with several processes the previous one.
        """
        fault = self._attempt(self._manager.wait_until_finished)
        if fault:
            if processes.count() > 1:
                raise self._unfinished(fault)
            self._say(f"{self._describe(fault)}; trying that of step {step}")
            self._manager.reload()  # it no longer lists those that the failed one was to replace
        if step in self._manager.all_steps():
            return
        self._saving = step
        if error := self._attempt(lambda: self._manager.save(step, args=ocp.args.StandardSave(state))):
            raise self._unfinished(error)
        if fault:
            self.wait()

    def wait(self) -> None:
        """Waits until no save is under way. Raises Unfinished if one failed."""
        if error := self._attempt(self._manager.wait_until_finished):
            raise self._unfinished(error)

    def check(self) -> None:
        """Raises Unfinished if this one of several processes cannot finish a save; does not wait."""
        if self._manager.failure is not None:
            self.wait()

    def restore_newest(self, abstract_state: State) -> State | None:
        """The newest state that is whole, or None if there is no checkpoint.

        A damaged checkpoint is reported and moved to `damaged-checkpoints`, and the one before it is tried.

        Raises:
          UserError: there are checkpoints, and all of them are damaged.
          Unfinished: a checkpoint cannot be read, which does not mean that it is damaged.
        """
        step = processes.by_first(self._newest_whole)
        self._manager.reload_up_to(step)
        if step is None:
            return None
        return self._manager.restore(step, args=ocp.args.StandardRestore(abstract_state))

    def close(self) -> None:
        """Waits for the save under way and stops Orbax's threads. Does nothing if a save failed in this one
        of several processes, because the others then wait for this process to end."""
        if self._manager.failure is None:
            self.wait()
            self._manager.close()

    def _newest_whole(self) -> int | None:
        """Step of the newest checkpoint that is not damaged, or None if there are no checkpoints.

        Damaged ones that are newer are moved aside.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        for step in steps:
            try:
                fault = find_fault(self._folder / str(step))
            except OSError as error:
                raise Unfinished(
                    f"the checkpoint of step {step} cannot be read ({error}); run the same command again"
                ) from error
            if fault is None:
                return step
            self._say(f"checkpoint of step {step} is damaged ({fault}); trying the one before")
            self._put_aside(step)
        if steps:
            raise UserError(
                f"every checkpoint in {self._folder} is damaged; they are now in "
                f"{self._workdir / _DAMAGED_FOLDER}; run again to start from step 0"
            )
        return None

    def _put_aside(self, step: int) -> None:
        aside = self._workdir / _DAMAGED_FOLDER
        aside.mkdir(exist_ok=True)
        taken = sum(1 for _ in aside.glob(f"{step}*"))
        (self._folder / str(step)).rename(aside / (f"{step}.{taken}" if taken else str(step)))

    def _add_checksums(self) -> None:
        # Orbax calls this when all files are written, just before it renames their folder. It does not sync
        # them to disk: after a power cut they might be empty under their final name.
        (folder,) = self._folder.glob(f"{self._saving}.orbax-checkpoint-tmp*")
        files = [file for file in folder.glob(f"{_ITEM}/**/*") if file.is_file()]
        sums = dict(zip([str(file.relative_to(folder)) for file in files], _hash_all(files), strict=True))
        (folder / _CHECKSUMS).write_text(json.dumps(sums, indent=2), encoding="utf-8")
        synchronize(folder)

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
        unfinished = Unfinished(f"{self._describe(error)}; make room and run the same command again")
        unfinished.__cause__ = error
        return unfinished

    def _describe(self, error: Exception) -> str:
        last = max(saved_steps(self._workdir), default=None)
        kept = "there is no earlier one" if last is None else f"that of step {last} is kept"
        return (
            f"saving the checkpoint of step {self._saving} in {self._folder} failed ({_gist(error)}), {kept}"
        )


def _preservation(keep: int, keep_every: Collection[int]) -> policies.PreservationPolicy:
    series = (policies.EveryNSteps(steps) for steps in keep_every)
    return policies.AnyPreservationPolicy([policies.LatestN(keep), *series])


class _Manager(ocp.CheckpointManager):
    """Orbax's manager, with two behaviours changed.

    Orbax polls for preemption itself, with step numbers other than the loop's. And a process whose part of a
    save failed waits for the others before it reports that, while they wait for it, until it gives up after
    20 minutes.
    """

    failure: BaseException | None = None
    """Why this one of several processes cannot finish a save; set in Orbax's thread."""

    def reload_up_to(self, step: int | None) -> None:
        """Lists the checkpoints again, without those after `step`, which process 0 has moved aside. A network
        file system's cache may still show them to this process, which would then not save them again."""
        self.reload()
        self._checkpoints.delete_if(lambda checkpoint: step is None or checkpoint.step > step)

    def reached_preemption(self, step: int) -> bool:
        return False

    def wait_until_finished(self) -> None:
        while self.failure is None and self._is_finishing():
            time.sleep(_POLL_SECONDS)
        if self.failure is not None:
            raise self.failure
        super().wait_until_finished()

    def _is_finishing(self) -> bool:
        return self._finalize_thread.map(lambda thread: thread is not None and thread.is_alive())

    def _wait_for_checkpointers(self) -> None:
        try:
            super()._wait_for_checkpointers()
        except BaseException as error:
            if processes.count() > 1:
                self.failure = error
            raise


def find_fault(checkpoint: Path) -> str | None:
    """What is wrong with the files of a checkpoint's folder, or None if they are as written.

    Raises:
      OSError: they cannot be read, which says nothing about their contents.
    """
    try:
        sums = json.loads((checkpoint / _CHECKSUMS).read_text(encoding="utf-8"))
        files = {name: checkpoint / name for name, _ in sums.items()}
        for name, file in files.items():
            if not file.is_file():
                return f"{name} is missing"
        for name, digest in zip(files, _hash_all(list(files.values())), strict=True):
            if digest != sums[name]:
                return f"{name} was altered or truncated"
    except (FileNotFoundError, ValueError, AttributeError) as error:
        return f"{_CHECKSUMS} cannot be read: {type(error).__name__}"
    return None


def saved_steps(workdir: Path) -> list[int]:
    """Steps of the finished checkpoints of a run, oldest first."""
    return sorted(int(path.name) for path in (workdir / FOLDER).glob("*") if path.name.isdigit())


def find_checkpoint(workdir: Path, step: int | None = None) -> tuple[int, Path]:
    """The step and the folder of an undamaged checkpoint of a run; None takes the newest.

    Raises:
      UserError: there is no such checkpoint, or it is damaged.
    """
    steps = saved_steps(workdir)
    if not steps:
        raise UserError(f"{workdir} has no checkpoint yet; `bert-jax pretrain` writes them")
    step = steps[-1] if step is None else step
    if step not in steps:
        raise UserError(f"{workdir} has no checkpoint of step {step}; there are {steps}")
    folder = workdir / FOLDER / str(step)
    if fault := find_fault(folder):
        raise UserError(
            f"checkpoint {folder} is damaged ({fault}); copy it here again, or take that of another step"
        )
    return step, folder


def load_params(workdir: Path, step: int | None = None) -> tuple[int, dict[str, Any]]:
    """Parameters of a checkpoint as numpy arrays, without a device and without optimizer state.

    Args:
      workdir: folder of a run.
      step: which checkpoint; None takes the newest.

    Returns:
      The step and the nested dict of float32 arrays.

    Raises:
      UserError: there is no such checkpoint, or it is damaged.
    """
    step, folder = find_checkpoint(workdir, step)
    _hush_orbax()
    with ocp.PyTreeCheckpointer() as checkpointer:
        source = (folder / _ITEM).absolute()
        tree = checkpointer.metadata(source).item_metadata.tree["params"]
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), shapes)
        restore = ocp.args.PyTreeRestore(
            item={"params": shapes}, restore_args={"params": as_numpy}, partial_restore=True
        )
        return step, checkpointer.restore(source, args=restore)["params"]


def _hush_orbax() -> None:
    # Orbax logs a traceback for errors that this module reports in one line.
    logging.getLogger("absl").setLevel(logging.CRITICAL)


def _hash_all(files: Sequence[Path]) -> list[str]:
    """SHA-256 of each file, in several threads: hashing releases the GIL, and reading a bucket is slow."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(_sha256, files))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _gist(error: Exception) -> str:
    """An exception in a few words, short enough for a sentence."""
    text = " ".join(str(error).split())
    for cause in ("No space left on device", "File too large", "Disk quota exceeded", "Permission denied"):
        if cause in text:
            return cause
    return f"{type(error).__name__}: {text[:200]}"
