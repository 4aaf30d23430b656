"""Special tokens are found in the tokenizer itself, whatever their names and wherever they stand."""

import pytest
from tokenizers import Tokenizer, models, processors

from data_pipeline.corpus.special_tokens import SpecialTokens, special_tokens

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
ALBERT = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")


def make(names: tuple[str, ...], pair: str | None) -> Tokenizer:
    """A tokenizer of these tokens alone, with a post-processor for pairs if one is given."""
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=names[1]))
    tokenizer.add_special_tokens(list(names))
    if pair:
        used = [(name, vocabulary[name]) for name in names]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=pair.split(" $B")[0], pair=pair, special_tokens=used
        )
    return tokenizer


@pytest.mark.parametrize(
    ("names", "pair", "separators", "segment"),
    [
        (BERT, "[CLS] $A [SEP] $B:1 [SEP]:1", 1, 1),
        (BERT, "[CLS] $A [SEP] $B [SEP]", 1, 0),
        (BERT, None, 1, 1),
        (BERT, "$A [MASK] $B", 1, 1),
        (ALBERT, "[CLS] $A [SEP] $B:1 [SEP]:1", 1, 1),
        (ROBERTA, "<s> $A </s> </s> $B </s>", 2, 0),
        (ROBERTA, "<s> $A </s> $B </s>", 1, 0),
        (ROBERTA, None, 2, 0),
    ],
)
def test_names_and_the_form_of_a_pair(
    names: tuple[str, ...], pair: str | None, separators: int, segment: int
) -> None:
    found = special_tokens(make(names, pair))
    assert found == SpecialTokens(*names, separators=separators, second_segment=segment)
    assert found.names == names
    assert found.in_pair == found.in_text + separators


def test_a_token_that_is_not_there_has_berts_name() -> None:
    assert special_tokens(make(("[PAD]", "[UNK]"), None)) == SpecialTokens()
