"""Texts as ids with each piece's place in the text, so that predictions are slices of the text itself."""

import dataclasses
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from data_pipeline.tasks.finetuning.encode import TaskTokenizer

_TEXTS_AT_ONCE = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class Pieces:
    """A text as N pieces."""

    ids: np.ndarray
    """int32 [N]"""
    starts: np.ndarray
    """int32 [N]: first character of each piece; with SentencePiece this can be the blank before a word."""
    ends: np.ndarray
    """int32 [N]: end (exclusive) of each piece, including combining marks that follow its last character."""

    def __len__(self) -> int:
        return len(self.ids)


def split_texts(tokenizer: TaskTokenizer, texts: Sequence[str]) -> Iterator[Pieces]:
    """The pieces of each text, without special tokens."""
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        batch = list(texts[first : first + _TEXTS_AT_ONCE])
        encodings = tokenizer.tokenizer.encode_batch(batch, add_special_tokens=False)
        for text, encoding in zip(batch, encodings, strict=True):
            places = np.array(encoding.offsets, np.int32).reshape(-1, 2)
            ends = _with_marks(text, places[:, 0], places[:, 1])
            yield Pieces(np.array(encoding.ids, np.int32), places[:, 0], ends)


def _with_marks(text: str, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The ends of pieces, moved past combining marks that are in no piece.

    A tokenizer that strips accents drops these marks, so its offsets would cut them off the end of an answer.
    """
    marks = {character for character in set(text) if unicodedata.category(character).startswith("M")}
    if not marks:
        return ends
    moved = ends.copy()
    for piece, bound in enumerate([*starts[1:], len(text)][: len(ends)]):
        while moved[piece] < bound and text[moved[piece]] in marks:
            moved[piece] += 1
    return moved
