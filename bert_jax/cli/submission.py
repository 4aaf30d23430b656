"""`bert-jax submission --runs DIR... --output FILE`: one zip for GLUE's server from several runs."""

from bert_jax.cli.flags.submission import Submission
from bert_jax.workdir.grid import find_trial, warn_if_unfinished
from data_pipeline.directories import check_new_file, directory_of
from data_pipeline.errors import UserError
from data_pipeline.tasks.glue.submission import (
    SUBMISSION_FILE,
    join_submissions,
    placeholders,
    write_submission,
)


def run(args: Submission) -> None:
    """Writes the zip.

    Raises:
      UserError: no such run, a run without test predictions, two of one task, an output that exists.
    """
    check_new_file(args.output)
    for directory in args.runs:
        if not directory.is_dir():
            raise UserError(
                f"{directory} is not a directory; --runs takes those that `bert-jax finetune` made"
            )
    predicted = join_submissions(find_trial(directory) / SUBMISSION_FILE for directory in args.runs)
    for directory in args.runs:
        warn_if_unfinished(directory)
    filled = placeholders(predicted)
    with directory_of(args.output):
        write_submission(args.output, predicted | filled)
    print(f"predicted: {', '.join(sorted(predicted))}")
    if filled:
        tasks = ", ".join(filled)
        print(f"no predictions, filled with one constant answer (their scores mean nothing): {tasks}")
    print(f"wrote {args.output}")
