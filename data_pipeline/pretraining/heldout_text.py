"""Held-out text on which models of all settings are compared: the same sequences, masks and words.

A sequence is [CLS] text [SEP], of one document. Documents, masks and words depend on the corpus, the length
of the sequences and constants of this module, and on no setting of a run. Words do not depend on the
vocabulary either: corpora made from the same text with two vocabularies have the same documents held out and
the same words chosen in them.

The text is what the ids say. WordPiece loses which blanks there were, uncased vocabularies lose case and
accents, and all lose the text of unknown pieces ([UNK], SentencePiece's bytes, parts of characters in
byte-level BPE). A word with an unknown piece is not chosen; a vocabulary that knows it may choose it. Pieces
of byte-level BPE may hold more than a word: the "t" of "don't" is chosen together with its apostrophe.

Shapes: N sequences, T columns.
"""

import collections
import dataclasses
import hashlib
import itertools
import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_pipeline.config import MaskingConfig
from data_pipeline.corpus.byte_bpe import piece_bytes
from data_pipeline.corpus.documents import Corpus
from data_pipeline.corpus.tokenizer import BYTE_PIECE, Tokenizer
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS
from data_pipeline.pretraining.masking import mask_sequences, num_mask_draws, text_positions
from data_pipeline.pretraining.pairs import Sequences, Spans, write_sequences

MAX_DOCUMENTS = 500

# Long documents are cut, so that books count no more than articles and take no longer.
_MOST_WORDS = 500
_MASKING = MaskingConfig()
_FRACTION_OF_WORDS = 0.15
_SEED = 0

_UNKNOWN = "\ufffd"
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Letters and digits up to a blank or a punctuation mark, and each Han character by itself: what all
# vocabularies agree on. An unknown piece is taken along.
_WORD = re.compile(rf"[{_HAN}]|(?:[^\W_{_HAN}]|{_UNKNOWN})+")


class Masked(NamedTuple):
    """The text with some of its tokens hidden."""

    input_ids: NDArray[np.int32]
    """[N, T], corrupted."""
    predicted: NDArray[np.bool_]
    """[N, T], which tokens are to be predicted."""


@dataclasses.dataclass(frozen=True, eq=False)
class HeldoutText:
    """The held-out documents that models are compared on, as sequences."""

    tokenizer: Tokenizer
    sequences: Sequences
    documents: NDArray[np.int64]
    """[N], of which of the chosen documents a sequence is; ascending from 0, each has one or more."""
    is_of_chosen_word: NDArray[np.bool_]
    """[N, T]"""
    num_bytes: NDArray[np.int64]
    """[N, T], of each token's text in UTF-8, without blanks; 0 for special and unknown tokens."""
    is_known: NDArray[np.bool_]
    """[N, T], which tokens of the text are no unknown pieces."""

    @property
    def is_text(self) -> NDArray[np.bool_]:
        """[N, T]: False at [CLS], [SEP] and padding."""
        return text_positions(self.sequences)

    def mask_tokens(self) -> Masked:
        """15% of each sequence's tokens drawn; of these 80% are [MASK], 10% random ids, 10% as they were."""
        rows, length = self.sequences.input_ids.shape
        slots = max(1, round(_MASKING.rate * length))
        draws = num_mask_draws(length, slots, _MASKING.unit)
        # The raw words of the generator stay the same in all versions of numpy.
        bits = np.random.Philox(key=_SEED).random_raw(rows * draws) >> np.uint64(32)
        masked = mask_sequences(
            self.sequences,
            bits.astype(np.uint32).reshape(rows, draws),
            _MASKING,
            slots,
            self.tokenizer.continues_word,
            self.tokenizer.mask_id,
        )
        predicted = np.zeros((rows, length), bool)
        row, slot = np.nonzero(masked["masked_lm_weights"])
        predicted[row, masked["masked_lm_positions"][row, slot]] = True
        return Masked(masked["input_ids"], predicted)

    def mask_all(self, predicted: NDArray[np.bool_]) -> Masked:
        """[MASK] at all tokens to predict, [N, T]."""
        ids = np.where(predicted, self.tokenizer.mask_id, self.sequences.input_ids)
        return Masked(ids.astype(np.int32), predicted)


