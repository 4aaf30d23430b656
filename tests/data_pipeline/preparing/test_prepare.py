"""Prepare: the same shards whatever happens on the way, and nothing half-written."""

import dataclasses
import errno
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bert_jax.cli.main import main
from data_pipeline.corpus.documents import open_corpus
from data_pipeline.corpus.shards import make_shard, read_shard, write_shard
from data_pipeline.corpus.tokenizer import load_tokenizer, load_vocabulary
from data_pipeline.errors import Unfinished, UserError
from data_pipeline.preparing import local_runner, shard_texts, summary
from data_pipeline.preparing.inputs import Inputs, Source, find_inputs
from data_pipeline.preparing.local_runner import LocalRunner
from data_pipeline.preparing.partial import claim, partial_directory, publish
from data_pipeline.preparing.prepare import PrepareSettings, prepare
from data_pipeline.preparing.progress import Progress
from data_pipeline.preparing.shard_texts import (
    ShardJob,
    ShardText,
    digest,
    find_heldout_threshold,
    gather_shard_texts,
    tokenize_document,
)
from data_pipeline.preparing.summary import (
    DuplicateSketch,
    Totals,
    hash_contents,
    sum_totals,
    summarize_shard,
    warnings_about,
)
from data_pipeline.preparing.worker_pool import worker_pool
from tests.data_pipeline.preparing.small_text import WORDS, shards, write_text

ROOT = Path(__file__).parents[3]

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")

# Small shards give many of them from little text; worker processes never read the shard size.
# A shell's background processes ignore Ctrl-C, so the handler is set again here.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from data_pipeline.preparing import shard_texts
shard_texts.SHARD_TEXT_BYTES = 1500
from bert_jax.cli.main import main
if __name__ == "__main__":
    sys.exit(main(["prepare", *sys.argv[1:]]))
"""


@pytest.fixture
def text(tmp_path):
    return write_text(tmp_path / "text.txt", documents=400)


@pytest.fixture
def command(tmp_path, text, vocabulary):
    """Arguments of a program that prepares `text` into the directory appended to them."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    settings = ("--format", "sentences", "--vocab", str(vocabulary), "--holdout", "0.1")
    return [sys.executable, str(program), str(text), *settings, "--output"]


