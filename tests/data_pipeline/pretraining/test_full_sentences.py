"""FULL-SENTENCES: whole sentences, one document after the other, against a literal loop."""

import numpy as np
import pytest

from data_pipeline.config import DataConfig, MaskingConfig, Phase
from data_pipeline.corpus.documents import Corpus, open_corpus
from data_pipeline.errors import UserError
from data_pipeline.pretraining import instances
from data_pipeline.pretraining.batches import make_corpus_source, training_batches
from data_pipeline.pretraining.full_sentences import cut_full_sentences
from data_pipeline.pretraining.statistics import measure
from tests.data_pipeline.same_batches import assert_same
from tests.data_pipeline.small_corpus import random_documents, write_corpus

LENGTH = 64
DATA = DataConfig(pairing="full_sentences", short_seq_prob=0.0, phases=(Phase(LENGTH, 10),))
CLS, SEP, MASK = 2, 3, 4


def packed_by_hand(documents, room: int) -> list[list[int]]:
    """The texts of the instances, -1 between documents."""
    made: list[list[int]] = [[]]
    last = 0
    for number, document in enumerate(documents):
        for sentence in document:
            border = [-1] if made[-1] and number != last else []
            if made[-1] and len(made[-1]) + len(border) + len(sentence) > room:
                made.append([])
                border = []
            made[-1] += border + list(sentence)
            last = number
    return made


def texts(corpus: Corpus, data: DataConfig = DATA) -> tuple[list[list[int]], list[list[int]]]:
    """The ids of each instance before masking, and those behind their ends."""
    source = make_corpus_source(corpus, data, data.phases[0])
    numbers = np.arange(len(source))[:, np.newaxis]
    drawn = source.draw(numbers, np.zeros((len(source), source.num_draws), np.uint32), 0.0)
    ids, ends = drawn.sequences.input_ids, drawn.sequences.ends
    return [row[:end].tolist() for row, end in zip(ids, ends, strict=True)], [
        row[end:].tolist() for row, end in zip(ids, ends, strict=True)
    ]


def test_instances_are_those_of_a_loop_over_sentences(corpus):
    documents = random_documents(40)
    found, padding = texts(corpus)
    expected = [[SEP if i == -1 else i for i in text] for text in packed_by_hand(documents, LENGTH - 2)]
    assert found == [[CLS, *text, SEP] for text in expected]
    assert sum(text.count(SEP) for text in expected) > 20
    assert not np.concatenate(padding).any()


def test_a_sentence_longer_than_a_row_is_cut(tmp_path):
    long = list(range(5, 205))
    write_corpus(tmp_path, [[[[5, 6], long, [7]]]])
    found, _ = texts(open_corpus(tmp_path, "train"))
    assert [len(text) for text in found] == [4, LENGTH, 3]
    assert found[1][1:-1] == list(range(found[1][1], found[1][1] + LENGTH - 2))


def test_blocks_bound_memory_and_end_instances(corpus, monkeypatch):
    monkeypatch.setattr(instances, "_SENTENCES_PER_BLOCK", 60)
    cut = instances.cut_instances(
        corpus.sentence_starts, corpus.document_starts, LENGTH - 2, cut_full_sentences
    )
    ends = [hi for _, hi in instances.document_blocks(corpus.document_starts)]
    assert len(ends) > 3
    assert np.isin(corpus.document_starts[ends], cut.first_sentences).all()
    assert np.all(np.diff(cut.first_sentences.astype(int)) > 0)


def test_no_separator_is_predicted_and_steps_are_made_directly(corpus):
    wanted = {"seed": 1, "global_batch_size": 8, "num_train_steps": 30}
    batches = list(training_batches(str(corpus.directory), DATA, first_step=0, **wanted))
    for batch in batches:
        is_used = batch["masked_lm_weights"] > 0
        assert not np.isin(batch["masked_lm_ids"][is_used], (CLS, SEP)).any()
        assert not batch["segment_ids"].any()
        assert not batch["next_sentence_labels"].any()
    assert_same(list(training_batches(str(corpus.directory), DATA, first_step=17, **wanted)), batches[17:])


def test_rows_are_fuller_than_those_of_one_document(corpus):
    full, one = (
        measure(make_corpus_source(corpus, data, DATA.phases[0]), 0, 0, 512)
        for data in (DATA, DataConfig(pairing="contiguous", short_seq_prob=0.0, phases=DATA.phases))
    )
    assert full.mean_length > 50
    assert all(check.is_within for check in full.checks + one.checks)


@pytest.mark.parametrize(
    "changes", [{"short_seq_prob": 0.1}, {"max_instances_per_row": 2, "short_seq_prob": 0}]
)
def test_short_sequences_and_packing_are_refused(changes):
    with pytest.raises(UserError, match=r"full_sentences fills each row .*short_seq_prob must be 0"):
        DataConfig(pairing="full_sentences", masking=MaskingConfig(), **changes)
