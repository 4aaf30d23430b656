"""Documents as sentences: `sentencex` splits the paragraphs of text, in any of its languages."""

import re

import sentencex

from data_pipeline.errors import UserError
from data_pipeline.preparing.readers import Document

_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(-[a-z]+)*")


def split_sentences(document: Document, language: str) -> list[str]:
    """Returns the sentences of a document, without empty ones; no sentence extends over a line end."""
    if isinstance(document, list):
        return document
    segments = (segment for line in document.split("\n") for segment in sentencex.segment(language, line))
    return [sentence for segment in segments if (sentence := segment.strip())]


def check_language(language: str) -> None:
    """Raises UserError unless `language` looks like a code. Unknown codes, such as cn and jp, split as en."""
    if not _LANGUAGE_CODE.fullmatch(language):
        raise UserError(f"--language is {language!r}; it must be a code such as en, de, zh or pt-br")
