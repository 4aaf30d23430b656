"""The text that models are compared on: whole words cut, masked and chosen alike for all vocabularies."""

from pathlib import Path

import numpy as np
import pytest

from data_pipeline.corpus.documents import Corpus, open_corpus
from data_pipeline.corpus.tokenizer import Tokenizer, WordPiece
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS
from data_pipeline.preparing.vocabulary import train_byte_bpe, train_sentencepiece
from data_pipeline.pretraining import heldout_text as module
from data_pipeline.pretraining.heldout_text import HeldoutText, fold, read_heldout_text
from tests.data_pipeline.small_corpus import random_documents, write_corpus

LETTERS = [*"abcdefghijklmnopqrstuvwxyz0123456789.,'-"]
SENTENCES = (
    "the cats' tails, well-kept, were 3.5 inches; they weren't long.",
    "a cat sat on the caf\u00e9's mat, and another cat sat on the cats' mat.",
    "what the cat saw in 1999 was a \u2603 on the mat, as cats do.",
)
DOCUMENTS = [[SENTENCES[(number + i) % 3] for i in range(1 + number % 7)] for number in range(40)]


def make_corpus(directory: Path, tokenizer: Tokenizer) -> Corpus:
    documents = [tokenizer.encode_batch(document) for document in DOCUMENTS]
    write_corpus(directory, [documents[:3]], [documents[3:20], documents[20:]], tokenizer)
    return open_corpus(directory, "heldout")


def make_tokenizer(kind: str) -> Tokenizer:
    if kind == "byte_bpe":
        return train_byte_bpe([*SENTENCES] * 50, 400, "uncased")
    if kind == "sentencepiece":
        return train_sentencepiece([text.replace("\u2603", "") for text in SENTENCES] * 50, 75, "uncased")
    words = "cat cats the ##s sat mat tail" if kind == "words" else ""
    pieces = [*LETTERS, *(f"##{letter}" for letter in LETTERS), *words.split()]
    return WordPiece([*SPECIAL_TOKENS, *dict.fromkeys(pieces)], "uncased")


def chosen_words(corpus: Corpus, text: HeldoutText) -> list[str]:
    """For each document the text of its chosen words, joined, so that it does not matter how they are cut."""
    tokens = corpus.tokenizer.tokens
    found = [""] * int(text.documents[-1] + 1)
    for row, chosen in enumerate(text.is_of_chosen_word):
        pieces = [tokens[i] for i in text.sequences.input_ids[row, chosen]]
        found[text.documents[row]] += "".join(map(corpus.tokenizer.text_of, pieces))
    return [fold(words) for words in found]


@pytest.mark.parametrize("kind", ["words", "sentencepiece", "byte_bpe"])
def test_the_same_words_are_chosen_for_all_vocabularies(tmp_path: Path, kind: str) -> None:
    corpora = [make_corpus(tmp_path / name, make_tokenizer(name)) for name in ("letters", kind)]
    texts = [read_heldout_text(corpus, 32) for corpus in corpora]
    assert texts[0].is_of_chosen_word.sum() > texts[1].is_of_chosen_word.sum() + 100
    found = [chosen_words(corpus, text) for corpus, text in zip(corpora, texts, strict=True)]
    # Byte-level BPE has pieces such as "'t".
    same = [[text.replace("'", "") for text in words] for words in found]
    assert same[0] == same[1] == found[0]
    for corpus, text, words in zip(corpora, texts, found, strict=True):
        accents = 0 if corpus.tokenizer.kind == "wordpiece" else "".join(words).count("cafe")
        assert text.num_bytes[text.is_of_chosen_word].sum() == len("".join(words)) + accents


def test_about_15_percent_of_the_words_are_chosen_and_others_of_the_next_document(tmp_path: Path) -> None:
    tokenizer = WordPiece([*SPECIAL_TOKENS, *(f"w{i}" for i in range(9))], "uncased")
    documents = [[[5 + i % 9 for i in range(100)]]] * 100
    write_corpus(tmp_path, [], [documents], tokenizer)
    text = read_heldout_text(open_corpus(tmp_path, "heldout"), 102)
    assert text.is_of_chosen_word.mean() * 102 == pytest.approx(15, abs=2)
    assert len(np.unique(text.is_of_chosen_word, axis=0)) == 100