def start(command: list[str], *more: object) -> subprocess.Popen:
    return subprocess.Popen(
        [*command, *map(str, more)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(command: list[str], *more: object) -> str:
    process = start(command, *more)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output


def wait_for_shards(process: subprocess.Popen, directory: Path, count: int) -> None:
    while len(list(directory.glob("*.arrow"))) < count:
        assert process.poll() is None, "it ended before it could be stopped"
        time.sleep(0.001)


def living(process: subprocess.Popen) -> list[int]:
    """The ids of the processes in its session that still run. (Each started process leads a session.)"""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session = (directory / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it has just ended
            continue
        if session == str(process.pid) and state != "Z":
            found.append(int(directory.name))
    return found


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has just ended
        return b""


def wait_until_gone(process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while living(process):
        assert time.monotonic() < deadline, "workers outlived their parent"
        time.sleep(0.05)


def test_one_worker_equals_two_byte_for_byte(tmp_path, command):
    finish(command, tmp_path / "one", "--workers", 1)
    finish(command, tmp_path / "two", "--workers", 2)
    assert len(shards(tmp_path / "one")) > 10
    assert shards(tmp_path / "one") == shards(tmp_path / "two")
    one, two = (json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("one", "two"))
    assert {**one, "command": ""} == {**two, "command": ""}


@needs_proc
def test_killed_and_run_again_it_ends_with_the_same_shards(tmp_path, command):
    finish(command, tmp_path / "whole", "--workers", 2)
    output, partial = tmp_path / "killed", tmp_path / "killed.partial"
    times = {}
    for count in (2, 6):
        process = start(command, output, "--workers", 2)
        wait_for_shards(process, partial, count)
        process.kill()
        process.communicate()
        wait_until_gone(process)
        assert not output.exists()
        times = {path.name: path.stat().st_mtime_ns for path in partial.glob("*.arrow")}
    finish(command, output, "--workers", 2)
    assert not partial.exists()
    assert shards(output) == shards(tmp_path / "whole")
    assert {name: (output / name).stat().st_mtime_ns for name in times} == times, "it made a shard twice"
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("whole", "killed")]
    assert manifests[0]["splits"] == manifests[1]["splits"]
    assert manifests[0]["statistics"] == manifests[1]["statistics"]
    assert sorted(p.name for p in output.iterdir()) == sorted(p.name for p in (tmp_path / "whole").iterdir())


@needs_proc
@pytest.mark.parametrize(
    ("send", "number"), [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM)], ids=["Ctrl-C", "SIGTERM"]
)
def test_an_interrupt_leaves_one_line_and_no_process(tmp_path, command, send, number):
    process = start(command, tmp_path / "made", "--workers", 2)
    wait_for_shards(process, tmp_path / "made.partial", 2)
    send(process.pid, number)
    _, errors = process.communicate()
    assert errors == "bert-jax: interrupted; run the same command again to resume\n"
    assert process.returncode == 75
    wait_until_gone(process)
    finish(command, tmp_path / "made")
    assert open_corpus(tmp_path / "made", "train").num_documents > 300


@needs_proc
def test_ctrl_c_while_the_workers_start_leaves_one_line_too(tmp_path, command):
    process = start(command, tmp_path / "made", "--workers", 2)
    while not any(b"spawn_main" in command_line(pid) for pid in living(process)):
        assert process.poll() is None, "it ended before it could be stopped"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert errors == "bert-jax: interrupted; run the same command again to resume\n"
    assert process.returncode == 75
    wait_until_gone(process)


@needs_proc
def test_a_killed_worker_is_named_and_what_is_done_is_kept(tmp_path, command):
    process = start(command, tmp_path / "made", "--workers", 2)
    wait_for_shards(process, tmp_path / "made.partial", 2)
    os.kill(next(pid for pid in living(process) if b"spawn_main" in command_line(pid)), signal.SIGKILL)
    _, errors = process.communicate()
    said = "bert-jax: error: a worker process ended, .* fewer --workers if the command has that flag .*\n"
    assert re.fullmatch(said, errors)
    assert process.returncode == 69
    assert len(list((tmp_path / "made.partial").glob("*.arrow"))) >= 2


@needs_proc
def test_workers_leave_ctrl_c_to_their_parent(tmp_path, command):
    process = start(command, tmp_path / "made", "--workers", 1)
    wait_for_shards(process, tmp_path / "made.partial", 2)
    for pid in living(process):
        if pid != process.pid:
            os.kill(pid, signal.SIGINT)
    _, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")


def test_workers_can_be_started_by_any_thread():
    """A cluster's worker reads the installed documentation in a thread that is not the main one."""

    def count() -> int:
        with worker_pool(1) as pool:
            return pool.submit(len, "abc").result()

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(count).result() == 3


def test_a_pool_that_is_left_early_ends_its_own_processes_alone():
    def leave_early() -> None:
        with worker_pool(1) as pool:
            sleeping = pool.submit(time.sleep, 600)
            while not sleeping.running():
                time.sleep(0.01)
            raise KeyError

    mine = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    mine.start()
    try:
        with pytest.raises(KeyError):
            leave_early()
        assert multiprocessing.active_children() == [mine]
    finally:
        mine.terminate()
        mine.join()


def test_report_tells_what_was_made_and_warns(tmp_path, command, text):
    text.write_text("the dog ran\n\n" * 50 + "zebra zebra zebra\n\nthe cat\nsat on\n\n" * 10)
    output = finish(command, tmp_path / "made")
    assert re.search(r"train +\d+ +\d+ +[\d,]+ +\d+ ", output)
    assert re.search(r"heldout +\d+ ", output)
    assert "24 pieces" not in output
    assert "20 pieces, wordpiece, uncased" in output
    for share in (
        "85.7% of the documents have one sentence",
        "95.0% of the sentences repeat",
        "95.7% of the documents repeat",
    ):
        assert share in " ".join(output.split())
    assert "of the tokens are [UNK]" in output
    assert max(map(len, output.splitlines())) <= 80


def test_capitals_in_a_vocabulary_for_uncased_text_are_noticed(tmp_path, text, vocabulary, capsys):
    flags = ["--vocab", str(vocabulary), "--output", str(tmp_path / "made"), "--holdout", "2"]
    assert main(["prepare", str(text), *flags]) == 2
    assert capsys.readouterr().out == ""
    vocabulary.write_text(vocabulary.read_text() + "Cat\n")
    assert main(["prepare", str(text), *flags]) == 2
    assert "vocab.txt has words with capitals" in capsys.readouterr().out
    assert main(["prepare", str(text), *flags, "--casing", "cased"]) == 2
    assert capsys.readouterr().out == ""
    vocabulary.write_bytes(b"caf\xe9\n")
    assert main(["prepare", str(text), *flags, "--holdout", "0", "--format", "sentences"]) == 2
    assert f"vocabulary {vocabulary} is not UTF-8 at byte 3" in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def model(tmp_path, vocabulary):
    """The tokenizer of a cased model of Hugging Face's; reading it needs no weights."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "vocab.txt").write_bytes(vocabulary.read_bytes())
    (directory / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    return directory


def test_the_vocabulary_and_the_casing_of_a_models_directory(tmp_path, text, vocabulary, model):
    flags = ["prepare", str(text), "--format", "sentences", "--holdout", "0.1", "--workers", "1"]
    assert (
        main([*flags, "--vocab", str(vocabulary), "--casing", "cased", "--output", str(tmp_path / "a")]) == 0
    )
    assert main([*flags, "--vocab", str(model), "--output", str(tmp_path / "b")]) == 0
    assert shards(tmp_path / "a") == shards(tmp_path / "b")
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in "ab"]
    assert manifests[0]["tokenizer"] == manifests[1]["tokenizer"]
    assert manifests[1]["settings"]["casing"] == "cased"
    assert manifests[1]["settings"]["vocab"] == str(model)


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece", "byte_bpe"])
def test_the_vocabulary_and_the_casing_of_a_corpus(tmp_path, text, kind):
    flags = ["prepare", str(text), "--format", "sentences", "--workers", "1", "--output"]
    learned = ["--train-vocab", kind, "--vocab-size", "270", "--casing", "cased"]
    assert main([*flags, str(tmp_path / "a"), *learned]) == 0
    for name in ("a", "a/tokenizer"):
        assert main([*flags, str(tmp_path / "b"), "--vocab", str(tmp_path / name), "--overwrite"]) == 0
        assert shards(tmp_path / "a") == shards(tmp_path / "b")
        assert load_tokenizer(tmp_path / "b" / "tokenizer").casing == "cased"


def test_a_models_directory_that_does_not_do_is_one_line(tmp_path, text, model, capsys):
    flags = ["prepare", str(text), "--output", str(tmp_path / "made"), "--vocab", str(model)]
    assert main([*flags, "--casing", "uncased"]) == 2
    assert "is cased, not uncased; leave --casing out" in " ".join(capsys.readouterr().err.split())
    (model / "added_tokens.json").write_text(json.dumps({"covid": 5 + len(WORDS)}))
    assert main(flags) == 2
    said = capsys.readouterr().err
    assert f"such as 'covid'; to leave them out, give --vocab {model / 'vocab.txt'}" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "made").exists()


def settings_for(path: Path | str, vocabulary: Path | None, **changes: object) -> PrepareSettings:
    values = {"vocab": vocabulary and str(vocabulary), "holdout": 0.1, **changes}
    return PrepareSettings(Source((str(path),), format="sentences"), **values)


def test_duplicate_documents_fall_on_the_same_side(tmp_path, text, vocabulary):
    text.write_text(text.read_text() * 3)
    prepare(settings_for(text, vocabulary), tmp_path / "made", runner=LocalRunner(1))
    for split in ("train", "heldout"):
        corpus = open_corpus(tmp_path / "made", split)
        _, hashes = hash_contents(read_shard(tmp_path / "made" / f"{split}-00000.arrow"))
        assert corpus.num_documents % 3 == 0
        assert (np.unique(hashes, return_counts=True)[1] >= 3).all()


def test_a_small_share_holds_out_what_evaluation_needs(tmp_path, text, vocabulary):
    text.write_text("\n".join([text.read_text()] * 2))
    settings = settings_for(text, vocabulary, holdout=1e-9)
    manifest = prepare(settings, tmp_path / "made", runner=LocalRunner(1))
    assert manifest["splits"]["heldout"]["documents"] == 4, "two documents and their copies"


def test_two_documents_are_held_out_where_two_remain():
    for count, fewest in ((1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (100, 2)):
        documents = [f"document {i}" for i in range(count)]
        for share in (1e-9, 0.3):
            heldout = sum(digest(d).split < find_heldout_threshold(documents, share) for d in documents)
            wanted = sum(digest(d).split < int(share * 2**64) for d in documents)
            assert heldout == max(fewest, wanted)


def test_the_share_held_out_is_about_what_was_asked_for():
    documents = [f"document {i}" for i in range(4000)]
    threshold = find_heldout_threshold(documents, 0.1)
    assert 330 <= sum(digest(d).split < threshold for d in documents) <= 470
    assert find_heldout_threshold(documents, 0) == 0


def test_nothing_is_learned_from_what_is_held_out(tmp_path, text):
    threshold = int(0.1 * 2**64)
    aside = [d for i in range(300) if digest([d := f"qqq number{i}"]).split < threshold]
    text.write_text(
        "\n\n".join([*(d for i in range(300) if digest([d := f"cat number{i}"]).split >= threshold), *aside])
    )
    settings = settings_for(text, None, train_vocab="wordpiece", vocab_size=100)
    manifest = prepare(settings, tmp_path / "made", runner=LocalRunner(1))
    assert manifest["splits"]["heldout"]["documents"] == len(aside) > 10
    assert open_corpus(tmp_path / "made", "train").tokenizer.token_to_id("q") is None


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece", "byte_bpe"])
def test_learns_the_vocabulary_from_the_training_documents(tmp_path, text, kind):
    settings = settings_for(text, None, train_vocab=kind, vocab_size=100 if kind != "byte_bpe" else 300)
    manifest = prepare(settings, tmp_path / "made", runner=LocalRunner(1))
    corpus = open_corpus(tmp_path / "made", "train")
    assert corpus.tokenizer.kind == manifest["tokenizer"]["kind"] == kind
    assert manifest["statistics"]["unknown_tokens"] == 0
    assert corpus.tokenizer.decode(corpus.read(0, int(corpus.sentence_starts[1])))


def test_documents_of_many_tokens_are_filtered_and_counted_whatever_the_workers(
    tmp_path, vocabulary, capsys, monkeypatch
):
    monkeypatch.setattr("data_pipeline.preparing.shard_texts.SHARD_TEXT_BYTES", 600)
    text = tmp_path / "mixed.txt"
    # Each letter, digit or mark that is no word of the vocabulary is a token.
    text.write_text("".join(f"the cat sat {number}\n\n!?!?!?!? {number}\n\n" for number in range(60)))
    flags = ["prepare", str(text), "--format", "sentences", "--vocab", str(vocabulary), "--holdout", "0.1"]
    flags += ["--max-tokens-per-character", "0.5"]
    for workers in (1, 2):
        output = tmp_path / f"made-{workers}"
        assert main([*flags, "--workers", str(workers), "--output", str(output)]) == 0
        assert "filtered: 60 documents" in capsys.readouterr().out
    assert shards(tmp_path / "made-1") == shards(tmp_path / "made-2")
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["filtered_documents"] == 60
    assert sum(split["documents"] for split in manifest["splits"].values()) == 60
    assert main([*flags[:-1], "0.01", "--output", str(tmp_path / "none")]) == 2
    assert "0.01 leaves no document to train on (120 filtered)" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "none").exists()


def test_shard_texts_depend_on_the_documents_alone(monkeypatch):
    monkeypatch.setattr(shard_texts, "SHARD_TEXT_BYTES", 100)
    documents = [f"document {i:03d}." for i in range(60)]
    found = list(gather_shard_texts(iter(documents), heldout_threshold=1 << 62))
    assert [text.size for text in found] == [len("".join(text.documents)) for text in found]
    assert all(text.size >= 100 for text in found[:-2])
    assert [p.number for p in found if p.split == "train"] == list(
        range(sum(p.split == "train" for p in found))
    )
    assert sorted(d for text in found for d in text.documents) == documents
    assert all(len("".join(text.documents)) < 100 + 13 for text in found)


def test_shard_texts_are_read_only_as_far_ahead_as_workers_need(tmp_path, vocabulary, monkeypatch):
    """Each document fills a shard. Two workers and the reader hold one each, in order."""
    monkeypatch.setattr(shard_texts, "SHARD_TEXT_BYTES", 1)
    monkeypatch.setattr(local_runner, "worker_pool", ThreadPoolExecutor)
    read, added = [], []

    def documents(self, on_bytes):
        for number in range(20):
            read.append(number)
            yield "the cat sat"

    def merge(self, other):
        added.append((other.rows["train"][0]["file"], len(read)))

    monkeypatch.setattr(Inputs, "documents", documents)
    monkeypatch.setattr(Totals, "merge", merge)
    job = ShardJob(tmp_path, Inputs(Source(()), ()), heldout_threshold=0, language="en")
    load_vocabulary(vocabulary, "uncased").save(job.tokenizer_directory)
    LocalRunner(2).make_shards(job, lambda name, done, total: None)
    assert added == [(f"train-{number:05d}.arrow", min(number + 3, 20)) for number in range(20)]


def test_no_sentence_of_a_long_document_is_lost(vocabulary):
    tokenizer = load_vocabulary(vocabulary, "uncased")
    document = [f"the {WORDS[i % len(WORDS)]}" for i in range(700)]
    assert [ids.tolist() for ids in tokenize_document(document, tokenizer, "en")] == [
        tokenizer.encode(sentence) for sentence in document
    ]


@pytest.mark.parametrize("size", [1 << 17, 4000])
def test_share_of_duplicates_is_exact_or_close(size, monkeypatch):
    """10,000 of the values come three times, and one comes 30,000 times."""
    monkeypatch.setattr(summary, "_SKETCH_SIZE", size)
    draw = np.random.default_rng(0)
    values = draw.integers(0, 2**64, 50_000, dtype=np.uint64, endpoint=False)
    stream = np.concatenate([values, values[:10_000], values[:10_000], np.repeat(values[:1], 30_000)])
    sketch = DuplicateSketch()
    for part in np.array_split(draw.permutation(stream), 37):
        sketch.merge(DuplicateSketch(part))
    assert sketch.fraction() == pytest.approx(0.5, abs=1e-12 if size > 50_000 else 0.02)
    assert len(sketch._lowest) <= size
    assert DuplicateSketch().fraction() == 0


def test_summary_hashes_tell_sentences_and_documents_apart(tmp_path):
    documents = [[[5, 6], [7]], [[5], [6, 7]], [[5, 6], [7]], [[6, 5], [7]], [[0], [0, 0]]]
    shard = make_shard(documents, np.dtype(np.uint16))
    sentence_hashes, document_hashes = hash_contents(shard)
    assert len(np.unique(sentence_hashes)) == len({tuple(s) for d in documents for s in d})
    assert len(np.unique(document_hashes)) == 4
    assert document_hashes[0] == document_hashes[2]
    write_shard(tmp_path / "s.arrow", shard)
    totals = summarize_shard(tmp_path / "s.arrow", "train", 10, unk_id=7)
    assert (totals.unknown_tokens, totals.one_sentence_documents) == (4, 0)


def test_two_writers_of_one_shard_leave_it_whole(tmp_path):
    """This happens when a cluster starts a slow worker's task a second time."""
    shard = make_shard([[[5, 6], [7]]] * 1000, np.dtype(np.uint16))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: write_shard(tmp_path / "s.arrow", shard), range(64)))
    assert read_shard(tmp_path / "s.arrow").document_starts[-1] == 2000
    assert [path.name for path in tmp_path.iterdir()] == ["s.arrow"]


