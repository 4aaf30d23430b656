"""Texts as ids with the place of each piece in the text, so that predictions are cut from the text itself."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from tokenizers import Tokenizer

from data_pipeline.errors import UserError

_TEXTS_AT_ONCE = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class Pieces:
    """A text as N pieces."""

    ids: np.ndarray
    """int32 [N]"""
    starts: np.ndarray
    """int32 [N]: the first character of each piece; in SentencePiece it can be the blank before it."""
    ends: np.ndarray
    """int32 [N]: the character after each piece."""

    def __len__(self) -> int:
        return len(self.ids)


def make_plain_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """A copy to which special tokens in a text are plain text, as in BERT: "[SEP]" is "[", "sep", "]"."""
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.encode_special_tokens = True
    plain.no_truncation()
    plain.no_padding()
    return plain


def split_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[Pieces]:
    """The pieces of each text, without special tokens. `tokenizer` is of `make_plain_tokenizer`."""
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        batch = list(texts[first : first + _TEXTS_AT_ONCE])
        for encoding in tokenizer.encode_batch(batch, add_special_tokens=False):
            places = np.array(encoding.offsets, np.int32).reshape(-1, 2)
            yield Pieces(np.array(encoding.ids, np.int32), places[:, 0], places[:, 1])


def special_ids(tokenizer: Tokenizer, *names: str) -> tuple[int, ...]:
    """The ids of special tokens. Raises UserError naming one that the vocabulary lacks."""
    ids = tuple(tokenizer.token_to_id(name) for name in names)
    if None in ids:
        raise UserError(
            f"the model's vocabulary has no {names[ids.index(None)]}; it must have {', '.join(names)}"
        )
    return ids
