"""Sentences out of documents."""

import pytest

from data_pipeline.errors import UserError
from data_pipeline.preparing.sentences import check_language, split_sentences


def test_sentences_are_split_by_language_and_never_across_lines():
    assert split_sentences("Mr. Smith left. He ran.\nNo stop here\n\nBye.", "en") == [
        "Mr. Smith left.",
        "He ran.",
        "No stop here",
        "Bye.",
    ]
    assert split_sentences("你好。他来了吗?是。", "zh") == ["你好。", "他来了吗?", "是。"]
    assert split_sentences(["a. b.", "c"], "en") == ["a. b.", "c"]


def test_language_must_look_like_a_code():
    check_language("pt-br")
    with pytest.raises(UserError, match=r"--language is 'English'; it must be a code"):
        check_language("English")
