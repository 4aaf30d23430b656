"""Texts of any length and number are padded to few shapes."""

import numpy as np

from bert_jax.inference.padding import batches_by_length, padded_lengths


def test_lengths_end_with_the_longest() -> None:
    assert padded_lengths(100) == [16, 32, 64, 100]
    assert padded_lengths(16) == [16]


def test_every_text_is_in_one_batch_that_holds_it() -> None:
    sizes = np.random.default_rng(0).integers(1, 101, 300)
    lengths = [16, 32, 64, 100]
    batches = list(batches_by_length(sizes, lengths, 256))
    assert sorted(np.concatenate([texts for texts, _ in batches])) == list(range(300))
    shapes = {shape for _, shape in batches}
    assert shapes == {(16, 16), (8, 32), (4, 64), (2, 100)}
    for texts, (rows, length) in batches:
        assert len(texts) <= rows
        assert length == next(n for n in lengths if n >= sizes[texts].max())
        assert sizes[texts].min() > max((n for n in lengths if n < length), default=0)


def test_few_texts_make_a_small_batch() -> None:
    (batch,) = batches_by_length([3, 16, 2], [16, 32], 4096)
    assert (batch[0].tolist(), batch[1]) == ([0, 1, 2], (4, 16))
    (batch,) = batches_by_length([32], [16, 32], 8)  # more tokens than a batch has
    assert (batch[0].tolist(), batch[1]) == ([0], (1, 32))
