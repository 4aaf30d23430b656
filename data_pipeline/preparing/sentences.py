"""Documents as sentences: `sentencex` splits the paragraphs of text, in any of its languages."""

import itertools
import re
from collections.abc import Iterator

import sentencex

from data_pipeline.errors import UserError
from data_pipeline.preparing.readers import Document

# Characters to split at once: in some languages the time grows with the square of their number.
AT_ONCE = 10_000
_WIDE_BLANK = re.compile(r"[^\S\x00-\x7f]")
_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(-[a-z]+)*")


def split_sentences(document: Document, language: str) -> list[str]:
    """Returns the sentences of a document, without empty ones; no sentence extends over a line end.

    Raises UserError if `sentencex` fails.
    """
    if isinstance(document, list):
        return document
    segments = (segment for line in document.split("\n") for segment in _segments(line, language))
    return [sentence for segment in segments if (sentence := segment.strip())]


def _segments(line: str, language: str) -> Iterator[str]:
    """The sentences of a line with the blanks between them, which together are the line."""
    start, size = 0, AT_ONCE
    while start < len(line):
        segments = _segment(line[start : start + size], language)
        if start + size < len(line):
            if len(segments) == 1:
                size *= 2
                continue
            segments.pop()  # it may go on
        yield from segments
        start, size = start + sum(map(len, segments)), AT_ONCE


def _segment(text: str, language: str) -> list[str]:
    # One such as U+00A0 between a capital and a full stop makes sentencex fail. It counts as one character.
    plain = _WIDE_BLANK.sub(" ", text)
    try:
        segments = sentencex.segment(language, plain)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust, which is no Exception
            raise
        raise UserError(
            f"sentencex cannot split the text {text[:60]!r}; change it, or give it as --format sentences"
        ) from None
    ends = list(itertools.accumulate(map(len, segments)))
    return [text[end - len(segment) : end] for end, segment in zip(ends, segments, strict=True)]


def check_language(language: str) -> None:
    """Raises UserError unless `language` looks like a code. Unknown codes, such as cn and jp, split as en."""
    if not _LANGUAGE_CODE.fullmatch(language):
        raise UserError(f"--language is {language!r}; it must be a code such as en, de, zh or pt-br")
