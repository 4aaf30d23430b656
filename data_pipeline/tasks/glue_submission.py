"""The zip of predictions that GLUE's server takes: a file a test set, a line an example.

The server takes no zip without all of them, nor an empty one among them (README of keras-team/keras-hub's
examples/glue_benchmark); the file of a task that was left alone has one answer throughout.
"""

import io
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_pipeline.atomic import atomically
from data_pipeline.errors import UserError, bad_input
from data_pipeline.tasks.glue_tasks import GLUE_TASKS

SUBMISSION_FILE = "submission.zip"

_HIGHEST_SCORE = 5.0  # of STS-B, from 0

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
"""Examples of each test set."""


def submission_text(predictions: Sequence[str] | Sequence[float]) -> str:
    """The content of one file.

    Args:
      predictions: in the order of the test set; labels as GLUE writes them, or scores from 0 to 5, which
        are clipped to that.
    """
    words = [
        p if isinstance(p, str) else f"{min(max(float(p), 0.0), _HIGHEST_SCORE):.3f}" for p in predictions
    ]
    return "".join(["index\tprediction\n", *(f"{index}\t{word}\n" for index, word in enumerate(words))])


def write_submission(output: Path, texts: Mapping[str, str]) -> None:
    """Writes a zip of files by name, whole or not at all."""
    with atomically(output) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(texts):
            archive.writestr(name, texts[name])


def join_submissions(sources: Iterable[Path]) -> dict[str, str]:
    """The files of several zips of `write_submission` by name.

    Raises:
      UserError: no zip; two have one file; a file has not as many lines as its test set.
    """
    texts: dict[str, str] = {}
    for source in sources:
        try:
            # Read by ourselves: to zipfile a disk that fails is a file that is no zip.
            with zipfile.ZipFile(io.BytesIO(source.read_bytes())) as archive:
                found = {name: archive.read(name).decode() for name in archive.namelist()}
        except FileNotFoundError:
            raise UserError(
                f"there is no {source}; finetune writes it for a GLUE task whose test files are in --data"
            ) from None
        except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise bad_input(error, source, f"{source} is no zip of predictions") from None
        for name, text in found.items():
            _check(source, name, text)
            if name in texts:
                raise UserError(f"{source} has {name}, which another one has; name one run for each task")
        texts |= found
    return texts


def placeholders(present: Iterable[str]) -> dict[str, str]:
    """The files that a submission of those `present` lacks, each with one answer throughout."""
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
