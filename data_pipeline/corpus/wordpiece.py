"""BERT's own tokenizer, as Hugging Face's `tokenizers` computes it: for text to prepare and for models."""

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from data_pipeline.corpus.tokenizer_rules import find_difference, find_gap, found_casing
from data_pipeline.corpus.vocabulary_file import LONGEST_WORD, SPECIAL_TOKENS, UNK, Casing, Vocabulary


def make_wordpiece(pieces: Sequence[str], casing: Casing) -> Tokenizer:
    """Makes the tokenizer of pieces in order of id; a repeated piece gets its last id, as in Hugging Face.

    It splits at blanks, punctuation and Han characters, then takes longest matches. It has no special tokens:
    a "[MASK]" in a text is text.
    """
    ids = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=UNK, max_input_chars_per_word=LONGEST_WORD))
    tokenizer.normalizer = bert_normalizer(casing)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def find_fault(tokenizer: Tokenizer) -> str | None:
    """Why a WordPiece tokenizer is not one of `make_wordpiece`'s, for messages; None if it is.

    Tokens added to its pieces, and what it puts around a text, are no fault.
    """
    ids = _ids(tokenizer).values()
    return find_difference(tokenizer, make_wordpiece((), found_casing(tokenizer))) or find_gap(ids)


def as_vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """The vocabulary of a tokenizer without fault, without the tokens added to its pieces but BERT's own."""
    ids = _ids(tokenizer)
    content = "".join(f"{piece}\n" for piece in sorted(ids, key=ids.__getitem__))
    return Vocabulary("wordpiece", found_casing(tokenizer), content.encode())


def bert_normalizer(casing: Casing) -> normalizers.BertNormalizer:
    """Removes control characters and separates Han characters; uncased also lowercases and strips accents."""
    uncased = casing == "uncased"
    return normalizers.BertNormalizer(lowercase=uncased, strip_accents=uncased)


def _ids(tokenizer: Tokenizer) -> dict[str, int]:
    known = tokenizer.get_vocab(with_added_tokens=False).keys() | {*SPECIAL_TOKENS}
    return {piece: index for piece, index in tokenizer.get_vocab().items() if piece in known}