def read_heldout_text(corpus: Corpus, length: int, max_documents: int = MAX_DOCUMENTS) -> HeldoutText:
    """The first 500 words of evenly spaced documents.

    Args:
      corpus: the held-out split.
      length: T, most tokens of a sequence, at least 3. Sequences end where a word does, if one fits.
      max_documents: all are taken if there are fewer.
    """
    spellings = [_spelling(corpus.tokenizer, token) for token in corpus.tokenizer.tokens]
    count = min(max_documents, corpus.num_documents)
    starts, lengths, documents, chosen = [], [], [], []
    for document, number in enumerate((np.arange(count) * corpus.num_documents // count).tolist()):
        start, stop = corpus.sentence_starts[corpus.document_starts[[number, number + 1]]].tolist()
        ids, of_chosen = _choose_words(corpus.read(start, stop), spellings, number)
        for first, last in _cut(corpus.tokenizer.continues_word[ids], length - 2):
            starts.append(start + first)
            lengths.append(last - first)
            documents.append(document)
            chosen.append(of_chosen[first:last])
    sequences = _write(corpus, np.array(starts), np.array(lengths), length)
    is_of_chosen_word = np.zeros(sequences.input_ids.shape, bool)
    for row, values in zip(is_of_chosen_word, chosen, strict=True):
        row[1 : 1 + len(values)] = values
    ids = sequences.input_ids
    sizes = np.array([len(text.strip().encode()) for text in spellings])
    is_known = text_positions(sequences) & np.array([_UNKNOWN not in text for text in spellings])[ids]
    return HeldoutText(
        tokenizer=corpus.tokenizer,
        sequences=sequences,
        documents=np.array(documents),
        is_of_chosen_word=is_of_chosen_word,
        num_bytes=np.where(is_known, sizes[ids], 0),
        is_known=is_known,
    )


def _spelling(tokenizer: Tokenizer, token: str) -> str:
    """The text of a piece, after a blank if a word begins with it."""
    if token in SPECIAL_TOKENS:
        # WordPiece's unknown piece is a whole word, others are a part of one.
        return f" {_UNKNOWN}" if tokenizer.kind == "wordpiece" else _UNKNOWN
    if tokenizer.kind == "byte_bpe":
        return _text_of_bytes(token)
    if tokenizer.kind == "sentencepiece":
        return _UNKNOWN if BYTE_PIECE.fullmatch(token) else token.replace("\u2581", " ")
    return f" {token}" if tokenizer.follows_space(token) else token.removeprefix("##")


def _text_of_bytes(token: str) -> str:
    try:
        return piece_bytes(token).decode()
    except UnicodeDecodeError:
        return _UNKNOWN  # a part of a character


def _choose_words(
    ids: np.ndarray, spellings: list[str], document: int
) -> tuple[np.ndarray, NDArray[np.bool_]]:
    """A document's ids up to its 500th word, and which of them are pieces of the chosen words."""
    pieces = [spellings[index] for index in ids.tolist()]
    columns = np.cumsum([0, *map(len, pieces)])  # of each piece's first character
    words = [*itertools.islice(_WORD.finditer("".join(pieces)), _MOST_WORDS + 1)]
    end = len(ids)
    if len(words) > _MOST_WORDS:
        end = int(np.searchsorted(columns, words[_MOST_WORDS].start(), side="right")) - 1
    of_chosen = np.zeros(len(ids), bool)
    for word in _chosen(words[:_MOST_WORDS], document):
        first, last = np.searchsorted(columns, (word.start(), word.end() - 1), side="right") - 1
        of_chosen[first : last + 1] = True
    return ids[:end], of_chosen[:end]


def _chosen(words: list[re.Match[str]], document: int) -> Iterator[re.Match[str]]:
    """Some of a document's words, by a hash of the word, its occurrence and the document's number.

    The place among all words would not do: it depends on what a vocabulary makes of symbols before.
    """
    seen = collections.Counter[str]()
    for word in words:
        folded = fold(word.group())
        key = f"{_SEED} {document} {seen[folded]} {folded}"
        seen[folded] += 1
        digest = hashlib.blake2b(key.encode(), digest_size=4).digest()
        if int.from_bytes(digest) < _FRACTION_OF_WORDS * 2**32 and _UNKNOWN not in folded:
            yield word


def fold(text: str) -> str:
    """Without case and accents, so that cased and uncased vocabularies agree."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")


def _cut(continues_word: NDArray[np.bool_], room: int) -> Iterator[tuple[int, int]]:
    """Stretches [first, last) of at most `room` tokens, which begin with a word unless one is longer."""
    beginnings = np.flatnonzero(~continues_word)
    first = 0
    while first < len(continues_word):
        last = min(first + room, len(continues_word))
        if last < len(continues_word):
            words = beginnings[(beginnings > first) & (beginnings <= last)]
            last = int(words[-1]) if len(words) else last
        yield first, last
        first = last


def _write(corpus: Corpus, starts: np.ndarray, lengths: np.ndarray, length: int) -> Sequences:
    nothing = np.zeros_like(starts)
    no, label = nothing.astype(bool), nothing.astype(np.int32)
    return write_sequences(corpus, Spans(starts, lengths, nothing, nothing, label, no, no), length)
