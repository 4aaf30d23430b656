"""Turns start and end logits into answers cut from the passage, as run_squad.py's write_predictions does.

Each window is reduced to its best few answers as it arrives, so logits need not be kept.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from data_pipeline.atomic import write_json
from data_pipeline.tasks.squad import Flags
from data_pipeline.tasks.squad.windows import Windows

SquadVersion = Literal["1.1", "2.0"]
"""2.0: a question may have no answer, and "" is among its candidates."""
Logits = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(row numbers int [B], start logits [B, T], end logits [B, T]); T may differ between batches."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A span of the context that may be the answer, or no answer."""

    text: str
    start: int
    """Offset of its first character in the context; -1 for no answer."""
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """What candidates are ranked by."""
        return self.start_logit + self.end_logit

    @property
    def end(self) -> int:
        """Offset of the character after its last; -1 for no answer."""
        return self.start + len(self.text) if self.text else -1


def no_answer(start_logit: float, end_logit: float) -> Candidate:
    """The candidate for no answer, whose text is ""."""
    return Candidate("", -1, start_logit, end_logit)


@dataclasses.dataclass(frozen=True)
class PredictedAnswer:
    """The candidates found for a question."""

    id: str
    best: Candidate
    """The best span of the passage; no answer only if no span was valid."""
    null: Candidate
    """No answer, with the logits of the window where its score is lowest."""
    null_odds: float
    """Score of `null` minus that of `best`."""
    candidates: tuple[Candidate, ...]
    """Best first, each text once. In 2.0 they include "", placed by its score, or last if that is too low."""

    def choose(self, null_threshold: float | None) -> Candidate:
        """`null` if the null odds exceed the threshold, else `best`; `best` if it is None (SQuAD 1.1)."""
        is_null = null_threshold is not None and self.null_odds > null_threshold
        return self.null if is_null else self.best

    def text(self, null_threshold: float | None) -> str:
        """The text of the chosen candidate; "" for no answer."""
        return self.choose(null_threshold).text

    def probabilities(self) -> list[float]:
        """Softmax of the candidates' scores."""
        highest = max(candidate.score for candidate in self.candidates)
        weights = [math.exp(candidate.score - highest) for candidate in self.candidates]
        total = sum(weights)
        return [weight / total for weight in weights]


def find_best_answers(
    windows: Windows, batches: Iterable[Logits], flags: Flags, version: SquadVersion
) -> list[PredictedAnswer]:
    """The answer to every example, in their order.

    A span is valid if its start and end are among the window's `n_best_size` highest logits, it lies in the
    passage, begins at a piece that has its maximum context in the window, and is not too long. Logits of
    padding, which depend on the batch, are left out; in run_squad.py they count among the `n_best_size`.

    Args:
      batches: the logits of every row of `windows`, each row once, in any order.

    Raises:
      ValueError: a row's logits are missing.
    """
    found: dict[int, list[Candidate]] = {}
    nulls: dict[int, Candidate] = {}
    for rows, start_logits, end_logits in batches:
        spans = _best_spans(windows, rows, start_logits, end_logits, flags)
        for row, of_row in zip(rows.tolist(), spans, strict=True):
            found[row] = _take(_candidates(windows, row, of_row), flags.n_best_size)
        for row, start, end in zip(rows.tolist(), start_logits[:, 0], end_logits[:, 0], strict=True):
            nulls[row] = no_answer(float(start), float(end))
    if len(found) != len(windows):
        raise ValueError(f"logits of {len(windows) - len(found)} of {len(windows)} windows are missing")
    bounds = np.searchsorted(windows.rows.example, np.arange(len(windows.examples) + 1))
    answers = []
    for example, first, end in zip(windows.examples, bounds[:-1], bounds[1:], strict=True):
        texts = [candidate for row in range(first, end) for candidate in found[row]]
        null = min((nulls[row] for row in range(first, end)), key=lambda candidate: candidate.score)
        answers.append(_decide(example.id, texts, null, flags.n_best_size, version))
    return answers


def write_answers(directory: Path, answers: Sequence[PredictedAnswer], null_threshold: float | None) -> None:
    """Writes predictions.json and nbest_predictions.json, and null_odds.json if there is a threshold.

    SQuAD's own evaluation reads the first and the last.
    """
    directory.mkdir(parents=True, exist_ok=True)
    texts = {answer.id: answer.text(null_threshold) for answer in answers}
    write_json(directory / "predictions.json", texts)
    write_json(directory / "nbest_predictions.json", {answer.id: _describe(answer) for answer in answers})
    if null_threshold is not None:
        write_json(directory / "null_odds.json", {answer.id: answer.null_odds for answer in answers})


