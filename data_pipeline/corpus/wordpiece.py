"""BERT's own tokenizer, as Hugging Face's `tokenizers` computes it: for text to prepare and for models."""

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from data_pipeline.corpus.vocabulary_file import LONGEST_WORD, UNK, Casing


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


def bert_normalizer(casing: Casing) -> normalizers.BertNormalizer:
    """Removes control characters and separates Han characters; uncased also lowercases and strips accents."""
    uncased = casing == "uncased"
    return normalizers.BertNormalizer(lowercase=uncased, strip_accents=uncased)
