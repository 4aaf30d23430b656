"""Special tokens are found in the tokenizer itself, whatever their names and wherever they stand."""

import pytest
from tokenizers import Tokenizer, models, processors

from data_pipeline.corpus.special_tokens import SpecialTokens, special_tokens
from data_pipeline.errors import UserError

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
GEMMA = ("<pad>", "<unk>", "<bos>", "<eos>", "<mask>")
ALBERT = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")


def make(names: tuple[str, ...], single: str | None, pair: str | None) -> Tokenizer:
    """A tokenizer of these tokens alone, with a post-processor if one is given."""
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=names[1]))
    tokenizer.add_special_tokens(list(names))
    if single:
        used = [(name, vocabulary[name]) for name in names]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, pair=pair, special_tokens=used
        )
    return tokenizer


def padded(tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer that pads every text."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.enable_padding(length=16, pad_token=copy.id_to_token(0))
    return copy


@pytest.mark.parametrize(
    ("names", "single", "pair", "between", "segment"),
    [
        (BERT, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", "[SEP]", 1),
        (BERT, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", "[SEP]", 0),
        (BERT, None, None, "[SEP]", 1),
        (ALBERT, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", "[SEP]", 1),
        (ROBERTA, "<s> $A </s>", "<s> $A </s> </s> $B </s>", "</s> </s>", 0),
        (ROBERTA, "<s> $A </s>", "<s> $A </s> $B </s>", "</s>", 0),
        (ROBERTA, None, None, "</s> </s>", 0),
        (GEMMA, "<bos> $A <eos>", "<bos> $A <eos> <bos> $B <eos>", "<eos> <bos>", 0),
        (GEMMA, "<bos> $A <eos>", "$A $B", "<eos>", 1),
    ],
)
def test_names_and_the_form_of_a_pair(
    names: tuple[str, ...], single: str | None, pair: str | None, between: str, segment: int
) -> None:
    tokenizer = make(names, single, pair)
    tokenizer.add_tokens(["<s>", "</s>"])  # what a text is put between counts, not which names there are
    for found in (special_tokens(tokenizer), special_tokens(padded(tokenizer))):
        assert found == SpecialTokens(*names, between=tuple(between.split()), second_segment=segment)
        assert found.names == names
        assert found.in_pair == found.in_text + len(found.between)


@pytest.mark.parametrize("single", ["$A [SEP]", "[CLS] [MASK] $A [SEP]"])
def test_other_numbers_of_tokens_around_a_text_are_refused(single: str) -> None:
    with pytest.raises(UserError, match="must add one token before the text and one behind it"):
        special_tokens(make(BERT, single, single.replace("$A", "$A $B")))


def test_a_token_that_is_not_there_has_berts_name() -> None:
    assert special_tokens(make(("[PAD]", "[UNK]"), None, None)) == SpecialTokens()
