"""`bert-jax fill-mask --model DIR TEXT ...`: the likeliest tokens for each [MASK]."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bert_jax.cli.flags.fill_mask import FillMask
from bert_jax.cli.model_source import open_source
from bert_jax.inference.fill_mask import fill_mask
from data_pipeline.checks import check_positive
from data_pipeline.errors import UserError


def run(args: FillMask) -> None:
    """Fills all texts before printing any, so that a bad text prints only its error."""
    if not args.texts:
        raise UserError('no text; pass one or more, such as "Paris is a [MASK]."')
    check_positive("--top-k", args.top_k)
    for text in args.texts:
        _check_unicode(text)
    model = open_source(args.source)
    guesses = [fill_mask(model, text, args.top_k) for text in args.texts]
    for text, masks in zip(args.texts, guesses, strict=True):
        print_guesses(text, masks)


def _check_unicode(text: str) -> None:
    """Raises UserError if an argument is not UTF-8: Python turns such bytes into lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(f"the text {text!r} is not UTF-8; write it in UTF-8") from None


def print_guesses(text: str, masks: list[list[tuple[str, float]]]) -> None:
    """Prints what `fill_mask` returned for a text, as a table with a pair of columns for each [MASK]."""
    table = Table()
    for number in range(1, len(masks) + 1):
        table.add_column(Text("token" if len(masks) == 1 else f"[MASK] {number}"))
        table.add_column("probability", justify="right")
    for row in zip(*masks, strict=True):
        table.add_row(*(cell for token, probability in row for cell in (Text(token), f"{probability:.1%}")))
    console = Console(highlight=False)
    console.print(text, markup=False)
    console.print(table)
