"""Encodes texts and pairs of texts as models read them: [CLS] A [SEP] and [CLS] A [SEP] B [SEP] for BERT.

[CLS] and [SEP] stand for a model's own tokens of these roles (`data_pipeline/corpus/special_tokens.py`).

Special tokens in a text are plain text, as they were in pretraining: a literal "[MASK]" is a bracket, a word
and a bracket. Hugging Face's tokenizers make it one id, so that a text could smuggle in a separator. Tokens
that were added to a tokenizer, such as "[E1]", are meant to be found in text and are.
"""

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from data_pipeline.corpus.special_tokens import SpecialTokens, special_tokens
from data_pipeline.corpus.truncation import truncated_lengths
from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.rows import Rows

# BERT's normalizers remove NUL, and byte-level tokenizers write it as another character, so no text matches a
# NUL followed by a special token.
_UNMATCHABLE = "\x00"
_TEXTS_AT_ONCE = 4096
_SHORTEST = 8


@dataclasses.dataclass(frozen=True)
class TaskTokenizer:
    """A model's tokenizer, and a copy that takes its special tokens in text for plain text."""

    original: Tokenizer
    tokenizer: Tokenizer
    """The copy, without special tokens; it neither cuts nor pads."""
    special: SpecialTokens
    cls_id: int
    sep_id: int
    before_words: str = ""
    """What stands before a word within a text where it belongs to the word's pieces: a blank for byte-level
    tokenizers."""

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """int32 [T_i] for each text: its ids without special tokens."""
        ids = []
        for first in range(0, len(texts), _TEXTS_AT_ONCE):
            part = list(texts[first : first + _TEXTS_AT_ONCE])
            encodings = self.tokenizer.encode_batch_fast(part, add_special_tokens=False)
            ids += [np.array(encoding.ids, np.int32) for encoding in encodings]
        return ids

    def encode_words(self, words: Sequence[str]) -> list[np.ndarray]:
        """int32 [T_i] for each word, or part of a text, its ids as they are within a text."""
        return self.encode([self.before_words + word if word else word for word in words])

    def piece_id(self, piece: str) -> int | None:
        """The id of a piece; None if the vocabulary lacks it."""
        return self.original.token_to_id(piece)


def make_task_tokenizer(tokenizer: Tokenizer) -> TaskTokenizer:
    """The `TaskTokenizer` of a model's tokenizer, which is left unchanged.

    Raises UserError if the vocabulary has no [CLS] or [SEP].
    """
    special = special_tokens(tokenizer)
    cls_id, sep_id = tokenizer.token_to_id(special.cls), tokenizer.token_to_id(special.sep)
    if cls_id is None or sep_id is None:
        raise UserError(f"the model's vocabulary has no {special.cls} or no {special.sep}; BERT needs both")
    settings = json.loads(tokenizer.to_str())
    settings["added_tokens"] = _hide_added(settings["added_tokens"], settings["model"], special.names)
    settings |= {"post_processor": None, "truncation": None, "padding": None}
    settings["model"] = _hide_pieces(settings["model"], special.names)
    plain = Tokenizer.from_str(json.dumps(settings))
    is_of_bytes = '"ByteLevel"' in json.dumps(settings["pre_tokenizer"])
    return TaskTokenizer(tokenizer, plain, special, cls_id, sep_id, " " if is_of_bytes else "")


def encode_texts(
    tokenizer: TaskTokenizer,
    texts: Sequence[str],
    max_length: int,
    targets: Mapping[str, np.ndarray] | None = None,
    sequences_per_row: int = 1,
) -> Rows:
    """[CLS] A [SEP] for each text; the end of a text that is too long is cut off.

    Raises UserError if `max_length` is below 8.
    """
    check_length(max_length)
    room = max_length - tokenizer.special.in_text
    ids = tokenizer.encode(texts)
    input_ids = [join(tokenizer, a[:room]) for a in ids]
    segment_ids = [np.zeros_like(a) for a in input_ids]
    num_cut = sum(len(a) > room for a in ids)
    return make_rows(input_ids, segment_ids, num_cut, targets, sequences_per_row)


