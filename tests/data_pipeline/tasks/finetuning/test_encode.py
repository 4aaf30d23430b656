"""Encoding: BERT's sequences, cut as google-research/bert cuts them, with text that is only text."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from bert_jax.formats.huggingface_tokenizer import make_tokenizer as make_model_tokenizer
from data_pipeline.corpus.tokenizer import load_tokenizer
from data_pipeline.corpus.vocabulary_file import read_vocabulary
from data_pipeline.errors import UserError
from data_pipeline.preparing.vocabulary import train_vocabulary
from data_pipeline.tasks.finetuning.encode import encode_pairs, encode_texts, make_task_tokenizer
from tests.data_pipeline.tasks.small_tokenizer import make_tokenizer, pieces, read_model_tokenizer


def test_a_text_stands_between_cls_and_sep(tmp_path):
    tokenizer = make_tokenizer(tmp_path)
    rows = encode_texts(tokenizer, ["a b c", "", "a b c d e f g h"], 8)
    assert [pieces(tokenizer, ids) for ids in rows.tokens["input_ids"]] == [
        "[CLS] a b c [SEP]",
        "[CLS] [SEP]",
        "[CLS] a b c d e f [SEP]",
    ]
    assert [ids.tolist() for ids in rows.tokens["segment_ids"]] == [[0] * 5, [0] * 2, [0] * 8]
    assert rows.num_cut == 1


def test_a_pair_has_two_segments_and_loses_of_the_longer_text(tmp_path):
    tokenizer = make_tokenizer(tmp_path)
    rows = encode_pairs(tokenizer, ["a b", "a b c d e f"], ["x y z", "x y"], 8)
    assert [pieces(tokenizer, ids) for ids in rows.tokens["input_ids"]] == [
        "[CLS] a b [SEP] x y z [SEP]",
        "[CLS] a b c [SEP] x y [SEP]",
    ]
    assert rows.tokens["segment_ids"][0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert rows.tokens["segment_ids"][1].tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert rows.num_cut == 1
    assert {values.dtype for values in (*rows.tokens["input_ids"], *rows.tokens["segment_ids"])} == {
        np.dtype(np.int32)
    }


def test_special_tokens_in_text_are_plain_text(tmp_path):
    model_tokenizer = read_model_tokenizer(tmp_path)
    tokenizer = make_task_tokenizer(model_tokenizer)
    assert pieces(tokenizer, tokenizer.encode(["a [MASK] b"])[0]) == "a [ mask ] b"
    # The model's own tokenizer, which fill-mask needs, is left as it was.
    assert "[MASK]" in model_tokenizer.encode("a [MASK] b").tokens


def test_a_tokenizer_that_splits_at_blanks_alone_finds_no_special_token_either():
    vocabulary = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "[MASK]": 4}
    blanks = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    blanks.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    blanks.enable_truncation(2)
    blanks.enable_padding(length=9)
    blanks.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer = make_task_tokenizer(blanks)
    assert tokenizer.encode(["a [MASK] [SEP] a"])[0].tolist() == [3, 0, 0, 3]
    assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.piece_id("[MASK]")) == (1, 2, 4)


def test_merges_make_no_special_token_of_text():
    pieces = {piece: number for number, piece in enumerate(("<unk>", "<s>", "</s>", "<", "s", ">", "s>"))}
    theirs = Tokenizer(models.BPE(pieces, [("s", ">"), ("<", "s>")], unk_token="<unk>"))
    assert theirs.encode("<s>").ids == [1]
    tokenizer = make_task_tokenizer(theirs)
    assert (tokenizer.cls_id, tokenizer.sep_id) == (1, 2)
    assert tokenizer.encode(["<s>"])[0].tolist() == [3, 6]


def test_sentencepiece_gives_the_ids_of_pretraining(tmp_path):
    words = ("stone", "river", "garden", "mask", "window", "cls", "[", "]")
    texts = [f"{a} {b} {c}" for a in words for b in words for c in words]
    train_vocabulary(texts, "sentencepiece", 100, "cased").save(tmp_path)
    tokenizer = make_task_tokenizer(make_model_tokenizer(read_vocabulary(tmp_path)))
    texts = ["stone [MASK] river", "[SEP]garden", "  two  blanks ", "[CLS]", "window, 好"]
    assert [ids.tolist() for ids in tokenizer.encode(texts)] == load_tokenizer(tmp_path).encode_batch(texts)


def test_a_vocabulary_and_a_length_that_cannot_do_are_refused(tmp_path):
    tokenizer = make_tokenizer(tmp_path)
    with pytest.raises(UserError, match="max_seq_length is 7; it must be 8 or more"):
        encode_texts(tokenizer, ["a"], 7)
    with pytest.raises(UserError, match="max_seq_length is 7; it must be 8 or more"):
        encode_pairs(tokenizer, ["a"], ["b"], 7)
    foreign = Tokenizer(models.WordPiece({"[UNK]": 0, "[CLS]": 1}, unk_token="[UNK]"))
    with pytest.raises(UserError, match=r"has no \[CLS\] or no \[SEP\]"):
        make_task_tokenizer(foreign)


def test_a_token_keeps_its_id_behind_a_special_one(tmp_path):
    model_tokenizer = read_model_tokenizer(tmp_path)
    model_tokenizer.add_tokens(["covid19"])
    size = model_tokenizer.get_vocab_size()
    assert make_task_tokenizer(model_tokenizer).encode(["a covid19"])[0][1] == size - 1
    without_mask = Tokenizer(models.WordPiece({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2}, unk_token="[UNK]"))
    without_mask.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    without_mask.add_special_tokens(["[MASK]"])
    without_mask.add_tokens(["covid20"])
    tokenizer = make_task_tokenizer(without_mask)
    assert tokenizer.encode(["[MASK] covid20"])[0].tolist() == [0, 4]


def test_a_special_token_that_somebody_added_is_found_in_text(tmp_path):
    model_tokenizer = read_model_tokenizer(tmp_path)
    model_tokenizer.add_special_tokens(["[E1]"])
    text = "a [E1] b [SEP]"
    tokenizer = make_task_tokenizer(model_tokenizer)
    assert pieces(tokenizer, tokenizer.encode([text])[0]) == "a [E1] b [ s ##e ##p ]"
    assert "[E1]" in model_tokenizer.encode(text).tokens


def test_a_pair_that_loses_tokens_of_both_texts_is_cut_once(tmp_path):
    assert encode_pairs(make_tokenizer(tmp_path), ["a b c d e"], ["a b c d e"], 8).num_cut == 1
