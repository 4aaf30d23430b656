"""Learning a vocabulary from text, so that the same documents always give the same vocabulary."""

import collections
import io
import math
import re
from collections.abc import Iterable, Iterator

import sentencepiece
from tokenizers import models, pre_tokenizers, trainers

from data_pipeline.corpus.byte_bpe import as_vocabulary, byte_normalizer, new_byte_bpe
from data_pipeline.corpus.tokenizer import ByteBPE, SentencePiece, Tokenizer, WordPiece
from data_pipeline.corpus.vocabulary_file import (
    CLS,
    MASK,
    PAD,
    SEP,
    SPECIAL_TOKENS,
    UNK,
    Casing,
    TokenizerKind,
)
from data_pipeline.corpus.wordpiece import bert_normalizer, make_wordpiece
from data_pipeline.errors import UserError
from data_pipeline.preparing.cutting import cut_line

# Bytes of text to learn from. Counting words for WordPiece is cheap; SentencePiece's suffix array is not.
SAMPLE_BYTES: dict[TokenizerKind, int] = {
    "wordpiece": 64 << 20,
    "sentencepiece": 16 << 20,
    "byte_bpe": 64 << 20,
}

SMALLEST_VOCABULARY: dict[TokenizerKind, int] = {
    "wordpiece": 100,
    "sentencepiece": 100,
    "byte_bpe": len(SPECIAL_TOKENS) + 256,
}
LARGEST_VOCABULARY = 1_000_000
"""The trainer takes memory for as many pieces as it may learn."""

# Rarer characters become [UNK]; otherwise a few odd documents fill a small vocabulary with their letters.
_CHARACTER_COVERAGE = 0.9999
_LARGEST_ALPHABET = 0.75  # fraction of the vocabulary

# SentencePiece sums floats per thread, so another number of threads would give another vocabulary.
_SENTENCEPIECE_THREADS = 8
_SENTENCEPIECE_LONGEST_LINE = 16384  # bytes; it leaves out longer ones
_MOST_BYTES = 4  # of a character


def train_vocabulary(texts: Iterable[str], kind: TokenizerKind, vocab_size: int, casing: Casing) -> Tokenizer:
    """Learns at most `vocab_size` pieces from `texts`. Raises UserError if they are too few for the text."""
    match kind:
        case "wordpiece":
            return train_wordpiece(texts, vocab_size, casing)
        case "sentencepiece":
            return train_sentencepiece(texts, vocab_size, casing)
        case "byte_bpe":
            return train_byte_bpe(texts, vocab_size, casing)


def train_wordpiece(texts: Iterable[str], vocab_size: int, casing: Casing) -> WordPiece:
    """Learns WordPiece with Hugging Face's trainer; special tokens have ids 0 to 4."""
    texts = list(texts)
    pieces = _alphabet(texts, casing, int(vocab_size * _LARGEST_ALPHABET))
    alphabet = [piece for piece in pieces if len(piece) == 1]
    learner = make_wordpiece((), casing)
    # The trainer numbers "##x" pieces in the order of a hash table, which differs from run to run, and
    # breaks ties between merges by these numbers. Passing the pieces in advance fixes their numbers.
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIAL_TOKENS, *pieces],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    ids = learner.get_vocab(with_added_tokens=False)
    return WordPiece(sorted(ids, key=ids.__getitem__), casing)


def train_sentencepiece(texts: Iterable[str], vocab_size: int, casing: Casing) -> SentencePiece:
    """Learns a unigram model (Kudo 2018) on NFKC text, case-folded if uncased; special tokens: ids 0 to 4.

    Raises UserError if SentencePiece cannot learn that many pieces from the text.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_lines(texts),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=_CHARACTER_COVERAGE,
            normalization_rule_name="nmt_nfkc_cf" if casing == "uncased" else "nmt_nfkc",
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece=PAD,
            unk_piece=UNK,
            control_symbols=[CLS, SEP, MASK],
            max_sentence_length=_SENTENCEPIECE_LONGEST_LINE,
            num_threads=_SENTENCEPIECE_THREADS,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[-1]
        if least := re.search(r"smaller than required_chars\. \d+ vs (\d+)", reason):
            reason = f"its characters and the special tokens need {least[1]}"
        raise UserError(
            f"SentencePiece cannot learn {vocab_size} pieces from this text ({reason}); "
            f"give another --vocab-size or more text"
        ) from error
    return SentencePiece(model.getvalue())


def train_byte_bpe(texts: Iterable[str], vocab_size: int, casing: Casing) -> ByteBPE:
    """Learns byte-level BPE with Hugging Face's trainer; special tokens have ids 0 to 4, bytes the next."""
    learner = new_byte_bpe(models.BPE(), byte_normalizer(casing))
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    return ByteBPE(as_vocabulary(learner))


def sample_texts(texts: Iterable[tuple[int, str]], limit: int) -> list[str]:
    """Returns the texts with the smallest hashes, about `limit` bytes at most, in their original order.

    `texts` are pairs of a 64-bit hash and a text. At most twice the limit is held in memory at any time.
    """
    kept: list[tuple[int, str]] = []
    size, threshold = 0, 1 << 64
    for digest, text in texts:
        if digest >= threshold:
            continue
        kept.append((digest, text))
        size += len(text.encode())
        if size > limit:
            middle = sorted(digest for digest, _ in kept)[len(kept) // 2]
            threshold = max(middle, 1)
            kept = [row for row in kept if row[0] < threshold] or kept[:1]
            size = sum(len(text.encode()) for _, text in kept)
    return [text for _, text in kept]


def check_vocab_size(vocab_size: int, kind: TokenizerKind) -> None:
    """Raises UserError if `vocab_size` is not one for which a vocabulary can be learned."""
    smallest = SMALLEST_VOCABULARY[kind]
    if not smallest <= vocab_size <= LARGEST_VOCABULARY:
        raise UserError(
            f"--vocab-size is {vocab_size}; it must be from {smallest} to {LARGEST_VOCABULARY} for {kind}"
        )


def _alphabet(texts: Iterable[str], casing: Casing, limit: int) -> list[str]:
    """The pieces "x" and "##x" of the characters that cover nearly all of the normalised texts."""
    raw = collections.Counter[str]()
    for text in texts:
        raw.update(text)
    normalizer = bert_normalizer(casing)
    counts = collections.Counter[str]()
    for character, count in raw.items():
        for normal in normalizer.normalize_str(character).split():
            counts.update(dict.fromkeys(normal, count))
    needed = math.ceil(counts.total() * _CHARACTER_COVERAGE)
    pieces: list[str] = []
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if needed <= 0 or len(pieces) + 2 > limit:
            break
        pieces += [character, f"##{character}"] if _continues_words(character) else [character]
        needed -= count
    return sorted(pieces)


def _continues_words(character: str) -> bool:
    """Whether a character can follow a letter inside a word; punctuation and Han characters cannot."""
    text = bert_normalizer("cased").normalize_str(f"a{character}")
    return len(pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)) == 1


def _lines(texts: Iterable[str]) -> Iterator[str]:
    """Yields the lines for SentencePiece to learn from; those too long for it are cut into pieces."""
    for text in texts:
        for line in filter(None, text.split("\n")):
            if len(line.encode()) <= _SENTENCEPIECE_LONGEST_LINE:
                yield line
            else:
                yield from cut_line(line, _SENTENCEPIECE_LONGEST_LINE // _MOST_BYTES)
