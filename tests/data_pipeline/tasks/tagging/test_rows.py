"""Rows to tag: which pieces are labelled, what is shown around them, and tags back on their words."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.encode import make_task_tokenizer
from data_pipeline.tasks.tagging.columns import Sentence
from data_pipeline.tasks.tagging.rows import collect_tags, list_tags, make_tagging_rows

TAGS = ("O", "B-LOC", "I-LOC")
WORDS = ["the", "king", "Paris", "kingdom", "x", "qwertyuiop", "\u200b", "[SEP]", "東京"]
SENTENCES = (
    Sentence(("the", "kingdom", "\u200b"), ("O", "B-LOC", "I-LOC"), document=1, file="f", lines=(2, 4, 5)),
    Sentence(("Paris", "was"), ("B-LOC", "O"), document=1),
    Sentence(("French",), ("O",), document=2),
)


def shown(tokenizer, made, row: int) -> str:
    return " ".join(tokenizer.id_to_token(i) for i in made.rows.tokens["input_ids"][row])


def test_the_first_piece_of_each_word_is_labelled(tokenizer):
    made = make_tagging_rows(SENTENCES, make_task_tokenizer(tokenizer), TAGS, 128, "sentence")
    assert shown(tokenizer, made, 0) == "[CLS] the king ##dom [UNK] [SEP]"
    assert made.rows.tokens["tag_ids"][0].tolist() == [-1, 0, 1, -1, 2, -1]
    assert made.rows.tokens["segment_ids"][0].tolist() == [0] * 6
    assert {array.dtype for arrays in made.rows.tokens.values() for array in arrays} == {np.dtype(np.int32)}
    assert made.rows.example.tolist() == [0, 1, 2]


def test_document_context_is_shown_and_not_labelled(tokenizer):
    made = make_tagging_rows(SENTENCES, make_task_tokenizer(tokenizer), TAGS, 128, "document")
    whole = "[CLS] the king ##dom [UNK] paris was [SEP]"
    assert [shown(tokenizer, made, row) for row in (0, 1)] == [whole, whole]
    assert made.rows.tokens["tag_ids"][0].tolist() == [-1, 0, 1, -1, 2, -1, -1, -1]
    assert made.rows.tokens["tag_ids"][1].tolist() == [-1, -1, -1, -1, -1, 1, 0, -1]
    assert "paris" not in shown(tokenizer, made, 2)


def test_context_is_as_much_on_both_sides_as_there_is(tokenizer):
    letters = "abcdefghijklmnopqrstuvwxyz"
    sentences = [Sentence((letter,), ("O",), document=1) for letter in letters]
    made = make_tagging_rows(sentences, make_task_tokenizer(tokenizer), None, 9, "document")
    texts = [shown(tokenizer, made, row)[6:-6].replace(" ", "") for row in range(26)]
    assert texts[13] == "klmnopq"
    assert texts[0] == texts[3] == "abcdefg"
    assert texts[25] == texts[22] == "tuvwxyz"


sentences_of_words = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=14), min_size=1, max_size=6
).map(lambda texts: [Sentence(tuple(t), ("O",) * len(t), number // 3) for number, t in enumerate(texts)])


@settings(max_examples=150, deadline=None)
@given(
    sentences=sentences_of_words, length=st.integers(8, 24), context=st.sampled_from(["document", "sentence"])
)
def test_every_word_is_tagged_once_in_a_row_that_fits_and_begins_with_whole_words(
    tokenizer, sentences, length, context
):
    made = make_tagging_rows(sentences, make_task_tokenizer(tokenizer), TAGS, length, context)
    tagged = [[0] * len(sentence.words) for sentence in sentences]
    for row, number in enumerate(made.rows.example):
        tokens = shown(tokenizer, made, row).split()
        assert len(tokens) <= length
        assert not tokens[1].startswith("##")
        for offset, place in enumerate(made.positions[row]):
            word = made.first_words[row] + offset
            first_piece = {"\u200b": "[UNK]", "[SEP]": "[", "東京": "東"}.get(sentences[number].words[word])
            assert tokens[place] == (first_piece or tokens[place])
            assert sentences[number].words[word].lower().startswith(tokens[place]) or first_piece
            tagged[number][word] += 1
        labelled = np.flatnonzero(made.rows.tokens["tag_ids"][row] != -1)
        np.testing.assert_array_equal(labelled, made.positions[row])
    assert all(count == 1 for sentence in tagged for count in sentence)


def test_a_long_sentence_is_cut_where_words_have_context_on_both_sides(tokenizer):
    sentence = Sentence(("x",) * 100, ("O",) * 100, document=None)
    made = make_tagging_rows([sentence], make_task_tokenizer(tokenizer), None, 34, "sentence")
    assert len(made.rows) == 7
    for row in range(1, 5):  # the last two reach the end of the sentence
        places = made.positions[row]
        assert places.min() > 8
        assert places.max() <= 34 - 2 - 8
    assert "tag_ids" not in made.rows.tokens


def test_predictions_come_back_to_their_words_in_any_order(tokenizer):
    rng = np.random.default_rng(0)
    sentences = []
    for number in range(20):
        words = tuple(str(word) for word in rng.choice(WORDS, rng.integers(1, 30)))
        sentences.append(Sentence(words, tuple(rng.choice(TAGS, len(words)).tolist()), number // 4))
    made = make_tagging_rows(sentences, make_task_tokenizer(tokenizer), TAGS, 20, "document")

    def batches():
        for row in rng.permutation(len(made.rows)):
            targets = made.rows.tokens["tag_ids"][row]
            yield np.array([row]), np.pad(np.where(targets < 0, 1, targets), (0, 3))[np.newaxis]

    predicted = collect_tags(made, batches(), TAGS)
    assert predicted == [list(sentence.tags) for sentence in sentences]
    with pytest.raises(ValueError, match="words have no tag"):
        collect_tags(made, list(batches())[1:], TAGS)


def test_tags_are_listed_whole_and_sorted():
    person = Sentence(("Ann",), ("B-PER",), document=None)
    assert list_tags([person, *SENTENCES]) == (*TAGS, "B-PER", "I-PER")


def test_says_what_a_data_set_lacks(tokenizer):
    with pytest.raises(UserError, match="f:4: no word of training or dev has the type LOC"):
        make_tagging_rows(SENTENCES, make_task_tokenizer(tokenizer), ("O", "B-PER"), 128, "sentence")
    alone = [Sentence(("a",), ("O",), document=None)]
    with pytest.raises(UserError, match="add -DOCSTART- lines"):
        make_tagging_rows(alone, make_task_tokenizer(tokenizer), TAGS, 128, "document")
    with pytest.raises(UserError, match="max_seq_length is 7; it must be 8 or more"):
        make_tagging_rows(SENTENCES, make_task_tokenizer(tokenizer), TAGS, 7, "sentence")
