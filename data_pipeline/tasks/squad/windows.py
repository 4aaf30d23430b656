"""Encodes questions with windows of their passages, cut as in google-research/bert's run_squad.py.

Pieces keep their places in the passage, so the target of an answer is the tightest span of pieces that
covers it, and a predicted answer is a slice of the passage.
"""

import dataclasses
import itertools
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.encode import TaskTokenizer, join, pair_segments
from data_pipeline.tasks.finetuning.rows import Rows
from data_pipeline.tasks.squad import Flags
from data_pipeline.tasks.squad.questions import LabelledExamples, SquadExample

_TEXTS_AT_ONCE = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class Pieces:
    """A text as N pieces."""

    ids: np.ndarray
    """int32 [N]"""
    starts: np.ndarray
    """int32 [N]: first character of each piece; with SentencePiece this can be the blank before a word."""
    ends: np.ndarray
    """int32 [N]: end (exclusive) of each piece, including combining marks that follow its last character."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclasses.dataclass(frozen=True, eq=False)
class Windows:
    """Rows of [CLS] question [SEP] window [SEP], in the order of the examples, and what each window holds."""

    rows: Rows
    """Without targets."""
    examples: tuple[SquadExample, ...]
    passages: tuple[Pieces, ...]
    """The context of each example in pieces, shared by examples of the same context."""
    text_starts: np.ndarray
    """int32 [R]: position in the row at which the window begins."""
    first_pieces: np.ndarray
    """int32 [R]: index in the passage of the window's first piece."""
    max_context: tuple[np.ndarray, ...]
    """bool [L] for each row, with L pieces in its window: whether a piece has its maximum context there."""

    def __len__(self) -> int:
        return len(self.rows)


def make_windows(examples: Sequence[SquadExample], tokenizer: TaskTokenizer, flags: Flags) -> Windows:
    """Every example's windows: at least one each, which is empty if the context gives no piece.

    Raises UserError unless `max_seq_length` leaves room for text after the question.
    """
    num_special = tokenizer.special.in_pair
    if flags.max_seq_length <= flags.max_query_length + num_special:
        raise UserError(
            f"max_seq_length ({flags.max_seq_length}) must exceed max_query_length "
            f"({flags.max_query_length}) by {num_special + 1} or more, so that a window has text"
        )
    contexts = list(dict.fromkeys(example.context for example in examples))
    pieces = dict(zip(contexts, split_texts(tokenizer, contexts), strict=True))
    questions = split_texts(tokenizer, [example.question for example in examples])

    input_ids, segment_ids, max_context = [], [], []
    numbers, text_starts, first_pieces = [], [], []
    num_cut = 0
    for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
        passage = pieces[example.context]
        num_cut += len(question) > flags.max_query_length
        asked = question.ids[: flags.max_query_length]
        begin = 1 + len(asked) + len(tokenizer.special.between)  # of the window in its row
        starts, ends = cut_passage(len(passage), flags.max_seq_length - begin - 1, flags.doc_stride)
        for start, end in zip(starts, ends, strict=True):
            input_ids.append(join(tokenizer, asked, passage.ids[start:end]))
            segment_ids.append(pair_segments(tokenizer, len(asked), end - start))
        max_context += mark_max_context(starts, ends)
        numbers += [number] * len(starts)
        text_starts += [begin] * len(starts)
        first_pieces += starts.tolist()
    tokens = {"input_ids": input_ids, "segment_ids": segment_ids}
    rows = Rows(tokens, {}, np.array(numbers, np.int32), num_cut=num_cut)
    return Windows(
        rows,
        tuple(examples),
        tuple(pieces[example.context] for example in examples),
        np.array(text_starts, np.int32),
        np.array(first_pieces, np.int32),
        tuple(max_context),
    )


def split_texts(tokenizer: TaskTokenizer, texts: Sequence[str]) -> Iterator[Pieces]:
    """The pieces of each text, without special tokens."""
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        batch = list(texts[first : first + _TEXTS_AT_ONCE])
        encodings = tokenizer.tokenizer.encode_batch(batch, add_special_tokens=False)
        for text, encoding in zip(batch, encodings, strict=True):
            places = np.array(encoding.offsets, np.int32).reshape(-1, 2)
            ends = _with_marks(text, places[:, 0], places[:, 1])
            yield Pieces(np.array(encoding.ids, np.int32), places[:, 0], ends)


