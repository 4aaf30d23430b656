"""Settings of the data that a run sees: corpus, pairs, masks and phases.

Plain frozen dataclasses on the standard library alone: an experiment embeds them on machines that have no
TensorFlow.
"""

import dataclasses
import itertools
from typing import Literal, NamedTuple

from data_pipeline.checks import check_positive, check_types
from data_pipeline.errors import UserError

Pairing = Literal["next_sentence", "sentence_order", "contiguous", "full_sentences"]
MaskingUnit = Literal["token", "whole_word", "span", "ngram"]

# Not a directory: `pretrain` makes the corpus of this name from the documentation of the installed
# Python packages.
INSTALLED_DOCUMENTATION = "installed-documentation"

SMALLEST_WEIGHT = 0.001
"""Smallest fraction of the rows that may come from a corpus: one in a block of the mixture."""

_SHORTEST = 5  # [CLS] A [SEP] B [SEP]


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
    the words. span: 1 to 10 words in a row, all replaced in the same way
    (SpanBERT). ngram: 1 to 3 words in a row (ALBERT)."""
    last_rate: float | None = None
    """Rate at the end of the run, towards which it changes step by step in a
    straight line, and with which held-out text is masked; None: always the
    same."""

    def __post_init__(self) -> None:
        check_types(self, "data.masking.")
        if not 0 <= self.rate < 1:
            raise UserError(f"data.masking.rate is {self.rate}; it must be at least 0 and below 1")
        if self.last_rate is not None and not 0 < self.last_rate < 1:
            raise UserError(
                f"data.masking.last_rate is {self.last_rate}; it must be above 0 and below 1, or None"
            )
        if self.last_rate is not None and not self.rate:
            raise UserError(
                "data.masking.last_rate needs masks, and data.masking.rate is 0 (an objective without masks "
                "sets it to 0)"
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
    """Slots for predicted tokens; fewer than about rate x max_seq_length mask long sequences too little. With
    0 nothing is masked: the phase is one of causal language modelling (objective clm_then_mlm)."""
    fraction: float = 1.0
    """Fraction of num_train_steps spent in this phase. The fractions of all phases add up to 1."""

    def __post_init__(self) -> None:
        check_types(self, "")
        if self.max_seq_length < _SHORTEST:
            raise UserError(f"max_seq_length is {self.max_seq_length}; it must be at least {_SHORTEST}")
        if not 0 <= self.max_predictions_per_seq < self.max_seq_length:
            raise UserError(
                f"max_predictions_per_seq is {self.max_predictions_per_seq}; "
                f"it must be at least 0 and below max_seq_length ({self.max_seq_length})"
            )
        if not 0 < self.fraction <= 1:
            raise UserError(f"a phase's fraction is {self.fraction}; it must be above 0 and at most 1")


class Stretch(NamedTuple):
    """The steps start, ..., stop - 1 of a run: a phase, or the part of it that has batches of one size."""

    number: int
    """Of the phase; the first is 0."""
    phase: Phase
    start: int
    stop: int
    """Steps done when it ends."""
    batch_size: int
    """Rows in a step."""
    first_row: int
    """Rows that the phase has read before."""

    def rows_before(self, step: int) -> int:
        """Rows that the phase has read before a step of the stretch."""
        return self.first_row + (step - self.start) * self.batch_size


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What the batches of a run are made of."""

    corpus: str = ""
    """Directory made by `bert-jax prepare`, or a directory or glob of
    google-research/bert's TFRecords; or several directories, with commas
    between them, which data.weights mixes."""
    weights: tuple[float, ...] = ()
    """Fraction of the rows from each corpus of data.corpus, such as 0.7 0.3."""
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
    """Maximum number of instances packed into one row; 1 disables packing."""
    masking: MaskingConfig = MaskingConfig()
    phases: tuple[Phase, ...] = (Phase(),)
    batch_schedule: tuple[tuple[float, float], ...] = ()
    """Pairs UNTIL PART: until a fraction UNTIL of num_train_steps is done, a
    step has PART x global_batch_size rows, rounded; after the last pair all of
    them. "0.1 0.25 0.3 0.5" is a quarter, then half, then the whole batch."""

    def __post_init__(self) -> None:
        check_types(self, "data.")
        if self.corpus:
            weigh_corpora(self.corpus, self.weights)
        for name in ("random_next_prob", "short_seq_prob"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise UserError(f"data.{name} is {value}; it must be a probability, from 0 to 1")
        check_positive("data.max_instances_per_row", self.max_instances_per_row)
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
        self._check_batch_schedule()

    @property
    def has_pairs(self) -> bool:
        """Whether sequences are of two segments."""
        return self.pairing in ("next_sentence", "sentence_order")

    @property
    def num_special_tokens(self) -> int:
        """Those of [CLS] A [SEP] B [SEP], or of [CLS] text [SEP]."""
        return 3 if self.has_pairs else 2

    def _check_batch_schedule(self) -> None:
        ends = [0.0, *(until for until, _ in self.batch_schedule)]
        if not (ends[-1] <= 1 and all(a < b for a, b in itertools.pairwise(ends))):
            given = ", ".join(f"{end:g}" for end in ends[1:])
            raise UserError(
                f"data.batch_schedule has sizes until {given} of the run; these fractions must be above 0, "
                "ascending and at most 1"
            )
        for until, part in self.batch_schedule:
            if not 0 < part <= 1:
                raise UserError(
                    f"data.batch_schedule has {part:g} of global_batch_size until {until:g}; "
                    "it must be above 0 and at most 1"
                )

    def stretches(self, num_train_steps: int, global_batch_size: int) -> tuple[Stretch, ...]:
        """The phases of a run of so many steps, each cut where the batch size changes.

        The last ends with the run. A phase that is too short for a step is one empty stretch.
        """

        def step_after(fraction: float) -> int:
            # 0.7 + 0.2 is below 0.9, and an end of a phase and one of a size may be the same step.
            return round(round(fraction, 9) * num_train_steps)

        ends = [(step_after(until), part) for until, part in self.batch_schedule]
        stretches, start, fraction = [], 0, 0.0
        for number, phase in enumerate(self.phases):
            fraction += phase.fraction
            is_last = number == len(self.phases) - 1
            last = num_train_steps if is_last else step_after(fraction)
            first_row = 0
            for stop in sorted({last, *(end for end, _ in ends if start < end < last)}):
                part = next((part for end, part in ends if start < end), 1.0)
                size = max(round(part * global_batch_size), 1)
                stretches.append(Stretch(number, phase, start, stop, size, first_row))
                first_row, start = stretches[-1].rows_before(stop), stop
        return tuple(stretches)


def split_corpora(corpus: str) -> tuple[str, ...]:
    """The corpora that a setting `data.corpus` names."""
    return tuple(name.strip() for name in corpus.split(","))


def weigh_corpora(corpus: str, weights: tuple[float, ...]) -> dict[str, float]:
    """The corpora of `data.corpus` and the weight of each in `data.weights`, which one corpus does without.

    Raises UserError if they do not fit together, or cannot be mixed.
    """
    names = split_corpora(corpus)
    if len(names) == 1 and not weights:
        return {corpus: 1.0}
    if len(names) != len(weights):
        raise UserError(
            f"data.corpus names {', '.join(names)}, but data.weights has {len(weights)} numbers; give one "
            f"for each corpus, such as --data.weights 0.7 0.3"
        )
    if len(set(names)) < len(names) or not all(names):
        raise UserError(f"data.corpus is {corpus}; it must name each corpus once, with commas between them")
    if len(names) > 1 and INSTALLED_DOCUMENTATION in names:
        raise UserError(
            f"data.corpus mixes {INSTALLED_DOCUMENTATION}; make a corpus of it with `bert-jax prepare "
            f"{INSTALLED_DOCUMENTATION}`, and name that"
        )
    if not (min(weights) >= SMALLEST_WEIGHT and abs(sum(weights) - 1) <= 1e-6):
        given = " ".join(f"{weight:g}" for weight in weights)
        raise UserError(
            f"data.weights is {given}; the weights must be at least {SMALLEST_WEIGHT} and add up to 1"
        )
    return dict(zip(names, weights, strict=True))
