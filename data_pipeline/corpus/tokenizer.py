"""Text to ids and back: WordPiece, byte-level BPE and SentencePiece, behind one interface.

Text never becomes a special token: a literal "[MASK]" is a bracket, a word and a bracket, so no document
can smuggle a special token into a corpus. Code that means the token writes `mask_id`.
"""

import abc
import functools
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import sentencepiece
import tokenizers

from data_pipeline.corpus.byte_bpe import WORD_START as _BYTE_WORD_START
from data_pipeline.corpus.byte_bpe import make_byte_bpe, piece_bytes
from data_pipeline.corpus.tokenizer_json import read_json_vocabulary
from data_pipeline.corpus.tokenizer_rules import found_casing
from data_pipeline.corpus.vocabulary_file import (
    CLS,
    MASK,
    PAD,
    SEP,
    SPECIAL_TOKENS,
    UNK,
    Casing,
    TokenizerKind,
    Vocabulary,
    read_vocabulary,
    sentencepiece_fault,
    write_vocabulary,
)
from data_pipeline.corpus.wordpiece import make_wordpiece
from data_pipeline.errors import UserError

_WORD_START = "\u2581"  # how SentencePiece writes the space before a word
BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
"""How SentencePiece writes one byte of a character that has no piece."""

# Scripts without spaces between words, by the first word of their characters' Unicode names.
_UNSPACED_SCRIPTS = frozenset(
    ("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
)


class Tokenizer(abc.ABC):
    """A vocabulary and the way of splitting text into its pieces."""

    kind: TokenizerKind
    casing: Casing
    vocab_size: int
    """Number of ids; every id is below it."""
    sha256: str
    """Hash of everything that decides which ids a text gets."""
    content: bytes
    """Content of the vocabulary's file."""

    @abc.abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens."""

    @abc.abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, readable; blanks around punctuation may differ from the original."""

    @abc.abstractmethod
    def id_to_token(self, index: int) -> str:
        """The piece of an id."""

    @abc.abstractmethod
    def token_to_id(self, token: str) -> int | None:
        """The id of a piece, None if the vocabulary lacks it."""

    @abc.abstractmethod
    def follows_space(self, token: str) -> bool:
        """Whether a piece, not a special one, begins a word: after a space or at the start of a text."""

    @abc.abstractmethod
    def text_of(self, token: str) -> str:
        """The text of a piece, without a blank before it; U+FFFD for a part of a character."""

    def _continues(self, token: str) -> bool:
        return not self.follows_space(token)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without special tokens."""
        return self.encode_batch([text])[0]

    def save(self, directory: Path) -> None:
        """Writes the vocabulary's file, as Hugging Face reads it, and the settings for loading it."""
        write_vocabulary(directory, Vocabulary(self.kind, self.casing, self.content))

    @functools.cached_property
    def tokens(self) -> tuple[str, ...]:
        """Every piece, by id."""
        return tuple(self.id_to_token(index) for index in range(self.vocab_size))

    @functools.cached_property
    def continues_word(self) -> np.ndarray:
        """bool [vocab_size]: whether a piece continues the word of the piece before it."""
        return np.array([t not in SPECIAL_TOKENS and self._continues(t) for t in self.tokens], bool)

    @functools.cached_property
    def id_dtype(self) -> np.dtype:
        """dtype of the ids in a shard: uint16 for at most 65,536 ids, else uint32."""
        return np.dtype(np.uint16 if self.vocab_size <= 1 << 16 else np.uint32)

    @property
    def pad_id(self) -> int:
        return self._special_id(PAD)

    @property
    def unk_id(self) -> int:
        return self._special_id(UNK)

    @property
    def cls_id(self) -> int:
        return self._special_id(CLS)

    @property
    def sep_id(self) -> int:
        return self._special_id(SEP)

    @property
    def mask_id(self) -> int:
        return self._special_id(MASK)

    def _special_id(self, token: str) -> int:
        index = self.token_to_id(token)
        assert index is not None, "loading refuses vocabularies without the special tokens"
        return index


class _HuggingFace(Tokenizer):
    """A tokenizer that Hugging Face's `tokenizers` computes."""

    _tokenizer: tokenizers.Tokenizer

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def token_to_id(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)


class WordPiece(_HuggingFace):
    """BERT's own tokenizer; see `make_wordpiece`."""

    kind: TokenizerKind = "wordpiece"

    def __init__(self, tokens: Sequence[str], casing: Casing) -> None:
        """`tokens` are in order of id."""
        self.casing = casing
        self._lines = tuple(tokens)
        self.content = "".join(f"{token}\n" for token in self._lines).encode()
        self.vocab_size = len(self._lines)
        self._tokenizer = make_wordpiece(self._lines, casing)
        self.sha256 = hashlib.sha256("\n".join((self.kind, casing, *self._lines)).encode()).hexdigest()

    def decode(self, ids: Iterable[int]) -> str:
        # The library's own decode drops the earlier ids of a repeated token; the lines have them all.
        return str(self._tokenizer.decoder.decode([self._lines[index] for index in ids]))

    def id_to_token(self, index: int) -> str:
        return self._lines[index]

    def follows_space(self, token: str) -> bool:
        return not token.startswith("##")

    def text_of(self, token: str) -> str:
        return token.removeprefix("##")


class SentencePiece(Tokenizer):
    """A trained SentencePiece model; its own normalisation decides the casing."""

    kind: TokenizerKind = "sentencepiece"

    def __init__(self, model: bytes) -> None:
        """`model` is the content of a .model file. Raises RuntimeError if it is not one."""
        if not model:
            raise RuntimeError("empty")  # the library would begin without a model
        self.content = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.vocab_size = self._processor.vocab_size()
        self.casing = "cased" if "A" in self._processor.normalize("A") else "uncased"
        self.sha256 = hashlib.sha256(model).hexdigest()

    def find_unprotected(self) -> list[str]:
        """Returns the special tokens that text can become, and [UNK] if unknown text does not become it."""
        processor = self._processor
        unknown = [] if processor.is_unknown(self.unk_id) else [UNK]
        symbols = (self.pad_id, self.cls_id, self.sep_id, self.mask_id)
        return unknown + [self.id_to_token(index) for index in symbols if not processor.is_control(index)]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return self._processor.encode(list(texts), out_type=int, num_threads=1)

    def decode(self, ids: Iterable[int]) -> str:
        return str(self._processor.decode([int(index) for index in ids]))

    def id_to_token(self, index: int) -> str:
        return str(self._processor.id_to_piece(int(index)))

    def token_to_id(self, token: str) -> int | None:
        index = self._processor.piece_to_id(token)  # the id of [UNK] if the model lacks the piece
        return index if self._processor.id_to_piece(index) == token else None

    def follows_space(self, token: str) -> bool:
        return token.startswith(_WORD_START)

    def text_of(self, token: str) -> str:
        return "\ufffd" if BYTE_PIECE.fullmatch(token) else token.replace(_WORD_START, "")

    def _continues(self, token: str) -> bool:
        return super()._continues(token) and not _is_unspaced(token[0])


class ByteBPE(_HuggingFace):
    """Byte-level BPE; see `new_byte_bpe`."""

    kind: TokenizerKind = "byte_bpe"

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Raises ValueError if the content is not a tokenizer. Its own normalisation decides the casing."""
        self.content = vocabulary.content
        self._tokenizer = make_byte_bpe(self.content)
        self.casing = found_casing(self._tokenizer)
        self.vocab_size = self._tokenizer.get_vocab_size()
        self.sha256 = hashlib.sha256(self.content).hexdigest()

    def decode(self, ids: Iterable[int]) -> str:
        return str(self._tokenizer.decoder.decode([self.id_to_token(index) for index in ids])).strip(" ")

    def id_to_token(self, index: int) -> str:
        token = self._tokenizer.id_to_token(int(index))
        assert token is not None, "loading refuses vocabularies whose ids have gaps"
        return token

    def follows_space(self, token: str) -> bool:
        return token.startswith(_BYTE_WORD_START)

    def text_of(self, token: str) -> str:
        return piece_bytes(token).decode(errors="replace").removeprefix(" ")

    def _continues(self, token: str) -> bool:
        # A piece may begin with a part of a character; its block tells the script.
        beginning = (piece_bytes(token) + b"\x80\x80").decode(errors="replace")[0]
        return super()._continues(token) and not _is_unspaced(beginning)


def _is_unspaced(character: str) -> bool:
    """Whether a character's script has no spaces.

    There a whole sentence would be one word, too long to mask; so each piece is a word.
    """
    return unicodedata.name(character, "").partition(" ")[0] in _UNSPACED_SCRIPTS


def load_vocabulary(file: Path, casing: Casing | None) -> Tokenizer:
    """Loads a tokenizer from a file: a vocab.txt (one piece per line), a SentencePiece .model, a
    tokenizer.json, or the vocab.json of byte-level BPE.

    Args:
      casing: None takes the file's own, and uncased for a vocab.txt, which does not say it.

    Raises:
      UserError: no such file; not a vocabulary; a special token is missing; another casing than the file's
        own; a tokenizer.json with rules that this project does not have; a SentencePiece model that exports
        cannot rebuild, or whose special tokens text can become.
    """
    if not file.is_file():
        raise UserError(
            f"vocabulary {file} is not a file; give a vocab.txt, a SentencePiece .model, a tokenizer.json, "
            f"byte-level BPE's vocab.json, or a model's directory"
        )
    if file.suffix == ".json":
        vocabulary = read_json_vocabulary(file)
    else:
        kind: TokenizerKind = "sentencepiece" if file.suffix == ".model" else "wordpiece"
        vocabulary = Vocabulary(kind, casing or "uncased", file.read_bytes())
    return _check(_make_tokenizer(vocabulary, file), casing, file)


def take_vocabulary(vocabulary: Vocabulary, place: Path) -> Tokenizer:
    """Makes a tokenizer of a vocabulary read from `place`. Raises the UserErrors of `load_vocabulary`."""
    return _check(_make_tokenizer(vocabulary, place), vocabulary.casing, place)


def load_tokenizer(directory: Path) -> Tokenizer:
    """Loads what `Tokenizer.save` wrote. Raises UserError if there is none."""
    vocabulary = read_vocabulary(directory)
    return _make_tokenizer(vocabulary, directory / vocabulary.file_name)


def _check(tokenizer: Tokenizer, casing: Casing | None, file: Path) -> Tokenizer:
    """Returns the tokenizer if it has the casing, unless that is None, and if exports can rebuild it."""
    if casing not in (None, tokenizer.casing):
        raise UserError(f"vocabulary {file} is {tokenizer.casing}, not {casing}; leave --casing out")
    if isinstance(tokenizer, SentencePiece):
        _check_sentencepiece(tokenizer, file)
    return tokenizer


def _check_sentencepiece(tokenizer: SentencePiece, file: Path) -> None:
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.content)  # type: ignore[attr-defined]
    if fault := sentencepiece_fault(model):
        raise UserError(f"vocabulary {file} {fault}")
    if wrong := tokenizer.find_unprotected():
        raise UserError(
            f"vocabulary {file} has {', '.join(wrong)} as symbols of text; {UNK} must be the model's unknown "
            f"piece, and {PAD}, {CLS}, {SEP} and {MASK} its control symbols, not user-defined ones"
        )


def _make_tokenizer(vocabulary: Vocabulary, file: Path) -> Tokenizer:
    tokenizer: Tokenizer
    if vocabulary.kind == "wordpiece":
        tokenizer = WordPiece(vocabulary.pieces(f"vocabulary {file}"), vocabulary.casing)
    elif vocabulary.kind == "byte_bpe":
        try:
            tokenizer = ByteBPE(vocabulary)
        except ValueError as error:
            raise UserError(f"vocabulary {file} is not a tokenizer of byte-level BPE: {error}") from None
    else:
        try:
            tokenizer = SentencePiece(vocabulary.content)
        except RuntimeError:
            raise UserError(f"vocabulary {file} is not a SentencePiece model") from None
    missing = [token for token in SPECIAL_TOKENS if tokenizer.token_to_id(token) is None]
    if missing:
        raise UserError(
            f"vocabulary {file} has no {', '.join(missing)}; BERT needs {', '.join(SPECIAL_TOKENS)}"
        )
    return tokenizer
