"""`bert-jax predict --model DIR --input FILE --output FILE`: a fine-tuned model on new data."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from bert_jax.cli.output_folder import folder_of
from bert_jax.config import check_positive
from data_pipeline.errors import UserError
from data_pipeline.folders import check_new_file

if TYPE_CHECKING:
    from rich.progress import Progress


# An output file with one of these suffixes must have the suffix of the input, whose format it gets.
_FORMS = (".tsv", ".csv", ".jsonl", ".ndjson", ".json")


@dataclasses.dataclass(frozen=True)
class Predict:
    """Apply a fine-tuned model to a file in the format of its task's data; labels are not needed.

    The output has the input's format: tables and tagged words gain columns, JSON gains a field
    "prediction", candidates are ranked.
    """

    model: Path
    """Folder that `bert-jax finetune` made."""
    input: Path
    """File in the format of the task's data."""
    output: Path
    """File to make; it must not exist."""
    batch_size: int = 64
    """Sequences to compute at once; the results do not depend on it."""


def run(args: Predict) -> None:
    """Predicts.

    Raises:
      UserError: no fine-tuned model, a file of another format, an output that exists; too little memory.
    """
    from bert_jax.downstream.predictor import Predictor
    from bert_jax.finetuning.finetuned import open_finetuned
    from bert_jax.training.failures import too_little_memory_named

    check_positive("batch_size", args.batch_size)
    check_new_file(args.output)
    if not args.input.is_file():
        raise UserError(f"{args.input} is not a file")
    if args.output.suffix != args.input.suffix and args.output.suffix in _FORMS:
        raise UserError(f"{args.output} would be in the form of {args.input}; name one that ends as it does")
    model = open_finetuned(args.model, args.batch_size)
    display = _count_on_terminal()
    done = display.add_task("", total=None)
    predictor = Predictor(model, lambda count: display.advance(done, count))
    with too_little_memory_named("make --batch-size smaller"), folder_of(args.output), display:
        count = predictor.predict_file(args.input, args.output)
    print(f"{count:,} {'example' if count == 1 else 'examples'}: {args.output}")
    if predictor.cut_warning:
        print(f"warning: {predictor.cut_warning}")


def _count_on_terminal() -> "Progress":
    """A running count of sequences. Files are read in parts, so their total is unknown."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.completed:,.0f} sequences"), TimeElapsedColumn()
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
