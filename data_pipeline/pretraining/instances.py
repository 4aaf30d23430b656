"""Instances: runs of consecutive sentences, of one document but for FULL-SENTENCES, that fill a sequence.

They depend on sentence lengths alone and tile the corpus, so an array of their first sentences describes
them all. It is made when a run starts; there is no cache that could go stale.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

# Documents are cut in blocks of about this many sentences, which fit the CPU cache and bound the memory.
_SENTENCES_PER_BLOCK = 1 << 17

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Instances:
    """Instance i is the sentences [first_sentences[i], first_sentences[i + 1]).

    first_sentences: int64 [N + 1] (uint32 where that is enough).
    """

    first_sentences: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.first_sentences) - 1


def cut_instances(
    sentence_starts: Ints,
    document_starts: Ints,
    target_tokens: int,
    cut_block: Callable[[Ints, Ints, int], Ints],
) -> Instances:
    """Cuts a corpus into instances, one block of documents after the other, which bounds memory.

    Args:
      sentence_starts: [S + 1], ascending token positions; sentence s ends where s + 1 starts.
      document_starts: [D + 1], ascending sentence numbers, likewise.
      target_tokens: at least 1.
      cut_block: (sentence_starts, the block's part of document_starts, target_tokens) -> first sentence of
        each instance of the block, in order.
    """
    dtype = np.uint32 if len(sentence_starts) < 2**32 else np.int64
    firsts = [
        cut_block(sentence_starts, document_starts[lo : hi + 1], target_tokens).astype(dtype)
        for lo, hi in document_blocks(document_starts)
    ]
    return Instances(np.concatenate([*firsts, np.array([document_starts[-1]], dtype)]))


def document_blocks(document_starts: Ints) -> list[tuple[int, int]]:
    """Returns ranges of documents: at most _SENTENCES_PER_BLOCK sentences each, or one longer document."""
    blocks, lo, documents = [], 0, len(document_starts) - 1
    while lo < documents:
        limit = document_starts[lo] + _SENTENCES_PER_BLOCK
        hi = max(lo + 1, int(np.searchsorted(document_starts, limit, side="right")) - 1)
        blocks.append((lo, hi))
        lo = hi
    return blocks


def cut_documents(sentence_starts: Ints, documents: Ints, target_tokens: int) -> Ints:
    """Cuts each document greedily: an instance grows until it reaches the target or the document ends.

    The last sentence of an instance may reach past the target. For `cut_instances`.

    Same as google-research/bert, create_pretraining_data.py:241-250, with a fixed target length.
    """
    starts = sentence_starts[documents[0] : documents[-1] + 1]
    beginnings = documents - documents[0]
    filled = np.searchsorted(starts, starts[:-1] + target_tokens)
    ahead = np.minimum(filled, np.repeat(beginnings[1:], np.diff(beginnings)))
    return follow(ahead, beginnings) + documents[0]


def follow(ahead: Ints, beginnings: Ints) -> Ints:
    """The first sentences of the instances of a block, in order.

    Args:
      ahead: [S], the sentence after the instance that would begin at each sentence, S after the last.
      beginnings: the sentences, at most S, where an instance begins whatever is before it.

    Where an instance begins depends on where the one before ended. To follow these links without a
    loop over sentences, `ahead` is doubled: after r rounds it leads 2**r instances on, and `reached`
    marks the first 2**r of each document. A link out of a document leads to where the next begins,
    which is marked anyway.
    """
    ahead = np.append(ahead, len(ahead))
    reached = np.zeros(len(ahead), bool)
    reached[beginnings] = True
    while not reached[further := ahead[reached]].all():
        reached[further] = True
        ahead = ahead[ahead]
    return np.flatnonzero(reached[:-1])
