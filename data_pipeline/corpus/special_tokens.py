"""The special tokens of a tokenizer, and how they stand around a text and a pair of texts.

BERT writes [CLS] A [SEP] B [SEP], RoBERTa <s> A </s></s> B </s>. All of it is in the tokenizer itself, so
that whoever has a `tokenizer.json` needs no other file.
"""

import dataclasses

from tokenizers import Encoding, Tokenizer

from data_pipeline.errors import UserError

_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
"""The names that each of the tokens has where the post-processor does not tell, BERT's first."""


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The five tokens that every model of this project's has, and the form of a pair."""

    pad: str = "[PAD]"
    unk: str = "[UNK]"
    cls: str = "[CLS]"
    sep: str = "[SEP]"
    mask: str = "[MASK]"
    between: tuple[str, ...] = ("[SEP]",)
    """What stands between the two texts of a pair."""
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
        return 2 + len(self.between)


def special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """The special tokens of a tokenizer; one that it lacks has BERT's name.

    What stands around a text, and the form of a pair, are its post-processor's. If that adds nothing, they
    are BERT's, or RoBERTa's for a tokenizer with <s> in place of [CLS].

    Raises UserError if the post-processor adds anything but one token before and one behind a text.
    """
    tokens = {
        role: next((name for name in names if tokenizer.token_to_id(name) is not None), names[0])
        for role, names in _NAMES.items()
    }
    if around := [token for token, _ in _added(tokenizer.encode(""))]:
        if len(around) != 2:
            raise UserError(
                f"the tokenizer adds {' '.join(around)} to a text; it must add one token before the text and "
                f"one behind it, as [CLS] and [SEP]"
            )
        tokens["cls"], tokens["sep"] = around
    cls, sep = tokens["cls"], tokens["sep"]
    pair = _added(tokenizer.encode("", ""))
    names = tuple(token for token, _ in pair)
    if len(names) > 2 and (names[0], names[-1]) == (cls, sep):
        between, segment = names[1:-1], pair[-1][1]
    else:
        between, segment = ((sep, sep), 0) if cls == "<s>" else ((sep,), 1)
    return SpecialTokens(**tokens, between=between, second_segment=segment)


def _added(encoding: Encoding) -> list[tuple[str, int]]:
    """The tokens that a post-processor has added, and their segments, without padding."""
    columns = (encoding.tokens, encoding.type_ids, encoding.special_tokens_mask, encoding.attention_mask)
    return [
        (token, segment)
        for token, segment, is_special, is_no_padding in zip(*columns, strict=True)
        if is_special and is_no_padding
    ]
