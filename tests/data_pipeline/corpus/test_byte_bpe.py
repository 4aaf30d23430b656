"""Byte-level BPE: what a piece is, where words begin, and which files of others are taken."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from bert_jax.cli.main import main
from bert_jax.formats.huggingface_tokenizer import make_tokenizer
from data_pipeline.corpus.byte_bpe import piece_bytes
from data_pipeline.corpus.tokenizer import ByteBPE, load_tokenizer, load_vocabulary
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS, read_vocabulary
from data_pipeline.errors import UserError
from data_pipeline.preparing.vocabulary import train_byte_bpe
from tests.data_pipeline.corpus.test_tokenizer import TEXTS

TEXT = "The castle of Kraków was painted, or so they say: [MASK] 😀 古い!"
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


@pytest.fixture(scope="module")
def learned() -> ByteBPE:
    return train_byte_bpe(TEXTS, 400, "cased")


def foreign(specials: list[str] = ROBERTA, **rules: object) -> Tokenizer:
    """A tokenizer as RoBERTa's authors, or GPT-2's, would have made it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **rules})
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def altered(part: str, **changes: object) -> Tokenizer:
    """A tokenizer with other settings in a part of its file."""
    spec = json.loads(foreign().to_str())
    return Tokenizer.from_str(json.dumps({**spec, part: {**spec[part], **changes}}))


def test_every_text_comes_back_and_nothing_is_unknown(learned):
    ids = learned.encode(TEXT)
    assert learned.decode(ids) == TEXT
    assert not {learned.unk_id, learned.mask_id} & set(ids)
    assert learned.tokens[:5] == SPECIAL_TOKENS
    assert b"".join(piece_bytes(learned.id_to_token(i)) for i in ids) == f" {TEXT}".encode()


def test_uncased_text_has_no_capitals_but_accents(learned):
    uncased = train_byte_bpe(TEXTS, 400, "uncased")
    assert uncased.decode(uncased.encode("ÅRHUS")) == "århus"
    assert (uncased.casing, learned.casing) == ("uncased", "cased")


def test_learning_gives_the_same_vocabulary_again(learned, tmp_path):
    assert train_byte_bpe(TEXTS, 400, "cased").sha256 == learned.sha256
    learned.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert (loaded.kind, loaded.sha256, loaded.tokens) == ("byte_bpe", learned.sha256, learned.tokens)


def test_a_word_has_the_same_ids_wherever_it_stands_and_begins_with_the_blank(learned):
    first, again = learned.encode("castle castle")
    assert first == again
    assert not learned.continues_word[first]
    ids = learned.encode("castles unpaintedly")
    words = "".join(
        "|" * (not learned.continues_word[i]) + learned.text_of(learned.id_to_token(i)) for i in ids
    )
    assert words == "|castles|unpaintedly"


def test_pieces_are_words_where_text_has_no_spaces(learned):
    ids = learned.encode("古い城は")
    beginnings = [i for i in ids if not learned.continues_word[i]]
    # The blank, and each character's first byte.
    assert len(beginnings) == 5
    assert len(train_byte_bpe(["古い城は"] * 9, 300, "cased").encode("古い城は")) < len(ids)


def test_exports_mask_a_word_with_its_blank(learned, tmp_path):
    learned.save(tmp_path)
    exported = make_tokenizer(read_vocabulary(tmp_path))
    text = "The [MASK] was painted in [MASK]."
    ids = exported.encode(text, add_special_tokens=False).ids
    before, between = learned.encode("The"), learned.encode("was painted in")
    stop = learned.token_to_id(".")
    assert ids == [*before, learned.mask_id, *between, learned.mask_id, stop]


def test_takes_robertas_files_and_keeps_the_ids(tmp_path):
    theirs = foreign()
    theirs.save(str(tmp_path / "tokenizer.json"))
    theirs.model.save(str(tmp_path))
    ours = load_vocabulary(tmp_path / "tokenizer.json", "cased")
    assert (ours.cls_id, ours.pad_id, ours.sep_id, ours.unk_id, ours.mask_id) == (0, 1, 2, 3, 4)
    assert ours.encode(TEXT) == theirs.encode(f" {TEXT}").ids
    assert load_vocabulary(tmp_path / "vocab.json", "cased").sha256 == ours.sha256
    assert ours.encode("<mask>") != [ours.mask_id]


def test_prepares_with_the_vocabulary_of_a_models_directory(tmp_path):
    theirs = foreign()
    theirs.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    (tmp_path / "model").mkdir()
    theirs.save(str(tmp_path / "model" / "tokenizer.json"))
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": "roberta"}))
    (tmp_path / "text.txt").write_text("\n\n".join(TEXTS))
    flags = ["prepare", str(tmp_path / "text.txt"), "--format", "sentences", "--workers", "1"]
    for vocab in ("model", "model/tokenizer.json"):
        made = tmp_path / Path(vocab).name
        output = f"{made.with_suffix('')}-corpus"
        assert main([*flags, "--vocab", str(tmp_path / vocab), "--output", output]) == 0
    assert (
        load_tokenizer(tmp_path / "model-corpus" / "tokenizer").encode(TEXT)
        == theirs.encode(f" {TEXT}").ids[1:-1]
    )


@pytest.mark.parametrize(
    ("tokenizer", "fault"),
    [
        (foreign(["<pad>"]), r"has no \[UNK\], \[CLS\], \[SEP\], \[MASK\]; BERT needs"),
        (foreign(use_regex=False), r"its pre-tokenizer \(ByteLevel\) does not split by GPT-2's rules"),
        (Tokenizer(models.WordLevel({"a": 0}, "a")), "its model is WordLevel, not WordPiece or byte-level"),
        (altered("pre_tokenizer", type="Sequence", pretokenizers=[]), r"its pre-tokenizer \(none\) does not"),
        (altered("model", ignore_merges=True), "its model BPE has ignore_merges true"),
        (Tokenizer(models.BPE({"a": 0}, [])), r"its pre-tokenizer \(none\) does not split by GPT-2's"),
    ],
)
def test_refuses_other_tokenizers(tmp_path, tokenizer, fault):
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match=rf"tokenizer\.json .*{fault}"):
        load_vocabulary(tmp_path / "tokenizer.json", "cased")


def test_refuses_damaged_files_and_another_casing(tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer\.json cannot be read: "):
        load_vocabulary(file, "cased")
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(UserError, match=r"vocab\.json has no merges\.txt beside it"):
        load_vocabulary(tmp_path / "vocab.json", "cased")
    lowering = foreign()
    lowering.normalizer = normalizers.Lowercase()
    lowering.save(str(file))
    assert load_vocabulary(file, None).casing == "uncased"
    with pytest.raises(UserError, match="is uncased, not cased; leave --casing out"):
        load_vocabulary(file, "cased")
    lacking = json.loads(lowering.to_str())
    index = lacking["model"]["vocab"].pop("ÿ")
    lacking["model"]["vocab"]["[more]"] = index
    file.write_text(json.dumps(lacking))
    with pytest.raises(UserError, match="it lacks 1 of the 256 bytes, such as 'ÿ'"):
        load_vocabulary(file, "uncased")