def test_shards_add_up_in_any_order_and_in_any_parts(tmp_path):
    shards = []
    for number in (0, 1, 2, 99999, 100000):
        path = tmp_path / ShardText("train", number, [], 0).file
        documents = [[[5, 6, number % 7], [7] * (i + 1)] for i in range(3)]
        write_shard(path, make_shard(documents, np.dtype(np.uint16)))
        shards.append(summarize_shard(path, "train", 10, unk_id=7))
    one, first, second = sum_totals(shards), sum_totals(shards[2::-1]), sum_totals(shards[:2:-1])
    second.merge(first)
    assert second.text_bytes == one.text_bytes == 50
    assert second.splits() == one.splits()
    assert one.splits()["train"]["shards"] == [shard.rows["train"][0] for shard in shards]
    assert second.statistics() == one.statistics()
    assert one.statistics()["duplicate_sentences"] > 0 < one.statistics()["unknown_tokens"]


def test_a_clean_corpus_has_no_warnings():
    names = Totals().statistics()
    assert warnings_about(dict.fromkeys(names, 0.0)) == []
    assert len(warnings_about(dict.fromkeys(names, 0.5))) == len(names) == 5


def test_tokens_that_training_cannot_see_are_counted(tmp_path):
    documents = [[[5] * 511, [6] * 510], [[7] * 979]]
    write_shard(tmp_path / "s.arrow", make_shard(documents, np.dtype(np.uint16)))
    shard = summarize_shard(tmp_path / "s.arrow", "train", 10, unk_id=1)
    totals = sum_totals([shard, shard])
    statistics = totals.statistics()
    assert statistics["tokens_in_long_sentences"] == (511 + 979) / 2000
    assert any(line.startswith("74.5% of the tokens are in sentences") for line in warnings_about(statistics))


