"""`bert-jax predict --model DIR --input FILE --output FILE`: a fine-tuned model on new data."""

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from bert_jax.cli.flags.predict import Predict
from bert_jax.tasks.finetuning.predictor import Predictor
from bert_jax.training.failures import out_of_memory_with_advice
from data_pipeline.checks import check_positive
from data_pipeline.directories import check_new_file, directory_of
from data_pipeline.errors import UserError

# An output file with one of these suffixes must have the suffix of the input, whose format it gets.
_FORMS = (".tsv", ".csv", ".jsonl", ".ndjson", ".json")


def run(args: Predict) -> None:
    """Predicts.

    Raises:
      UserError: no fine-tuned model, a file of another format, an output that exists; too little memory.
    """
    check_positive("--batch-size", args.batch_size)
    check_new_file(args.output)
    if not args.input.is_file():
        raise UserError(f"{args.input} is not a file")
    if args.output.suffix != args.input.suffix and args.output.suffix in _FORMS:
        raise UserError(f"{args.output} would be in the form of {args.input}; name one that ends as it does")
    display = _count_on_terminal()
    done = display.add_task("", total=None)
    predictor = Predictor(
        args.model, args.batch_size, lambda count: display.advance(done, count), args.encoding
    )
    with out_of_memory_with_advice("make --batch-size smaller"), directory_of(args.output), display:
        count = predictor.predict_file(args.input, args.output)
    print(f"{count:,} {'example' if count == 1 else 'examples'}: {args.output}")
    if predictor.cut_warning:
        print(f"warning: {predictor.cut_warning}")


def _count_on_terminal() -> Progress:
    """A running count of rows. Files are read in parts, so their total is unknown."""
    columns = TextColumn("{task.completed:,.0f} rows"), TimeElapsedColumn()
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
