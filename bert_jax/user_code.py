"""What users name by `module:NAME`: objectives, experiments and tasks of their own."""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Any

from data_pipeline.errors import UserError


def import_named(what: str, name: str) -> Any:
    """Imports a module, and returns what it defines under a name; None if it defines nothing of that name.

    Args:
      what: the kind of thing, for messages.
      name: `module:NAME`.

    Raises:
      UserError: the module cannot be imported.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except UserError:
        raise
    except Exception as error:
        places = "a directory of PYTHONPATH" if "" not in sys.path else "the working directory or PYTHONPATH"
        raise UserError(
            f"{what} {name!r} cannot be imported: {type(error).__name__}: {error}; its module must be "
            f"installed, or lie in {places}"
        ) from None


@contextlib.contextmanager
def working_directory_on_path() -> Iterator[None]:
    """Lets Python import modules of the working directory, which an installed script does not search.

    Only for what a command line names: a model's directory must not choose code of this directory to run.
    """
    is_new = "" not in sys.path
    if is_new:
        sys.path.append("")
    try:
        yield
    finally:
        if is_new:
            sys.path.remove("")
