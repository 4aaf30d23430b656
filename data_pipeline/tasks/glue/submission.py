"""The zip of predictions that GLUE's server takes: one file per test set, one line per example.

The server rejects a zip in which a file is missing or empty (README of keras-team/keras-hub's
examples/glue_benchmark), so a task that was not trained gets a file with the same answer on every line.
"""

import io
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_pipeline.atomic import atomically
from data_pipeline.errors import UserError, bad_input
from data_pipeline.tasks.glue.tasks import GLUE_TASKS

SUBMISSION_FILE = "submission.zip"

_HIGHEST_SCORE = 5.0  # STS-B's scores are from 0 to 5

_TEST_SIZES = {
    "AX.tsv": 1104,
    "CoLA.tsv": 1063,
    "MNLI-m.tsv": 9796,
    "MNLI-mm.tsv": 9847,
    "MRPC.tsv": 1725,
    "QNLI.tsv": 5463,
    "QQP.tsv": 390965,
    "RTE.tsv": 3000,
    "SST-2.tsv": 1821,
    "STS-B.tsv": 1379,
    "WNLI.tsv": 146,
}
"""Number of examples of each test set."""


def submission_text(predictions: Sequence[str] | Sequence[float]) -> str:
    """The content of one file.

    Args:
      predictions: in the order of the test set; labels as GLUE writes them, or scores, which are clipped
        to 0 to 5.
    """
    words = [
        p if isinstance(p, str) else f"{min(max(float(p), 0.0), _HIGHEST_SCORE):.3f}" for p in predictions
    ]
    return "".join(["index\tprediction\n", *(f"{index}\t{word}\n" for index, word in enumerate(words))])


def write_submission(output: Path, texts: Mapping[str, str]) -> None:
    """Writes a zip of the files `texts`, content by name, atomically."""
    with atomically(output) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(texts):
            archive.writestr(name, texts[name])


def join_submissions(sources: Iterable[Path]) -> dict[str, str]:
    """The files of several zips of `write_submission`, content by name.

    Raises:
      UserError: a source is missing or no zip; two zips have the same file; a file is none of GLUE's, or has
        another number of predictions than its test set has examples.
    """
    texts: dict[str, str] = {}
    for source in sources:
        try:
            # Read here, since zipfile reports a failing disk as a file that is no zip.
            with zipfile.ZipFile(io.BytesIO(source.read_bytes())) as archive:
                found = {name: archive.read(name).decode() for name in archive.namelist()}
        except FileNotFoundError:
            raise UserError(
                f"there is no {source}; finetune writes it for a GLUE task whose test files are in --data"
            ) from None
        except (OSError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            # RuntimeError: encrypted, or compressed in a way that zipfile does not know.
            raise bad_input(error, source, f"{source} is no zip of predictions") from None
        for name, text in found.items():
            _check(source, name, text)
            if name in texts:
                raise UserError(f"{source} has {name}, which another one has; name one run for each task")
        texts |= found
    return texts


def placeholders(present: Iterable[str]) -> dict[str, str]:
    """The files missing beside those `present`, each with the same answer on every line."""
    answers: dict[str, list[Any]] = {
        file: list(task.labels[:1]) or [0.0]
        for task in GLUE_TASKS.values()
        for file in task.submissions.values()
    }
    missing = sorted(_TEST_SIZES.keys() - set(present))
    return {name: submission_text(answers[name] * _TEST_SIZES[name]) for name in missing}


def _check(source: Path, name: str, text: str) -> None:
    if name not in _TEST_SIZES:
        raise UserError(f"{source} has {name}; GLUE's files are {', '.join(_TEST_SIZES)}")
    count = text.count("\n") - 1
    if count != _TEST_SIZES[name]:
        raise UserError(
            f"{name} of {source} has {count} predictions; GLUE's test set has {_TEST_SIZES[name]}"
        )