_Span = tuple[int, int, float, float]
"""First and last position in the row, and their logits."""


def _best_spans(
    windows: Windows, rows: np.ndarray, start_logits: np.ndarray, end_logits: np.ndarray, flags: Flags
) -> Iterator[list[_Span]]:
    """All valid spans of each row, best first; ties are in the order of run_squad.py's loops."""
    is_token, may_start, may_end = _masks(windows, rows, start_logits.shape[1])
    starts = _highest(np.where(is_token, start_logits, -np.inf), flags.n_best_size)
    ends = _highest(np.where(is_token, end_logits, -np.inf), flags.n_best_size)
    span_lengths = ends[:, np.newaxis, :] - starts[:, :, np.newaxis] + 1
    is_valid = (span_lengths >= 1) & (span_lengths <= flags.max_answer_length)
    is_valid &= np.take_along_axis(may_start, starts, 1)[:, :, np.newaxis]
    is_valid &= np.take_along_axis(may_end, ends, 1)[:, np.newaxis, :]
    # In double precision, as run_squad.py adds them.
    of_starts = np.take_along_axis(start_logits, starts, 1).astype(np.float64)
    of_ends = np.take_along_axis(end_logits, ends, 1).astype(np.float64)
    scores = of_starts[:, :, np.newaxis] + of_ends[:, np.newaxis, :]
    for place in range(len(rows)):
        i, j = np.nonzero(is_valid[place])
        order = np.argsort(-scores[place, i, j], kind="stable")
        i, j = i[order], j[order]
        columns = starts[place, i], ends[place, j], of_starts[place, i], of_ends[place, j]
        yield list(zip(*(column.tolist() for column in columns), strict=True))


def _masks(windows: Windows, rows: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which positions of the rows are not padding, may begin an answer, and may end one: bool [B, width]."""
    is_token, may_start, may_end = np.zeros((3, len(rows), width), bool)
    for place, row in enumerate(rows.tolist()):
        mask, first = windows.max_context[row], windows.text_starts[row]
        is_token[place, : len(windows.rows.tokens["input_ids"][row])] = True
        may_start[place, first : first + len(mask)] = mask
        may_end[place, first : first + len(mask)] = True
    return is_token, may_start, may_end


def _highest(logits: np.ndarray, count: int) -> np.ndarray:
    """int [B, count]: positions of each row's highest logits, highest first; of ties the first position."""
    return np.argsort(-logits, axis=1, kind="stable")[:, :count]


def _candidates(windows: Windows, row: int, spans: Iterable[_Span]) -> Iterator[Candidate]:
    number = windows.rows.example[row]
    passage, context = windows.passages[number], windows.examples[number].context
    shift = windows.first_pieces[row] - windows.text_starts[row]
    for start, end, start_logit, end_logit in spans:
        first = int(passage.starts[start + shift])
        span = context[first : passage.ends[end + shift]]
        text = span.strip()
        if text:  # SentencePiece has pieces that are only a blank.
            first += len(span) - len(span.lstrip())
            yield Candidate(text, first, start_logit, end_logit)


def _take(candidates: Iterable[Candidate], count: int) -> list[Candidate]:
    """The first `count` candidates with distinct texts."""
    taken: dict[str, Candidate] = {}
    for candidate in candidates:
        if len(taken) == count:
            break
        taken.setdefault(candidate.text, candidate)
    return list(taken.values())


def _decide(
    name: str, texts: list[Candidate], null: Candidate, count: int, version: SquadVersion
) -> PredictedAnswer:
    """The answer to one question with at most `count` candidates, from those of all its windows in order."""
    ranked = sorted(texts, key=lambda candidate: -candidate.score)
    # Without any valid span the best score is 0, as in run_squad.py.
    best = ranked[0] if ranked else no_answer(0.0, 0.0)
    if version == "2.0":
        candidates = _take(sorted([*texts, null], key=lambda candidate: -candidate.score), count)
        candidates += [null] if null not in candidates else []
    else:
        candidates = _take(ranked, count) or [best]
    return PredictedAnswer(name, best, null, null.score - best.score, tuple(candidates))


def _describe(answer: PredictedAnswer) -> list[dict[str, Any]]:
    return [
        {
            "text": candidate.text,
            "probability": probability,
            "start_logit": candidate.start_logit,
            "end_logit": candidate.end_logit,
        }
        for candidate, probability in zip(answer.candidates, answer.probabilities(), strict=True)
    ]
