"""Tokenizers: what they promise about text, files and learning."""

import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece

from bert_jax.formats.huggingface_tokenizer import make_tokenizer
from data_pipeline.corpus.tokenizer import load_tokenizer, load_vocabulary
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS, Vocabulary, read_records_vocabulary
from data_pipeline.errors import UserError
from data_pipeline.preparing.vocabulary import sample_texts, train_vocabulary

PIECES = [
    *SPECIAL_TOKENS,
    "un",
    "##aff",
    "##able",
    "hello",
    "mask",
    "[",
    "]",
    "!",
    "\u2028x",
    "好",
    "Hello",
    "é",
]

TEXTS = [
    f"The {noun} of {place} was {verb} by the old king in the year {year}, or so they say in {place}."
    for noun in ("castle", "bridge", "harbour", "library", "tower", "garden")
    for place in ("Lyon", "Porto", "Århus", "Kraków", "Ghent")
    for verb in ("built", "burned", "painted", "forgotten")
    for year in range(1400, 1440, 7)
]


def write_vocabulary(path: Path, pieces: list[str]) -> Path:
    path.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    return path


def train_model(directory: Path, **changes: object) -> Path:
    """A SentencePiece model with the options of docs/preparing.md, but for `changes`."""
    options = {
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "pad_piece": "[PAD]",
        "unk_piece": "[UNK]",
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "vocab_size": 64,
        **changes,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_prefix=str(directory / "spm"), minloglevel=2, **options
    )
    return directory / "spm.model"


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    return write_vocabulary(tmp_path / "vocab.txt", PIECES)


def test_encodes_by_longest_match_and_decodes(vocabulary):
    tokenizer = load_vocabulary(vocabulary, "uncased")
    ids = tokenizer.encode("Hello unaffable 好!")
    assert [tokenizer.id_to_token(i) for i in ids] == ["hello", "un", "##aff", "##able", "好", "!"]
    assert tokenizer.decode(ids) == "hello unaffable 好!"
    assert tokenizer.encode_batch(["", "hello"]) == [[], [tokenizer.token_to_id("hello")]]


def test_casing_decides_what_a_capital_becomes(vocabulary):
    assert load_vocabulary(vocabulary, "cased").encode("Hello") == [PIECES.index("Hello")]
    assert load_vocabulary(vocabulary, "uncased").encode("Hello") == [PIECES.index("hello")]


def test_accents_are_stripped_only_when_uncased(vocabulary):
    assert load_vocabulary(vocabulary, "cased").encode("é") == [PIECES.index("é")]
    assert load_vocabulary(vocabulary, "uncased").encode("é") == [PIECES.index("[UNK]")]


def test_text_never_becomes_a_special_token(vocabulary):
    tokenizer = load_vocabulary(vocabulary, "uncased")
    assert [tokenizer.id_to_token(i) for i in tokenizer.encode("[MASK]")] == ["[", "mask", "]"]


def test_a_word_beyond_100_characters_is_unknown(vocabulary):
    tokenizer = load_vocabulary(vocabulary, "uncased")
    assert tokenizer.encode("un" + "able" * 24)[0] == tokenizer.token_to_id("un")
    assert tokenizer.encode("un" + "able" * 25) == [tokenizer.unk_id]


def test_ids_are_line_numbers_whatever_characters_a_line_holds(vocabulary):
    tokenizer = load_vocabulary(vocabulary, "cased")
    assert tokenizer.tokens == tuple(PIECES)
    assert tokenizer.vocab_size == len(PIECES)


def test_continues_word_marks_pieces_inside_words(vocabulary):
    tokenizer = load_vocabulary(vocabulary, "uncased")
    inside = [tokenizer.id_to_token(i) for i in tokenizer.continues_word.nonzero()[0]]
    assert inside == ["##aff", "##able"]


@pytest.mark.parametrize("missing", SPECIAL_TOKENS)
def test_refuses_a_vocabulary_without_a_special_token(tmp_path, missing):
    pieces = [piece for piece in PIECES if piece != missing]
    with pytest.raises(UserError, match=rf"vocab\.txt has no \[{missing[1:-1]}\];"):
        load_vocabulary(write_vocabulary(tmp_path / "vocab.txt", pieces), "uncased")