def _with_marks(text: str, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The ends of pieces, moved past combining marks that are in no piece.

    A tokenizer that strips accents drops these marks, so its offsets would cut them off the end of an answer.
    """
    marks = {character for character in set(text) if unicodedata.category(character).startswith("M")}
    if not marks:
        return ends
    moved = ends.copy()
    for piece, bound in enumerate([*starts[1:], len(text)][: len(ends)]):
        while moved[piece] < bound and text[moved[piece]] in marks:
            moved[piece] += 1
    return moved


def leave_out_pieceless(labelled: LabelledExamples, tokenizer: TaskTokenizer) -> LabelledExamples:
    """The same without the questions whose answer gives no piece, such as one of control characters alone.

    Raises UserError if no question is left.
    """
    texts = [
        example.context[start:end]
        for example, (start, end) in zip(labelled.examples, labelled.spans, strict=True)
    ]
    is_kept = [not text or len(ids) > 0 for text, ids in zip(texts, tokenizer.encode(texts), strict=True)]
    if not any(is_kept):
        raise UserError("no answer of the training questions gives a piece of the vocabulary")
    left_out = itertools.compress(labelled.examples, np.logical_not(is_kept))
    return LabelledExamples(
        tuple(itertools.compress(labelled.examples, is_kept)),
        labelled.spans[is_kept],
        (*labelled.misplaced, *(example.id for example in left_out)),
    )


def label_windows(windows: Windows, spans: np.ndarray) -> Rows:
    """The rows of `windows` with targets to train on.

    Args:
      spans: int32 [E, 2], the characters of each example's answer; (0, 0) if it has none.

    Returns:
      rows with `start_positions` and `end_positions` int32 [R], the positions of the answer's first and last
      piece; 0, the position of [CLS], if the window doesn't hold the whole answer.

    Raises:
      UserError: an answer is covered by no piece.
    """
    pieces = np.array(list(_piece_spans(windows, spans)), np.int32).reshape(-1, 2)[windows.rows.example]
    shifts = windows.text_starts - windows.first_pieces
    lengths = np.array([len(mask) for mask in windows.max_context], np.int32)
    inside = (pieces[:, 0] >= windows.first_pieces) & (pieces[:, 1] < windows.first_pieces + lengths)
    targets = {
        "start_positions": np.where(inside, pieces[:, 0] + shifts, 0).astype(np.int32),
        "end_positions": np.where(inside, pieces[:, 1] + shifts, 0).astype(np.int32),
    }
    return dataclasses.replace(windows.rows, targets=targets)


def cut_passage(length: int, size: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends (exclusive), int [W] each, of the windows of a passage of `length` pieces.

    A stride larger than the size is reduced to the size, so that no piece is skipped.
    """
    step = min(size, stride)
    starts = np.arange(1 + max(0, -(-(length - size) // step))) * step
    return starts, np.minimum(starts + size, length)


def mark_max_context(starts: np.ndarray, ends: np.ndarray) -> list[np.ndarray]:
    """For each window, bool [end - start]: whether each of its pieces has its maximum context there.

    The context of a piece is min(pieces to its left, pieces to its right) + 0.01 * length of the window; of
    windows with equal context the first is taken (run_squad.py, _check_is_max_context).
    """
    if not ends[-1]:
        return [np.zeros(0, bool)]
    places = np.arange(ends[-1])
    first = np.searchsorted(ends, places, side="right")  # first and last window that hold each piece
    last = np.searchsorted(starts, places, side="right") - 1
    # Only these are compared: all windows for all pieces would grow with the square of the passage.
    windows = last - np.arange((last - first).max(), -1, -1)[:, np.newaxis]
    context = np.minimum(places - starts[windows], ends[windows] - 1 - places)
    context = np.where(windows >= first, context + 0.01 * (ends - starts)[windows], -np.inf)
    best = np.take_along_axis(windows, context.argmax(axis=0)[np.newaxis], axis=0)[0]
    return [best[start:end] == window for window, (start, end) in enumerate(zip(starts, ends, strict=True))]


def _piece_spans(windows: Windows, spans: np.ndarray) -> Iterator[tuple[int, int]]:
    """First and last piece of each example's answer; (-1, -1) if it has none."""
    for example, passage, (start, end) in zip(windows.examples, windows.passages, spans, strict=True):
        if start == end:
            yield -1, -1
            continue
        first = np.searchsorted(passage.ends, start, side="right")
        last = np.searchsorted(passage.starts, end, side="left") - 1
        if first > last:
            raise UserError(f"the answer of question {example.id} is covered by no piece of its context")
        yield int(first), int(last)
