"""Settings of the data that a run sees: corpus, pairs, masks and phases.

Plain frozen dataclasses on the standard library alone: `bert_jax.config` embeds them in an
experiment on machines that have no TensorFlow.
"""

import dataclasses
from typing import Literal, NamedTuple

from data_pipeline.errors import UserError

Pairing = Literal["next_sentence", "sentence_order", "contiguous", "full_sentences"]
MaskingUnit = Literal["token", "whole_word"]

# Not a directory: `pretrain` makes the corpus of this name from the documentation of the installed
# Python packages.
INSTALLED_DOCUMENTATION = "installed-documentation"

_SPECIAL_TOKENS_OF_A_PAIR = 3


@dataclasses.dataclass(frozen=True)
class MaskingConfig:
    """How the masked language model's inputs are corrupted (paper, section 3.1 and Table 8)."""

    rate: float = 0.15
    """Fraction of a sequence's tokens, special ones counted, that are predicted. 0 turns masking off."""
    mask: float = 0.8
    """Fraction of the predicted tokens replaced by [MASK]."""
    same: float = 0.1
    """Fraction of the predicted tokens left as they are."""
    random: float = 0.1
    """Fraction of the predicted tokens replaced by a uniformly drawn vocabulary id."""
    unit: MaskingUnit = "token"
    """token: each word piece on its own. whole_word: all pieces of a word or
    none; in text without spaces between words, SentencePiece's pieces are
    the words."""
    last_rate: float | None = None
    """Rate at the end of the run, towards which it changes step by step in a
    straight line, and with which held-out text is masked; None: always the
    same."""

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise UserError(f"data.masking.rate is {self.rate}; it must be at least 0 and below 1")
        if self.last_rate is not None and not (self.rate and 0 < self.last_rate < 1):
            raise UserError(
                f"data.masking.last_rate is {self.last_rate}; it must be above 0 and below 1, and "
                f"data.masking.rate, which is {self.rate}, above 0"
            )
        fractions = (self.mask, self.same, self.random)
        if not (min(fractions) >= 0 and abs(sum(fractions) - 1) <= 1e-6):  # in this form it refuses NaN too
            raise UserError(
                f"data.masking.mask, same and random are {fractions}; they must be fractions that add up to 1"
            )

    def at(self, progress: float) -> "MaskingConfig":
        """The settings when a fraction of the run is done, from 0 to 1, which are the same from then on."""
        if self.last_rate is None:
            return self
        rate = self.rate + progress * (self.last_rate - self.rate)
        return dataclasses.replace(self, rate=rate, last_rate=None)

    @property
    def highest_rate(self) -> float:
        """The largest rate of the run."""
        return max(self.rate, self.last_rate or 0.0)


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of training at one sequence length (paper, A.2: 90% at 128, then 10% at 512)."""

    max_seq_length: int = 128
    """Tokens in a sequence, special ones counted."""
    max_predictions_per_seq: int = 20
    """Slots for predicted tokens; fewer than about rate x max_seq_length mask long sequences too little."""
    fraction: float = 1.0
    """Fraction of num_train_steps spent in this phase. The fractions of all phases add up to 1."""

    def __post_init__(self) -> None:
        if self.max_seq_length <= _SPECIAL_TOKENS_OF_A_PAIR + 1:
            raise UserError(f"max_seq_length is {self.max_seq_length}; it must be at least 5")
        if not 0 <= self.max_predictions_per_seq < self.max_seq_length:
            raise UserError(
                f"max_predictions_per_seq is {self.max_predictions_per_seq}; "
                f"it must be at least 0 and below max_seq_length ({self.max_seq_length})"
            )
        if not 0 < self.fraction <= 1:
            raise UserError(f"a phase's fraction is {self.fraction}; it must be above 0 and at most 1")


class Stretch(NamedTuple):
    """A phase of a run, with the steps that it takes: start, ..., stop - 1."""

    number: int
    """Of the phase; the first is 0."""
    phase: Phase
    start: int
    stop: int
    """Steps done when the phase ends."""


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What the batches of a run are made of."""

    corpus: str = ""
    """Directory made by `bert-jax prepare`, or a directory or glob of google-research/bert's TFRecords."""
    pairing: Pairing = "next_sentence"
    """next_sentence: [CLS] A [SEP] B [SEP], B random half of the time.
    sentence_order: A and B follow each other, in the other order half of the
    time. contiguous: [CLS] text [SEP], of one document. full_sentences: whole
    sentences of one document after the other, [SEP] between documents."""
    random_next_prob: float = 0.5
    """Probability that B comes from another document (pairing next_sentence),
    or that A and B are swapped (sentence_order)."""
    short_seq_prob: float = 0.1
    """Probability that a sequence gets a shorter target length, drawn uniformly."""
    max_instances_per_row: int = 1
    """Most instances packed into one row; 1 disables packing."""
    masking: MaskingConfig = MaskingConfig()
    phases: tuple[Phase, ...] = (Phase(),)

    def __post_init__(self) -> None:
        for name in ("random_next_prob", "short_seq_prob"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise UserError(f"data.{name} is {value}; it must be a probability, from 0 to 1")
        if self.max_instances_per_row < 1:
            raise UserError(
                f"data.max_instances_per_row is {self.max_instances_per_row}; it must be at least 1"
            )
        if self.pairing == "full_sentences" and (self.short_seq_prob, self.max_instances_per_row) != (0, 1):
            raise UserError(
                f"data.pairing full_sentences fills each row with one sequence, so data.short_seq_prob must "
                f"be 0 and data.max_instances_per_row 1; they are {self.short_seq_prob:g} and "
                f"{self.max_instances_per_row}"
            )
        if not self.phases:
            raise UserError("data.phases is empty; a run needs at least one phase")
        total = sum(phase.fraction for phase in self.phases)
        if abs(total - 1) > 1e-6:
            raise UserError(f"the fractions of data.phases add up to {total:g}; they must add up to 1")

    @property
    def has_pairs(self) -> bool:
        """Whether sequences are of two segments."""
        return self.pairing in ("next_sentence", "sentence_order")

    def stretches(self, num_train_steps: int) -> tuple[Stretch, ...]:
        """The phases of a run of so many steps, one after the other; the last ends with the run."""
        stretches, start, fraction = [], 0, 0.0
        for number, phase in enumerate(self.phases):
            fraction += phase.fraction
            is_last = number == len(self.phases) - 1
            stop = num_train_steps if is_last else round(fraction * num_train_steps)
            stretches.append(Stretch(number, phase, start, stop))
            start = stop
        return tuple(stretches)
