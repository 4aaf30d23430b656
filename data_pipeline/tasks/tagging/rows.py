"""Encodes sentences to tag as rows of ids, with a target at the first piece of each word to tag.

A row holds a sentence with the context around it in its document, up to the maximum length, as the paper's
CoNLL-2003 results need; or the sentence alone. Context has no targets.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.batches import NO_TARGET
from data_pipeline.tasks.finetuning.encode import TaskTokenizer, check_length, join
from data_pipeline.tasks.finetuning.rows import Rows
from data_pipeline.tasks.tagging.columns import Scheme, Sentence

Context = Literal["document", "sentence"]
"""document: a sentence to tag is shown with those around it in its document. sentence: it is shown alone."""


@dataclasses.dataclass(frozen=True, eq=False)
class TaggingRows:
    """Rows of [CLS] text [SEP], and the words that each row tags; an example is a sentence.

    Every word is tagged in exactly one row; a sentence longer than a row has several.
    """

    rows: Rows
    """If tags were given, with the per-token target `tag_ids`, -1 where nothing is to be predicted."""
    sentences: tuple[Sentence, ...]
    first_words: np.ndarray
    """int32 [R]: the first word of its sentence that the row tags."""
    positions: tuple[np.ndarray, ...]
    """int32 [W] for each row, which tags W words: the position in the row of each word's first piece."""


def list_tags(sentences: Sequence[Sentence], scheme: Scheme = "iob2") -> tuple[str, ...]:
    """The tags in the order of their ids: O, then B- and I- of every type; with scheme none, all sorted."""
    if scheme == "none":
        return tuple(sorted({tag for sentence in sentences for tag in sentence.tags}))
    types = sorted({tag[2:] for sentence in sentences for tag in sentence.tags if tag != "O"})
    return ("O", *(f"{prefix}-{kind}" for kind in types for prefix in "BI"))


def make_tagging_rows(
    sentences: Sequence[Sentence],
    tokenizer: TaskTokenizer,
    tags: Sequence[str] | None,
    max_length: int,
    context: Context,
) -> TaggingRows:
    """Rows of all sentences, in order.

    Words are cut into pieces one by one; a word without any piece becomes [UNK].

    Args:
      tags: the result of `list_tags`, to make targets; None to predict.
      max_length: most tokens in a row, special ones counted.
      context: document: rows are filled up with the words before and after the sentence, as the paper does.

    Raises:
      UserError: `max_length` is below 8; a sentence has a tag that is not among `tags`, or no
        document although the context is document; the vocabulary has no [UNK].
    """
    check_length(max_length)
    pieces = _split_words(tokenizer, sentences)
    size = max_length - tokenizer.special.in_text
    ids_of_tags = {tag: number for number, tag in enumerate(tags or ())}
    input_ids: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    positions: list[np.ndarray] = []
    numbers: list[int] = []
    first_words: list[int] = []
    for stream in _streams(sentences, context):
        words = [pieces[word] for number in stream for word in sentences[number].words]
        ids, starts = np.concatenate(words), np.cumsum([0, *map(len, words)])
        for number, first, unit in _units(sentences, stream, starts, size):
            begin, end = _surround(starts, unit, size)
            input_ids.append(join(tokenizer, ids[begin:end]))
            positions.append((starts[unit.start : unit.stop] - begin + 1).astype(np.int32))
            numbers.append(number)
            first_words.append(unit.start - first)
            if tags is not None:
                tagged = range(first_words[-1], unit.stop - first)
                target = np.full(len(input_ids[-1]), NO_TARGET, np.int32)
                target[positions[-1]] = [_tag_id(sentences[number], word, ids_of_tags) for word in tagged]
                targets.append(target)
    tokens = {"input_ids": input_ids, "segment_ids": [np.zeros(len(ids), np.int32) for ids in input_ids]}
    return TaggingRows(
        Rows(tokens if tags is None else tokens | {"tag_ids": targets}, {}, np.array(numbers, np.int32)),
        tuple(sentences),
        np.array(first_words, np.int32),
        tuple(positions),
    )