def encode_pairs(
    tokenizer: TaskTokenizer,
    firsts: Sequence[str],
    seconds: Sequence[str],
    max_length: int,
    targets: Mapping[str, np.ndarray] | None = None,
) -> Rows:
    """[CLS] A [SEP] B [SEP] for each pair; a pair that is too long loses tokens of its longer text first.

    Raises UserError if `max_length` is below 8.
    """
    check_length(max_length)
    pairs = list(zip(tokenizer.encode(firsts), tokenizer.encode(seconds), strict=True))
    lengths = np.array([(len(a), len(b)) for a, b in pairs], np.int64).reshape(-1, 2)
    kept = np.stack(
        truncated_lengths(lengths[:, 0], lengths[:, 1], max_length - tokenizer.special.in_pair), axis=-1
    )
    return make_rows(
        [join(tokenizer, a[:m], b[:n]) for (a, b), (m, n) in zip(pairs, kept, strict=True)],
        [pair_segments(tokenizer, m, n) for m, n in kept],
        int((kept < lengths).any(axis=-1).sum()),
        targets,
    )


def join(tokenizer: TaskTokenizer, *texts: np.ndarray) -> np.ndarray:
    """int32: [CLS] A [SEP] of one text's ids, [CLS] A [SEP] B [SEP] of two; some models have more between."""
    cls, sep = np.array([[tokenizer.cls_id], [tokenizer.sep_id]], np.int32)
    between = np.array([tokenizer.piece_id(token) for token in tokenizer.special.between], np.int32)
    parts = [part for text in texts for part in (between, text)][1:]
    return np.concatenate([cls, *parts, sep]).astype(np.int32)


def pair_segments(tokenizer: TaskTokenizer, first: int, second: int) -> np.ndarray:
    """int32: the segment of each token of `join` for two texts of `first` and `second` tokens."""
    special = tokenizer.special
    segments = np.array([0, special.second_segment], np.int32)
    return np.repeat(segments, [1 + first + len(special.between), second + 1])


def check_length(max_length: int) -> None:
    """Raises UserError if sequences of `max_length` tokens leave no room for text."""
    if max_length < _SHORTEST:
        raise UserError(f"max_seq_length is {max_length}; it must be {_SHORTEST} or more")


def make_rows(
    input_ids: Sequence[np.ndarray],
    segment_ids: Sequence[np.ndarray],
    num_cut: int,
    targets: Mapping[str, np.ndarray] | None = None,
    sequences_per_row: int = 1,
) -> Rows:
    """One row per example, with `sequences_per_row` consecutive sequences each.

    Args:
      input_ids: int32 [T_i] each, from [CLS] to [SEP].
      segment_ids: int32 [T_i] each: 0 for [CLS] A [SEP], 1 for B [SEP].
      num_cut: number of texts that were too long and lost tokens.
      targets: an array [R, ...] each; None for texts to predict.
    """
    return Rows(
        tokens={"input_ids": input_ids, "segment_ids": segment_ids},
        targets=targets or {},
        example=np.arange(len(input_ids) // sequences_per_row, dtype=np.int32),
        sequences_per_row=sequences_per_row,
        num_cut=num_cut,
    )


def _hide_added(
    added_tokens: Sequence[dict[str, Any]], model: Mapping[str, Any], names: Collection[str]
) -> list[dict[str, Any]]:
    """A tokenizer's added tokens without those of `names`; one that the model lacks leaves its id taken."""
    vocabulary = model["vocab"]
    pieces = {piece for piece, _ in vocabulary} if isinstance(vocabulary, list) else vocabulary.keys()
    return [
        added | {"content": _UNMATCHABLE + added["content"]} if added["content"] in names else added
        for added in added_tokens
        if added["content"] not in names or added["content"] not in pieces
    ]


def _hide_pieces(model: dict[str, Any], pieces: Collection[str]) -> dict[str, Any]:
    """A tokenizer's model that finds none of `pieces` in text; all ids stay the same.

    BERT's own pre-tokenizer splits brackets from words, but a unigram model would find "[MASK]" whole.
    """
    vocabulary = model["vocab"]
    hidden = {piece: _UNMATCHABLE + piece for piece in pieces if piece != model.get("unk_token")}
    if isinstance(vocabulary, list):
        return model | {"vocab": [[hidden.get(piece, piece), score] for piece, score in vocabulary]}
    found = model | {"vocab": {hidden.get(piece, piece): index for piece, index in vocabulary.items()}}
    if "merges" in model:
        found["merges"] = [
            pair for pair in model["merges"] if hidden.keys().isdisjoint((*pair, "".join(pair)))
        ]
    return found
