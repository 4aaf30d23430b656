"""Which tokenizers of others are taken, and that the rule is named because of which one is not."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from data_pipeline.corpus.tokenizer import load_vocabulary
from data_pipeline.corpus.tokenizer_json import find_fault
from data_pipeline.corpus.tokenizer_rules import find_difference
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS
from data_pipeline.corpus.wordpiece import make_wordpiece
from data_pipeline.errors import UserError
from data_pipeline.preparing.vocabulary import train_byte_bpe

PIECES = [*SPECIAL_TOKENS, "the", "The", "##re"]


def with_part(part: str, value: Any) -> Tokenizer:
    tokenizer = make_wordpiece(PIECES, "cased")
    setattr(tokenizer, part, value)
    return tokenizer


def with_model(**settings: Any) -> Tokenizer:
    spec = json.loads(make_wordpiece(PIECES, "cased").to_str())
    return Tokenizer.from_str(json.dumps({**spec, "model": {**spec["model"], **settings}}))


def test_takes_wordpiece_with_the_casing_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    for casing, piece in (("cased", "The"), ("uncased", "the")):
        tokenizer = make_wordpiece(PIECES, casing)
        tokenizer.normalizer = normalizers.Sequence([tokenizer.normalizer])  # the same rules
        tokenizer.add_tokens(["added"])
        tokenizer.save(str(file))
        loaded = load_vocabulary(file, None)
        assert (loaded.kind, loaded.casing, loaded.tokens) == ("wordpiece", casing, tuple(PIECES))
        assert loaded.encode("There") == [PIECES.index(piece), PIECES.index("##re")]
    with pytest.raises(UserError, match=r"tokenizer\.json is uncased, not cased; leave --casing out"):
        load_vocabulary(file, "cased")


@pytest.mark.parametrize(
    ("tokenizer", "fault"),
    [
        (
            with_part(
                "pre_tokenizer",
                pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.BertPreTokenizer()]),
            ),
            "its pre-tokenizer is Digits and BertPreTokenizer, not BertPreTokenizer",
        ),
        (with_part("normalizer", normalizers.NFKC()), "its normalizer is NFKC, not BertNormalizer"),
        (with_model(max_input_chars_per_word=50), "WordPiece has max_input_chars_per_word 50, not 100"),
        (
            with_model(continuing_subword_prefix="@@"),
            'WordPiece has continuing_subword_prefix "@@", not "##"',
        ),
        (with_model(unk_token="[PAD]"), r'WordPiece has unk_token "\[PAD\]", not "\[UNK\]"'),
        (with_model(vocab={"[UNK]": 0, "a": 2}), "it has 2 pieces, whose ids are not 0 to 1"),
        (Tokenizer(models.Unigram([("a", 0.0)], 0)), "its model is Unigram, not WordPiece or byte-level BPE"),
    ],
)
def test_names_the_rule_that_it_does_not_have(tmp_path: Path, tokenizer: Tokenizer, fault: str) -> None:
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(
        UserError, match=rf"the tokenizer in .*tokenizer\.json cannot be followed: .*{fault}$"
    ):
        load_vocabulary(tmp_path / "tokenizer.json", None)


def test_merges_and_scores_may_go_on_but_not_differ() -> None:
    longer, shorter = (
        Tokenizer.from_str(train_byte_bpe(["the castle", "there"] * 9, size, "cased").content.decode())
        for size in (270, 265)
    )
    assert find_fault(longer) is None
    assert find_difference(longer, shorter) is None
    spec = json.loads(longer.to_str())
    spec["model"]["merges"].reverse()
    assert "its model BPE has another merges" in str(
        find_difference(longer, Tokenizer.from_str(json.dumps(spec)))
    )
    longer.normalizer = None
    assert find_difference(longer, shorter) == "its normalizer is none, not NFC"
    scores = ([("a", -1.0), ("b", -2.0)], [("a", -1.0)], [("a", -3.0)])
    first, same, other = (Tokenizer(models.Unigram(pieces, 0)) for pieces in scores)
    assert find_difference(first, same) is None
    assert "its model Unigram has vocab" in str(find_difference(first, other))