def test_refuses_what_is_not_a_vocabulary(tmp_path):
    with pytest.raises(UserError, match=r"absent\.txt is not a file"):
        load_vocabulary(tmp_path / "absent.txt", "cased")
    (tmp_path / "latin.txt").write_bytes(b"[PAD]\nna\xefve\n")
    with pytest.raises(UserError, match="not UTF-8 at byte 8"):
        load_vocabulary(tmp_path / "latin.txt", "cased")
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\nna\xefve\n")
    with pytest.raises(UserError, match=rf"^{tmp_path}/vocab\.txt is not UTF-8 at byte 8"):
        read_records_vocabulary(str(tmp_path / "*.tfrecord"))
    (tmp_path / "empty.model").touch()
    with pytest.raises(UserError, match=r"empty\.model is not a SentencePiece model"):
        load_vocabulary(tmp_path / "empty.model", "cased")
    (tmp_path / "broken.model").write_bytes(b"not a model")
    with pytest.raises(UserError, match="not a SentencePiece model"):
        load_vocabulary(tmp_path / "broken.model", "cased")


def test_ids_need_32_bits_beyond_65536_pieces(tmp_path):
    pieces = [*SPECIAL_TOKENS, *(f"w{i}" for i in range((1 << 16) - 5))]
    assert load_vocabulary(write_vocabulary(tmp_path / "a.txt", pieces), "cased").id_dtype == "uint16"
    pieces.append("more")
    assert load_vocabulary(write_vocabulary(tmp_path / "b.txt", pieces), "cased").id_dtype == "uint32"


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
@pytest.mark.parametrize("casing", ["cased", "uncased"])
def test_learns_saves_and_loads(tmp_path, kind, casing):
    learned = train_vocabulary(TEXTS, kind, 160, casing)
    assert learned.tokens[:5] == SPECIAL_TOKENS
    assert 50 < learned.vocab_size <= 160
    learned.save(tmp_path / "tokenizer")
    loaded = load_tokenizer(tmp_path / "tokenizer")
    text = "The castle of Kraków was painted in 1421."
    assert loaded.encode(text) == learned.encode(text)
    assert (loaded.sha256, loaded.casing, loaded.kind) == (learned.sha256, casing, kind)
    assert loaded.unk_id not in loaded.encode(text)
    plain = text.lower().replace("ó", "o") if kind == "wordpiece" else text.lower()
    assert loaded.decode(loaded.encode(text)) == (text if casing == "cased" else plain)


def test_a_byte_of_sentencepiece_is_a_part_of_a_character(tmp_path):
    model = train_model(tmp_path, vocab_size=400, byte_fallback=True, hard_vocab_limit=False)
    tokenizer = load_vocabulary(model, "cased")
    assert tokenizer.text_of("<0xE3>") == "\ufffd"


@pytest.mark.parametrize("text", ["古い城は王が建てた", "ปราสาทเก่าแก่"])
def test_pieces_are_words_where_text_has_no_spaces(text):
    learned = train_vocabulary([text, *TEXTS], "sentencepiece", 160, "cased")
    ids = learned.encode(text)
    assert len(ids) > 3
    assert not learned.continues_word[ids].any()
    after_space = [learned.follows_space(learned.id_to_token(index)) for index in ids]
    assert after_space == [True, *(len(ids) - 1) * [False]], "as the text is written"


def test_sentencepiece_words_begin_with_the_blank(tmp_path):
    learned = train_vocabulary(TEXTS, "sentencepiece", 160, "cased")
    assert not learned.continues_word[learned.encode("The castle")[0]]
    assert not learned.continues_word[list(range(5))].any()
    assert learned.continues_word.any()
    assert learned.token_to_id("no such piece") is None
    assert learned.encode("[MASK]") != [learned.mask_id]


def test_refuses_another_casing_than_the_sentencepiece_model_has(tmp_path):
    train_vocabulary(TEXTS, "sentencepiece", 160, "cased").save(tmp_path)
    with pytest.raises(UserError, match=r"spiece\.model is cased, not uncased; leave --casing out"):
        load_vocabulary(tmp_path / "spiece.model", "uncased")


