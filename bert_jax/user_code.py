"""What users name by `module:NAME`: objectives, experiments and tasks of their own."""

import contextlib
import importlib
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from data_pipeline.checks import check_name
from data_pipeline.errors import UserError

T = TypeVar("T")


def find_named(what: str, name: str, named: Mapping[str, T], fits: Callable[[Any], bool]) -> T:
    """The thing of a name, or the one that `module:NAME` names, whose module is then imported.

    Args:
      what: the kind of thing, for messages.
      name: one of `named`, or `module:NAME`.
      named: those that have a name of their own.
      fits: whether a value of a module is such a thing.

    Raises:
      UserError: an unknown name; the module cannot be imported, or has no such thing of that name.
    """
    if ":" not in name:
        check_name(name, named, what, ", or module:NAME of one of your own")
        return named[name]
    module, _, attribute = name.partition(":")
    loaded = _import(what, name, module.removesuffix(".py"))
    found: Any = getattr(loaded, attribute, None)
    if not fits(found):
        there = [other for other, value in vars(loaded).items() if fits(value)]
        raise UserError(f"{module} has no {what} {attribute!r}; it has {', '.join(there) or 'none'}")
    return found


def _import(what: str, name: str, module: str) -> types.ModuleType:
    try:
        return importlib.import_module(module)
    except UserError:
        raise
    except Exception as error:
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename.endswith(f"{module.replace('.', '/')}.py")
        ]
        at = f", line {lines[-1]} of {module}" if lines else ""
        advice = ""
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            where = (
                "a directory of PYTHONPATH" if "" not in sys.path else "the working directory or PYTHONPATH"
            )
            advice = f"; its module must be installed, or lie in {where}"
        raise UserError(
            f"{what} {name!r} cannot be imported: {type(error).__name__}: {error}{at}{advice}"
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
