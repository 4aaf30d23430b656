"""Studies in a file of one's own."""

import importlib.util
import sys
from pathlib import Path

from bert_jax.study import Study
from data_pipeline.errors import UserError

_read = set[str]()
"""Names of the files that were read."""


def read_studies(path: Path) -> dict[str, Study]:
    """The studies that a Python file defines, by their names; the file is executed.

    Raises:
      UserError: it cannot be read or executed, or defines none, or two of one name.
    """
    if not path.is_file():
        raise UserError(f"--file {path} is not a file; name a Python file that defines a Study")
    _check_own_name(path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"--file {path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    # The file may import others beside it.
    if str(path.parent.resolve()) not in sys.path:
        sys.path.append(str(path.parent.resolve()))
    # Objectives that the file defines are found again by the module's name.
    sys.modules[path.stem] = module
    _read.add(path.stem)
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"--file {path} cannot be executed: {type(error).__name__}: {error}") from None
    studies: dict[str, Study] = {}
    for study in (value for value in vars(module).values() if isinstance(value, Study)):
        if studies.setdefault(study.name, study) is not study:
            raise UserError(
                f"--file {path} has two studies named {study.name!r}; give one of them another name"
            )
    if not studies:
        raise UserError(f"--file {path} defines no Study; `bert-jax study --help` shows the named ones")
    return studies


def _check_own_name(path: Path) -> None:
    """Raises UserError if the file would take the place of a module of that name."""
    name = path.stem
    found = importlib.util.find_spec(name) if name.isidentifier() and name not in _read else None
    # A file whose directory is on the path finds itself.
    if found is not None and (found.origin is None or Path(found.origin).resolve() != path.resolve()):
        raise UserError(f"--file {path} has the name of an installed module; give it another one")
