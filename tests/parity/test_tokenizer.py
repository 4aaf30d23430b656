"""WordPiece ids against Hugging Face's two BERT tokenizers and a transcription of the algorithm.

Real text comes from the directory in BERT_JAX_TEST_DATA (text/wiki_en, text/wiki_zh and vocab/), if set;
the hard cases are always there.
"""

import itertools
import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from data_pipeline.corpus.tokenizer import load_vocabulary
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS, Casing
from data_pipeline.preparing.vocabulary import train_wordpiece

pytestmark = pytest.mark.parity

DIRECTORY = "BERT_JAX_TEST_DATA"
LINES = 20_000

PUBLISHED: list[tuple[str, Casing]] = [
    ("bert-base-uncased", "uncased"),
    ("bert-base-cased", "cased"),
    ("bert-base-chinese", "uncased"),
    ("bert-base-multilingual-cased", "cased"),
]
needs_directory = pytest.mark.skipif(not os.environ.get(DIRECTORY), reason=f"{DIRECTORY} names no directory")

HARD = [
    "",
    " \t ",
    "Hello, World! It's 3.14 o'clock -- isn't it?",
    "Ça va? naïve façade Ångström ﬁne Straße ΑΒΓ ǅ İstanbul ñandú",
    "Việt Nam, Zażółć gęślą jaźń, žluťoučký kůň",
    "😀 family 👨‍👩‍👧‍👦 flag 🇩🇪 ok👍🏽end",
    "null\x00 bell\x07 tab\tnewline\nreturn\rdel\x7f soft\u00adhyphen bom\ufeff bad\ufffd nel\x85end",
    "no\u00a0break\u2003em\u3000ideographic\u200bzero\u2028line\u2029paragraph",
    "a" * 100,
    "a" * 101,
    "x" * 300 + " y",
    "ab" * 150 + "," + "cd" * 50,
    "中文字符混合English和123数字。繁體字：測試！",
    "カタカナひらがな漢字 한국어 조선말 \U00020000\U0002a6d7",
    "العربية עברית हिन्दी ไทย தமிழ் ქართული",
    "snake_case $100 50% #tag @user a+b=c <tag> `code` ~x^2 | {y} \\n",
    "…—–“quotes”‘single’ «guillemets» ¿qué? ¡sí! ‰ § ¶",
    "½ ² Ⅷ ① ㎏ ℃ ™ ﷺ",
    "[unused1] ##ing",
]

# On these texts the older Python implementations differ from transformers' present tokenizer, which we
# follow: they take special tokens out of text, compose accents when cased, and drop private characters.
DISPUTED = [
    "[MASK] [CLS] [SEP] [UNK] [PAD]",
    "decomposed e\u0301 a\u0308",
    "\ud7ff\ue000 private \u0378 unassigned \U0010ffff",
]

TEXTS = [*HARD, "The quick brown fox jumps over the lazy dog and it is not the first time."] * 3


def transcription(text: str, ids: dict[str, int], casing: Casing) -> list[int]:
    """The algorithm of google-research/bert's tokenization.py, with a longest word of 100 characters and
    without private-use characters (docs/departures.md)."""
    text = "".join(" " + c + " " if is_han(c) else c for c in clean(text))
    if casing == "uncased":
        text = "".join(
            c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn"
        ).lower()
    words = "".join(f" {c} " if is_punctuation(c) else c for c in text).split()
    return [piece for word in words for piece in longest_matches(word, ids)]


def longest_matches(word: str, ids: dict[str, int]) -> list[int]:
    pieces, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        ends = (end for end in range(len(word), start, -1) if prefix + word[start:end] in ids)
        end = next(ends, None)
        if end is None or len(word) > 100:
            return [ids["[UNK]"]]
        pieces.append(ids[prefix + word[start:end]])
        start = end
    return pieces


def clean(text: str) -> str:
    text = "".join(" " if c in "\t\n\r" or unicodedata.category(c) == "Zs" else c for c in text)
    return "".join(
        c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Co", "Cn") and c != "\ufffd"
    )


def is_han(character: str) -> bool:
    blocks = (
        (0x4E00, 0x9FFF),
        (0x3400, 0x4DBF),
        (0x20000, 0x2A6DF),
        (0x2A700, 0x2B73F),
        (0x2B740, 0x2B81F),
        (0x2B820, 0x2CEAF),
        (0xF900, 0xFAFF),
        (0x2F800, 0x2FA1F),
    )
    return any(first <= ord(character) <= last for first, last in blocks)


def is_punctuation(character: str) -> bool:
    ascii_symbol = character.isascii() and character.isprintable() and not character.isalnum()
    return (ascii_symbol and character != " ") or unicodedata.category(character).startswith("P")


def real_lines() -> list[str]:
    """Lines of English, of Chinese and of both mixed, at most `LINES` of each."""
    english, chinese = (
        list(itertools.islice(lines_of(Path(os.environ[DIRECTORY], "text", name)), LINES))
        for name in ("wiki_en", "wiki_zh")
    )
    mixed = [f"{a} {b}" for a, b in zip(english, chinese, strict=False)]
    return english + chinese + mixed


def lines_of(directory: Path) -> Iterator[str]:
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        with path.open(encoding="utf-8") as file:
            yield from (line.rstrip("\n") for line in file)


def published(name: str) -> Path:
    return Path(os.environ[DIRECTORY], "vocab", f"{name}-vocab.txt")


def check(file: Path, casing: Casing, texts: list[str], oracles: list) -> None:  # type: ignore[type-arg]
    ours = load_vocabulary(file, casing).encode_batch(texts)
    for name, encode in oracles:
        for text, ids, expected in zip(texts, ours, encode(texts), strict=True):
            assert ids == expected, f"{name} differs on {text[:200]!r}"


def make_oracles(file: Path, casing: Casing) -> list:  # type: ignore[type-arg]
    from transformers import BertTokenizer
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

    ids = {line: i for i, line in enumerate(file.read_text(encoding="utf-8").split("\n")[:-1])}
    lower = casing == "uncased"
    fast = BertTokenizer(vocab=ids, do_lower_case=lower)
    slow = BertTokenizerLegacy(str(file), do_lower_case=lower)
    options = {"add_special_tokens": False, "split_special_tokens": True}
    return [
        ("transformers' tokenizer", lambda texts: fast(texts, **options)["input_ids"]),
        ("transformers' Python tokenizer", lambda texts: slow(texts, **options)["input_ids"]),
        ("the transcription", lambda texts: [transcription(text, ids, casing) for text in texts]),
    ]


@pytest.mark.parametrize("casing", ["cased", "uncased"])
def test_hard_cases_with_a_learned_vocabulary(tmp_path, casing):
    train_wordpiece(TEXTS, 600, casing).save(tmp_path)
    file = tmp_path / "vocab.txt"
    oracles = make_oracles(file, casing)
    check(file, casing, HARD, oracles)
    check(file, casing, DISPUTED, oracles[:1])


@needs_directory
@pytest.mark.parametrize(("name", "casing"), PUBLISHED)
def test_wikipedia_and_hard_cases_with_published_vocabularies(name, casing):
    file = published(name)
    oracles, lines = make_oracles(file, casing), real_lines()
    check(file, casing, [*HARD, *lines[::50]], oracles)
    check(file, casing, [*DISPUTED, *lines], oracles[:1])


@needs_directory
@pytest.mark.parametrize(("name", "casing"), PUBLISHED)
def test_published_vocabularies_have_the_special_tokens(name, casing):
    assert set(SPECIAL_TOKENS) <= set(load_vocabulary(published(name), casing).tokens)
