"""The words by which formats, pooling and losses are chosen; the standard library alone, for flags."""

from typing import Literal

ModelFormat = Literal["hf", "tf1", "npz"]
"""hf: Hugging Face transformers. tf1: google-research/bert. npz: arrays for numpy."""

Pooling = Literal["none", "mean", "cls"]
"""none: a vector for each token. mean: their mean. cls: that of [CLS]."""

RankingLoss = Literal["in_batch", "triplet"]
"""in_batch: the other rows of a batch are negatives too. triplet: needs negatives."""
