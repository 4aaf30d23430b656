"""Corpus: what `prepare` wrote comes back token for token, and damage is named."""

import functools
import gc
import json
import operator
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from data_pipeline.corpus.documents import Corpus, open_corpus, read_manifest
from data_pipeline.corpus.store import Mixture, open_store
from data_pipeline.errors import UserError
from data_pipeline.preparing.inputs import Source, find_inputs
from data_pipeline.preparing.local_runner import LocalRunner
from data_pipeline.preparing.prepare import PrepareSettings, prepare
from data_pipeline.preparing.shard_texts import as_text
from tests.damage import flip_a_bit
from tests.data_pipeline.preparing.small_text import write_text, write_vocabulary

MISSING = object()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """(text file, corpus directory) of several shards in both splits."""
    directory = tmp_path_factory.mktemp("corpus")
    vocabulary = write_vocabulary(directory / "vocab.txt")
    text = write_text(directory / "text.txt")
    source = Source((str(text),), format="sentences")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_pipeline.preparing.shard_texts.SHARD_TEXT_BYTES", 600)
        prepare(
            PrepareSettings(source, vocab=str(vocabulary), holdout=0.3),
            directory / "made",
            runner=LocalRunner(1),
        )
    return text, directory / "made"


@pytest.fixture
def corpus_copy(prepared, tmp_path):
    return Path(shutil.copytree(prepared[1], tmp_path / "made"))


def documents_of(corpus: Corpus) -> list[str]:
    """The documents of a corpus as text, with one sentence per line."""
    starts = corpus.sentence_starts
    sentences = [
        corpus.tokenizer.decode(corpus.read(starts[s], starts[s + 1])) for s in range(corpus.num_sentences)
    ]
    firsts = corpus.document_starts
    return ["\n".join(sentences[firsts[d] : firsts[d + 1]]) for d in range(corpus.num_documents)]


def test_every_document_comes_back_in_order_in_one_split(prepared):
    text, made = prepared
    original = [as_text(d) for d in find_inputs(Source((str(text),), format="sentences")).documents()]
    train, heldout = (documents_of(open_corpus(made, split)) for split in ("train", "heldout"))
    assert len(heldout) > 3
    assert sorted(train + heldout) == sorted(original)
    assert train == [document for document in original if document in set(train)]


def test_positions_are_global_and_nothing_is_copied(prepared):
    corpus = open_corpus(prepared[1], "train")
    entry = corpus.manifest["splits"]["train"]
    assert corpus.num_tokens == entry["tokens"] == corpus.sentence_starts[-1] == corpus.shard_starts[-1]
    assert corpus.num_sentences == entry["sentences"] == corpus.document_starts[-1]
    assert corpus.num_documents == entry["documents"]
    assert corpus.sentence_starts.dtype == corpus.document_starts.dtype == np.int64
    assert (np.diff(corpus.sentence_starts) > 0).all()
    assert (np.diff(corpus.document_starts) > 0).all()
    joined = np.concatenate(
        [corpus.map_shard(number).tokens for number in range(len(corpus.shard_starts) - 1)]
    )
    for start, stop in zip(corpus.sentence_starts[:-1], corpus.sentence_starts[1:], strict=True):
        part = corpus.read(start, stop)
        assert (part == joined[start:stop]).all()
        assert not part.flags.owndata
    assert joined.dtype == np.uint16
    corpus.verify()


def test_more_shards_than_maps_are_read_by_turns(prepared, monkeypatch):
    """A corpus may have more shards than the memory maps that the system allows a process."""
    whole = open_corpus(prepared[1], "train")
    monkeypatch.setattr("data_pipeline.corpus.documents.MOST_MAPS", 3)
    corpus = open_corpus(prepared[1], "train")
    assert len(corpus.shard_starts) - 1 > 3
    assert (corpus.sentence_starts == whole.sentence_starts).all()
    with ThreadPoolExecutor(4) as pool:
        sentences = np.random.default_rng(0).permutation(corpus.num_sentences)
        spans = corpus.sentence_starts[sentences], corpus.sentence_starts[sentences + 1]
        for part, expected in zip(pool.map(corpus.read, *spans), map(whole.read, *spans), strict=True):
            assert (part == expected).all()
        del part  # it would keep its shard mapped
    assert count_maps(prepared[1]) - (len(whole.shard_starts) - 1) in (1, 2, 3)


