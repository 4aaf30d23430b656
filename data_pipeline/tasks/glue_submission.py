"""The zip of predictions that GLUE's server takes: a file a test set, a line an example."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from data_pipeline.tasks.glue_tasks import GLUE_TASKS

_HIGHEST_SCORE = 5.0  # of STS-B, from 0


def submission_files() -> list[str]:
    """All that a complete submission holds; the server refuses one that lacks any."""
    return sorted(name for task in GLUE_TASKS.values() for name in task.submissions.values())


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


def write_submission(output: Path, texts: Mapping[str, str]) -> list[str]:
    """Write a zip of files by name, whole or not at all.

    Returns:
      the names of `submission_files` that `texts` lacks.
    """
    partial = output.with_name(f".{output.name}.partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(texts):
            archive.writestr(name, texts[name])
    partial.replace(output)
    return [name for name in submission_files() if name not in texts]
