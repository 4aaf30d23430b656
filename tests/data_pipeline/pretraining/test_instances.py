"""Instances against a literal loop over sentences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.pretraining import instances
from data_pipeline.pretraining.instances import cut_documents, cut_instances

SENTENCES = st.lists(st.integers(1, 40), min_size=1, max_size=40)


def starts(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def cut_literally(documents: list[list[int]], target: int) -> list[int]:
    """Sentence by sentence, as one would write it down."""
    firsts, sentence = [], 0
    for lengths in documents:
        tokens = target
        for length in lengths:
            if tokens >= target:
                firsts.append(sentence)
                tokens = 0
            tokens += length
            sentence += 1
    return [*firsts, sentence]


@pytest.mark.parametrize("block", [1, 30, 1 << 17])
@settings(max_examples=100, deadline=None)
@given(documents=st.lists(SENTENCES, min_size=1, max_size=12), target=st.integers(1, 150))
def test_instances_are_those_of_a_literal_loop(block, documents, target):
    sentence_starts = starts([length for document in documents for length in document])
    document_starts = starts([len(document) for document in documents])
    kept, instances._SENTENCES_PER_BLOCK = instances._SENTENCES_PER_BLOCK, block
    try:
        found = cut_instances(sentence_starts, document_starts, target, cut_documents)
    finally:
        instances._SENTENCES_PER_BLOCK = kept
    assert found.first_sentences.tolist() == cut_literally(documents, target)


def test_no_documents_give_no_instances():
    assert len(cut_instances(np.zeros(1, np.int64), np.zeros(1, np.int64), 125, cut_documents)) == 0


def test_instances_take_four_bytes_each():
    assert (
        cut_instances(starts([5] * 100), starts([100]), 20, cut_documents).first_sentences.dtype == np.uint32
    )
