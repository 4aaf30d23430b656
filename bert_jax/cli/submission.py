"""`bert-jax submission --runs DIR... --output FILE`: one zip for GLUE's server from several runs."""

import dataclasses
from pathlib import Path

from bert_jax.finetuning.grid_folder import find_cell, warn_if_unfinished
from data_pipeline.errors import UserError
from data_pipeline.folders import check_new_file


@dataclasses.dataclass(frozen=True)
class Submission:
    """Join the test predictions of fine-tuned GLUE tasks into the zip that GLUE's server takes.

    The server refuses a zip that lacks one of its eleven files. The files of tasks without a run hold the
    same answer for every example, and are listed: their scores mean nothing.
    """

    runs: tuple[Path, ...]
    """Folders that `bert-jax finetune` made for GLUE tasks, one for each task."""
    output: Path
    """Zip to make; it must not exist."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise UserError("--runs names no run; name one or more")


def run(args: Submission) -> None:
    """Writes the zip.

    Raises:
      UserError: no such run, a run without test predictions, two of one task, an output that exists.
    """
    from data_pipeline.tasks.glue_submission import (
        SUBMISSION_FILE,
        join_submissions,
        placeholders,
        write_submission,
    )

    check_new_file(args.output)
    for folder in args.runs:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder; --runs takes those that `bert-jax finetune` made")
    predicted = join_submissions(find_cell(folder) / SUBMISSION_FILE for folder in args.runs)
    for folder in args.runs:
        warn_if_unfinished(folder)
    filled = placeholders(predicted)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    write_submission(args.output, predicted | filled)
    print(f"predicted: {', '.join(sorted(predicted))}")
    if filled:
        print(f"not predicted, one answer throughout, which is no result: {', '.join(filled)}")
    print(f"wrote {args.output}")