def test_sequences_hold_the_documents_and_end_with_a_word(tmp_path: Path) -> None:
    write_corpus(tmp_path, [], [random_documents(12, 1)])
    corpus = open_corpus(tmp_path, "heldout")
    text = read_heldout_text(corpus, 24)
    ids, special = text.sequences.input_ids, corpus.tokenizer
    assert np.all(ids[:, 0] == special.cls_id)
    assert np.all(ids[np.arange(len(ids)), text.sequences.ends - 1] == special.sep_id)
    for document in range(12):
        start, stop = corpus.sentence_starts[corpus.document_starts[[document, document + 1]]]
        rows = text.documents == document
        np.testing.assert_array_equal(ids[rows][text.is_text[rows]], corpus.read(start, stop)[:1000])
        # Random ids have no word of 22 pieces, so that a word begins each sequence but a document's first.
        assert not special.continues_word[ids[rows, 1][1:]].any()
    assert text.sequences.ends.mean() > 18


def test_a_long_word_is_cut(tmp_path: Path) -> None:
    tokenizer = make_tokenizer("letters")
    ids = tokenizer.encode("a " + "b" * 20 + " c")
    write_corpus(tmp_path, [], [[[ids]]], tokenizer)
    text = read_heldout_text(open_corpus(tmp_path, "heldout"), 10)
    assert text.sequences.ends.tolist() == [3, 10, 10, 7]
    np.testing.assert_array_equal(text.sequences.input_ids[text.is_text], ids)


def test_long_documents_are_cut_and_documents_are_spread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = make_tokenizer("words")
    documents = [tokenizer.encode_batch([f"cats {number} the cats sat."]) for number in range(10, 20)]
    write_corpus(tmp_path, [], [documents], tokenizer)
    monkeypatch.setattr(module, "_MOST_WORDS", 3)
    text = read_heldout_text(open_corpus(tmp_path, "heldout"), 32, 3)
    rows = [tokenizer.decode(ids[is_text]) for ids, is_text in zip(
        text.sequences.input_ids, text.is_text, strict=True)]  # fmt: skip
    assert rows == ["cats 10 the", "cats 13 the", "cats 16 the"]


def test_an_unknown_piece_has_no_text_and_is_in_no_chosen_word(tmp_path: Path) -> None:
    for kind in ("words", "sentencepiece"):
        corpus = make_corpus(tmp_path / kind, make_tokenizer(kind))
        text = read_heldout_text(corpus, 32)
        is_unknown = text.sequences.input_ids == corpus.tokenizer.unk_id
        assert is_unknown.any()
        assert not text.num_bytes[is_unknown].any()
        assert not text.is_known[is_unknown].any()
        assert not text.is_of_chosen_word[is_unknown].any()
        np.testing.assert_array_equal(text.is_known, text.is_text & ~is_unknown)


def test_masks_depend_on_the_corpus_alone(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path / "a", make_tokenizer("words"))
    first, again = read_heldout_text(corpus, 32), read_heldout_text(corpus, 32)
    masked, same = first.mask_tokens(), again.mask_tokens()
    np.testing.assert_array_equal(masked.input_ids, same.input_ids)
    np.testing.assert_array_equal(masked.predicted, same.predicted)
    assert not (masked.predicted & ~first.is_text).any()
    expected = np.minimum(np.maximum(np.round(first.sequences.ends * 0.15), 1), first.is_text.sum(axis=1))
    np.testing.assert_array_equal(masked.predicted.sum(axis=1), expected)
    is_mask = masked.input_ids == corpus.tokenizer.mask_id
    assert is_mask[masked.predicted].mean() == pytest.approx(0.8, abs=0.05)
    changed = masked.input_ids != first.sequences.input_ids
    assert not (changed & ~masked.predicted).any()
    all_masked = first.mask_all(masked.predicted)
    np.testing.assert_array_equal(all_masked.input_ids == corpus.tokenizer.mask_id, masked.predicted)


def test_words_are_folded_alike_with_and_without_case_and_accents() -> None:
    assert fold("CAF\u00c9") == fold("cafe\u0301") == "cafe"


def test_a_sequence_is_full_where_a_word_ends_at_its_last_column(tmp_path):
    tokenizer = WordPiece([*SPECIAL_TOKENS, *(f"w{i}" for i in range(9))], "uncased")
    write_corpus(tmp_path, [], [[[[5 + i % 9 for i in range(25)]]]], tokenizer)
    text = read_heldout_text(open_corpus(tmp_path, "heldout"), 12)
    assert text.sequences.ends.tolist() == [12, 12, 7]
