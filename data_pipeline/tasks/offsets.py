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


def special_id(tokenizer: Tokenizer, name: str) -> int:
    """The id of a special token. Raises UserError if the vocabulary lacks it."""
    index = tokenizer.token_to_id(name)
    if index is None:
        raise UserError(f"the vocabulary has no {name}; a model to fine-tune must have it")
    return index
