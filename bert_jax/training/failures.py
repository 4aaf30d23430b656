"""What goes wrong around training, said in one line: memory, storage, another run in the same directory."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import jax

from data_pipeline.errors import Unfinished, UserError, describe_failure


def out_of_memory_as_user_error(batch_flag: str) -> contextlib.AbstractContextManager[None]:
    """Raises UserError, whose message names `batch_flag`, if memory runs out in the block, which trains."""
    return out_of_memory_with_advice(
        "keep less for the gradient by --parallel.remat layers, compute fewer sequences at once by "
        f"--parallel.accumulation-steps, or make the model or {batch_flag} smaller"
    )


@contextlib.contextmanager
def out_of_memory_with_advice(advice: str) -> Iterator[None]:
    """Raises UserError, whose message ends with `advice`, if memory runs out in the block."""
    try:
        yield
    except MemoryError as error:
        raise UserError(f"the machine has too little memory ({error}); {advice}") from None
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        reason = str(error).splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: ").rstrip(".")
        raise UserError(f"the devices have too little memory ({reason}); {advice}") from None


@contextlib.contextmanager
def storage_errors_as_unfinished(directory: Path, check: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Raises Unfinished if a file cannot be read or written in the block, where the input is known good.

    Args:
      directory: where the block works, for errors that name no file.
      check: called before, as it may raise another error that is the cause.
    """
    try:
        yield
    except Unfinished:
        check()
        raise
    except OSError as error:
        if error.errno is None:
            raise  # not an error of a file, but Orbax's TimeoutError after another process was lost
        check()
        raise Unfinished(describe_failure(error, directory)) from error
