"""`bert-jax fill-mask --model DIR TEXT ...`: the likeliest tokens for each [MASK]."""

import dataclasses
from typing import Annotated

import tyro

from bert_jax.inference.model_source import ModelSource
from data_pipeline.errors import UserError


@dataclasses.dataclass(frozen=True)
class FillMask:
    """Guess the [MASK] tokens of texts, and print the likeliest tokens with their probabilities."""

    texts: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="TEXT...", help_behavior_hint="(required)"),
    ]
    """One or more texts, each with at least one [MASK]."""
    source: Annotated[ModelSource, tyro.conf.arg(name="")]
    top_k: Annotated[int, tyro.conf.arg(metavar="N")] = 5
    """Number of tokens to show for each [MASK]."""


def run(args: FillMask) -> None:
    """Fills all texts before printing any, so that a bad text prints only its error."""
    if not args.texts:
        raise UserError('no text; pass one or more, such as "Paris is a [MASK]."')
    if args.top_k < 1:
        raise UserError(f"--top-k is {args.top_k}; it must be at least 1")
    for text in args.texts:
        _check_unicode(text)
    from bert_jax.inference.fill_mask import fill_mask

    model = args.source.open()
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
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(text), title_justify="left")
    for number in range(1, len(masks) + 1):
        table.add_column("token" if len(masks) == 1 else f"[MASK] {number}".replace("[", r"\["))
        table.add_column("probability", justify="right")
    for row in zip(*masks, strict=True):
        table.add_row(*(cell for token, share in row for cell in (Text(token), f"{share:.1%}")))
    Console().print(table)
