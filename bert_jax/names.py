"""Names of formats, poolings and losses, for flags; imports nothing but the standard library."""

from typing import Literal

ModelFormat = Literal["hf", "tf1", "npz"]
"""hf: Hugging Face transformers. tf1: google-research/bert. npz: arrays for numpy."""

ModelPart = Literal["model", "generator"]
"""model: what is used after pretraining. generator: what a run of rtd trains beside it."""

Pooling = Literal["none", "mean", "cls"]
"""none: a vector for each token. mean: the mean of these. cls: the vector of [CLS]."""

SentenceScoring = Literal["pll", "pll_word_l2r", "likelihood"]
"""pll: log-probabilities of a masked model, each token masked once. pll_word_l2r: with the rest of its word
masked too. likelihood: of a model that reads in one direction."""