def test_other_settings_do_not_mix_into_a_partial_corpus(tmp_path, text, vocabulary):
    output = tmp_path / "made"
    with claim(output, {"holdout": 0.2, "inputs": []}, overwrite=False) as directory:
        (directory / "train-00000.arrow").write_bytes(b"of the other settings")
    with pytest.raises(UserError, match=r"made\.partial was begun with other .*holdout, inputs"):
        prepare(settings_for(text, vocabulary), output, runner=LocalRunner(1))
    prepare(settings_for(text, vocabulary), output, runner=LocalRunner(1), overwrite=True)
    assert b"of the other" not in shards(output)["train-00000.arrow"]


def test_another_vocabulary_does_not_mix_into_a_partial_corpus(tmp_path, text, vocabulary, monkeypatch):
    def stop(name: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(settings_for(text, vocabulary), tmp_path / "made", runner=LocalRunner(1), on_progress=stop)
    vocabulary.write_text(vocabulary.read_text() + "owl\n")
    monkeypatch.setattr("data_pipeline.preparing.prepare.SHARD_TEXT_BYTES", 1000)
    with pytest.raises(UserError, match=r"made\.partial was begun with other shard_text_bytes, vocab;"):
        prepare(settings_for(text, vocabulary), tmp_path / "made", runner=LocalRunner(1))


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_partial_corpus_is_kept_by_its_own_command(tmp_path, overwrite):
    for _ in range(2):
        with claim(tmp_path / "made", {"holdout": 0.1}, overwrite) as directory:
            shard = directory / "train-00000.arrow"
            was_there = shard.exists()
            shard.touch()
    assert was_there


def test_changed_inputs_do_not_mix_into_a_partial_corpus(tmp_path, command, text):
    process = start(command, tmp_path / "made")
    wait_for_shards(process, tmp_path / "made.partial", 1)
    process.kill()
    process.communicate()
    text.write_text(text.read_text() + "\nthe end\n")
    process = start(command, tmp_path / "made")
    _, errors = process.communicate()
    assert process.returncode == 2
    assert re.fullmatch(r"bert-jax: error: .*made\.partial was begun with other inputs; .*\n", errors)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_directory_of_someone_else_is_left_alone(tmp_path, text, vocabulary, overwrite):
    directory = tmp_path / "made.partial"
    directory.mkdir()
    (directory / "wiki.txt").write_text("the cat sat")
    with pytest.raises(UserError, match=r"made\.partial .* holds wiki\.txt and was not made by"):
        prepare(settings_for(text, vocabulary), tmp_path / "made", overwrite=overwrite)
    assert [path.name for path in directory.iterdir()] == ["wiki.txt"]


def test_a_directory_that_was_only_begun_is_taken(tmp_path):
    (tmp_path / "made.partial").mkdir()
    for name in (".lock", "..record.json.0123456789abcdef.partial"):
        (tmp_path / "made.partial" / name).touch()
    with claim(tmp_path / "made", {"holdout": 0.1}, overwrite=False) as directory:
        assert sorted(path.name for path in directory.iterdir()) == [".lock", ".record.json"]


@pytest.mark.parametrize("made_again", [False, True])
def test_a_corpus_is_published_after_a_kill_between_the_renames(tmp_path, made_again):
    output = tmp_path / "made"
    with claim(output, {}, overwrite=True) as directory:
        (directory / ".replaced").mkdir()
        (directory / ".replaced" / "manifest.json").touch()
    if made_again:
        output.mkdir()
    with claim(output, {}, overwrite=True) as directory:
        (directory / "manifest.json").touch()
        publish(directory, output)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["made", "made/manifest.json"]


@pytest.mark.parametrize("content", ['{"holdout": 0.', "[]"])
def test_a_damaged_record_is_named(tmp_path, content):
    with claim(tmp_path / "made", {"holdout": 0.1}, overwrite=False) as directory:
        (directory / ".record.json").write_text(content)
    for _ in range(2):
        with (
            pytest.raises(UserError, match=r"record\.json is damaged; give --overwrite"),
            claim(tmp_path / "made", {"holdout": 0.1}, overwrite=False),
        ):
            pass
    with claim(tmp_path / "made", {"holdout": 0.1}, overwrite=True):
        pass


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with (
        pytest.raises(UserError, match=r"the file system of .*made\.partial has no locks"),
        claim(tmp_path / "made", {}, overwrite=False),
    ):
        pass


def test_an_output_whose_name_is_not_utf8_is_refused_before_the_work(tmp_path, text, vocabulary):
    output = f"{tmp_path}/d\udce9"  # as Python reads the byte 0xe9
    with pytest.raises(UserError, match=r"--output '.*/d\\udce9' is not UTF-8; give it another name"):
        prepare(settings_for(text, vocabulary), output)
    assert not any("d\udce9" in path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("output", ["gs://bucket/made", "s3://bucket/made"])
def test_a_bucket_is_refused(tmp_path, text, vocabulary, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    with pytest.raises(UserError, match=rf"--output {output} is not a directory; mount the bucket"):
        prepare(settings_for(text, vocabulary), output)
    assert set(tmp_path.iterdir()) == before


def test_two_processes_do_not_write_one_corpus(tmp_path, text, vocabulary):
    output = tmp_path / "made"
    with claim(output, {}, overwrite=False), pytest.raises(UserError, match="another process is writing"):
        prepare(settings_for(text, vocabulary), output, runner=LocalRunner(1))


def test_an_existing_output_is_kept_unless_told_otherwise(tmp_path, text, vocabulary):
    output = tmp_path / "made"
    prepare(settings_for(text, vocabulary), output, runner=LocalRunner(1))
    before = shards(output)
    mine = tmp_path / "made.replaced" / "kept"
    mine.mkdir(parents=True)
    text.write_text("the cat sat\n\nthe dog ran\n")
    with pytest.raises(UserError, match=r"made exists already; .*--overwrite"):
        prepare(settings_for(text, vocabulary), output, runner=LocalRunner(1))
    assert shards(output) == before
    prepare(settings_for(text, vocabulary), output, runner=LocalRunner(1), overwrite=True)
    assert shards(output) != before
    assert list(tmp_path.glob("*made*")) == [output, mine.parent]
    assert mine.exists()
    assert not list(output.glob(".*"))
    (tmp_path / "mine").mkdir()
    for another_programs in (None, '{"name": "my web site"}', "[1]", "no JSON"):
        if another_programs is not None:
            (tmp_path / "mine" / "manifest.json").write_text(another_programs)
        with pytest.raises(UserError, match=r"mine is not a corpus, so --overwrite leaves it alone"):
            prepare(settings_for(text, vocabulary), tmp_path / "mine", overwrite=True)


@pytest.mark.parametrize(("overwrite", "message"), [(False, "exists already"), (True, "is not a corpus")])
def test_a_directory_that_appears_meanwhile_is_kept(tmp_path, text, vocabulary, overwrite, message):
    settings, output = settings_for(text, vocabulary), tmp_path / "made"

    def make_directory(name: str, done: int, total: int | None) -> None:
        output.mkdir(exist_ok=True)
        (output / "notes.txt").touch()

    with pytest.raises(UserError, match=message):
        prepare(settings, output, runner=LocalRunner(1), overwrite=overwrite, on_progress=make_directory)
    assert [path.name for path in output.iterdir()] == ["notes.txt"]
    output.rename(tmp_path / "notes")
    made = shards(partial_directory(output))
    prepare(settings, output, runner=LocalRunner(1))
    assert shards(output) == made != {}


def test_a_corpus_that_another_process_publishes_meanwhile_is_kept(tmp_path, text, vocabulary, monkeypatch):
    settings, output = settings_for(text, vocabulary), tmp_path / "made"

    def publish_and_find(source: Source) -> Inputs:
        monkeypatch.undo()
        prepare(settings, output, runner=LocalRunner(1))
        return find_inputs(source)

    monkeypatch.setattr("data_pipeline.preparing.prepare.find_inputs", publish_and_find)
    with pytest.raises(UserError, match="exists already"):
        prepare(settings, output, runner=FailingRunner(0, AssertionError("too late")))
    assert open_corpus(output, "train").num_documents
    assert not partial_directory(output).exists()


def test_a_link_stays_and_what_it_points_to_is_made(tmp_path, text, vocabulary):
    link, disk = tmp_path / "link", tmp_path / "other-disk"
    disk.mkdir()
    link.symlink_to(disk / "corpus", target_is_directory=True)
    for overwrite in (False, True):
        prepare(settings_for(text, vocabulary), link, runner=LocalRunner(1), overwrite=overwrite)
        assert link.is_symlink()
        assert open_corpus(link, "train").num_documents
        assert [path.name for path in disk.iterdir()] == ["corpus"]


@pytest.mark.parametrize(
    ("content", "holdout", "message"),
    [
        (b" \n\n", 0.1, r"no text in .*text\.txt; the inputs hold no document"),
        (b"\x01\x02\n", 0.0, r"no text in .*text\.txt; its documents hold no token"),
        (
            b"the cat sat\n",
            0.1,
            r"--holdout 0\.1 holds out every document, .*a file is one\), or --holdout 0 ",
        ),
        (b"the cat sat\n\nthe \xff\n", 0.0, r"text\.txt is not UTF-8 at byte 17"),
    ],
)
def test_bad_text_leaves_nothing_behind(tmp_path, text, vocabulary, content, holdout, message):
    text.write_bytes(content)
    output = tmp_path / "new" / "directories" / "made"
    with pytest.raises(UserError, match=message):
        prepare(settings_for(text, vocabulary, holdout=holdout), output, runner=LocalRunner(1))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_nothing_to_learn_from_is_said_as_such(tmp_path, text, kind):
    text.write_text("the cat sat\n")
    settings = settings_for(text, None, train_vocab=kind, vocab_size=100)
    with pytest.raises(
        UserError, match=r"--holdout 0\.1 holds out every document, .*a file is one\), or --holdout 0 "
    ):
        prepare(settings, tmp_path / "made", runner=FailingRunner(0, AssertionError("too late")))
    assert not partial_directory(tmp_path / "made").exists()


@dataclasses.dataclass
class FailingRunner:
    """Makes a number of shards, then fails."""

    shards: int
    error: Exception
    workers: int | None = None

    def make_shards(self, job: ShardJob, on_progress: Progress) -> Totals:
        for number in range(self.shards):
            (job.directory / f"train-{number:05d}.arrow").touch()
        raise self.error


def test_bad_text_leaves_what_an_earlier_call_has_made(tmp_path, text, vocabulary):
    """The disk may be at fault rather than the text, and the shards may be days of work."""
    settings, output = settings_for(text, vocabulary), tmp_path / "made"
    wrong = FailingRunner(2, UserError("text.txt is not UTF-8"))
    with pytest.raises(UserError, match="not UTF-8"):
        prepare(settings, output, runner=wrong)
    assert not partial_directory(output).exists()
    with pytest.raises(Unfinished):
        prepare(settings, output, runner=FailingRunner(2, Unfinished("a worker is gone")))
    with pytest.raises(UserError, match="not UTF-8"):
        prepare(settings, output, runner=wrong)
    assert len(shards(partial_directory(output))) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab": None}, "give exactly one of --vocab FILE and --train-vocab"),
        ({"train_vocab": "wordpiece", "vocab_size": 200}, "give exactly one of --vocab FILE and"),
        ({"vocab": None, "train_vocab": "wordpiece"}, "--train-vocab needs --vocab-size N"),
        ({"vocab_size": 200}, "--vocab has a size of its own; leave --vocab-size out"),
        (
            {"vocab": None, "train_vocab": "wordpiece", "vocab_size": -5},
            "--vocab-size is -5; it must be from",
        ),
        ({"vocab": None, "train_vocab": "wordpiece", "vocab_size": 10**18}, "it must be from 100 to 1000000"),
        ({"vocab": None, "train_vocab": "byte_bpe", "vocab_size": 260}, "it must be from 261 to 1000000"),
        ({"holdout": 1.0}, r"--holdout is 1\.0; it must be at least 0 and below 1"),
        ({"max_tokens_per_character": 0.0}, r"--max-tokens-per-character is 0\.0; it must be above 0"),
        ({"similarity": 0.9}, "--similarity goes with --duplicates near, not with keep"),
        ({"duplicates": "near", "similarity": 0.4}, r"--similarity is 0\.4; it must be from 0\.5 to 1"),
        ({"duplicates": "near", "similarity": float("nan")}, "--similarity is nan; it must be from"),
        ({"language": "english"}, "--language is 'english'; it must be a language's code"),
    ],
)
def test_impossible_settings_are_refused(text, vocabulary, changes, message):
    with pytest.raises(UserError, match=message):
        settings_for(text, **{"vocabulary": vocabulary, **changes})


def test_an_output_inside_the_input_is_refused(tmp_path, text, vocabulary):
    directory = tmp_path / "in"
    directory.mkdir()
    text.rename(directory / "text.txt")
    for name in (directory, f"{tmp_path}/i?"):
        with pytest.raises(UserError, match=r"in/made lies inside the input .*/in;"):
            prepare(settings_for(name, vocabulary), directory / "made", runner=LocalRunner(1))
    directory = directory.rename(tmp_path / "made.partial")
    for name in (directory, directory / "text.txt", f"{directory}/*.txt"):
        with pytest.raises(UserError, match=r"lies inside .*; give "):
            prepare(settings_for(name, vocabulary), tmp_path / "made", overwrite=True)
    assert [path.name for path in directory.iterdir()] == ["text.txt"]


def test_workers_must_be_positive(tmp_path, text, vocabulary):
    with pytest.raises(UserError, match="--workers is 0; it must be at least 1"):
        prepare(settings_for(text, vocabulary), tmp_path / "made", runner=LocalRunner(0))
