"""Byte-level BPE, as Hugging Face's `tokenizers` computes it: for text to prepare and for models.

Radford et al. 2019 (GPT-2), section 2.2; Liu et al. 2019 (RoBERTa), section 4.4. A text is a row of bytes,
each written as a visible character, so that every text has ids and none is unknown. The blank before a word
belongs to it and is written "Ġ".
"""

import functools
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from data_pipeline.corpus.tokenizer_rules import describe_steps, find_gap, found_casing
from data_pipeline.corpus.vocabulary_file import CLS, MASK, PAD, SEP, UNK, Casing, Vocabulary
from data_pipeline.errors import UserError

WORD_START = "Ġ"
"""How a blank is written."""

# What RoBERTa calls BERT's special tokens. A vocabulary gets BERT's names, and keeps the ids.
_ROBERTA_NAMES = {"<pad>": PAD, "<unk>": UNK, "<s>": CLS, "</s>": SEP, "<mask>": MASK}

_MERGES_FILE = "merges.txt"  # beside a vocab.json

# Of the model; with any other value it is another algorithm. Older files lack some of the settings.
_PLAIN: dict[str, Any] = {
    "dropout": None,
    "continuing_subword_prefix": "",
    "end_of_word_suffix": "",
    "byte_fallback": False,
    "ignore_merges": False,
}


def new_byte_bpe(model: models.BPE, normalizer: normalizers.Normalizer | None) -> Tokenizer:
    """Makes a tokenizer of a BPE model over bytes. It has no special tokens: a "[MASK]" in a text is text.

    A text begins as if after a blank: in a corpus most sentences do, and a word has the same ids wherever it
    stands.
    """
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    # ByteLevel's own blank would also come after every special token: "[MASK]." would get one before the dot.
    first = pre_tokenizers.Metaspace(replacement=" ", prepend_scheme="first", split=False)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([first, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byte_normalizer(casing: Casing) -> normalizers.Normalizer:
    """Composes characters (NFC); uncased also lowercases. Accents stay."""
    steps = [normalizers.NFC()] + ([normalizers.Lowercase()] if casing == "uncased" else [])
    return normalizers.Sequence(steps)


def make_byte_bpe(content: bytes) -> Tokenizer:
    """Makes the tokenizer of a vocabulary's content. Raises ValueError if that is not a tokenizer."""
    try:
        return Tokenizer.from_str(content.decode())
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(error) from None


def read_vocab_json(file: Path) -> Tokenizer:
    """Reads a `vocab.json` with its `merges.txt` beside it. Raises UserError if one is missing or damaged."""
    merges = file.with_name(file.name.replace("vocab.json", _MERGES_FILE))
    if not merges.is_file():
        raise UserError(f"vocabulary {file} has no {merges.name} beside it, which holds its merges")
    try:
        return new_byte_bpe(models.BPE.from_file(str(file), str(merges)), None)
    except Exception as error:  # the library raises nothing narrower
        raise UserError(f"vocabulary {file} cannot be read: {error}") from None


def find_fault(tokenizer: Tokenizer) -> str | None:
    """Why a BPE tokenizer is not byte-level BPE as `as_vocabulary` takes it, for messages; None if it is."""
    spec = json.loads(tokenizer.to_str())
    for name, value in _PLAIN.items():
        if (found := spec["model"].get(name) or value) != value:
            return f"its model BPE has {name} {json.dumps(found)}"
    if not _splits_at_bytes(spec["pre_tokenizer"] or {}):
        return f"its pre-tokenizer ({describe_steps(spec['pre_tokenizer'])}) does not split by GPT-2's rules"
    ids = tokenizer.get_vocab()
    if missing := [letter for letter in sorted(pre_tokenizers.ByteLevel.alphabet()) if letter not in ids]:
        return f"it lacks {len(missing)} of the 256 bytes, such as {missing[0]!r}"
    return find_gap(ids.values())


def as_vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """The vocabulary of a tokenizer without fault: its pieces, ids, merges and normalization.

    RoBERTa's special tokens get BERT's names. Text becomes none of the tokens that were added to the merges,
    special or not, but their ids stay.
    """
    spec = json.loads(tokenizer.to_str())
    ids = tokenizer.get_vocab()
    if MASK not in ids:
        ids = {_ROBERTA_NAMES.get(piece, piece): index for piece, index in ids.items()}
    merges = [
        tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in spec["model"]["merges"]
    ]
    model = models.BPE(ids, merges, ignore_merges=False)
    made = new_byte_bpe(model, tokenizer.normalizer)
    return Vocabulary("byte_bpe", found_casing(made), made.to_str().encode())


def piece_bytes(piece: str) -> bytes:
    """The bytes that a piece stands for; those of its name if it is not made of bytes, as special tokens."""
    values = _byte_values()
    if any(character not in values for character in piece):
        return piece.encode()
    return bytes(values[character] for character in piece)


@functools.cache
def _byte_values() -> dict[str, int]:
    """The byte of each visible character: GPT-2's table, which writes visible Latin-1 as it is."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + n): byte for n, byte in enumerate(others)}


def _splits_at_bytes(rules: dict[str, Any]) -> bool:
    """Whether a pre-tokenizer is GPT-2's, perhaps with the blank that `new_byte_bpe` puts first."""
    steps = rules.get("pretokenizers", [rules])
    if not steps:
        return False
    *before, last = steps
    are_blanks = all(step.get("type") == "Metaspace" and step["replacement"] == " " for step in before)
    return are_blanks and last.get("type") == "ByteLevel" and last.get("use_regex", True)
