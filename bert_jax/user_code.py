"""What users name by `module:NAME`: objectives and experiments of their own."""

import importlib
import sys
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
