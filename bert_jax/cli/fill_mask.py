"""`bert-jax fill-mask --model DIR TEXT ...`: the likeliest tokens for each [MASK]."""

from collections.abc import Sequence

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
        print(text)
        for found in masks:
            print(f"  {list_guesses(found)}")


def _check_unicode(text: str) -> None:
    """Raises UserError if an argument is not UTF-8: Python turns such bytes into lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(f"the text {text!r} is not UTF-8; write it in UTF-8") from None


def list_guesses(guesses: Sequence[tuple[str, float]]) -> str:
    """Tokens with their probabilities in one line, in quotes since a token may be a comma."""
    return ", ".join(f'"{token}" {probability:.1%}' for token, probability in guesses)
