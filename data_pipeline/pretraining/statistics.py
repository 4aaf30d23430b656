"""Statistics of batches, compared with what the settings promise.

The examples are those that a run with the same settings and seed starts with, drawn by the same code.
The expected values are computed here independently, from the definitions, with numpy alone.
"""

import dataclasses

import numpy as np

from data_pipeline.config import MaskingConfig, Phase
from data_pipeline.pretraining.corpus_source import CorpusSource, Drawn
from data_pipeline.pretraining.mixture import MixedSource
from data_pipeline.pretraining.order import random_bits
from data_pipeline.tensorflow_cpu import tf

_BATCH = 256
# At four standard errors, one correct check in 16,000 is flagged by chance.
_STANDARD_ERRORS = 4.0
_MANY_CUT_PREDICTIONS = 0.05


@dataclasses.dataclass(frozen=True)
class Check:
    """An expected fraction and the observed one."""

    name: str
    expected: float
    observed: float
    tolerance: float
    """Largest acceptable difference between the two."""

    @property
    def is_within(self) -> bool:
        """Whether the two fractions differ by at most `tolerance`."""
        return abs(self.observed - self.expected) <= self.tolerance


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Measurements on the first batches of one phase."""

    examples: int
    """Number of sequences; each instance of a packed row is one."""
    rows: int
    most_in_a_row: int
    """Largest number of sequences in one row."""
    checks: tuple[Check, ...]
    lengths: tuple[int, ...]
    """Tokens in a sequence, special ones counted: minimum, the three quartiles, maximum."""
    mean_length: float
    padding: float
    """Fraction of positions that hold no token."""
    cut_predictions: float
    """Fraction of the predictions asked for by the masking rate that have no slot."""
    wanted_slots: int
    """Smallest number of slots with which no prediction would be cut."""

    def warnings(self, phase: Phase) -> list[str]:
        """One line if `phase`, the one measured, has slots for too few of the wanted predictions."""
        if self.cut_predictions <= _MANY_CUT_PREDICTIONS:
            return []
        return [
            f"max_predictions_per_seq {phase.max_predictions_per_seq} leaves out {self.cut_predictions:.0%} "
            f"of the predictions wanted at length {phase.max_seq_length}; {self.wanted_slots} leaves out none"
        ]


def draw_examples(
    source: CorpusSource, seed: int, stream: int, first: int, size: int, progress: float = 0.0
) -> Drawn:
    """Draws the rows at positions first, ..., first + size - 1 of a stream, at a fraction of the run."""
    return source.draw(*place_rows(source, seed, stream, first, size), progress)


def place_rows(
    source: CorpusSource | MixedSource, seed: int, stream: int, first: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """The instances and the random bits of the rows at positions first, ..., first + size - 1 of a stream."""
    positions = tf.range(first, first + size, dtype=tf.int64)
    bits = random_bits(seed, stream, tf.constant(first, tf.int64), size, source.num_draws)
    return source.order(seed, stream, positions).numpy(), bits.numpy()


def measure(source: CorpusSource, seed: int, stream: int, examples: int, progress: float = 0.0) -> Statistics:
    """Draws at least `examples` rows and compares them with the settings of their source.

    Args:
      source: the instances of a corpus, with the settings of a phase.
      seed: the run's.
      stream: the phase's number.
      examples: how many rows are drawn at least.
      progress: fraction of the run that was done before, on which the masking rate may depend.
    """
    batches = range(0, max(examples, 1), _BATCH)
    drawn = [draw_examples(source, seed, stream, first, _BATCH, progress) for first in batches]
    return compare(drawn, source, progress)


def compare(drawn: list[Drawn], source: CorpusSource, progress: float = 0.0) -> Statistics:
    """Compares what was drawn at a fraction of the run with what the settings of `source` promise."""
    ends = np.concatenate([d.sequences.ends for d in drawn])
    phase, masking = source.phase, source.data.masking.at(progress)
    is_masked = masking.rate and phase.max_predictions_per_seq
    wanted = np.maximum(1, np.round(ends * masking.rate)) if is_masked else np.zeros(len(ends))
    # The instances of a row share its slots.
    wanted_in_row = _sum_rows(drawn, wanted)
    slots = np.minimum(wanted_in_row, phase.max_predictions_per_seq)
    text_tokens = np.concatenate([d.spans.a_length + d.spans.b_length for d in drawn])
    possible = np.minimum(slots, _sum_rows(drawn, np.minimum(wanted, text_tokens)))
    checks = _check_pairs(drawn, source)
    if slots.any():
        checks = [_check_amount(drawn, possible, masking), *_check_replacements(drawn, source), *checks]
    return Statistics(
        examples=len(ends),
        rows=len(slots),
        most_in_a_row=int(_sum_rows(drawn, np.ones(len(ends))).max()),
        checks=tuple(checks),
        lengths=tuple(int(q) for q in np.quantile(ends, [0, 0.25, 0.5, 0.75, 1], method="nearest")),
        mean_length=float(ends.mean()),
        padding=1 - float(ends.sum()) / (len(slots) * phase.max_seq_length),
        cut_predictions=1 - float(slots.sum()) / float(wanted.sum()) if wanted.any() else 0.0,
        wanted_slots=int(wanted_in_row.max()),
    )


def _check_amount(drawn: list[Drawn], counts: np.ndarray, masking: MaskingConfig) -> Check:
    tokens = sum(int(d.sequences.ends.sum()) for d in drawn)
    predicted = sum(float(d.batch["masked_lm_weights"].sum()) for d in drawn)
    expected = float(counts.sum()) / tokens
    # The number of chosen tokens is not random, but whole words may not fill it exactly.
    tolerance = 1e-9 if masking.unit == "token" else 0.05 * expected
    return Check("tokens to predict", expected, predicted / tokens, tolerance)


def _check_replacements(drawn: list[Drawn], source: CorpusSource) -> list[Check]:
    is_used = np.concatenate([d.batch["masked_lm_weights"] for d in drawn]) > 0
    was = np.concatenate([d.batch["masked_lm_ids"] for d in drawn])[is_used]
    positions = np.concatenate([d.batch["masked_lm_positions"] for d in drawn])
    inputs = np.concatenate([d.batch["input_ids"] for d in drawn])
    now = np.take_along_axis(inputs, positions, axis=1)[is_used]
    masking, tokenizer = source.data.masking, source.corpus.tokenizer
    if masking.unit == "span":  # one draw for all tokens of a run
        is_first = np.diff(positions, axis=1, prepend=-2)[is_used] != 1
        was, now = was[is_first], now[is_first]
    is_mask, is_same = now == tokenizer.mask_id, now == was
    # A random id may turn out to be the token itself, or [MASK].
    chance = masking.random / tokenizer.vocab_size
    return [
        _binomial("  now [MASK]", is_mask, masking.mask + chance),
        _binomial("  left as they are", is_same, masking.same + chance),
        _binomial("  now a random token", ~(is_mask | is_same), masking.random - 2 * chance),
    ]


def _check_pairs(drawn: list[Drawn], source: CorpusSource) -> list[Check]:
    is_short = np.concatenate([d.spans.is_short for d in drawn])
    checks = [_binomial("sequences drawn short", is_short, source.data.short_seq_prob)]
    if not source.data.has_pairs:
        return checks
    is_random = np.concatenate([d.spans.label for d in drawn]) == 1
    if source.data.pairing == "sentence_order":
        has_b = np.concatenate([d.spans.b_length for d in drawn]) > 0
        if has_b.any():  # not if each text is a single token
            checks.append(_binomial("A and B swapped", is_random[has_b], source.data.random_next_prob))
        return checks
    forced = int(sum(d.spans.is_forced.sum() for d in drawn))
    return [*checks, _binomial("B from another document", is_random, source.data.random_next_prob, forced)]


def _binomial(name: str, hits: np.ndarray, probability: float, certain: int = 0) -> Check:
    """Compares the fraction of `hits` [n] with `probability`; `certain` of the n were sure, not drawn."""
    draws = len(hits) - certain
    deviation = (max(probability * (1 - probability), 0.0) * draws) ** 0.5
    return Check(
        name,
        expected=(certain + probability * draws) / len(hits),
        observed=float(hits.mean()),
        tolerance=_STANDARD_ERRORS * deviation / len(hits) + 1e-9,
    )


def _sum_rows(drawn: list[Drawn], values: np.ndarray) -> np.ndarray:
    """Returns the sum of the instances' `values` [n] for each row."""
    firsts = np.cumsum([0] + [len(d.batch["input_ids"]) for d in drawn])
    rows = np.concatenate([d.places.rows + first for d, first in zip(drawn, firsts, strict=False)])
    return np.bincount(rows, values)