def test_refuses_a_sentencepiece_model_that_exports_cannot_rebuild(tmp_path):
    model = train_model(tmp_path, model_type="bpe", vocab_size=100)
    with pytest.raises(UserError, match=r"vocabulary .*spm\.model is .* but not a unigram one"):
        load_vocabulary(model, "cased")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("treat_whitespace_as_suffix", True),
        ("add_dummy_prefix", False),
        ("remove_extra_whitespaces", False),
    ],
)
def test_refuses_blanks_that_exports_cannot_rebuild(tmp_path, setting, value):
    model = train_model(tmp_path, **{setting: value})
    message = f"with {setting}={str(value).lower()}; only {setting}={str(not value).lower()} is supported"
    with pytest.raises(UserError, match=rf"vocabulary .*spm\.model is a SentencePiece model {message}"):
        load_vocabulary(model, "cased")
    with pytest.raises(UserError, match=f"the model's vocabulary is a SentencePiece model {message}"):
        make_tokenizer(Vocabulary("sentencepiece", "cased", model.read_bytes()))


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, None),
        ({"control_symbols": ["[SEP]", "[MASK]"], "bos_id": 2, "bos_piece": "[CLS]"}, None),
        ({"control_symbols": ["[CLS]", "[SEP]"], "user_defined_symbols": ["[MASK]"]}, r"\[MASK\]"),
        (
            {"control_symbols": [], "user_defined_symbols": ["[CLS]", "[SEP]", "[MASK]"]},
            r"\[CLS\], \[SEP\], \[",
        ),
        ({"unk_piece": "<unk>", "user_defined_symbols": ["[UNK]"]}, r"\[UNK\]"),
    ],
)
def test_text_can_become_no_special_token_of_a_sentencepiece_model(tmp_path, changes, wrong):
    model = train_model(tmp_path, **changes)
    if wrong is None:
        tokenizer = load_vocabulary(model, "cased")
        assert not set(tokenizer.encode(" ".join(SPECIAL_TOKENS))) & {0, *range(2, 5)}
    else:
        with pytest.raises(
            UserError, match=rf"spm\.model has {wrong}.* as symbols of text; .* control symbols"
        ):
            load_vocabulary(model, "cased")


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_learning_again_in_another_process_gives_the_same_vocabulary(kind):
    """Hash seeds and thread counts differ between processes; the vocabulary must not."""
    program = (
        "from tests.data_pipeline.corpus.test_tokenizer import TEXTS\n"
        "from data_pipeline.preparing.vocabulary import train_vocabulary\n"
        f"print(train_vocabulary(TEXTS, {kind!r}, 160, 'uncased').sha256)"
    )
    root = Path(__file__).parents[3]
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": str(seed), "RAYON_NUM_THREADS": str(1 + seed), "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
            cwd=root,
        ).stdout
        for seed in range(3)
    }
    assert len(hashes) == 1


def test_rare_characters_do_not_crowd_out_a_small_vocabulary():
    han = "".join(map(chr, range(0x4E00, 0x4E00 + 400)))
    learned = train_vocabulary([*TEXTS, han], "wordpiece", 160, "uncased")
    assert sum(len(token) == 1 for token in learned.tokens) <= 0.75 * 160
    assert learned.unk_id not in learned.encode("the castle of lyon")


def test_lines_too_long_for_sentencepiece_are_learned_from_in_pieces():
    long = "Ωμέγα " * 3000
    assert len(long.encode()) > 16384 > len(long) // 2
    learned = train_vocabulary([long, *TEXTS], "sentencepiece", 160, "cased")
    assert learned.unk_id not in learned.encode("Ωμέγα")


def test_sentencepiece_that_cannot_hold_the_alphabet_is_a_user_error():
    letters = [" ".join(map(chr, range(0x4E00, 0x4E00 + 400)))] * 3
    with pytest.raises(UserError, match="SentencePiece cannot learn 120 pieces"):
        train_vocabulary(letters, "sentencepiece", 120, "cased")


def test_sample_is_bounded_and_takes_the_lowest_hashes():
    texts = [((i * 2654435761) % 1000, f"{i:04d}") for i in range(1000)]
    kept = sample_texts(iter(texts), 400)
    assert 50 <= len(kept) <= 100
    lowest = sorted(texts)[: len(kept)]
    assert sorted(kept) == sorted(text for _, text in lowest)
    assert sample_texts(iter([(7, "same")] * 50), 40)
