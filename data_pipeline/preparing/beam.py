"""Apache Beam, imported only where it is used, and without its warnings about Google's libraries."""

import contextlib
import logging
from collections.abc import Iterator

from data_pipeline.errors import UserError


@contextlib.contextmanager
def quiet_logging() -> Iterator[None]:
    """No warnings inside the block."""
    logging.basicConfig()  # before Beam calls it, perhaps while stderr goes to /dev/null
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


try:
    with quiet_logging():
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
except ModuleNotFoundError as missing:
    raise UserError(
        f"--runner needs Apache Beam, and {missing.name} is not installed: "
        "pip install -c constraints.txt -e '.[beam]'"
    ) from None

__all__ = ["PipelineOptions", "beam", "quiet_logging"]
