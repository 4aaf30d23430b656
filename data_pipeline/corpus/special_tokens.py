"""The special tokens of a tokenizer, and how they stand around a text and a pair of texts.

BERT writes [CLS] A [SEP] B [SEP], RoBERTa <s> A </s></s> B </s>. All of it is in the tokenizer itself, so
that whoever has a `tokenizer.json` needs no other file.
"""

import dataclasses
from typing import Any

from tokenizers import Tokenizer

_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
"""The names that each of the tokens may have, BERT's first."""


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The five tokens that every model of this project's has, and the form of a pair."""

    pad: str = "[PAD]"
    unk: str = "[UNK]"
    cls: str = "[CLS]"
    sep: str = "[SEP]"
    mask: str = "[MASK]"
    separators: int = 1
    """How many `sep` stand between the two texts of a pair."""
    second_segment: int = 1
    """Segment of the second text of a pair and the `sep` behind it; that of all other tokens is 0."""

    @property
    def names(self) -> tuple[str, ...]:
        """The five tokens."""
        return self.pad, self.unk, self.cls, self.sep, self.mask

    @property
    def in_text(self) -> int:
        """How many of them stand around one text."""
        return 2

    @property
    def in_pair(self) -> int:
        """How many of them stand around and between two texts."""
        return 2 + self.separators


def special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """The special tokens of a tokenizer; one that it lacks has BERT's name.

    The form of a pair is that of its post-processor. If it has none, or one that adds other tokens, it is
    BERT's, or RoBERTa's for a tokenizer with <s> in place of [CLS].
    """
    tokens: dict[str, Any] = {
        role: next((name for name in names if tokenizer.token_to_id(name) is not None), names[0])
        for role, names in _NAMES.items()
    }
    encoding = tokenizer.encode("", "")
    added = [
        (token, segment)
        for token, segment, is_special in zip(
            encoding.tokens, encoding.type_ids, encoding.special_tokens_mask, strict=True
        )
        if is_special
    ]
    names = [token for token, _ in added]
    if names[:1] == [tokens["cls"]] and set(names[1:]) == {tokens["sep"]}:
        separators, segment = len(names) - 2, added[-1][1]
    else:
        separators, segment = (1, 1) if tokens["cls"] == "[CLS]" else (2, 0)
    return SpecialTokens(**tokens, separators=separators, second_segment=segment)