def test_the_corpora_of_a_mixture_share_the_maps(corpus_copy, tmp_path, monkeypatch):
    other = Path(shutil.copytree(corpus_copy, tmp_path / "other"))
    monkeypatch.setattr("data_pipeline.corpus.documents.MOST_MAPS", 6)
    store = open_store(f"{corpus_copy},{other}", "train", (0.5, 0.5))
    assert isinstance(store, Mixture)
    assert all(len(corpus.shard_starts) - 1 > 3 for corpus in store.corpora)
    assert count_maps(corpus_copy) + count_maps(other) <= 6


def count_maps(directory: Path) -> int:
    """Number of memory maps of the train split's shards in this process."""
    gc.collect()
    return Path("/proc/self/maps").read_text().count(f"{directory}/train-")


def test_pyarrow_alone_reads_a_shard(prepared):
    import pyarrow as pa

    with pa.OSFile(str(prepared[1] / "train-00000.arrow")) as file:
        table = pa.ipc.open_file(file).read_all()
    assert table.column_names == ["documents"]
    assert (
        table.num_rows
        == open_corpus(prepared[1], "train").manifest["splits"]["train"]["shards"][0]["documents"]
    )


def test_a_truncated_shard_is_named(corpus_copy):
    shard = corpus_copy / "train-00001.arrow"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"train-00001\.arrow has \d+ bytes instead of \d+"):
        open_corpus(corpus_copy, "train")
    shard.unlink()
    with pytest.raises(UserError, match=r"train-00001\.arrow is missing"):
        open_corpus(corpus_copy, "train")


def test_an_altered_shard_is_named(corpus_copy):
    shard = corpus_copy / "train-00001.arrow"
    flip_a_bit(shard)
    with pytest.raises(UserError, match=r"train-00001\.arrow was altered"):
        open_corpus(corpus_copy, "train").verify()


def test_another_vocabulary_is_refused(corpus_copy):
    file = corpus_copy / "tokenizer" / "vocab.txt"
    file.write_text(file.read_text().replace("cat", "owl"))
    with pytest.raises(UserError, match="don't belong together"):
        open_corpus(corpus_copy, "train")


def test_another_casing_is_another_vocabulary(corpus_copy):
    file = corpus_copy / "tokenizer" / "settings.json"
    file.write_text(file.read_text().replace("uncased", "cased"))
    with pytest.raises(UserError, match="don't belong together"):
        open_corpus(corpus_copy, "train")


def test_what_is_not_a_corpus_is_refused(tmp_path, corpus_copy):
    with pytest.raises(UserError, match=r"is not a corpus: it has no readable manifest\.json"):
        open_corpus(tmp_path / "absent", "train")
    manifest = corpus_copy / "manifest.json"
    ours = manifest.read_text()
    for another_programs in ("[1]", '{"name": "my web site"}'):
        manifest.write_text(another_programs)
        with pytest.raises(UserError, match=r"is not a corpus: it has no readable manifest\.json"):
            open_corpus(corpus_copy, "train")
    manifest.write_text(json.dumps({**json.loads(ours), "format_version": 99}))
    with pytest.raises(UserError, match="corpus format 99; this version reads 1"):
        open_corpus(corpus_copy, "train")
    (corpus_copy / "tokenizer" / "settings.json").unlink()
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format_version": 1}))
    with pytest.raises(UserError, match="holds no tokenizer"):
        open_corpus(corpus_copy, "train")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("tokenizer", []),
        ("tokenizer.sha256", MISSING),
        ("tokenizer.vocab_size", "20"),
        ("splits", 1),
        ("splits.heldout", None),
        ("splits.heldout", MISSING),
        ("splits.train.documents", 2.5),
        ("splits.train.shards", {}),
        ("splits.train.shards.1", "train-00001.arrow"),
        ("splits.train.shards.1.bytes", "80"),
        ("splits.train.shards.1.file", MISSING),
    ],
)
def test_a_damaged_manifest_is_named_with_the_place(corpus_copy, place, value):
    file = corpus_copy / "manifest.json"
    manifest = json.loads(file.read_text())
    *outer, last = (int(name) if name.isdigit() else name for name in place.split("."))
    damaged = functools.reduce(operator.getitem, outer, manifest)
    if value is MISSING:
        del damaged[last]
    else:
        damaged[last] = value
    file.write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=rf"manifest\.json was altered: {place} is missing or of another"):
        read_manifest(corpus_copy)


def test_a_missing_split_says_how_to_get_one(prepared, tmp_path):
    text, made = prepared
    source = Source((str(text),), format="sentences")
    settings = PrepareSettings(source, vocab=str(made / "tokenizer" / "vocab.txt"), holdout=0)
    prepare(settings, tmp_path / "all", runner=LocalRunner(1))
    with pytest.raises(UserError, match="has no heldout documents; prepare it with --holdout above 0"):
        open_corpus(tmp_path / "all", "heldout")
