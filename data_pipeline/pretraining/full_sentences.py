"""FULL-SENTENCES: rows filled with whole sentences of one document after the other, [SEP] between documents.

Liu et al. 2019 (RoBERTa, arXiv 1907.11692), section 4.2. The sentences of the corpus are put into instances
once, in its order; which instance comes when is drawn, as with all pairings. So a sequence depends on its
number alone.
"""

import numpy as np
from numpy.typing import NDArray

from data_pipeline.corpus.documents import Corpus
from data_pipeline.pretraining.instances import follow
from data_pipeline.pretraining.pairs import Sequences, Spans, copy_tokens

Ints = NDArray[np.int64]


def cut_full_sentences(sentence_starts: Ints, documents: Ints, target_tokens: int) -> Ints:
    """Cuts a block of documents greedily: an instance takes sentences for as long as they fit.

    A sentence that is longer than the target is an instance by itself. So instances end also every 131,072
    sentences or so, with the last document of a block. For `cut_instances`.
    """
    starts = sentence_starts[documents[0] : documents[-1] + 1]
    # Counted with the separators before them, one for each document that began since the block did.
    separators = np.repeat(np.arange(len(documents) - 1), np.diff(documents))
    fitting = np.searchsorted(starts[1:] + separators, starts[:-1] + separators + target_tokens, side="right")
    ahead = np.maximum(fitting, np.arange(1, len(starts)))
    return follow(ahead, np.zeros(1, np.int64)) + documents[0]


def write_full_sentences(corpus: Corpus, spans: Spans, max_seq_length: int) -> Sequences:
    """[CLS] text [SEP] text [SEP], a text for each document that has tokens in the span; padded."""
    special = corpus.tokenizer
    stops = spans.a_start + spans.a_length
    firsts = _documents_of_tokens(corpus, spans.a_start)
    inner = _documents_of_tokens(corpus, stops - 1) - firsts
    rows = np.repeat(np.arange(len(inner)), inner + 1)
    before = np.arange(len(rows)) - np.repeat(np.cumsum(inner + 1) - (inner + 1), inner + 1)
    documents = firsts[rows] + before
    begins = np.maximum(corpus.sentence_starts[corpus.document_starts[documents]], spans.a_start[rows])
    ends = np.minimum(corpus.sentence_starts[corpus.document_starts[documents + 1]], stops[rows])
    columns = 1 + begins - spans.a_start[rows] + before
    ids = np.full((len(inner), max_seq_length), special.pad_id, np.int32)
    ids[:, 0] = special.cls_id
    ids[rows, columns + ends - begins] = special.sep_id
    copy_tokens(corpus, [ids[row] for row in rows], columns, begins, ends - begins)
    whole = (spans.lengths + inner).astype(np.int32)
    return Sequences(ids, whole, whole, spans.label)


def _documents_of_tokens(corpus: Corpus, tokens: Ints) -> Ints:
    sentences = np.searchsorted(corpus.sentence_starts, tokens, side="right") - 1
    return np.searchsorted(corpus.document_starts, sentences, side="right") - 1
