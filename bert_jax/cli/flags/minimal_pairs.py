"""The flags of `bert-jax minimal-pairs`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.formats.model_source import ModelSource
from bert_jax.names import SentenceScoring


@dataclasses.dataclass(frozen=True)
class MinimalPairs:
    """Measure how often a model scores the acceptable sentence of a pair higher, as in BLiMP.

    Writes summary.json, accuracies by file and phenomenon and their mean over files, and pairs.jsonl, the
    scores of every pair.
    """

    source: Annotated[ModelSource, tyro.conf.arg(name="")]
    data: Path
    """JSONL file with "sentence_good" and "sentence_bad" on each line, or a directory of such files."""
    output: Path
    """Directory to make; it must not exist."""
    scoring: SentenceScoring | None = None
    """pll: log-probabilities of a masked model, each token masked once. pll_word_l2r: with the rest of its
    word masked too. likelihood: for models that read in one direction. By default pll or likelihood."""