def collect_tags(
    tagged: TaggingRows, batches: Iterable[tuple[np.ndarray, np.ndarray]], tags: Sequence[str]
) -> list[list[str]]:
    """The tag of every word of every sentence.

    Args:
      batches: (row numbers int [B], predicted tag ids int [B, T]); every row once, in any order.
      tags: the model's tags, by id.

    Raises:
      ValueError: a row's tags are missing.
    """
    found: list[list[str | None]] = [[None] * len(sentence.words) for sentence in tagged.sentences]
    for rows, tag_ids in batches:
        for row, ids in zip(rows.tolist(), tag_ids, strict=True):
            first, positions = tagged.first_words[row], tagged.positions[row]
            of_words = [tags[number] for number in ids[positions].tolist()]
            found[tagged.rows.example[row]][first : first + len(positions)] = of_words
    complete = [[tag for tag in sentence if tag is not None] for sentence in found]
    missing = sum(len(s.words) - len(t) for s, t in zip(tagged.sentences, complete, strict=True))
    if missing:
        raise ValueError(f"{missing} words have no tag; each row must be predicted")
    return complete


def _split_words(tokenizer: TaskTokenizer, sentences: Sequence[Sentence]) -> dict[str, np.ndarray]:
    unknown = tokenizer.special.unk
    unknown_id = tokenizer.piece_id(unknown)
    if unknown_id is None:
        raise UserError(f"the model's vocabulary has no {unknown}; tagging needs it for words without pieces")
    pieceless = np.array([unknown_id], np.int32)
    words = list(dict.fromkeys(word for sentence in sentences for word in sentence.words))
    ids = tokenizer.encode_words(words)
    return {word: found if len(found) else pieceless for word, found in zip(words, ids, strict=True)}


def _streams(sentences: Sequence[Sentence], context: Context) -> Iterator[range]:
    """Ranges of sentences that are each other's context: documents, or single sentences."""
    if context == "sentence":
        yield from (range(number, number + 1) for number in range(len(sentences)))
        return
    if any(sentence.document is None for sentence in sentences):
        raise UserError(
            "--context document needs to know where documents begin: add -DOCSTART- lines or `# newdoc` "
            "comments, or give --context sentence"
        )
    first = 0
    for _, group in itertools.groupby(sentence.document for sentence in sentences):
        count = len(list(group))
        yield range(first, first + count)
        first += count


def _units(
    sentences: Sequence[Sentence], stream: range, starts: np.ndarray, size: int
) -> Iterator[tuple[int, int, range]]:
    """(sentence, its first word in the stream, words to tag in one row) for every row of a stream.

    A sentence that fits a row is one unit. A longer one is cut into units of half a row, so that the words at
    the cuts have context too.
    """
    end = 0
    for number in stream:
        first, end = end, end + len(sentences[number].words)
        if starts[end] - starts[first] <= size:
            yield number, first, range(first, end)
            continue
        begin = first
        while begin < end:
            reached = int(np.searchsorted(starts, starts[begin] + size // 2, side="right")) - 1
            stop = min(max(reached, begin + 1), end)
            yield number, first, range(begin, stop)
            begin = stop


def _surround(starts: np.ndarray, unit: range, size: int) -> tuple[int, int]:
    """First piece of a row and the piece after its last: at most `size` pieces, the unit near the middle.

    Only whole words are context. A single word that is longer than a row loses its end.
    """
    first, last = int(starts[unit.start]), int(starts[unit.stop])
    free = max(size - (last - first), 0)
    right = min(int(starts[-1]) - last, free - min(first, free // 2))
    left = min(first, free - right)
    begin = starts[np.searchsorted(starts, first - left, side="left")]
    end = starts[np.searchsorted(starts, last + right, side="right") - 1]
    return int(begin), int(min(end, begin + size))


def _tag_id(sentence: Sentence, word: int, ids: Mapping[str, int]) -> int:
    """The id of a word's tag.

    Raises UserError if there is none. It names the tag by its type, since the user's files may write tags in
    another scheme than IOB2.
    """
    tag = sentence.tags[word]
    if tag in ids:
        return ids[tag]
    said = f"{sentence.place(word)}: no word of training or dev has the"
    if not tag.startswith(("B-", "I-")):
        raise UserError(f"{said} tag {tag}; their tags are {', '.join(ids)}")
    types = ", ".join(known.removeprefix("B-") for known in ids if known.startswith("B-"))
    raise UserError(f"{said} type {tag[2:]}; their types are {types}")
