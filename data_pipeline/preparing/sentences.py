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
# Two letters: ISO 639-1, and bh, mo and sh, which it had once. Three letters: any.
_TWO_LETTERS = """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz
    ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik
    io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml
    mn mo mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc
    sd se sg sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz
    ve vi vo wa wo xh yi yo za zh zu
"""
_LANGUAGE_CODE = re.compile(rf"({'|'.join(_TWO_LETTERS.split())}|[a-z]{{3}})(-[a-z]+)*")


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
    """Raises UserError unless `language` is a code. Without rules for the language, text splits as en."""
    if not _LANGUAGE_CODE.fullmatch(language):
        raise UserError(
            f"--language is {language!r}; it must be a language's code of ISO 639 (not a country's), such as "
            f"en, ja (Japanese), zh (Chinese), cs (Czech), uk (Ukrainian) or pt-br"
        )
