"""Names of formats, poolings and losses, for flags; imports nothing but the standard library."""

from typing import Literal

ModelFormat = Literal["hf", "tf1", "npz"]
"""hf: Hugging Face transformers. tf1: google-research/bert. npz: arrays for numpy."""

Pooling = Literal["none", "mean", "cls"]
"""none: a vector for each token. mean: the mean of these. cls: the vector of [CLS]."""

RankingLoss = Literal["in_batch", "triplet"]
"""in_batch: the other rows of a batch are negatives too. triplet: needs negatives."""
