"""Studies in a file of one's own."""

import importlib.util
import sys
from pathlib import Path

from bert_jax.studies.study import Study
from data_pipeline.errors import UserError


def read_studies(path: Path) -> dict[str, Study]:
    """The studies that a Python file defines, by their names; the file is executed.

    Raises:
      UserError: it cannot be read or executed, or defines none.
    """
    if not path.is_file():
        raise UserError(f"--file {path} is not a file; name a Python file that defines a Study")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"--file {path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    # Objectives that the file defines are found again by the module's name.
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"--file {path} cannot be executed: {type(error).__name__}: {error}") from None
    studies = [value for value in vars(module).values() if isinstance(value, Study)]
    if not studies:
        raise UserError(f"--file {path} defines no Study; `bert-jax study --help` shows the named ones")
    return {study.name: study for study in studies}
