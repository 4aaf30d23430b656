"""Sentences out of documents."""

import pytest
import sentencex

from data_pipeline.errors import UserError
from data_pipeline.preparing.sentences import AT_ONCE, check_language, split_sentences


def test_sentences_are_split_by_language_and_never_across_lines():
    assert split_sentences("Mr. Smith left. He ran.\nNo stop here\n\nBye.", "en") == [
        "Mr. Smith left.",
        "He ran.",
        "No stop here",
        "Bye.",
    ]
    assert split_sentences("你好。他来了吗?是。", "zh") == ["你好。", "他来了吗?", "是。"]
    assert split_sentences(["a. b.", "c"], "en") == ["a. b.", "c"]


def test_wide_blanks_are_kept_where_sentencex_fails_on_them():
    assert split_sentences("Take vitamin C\u00a0. Then rest.", "en") == [
        "Take vitamin C\u00a0.",
        "Then rest.",
    ]


def test_a_failure_of_sentencex_names_the_text(monkeypatch):
    class PanicException(BaseException):
        pass

    def fail(language, text):
        raise PanicException

    monkeypatch.setattr(sentencex, "segment", fail)
    with pytest.raises(UserError, match="sentencex cannot split the text 'A line'"):
        split_sentences("A line", "en")


@pytest.mark.parametrize(("language", "sentence"), [("zh", "我们去。"), ("en", "We go. ")])
def test_a_long_line_is_split_as_a_short_one_is(language, sentence):
    count = 2 * AT_ONCE // len(sentence)
    assert split_sentences(sentence * count, language) == [sentence.strip()] * count
    # A sentence longer than what is split at once is whole.
    long = sentence[0] * (3 * AT_ONCE) + sentence
    assert split_sentences(sentence + long + sentence, language) == [
        sentence.strip(),
        long.strip(),
        sentence.strip(),
    ]


def test_language_must_be_a_code():
    for language in ("pt-br", "ja", "ceb"):
        check_language(language)
    for country in ("English", "jp", "cn-hans", "en_US"):
        with pytest.raises(UserError, match=rf"--language is '{country}'; it must be a language's code"):
            check_language(country)
