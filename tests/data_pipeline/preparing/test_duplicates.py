"""Duplicates: what repeats an earlier document is left out, whatever the workers, and nothing else is."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bert_jax.cli.main import main
from data_pipeline.errors import Unfinished
from data_pipeline.preparing import duplicates, near_duplicates
from data_pipeline.preparing.inputs import Source, find_inputs
from data_pipeline.preparing.local_runner import LocalRunner
from data_pipeline.preparing.near_duplicates import find_near_duplicates, make_signatures, rows_per_band
from data_pipeline.preparing.prepare import PrepareSettings, prepare
from tests.data_pipeline.preparing.small_text import WORDS, shards

DRAW = np.random.default_rng(7)
TEXTS = [" ".join(DRAW.choice(WORDS, 60)) for _ in range(40)]
COPIES = [TEXTS[3].upper(), TEXTS[9].replace(" ", " \u3000 "), TEXTS[3]]
SIMILAR = [f"{TEXTS[5]} hill", f"{TEXTS[3]} and then"]


@pytest.fixture
def threads(monkeypatch):
    """Threads in place of processes, which take a second to start."""
    monkeypatch.setattr(duplicates, "worker_pool", ThreadPoolExecutor)


def write(directory: Path, *files: list[str]) -> Path:
    directory.mkdir()
    for number, texts in enumerate(files):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (directory / f"{number}.jsonl").write_text(lines)
    return directory


def find(directory: Path, handling, similarity=0.8, workers=1):
    return duplicates.find_duplicates(
        find_inputs(Source((str(directory),))), handling, similarity, directory, workers, lambda *_: None
    )


@pytest.mark.parametrize(("handling", "near"), [("exact", 0), ("near", 2)])
def test_the_corpus_is_that_of_the_documents_that_stay(tmp_path, vocabulary, capsys, handling, near):
    repeating = write(tmp_path / "repeating", TEXTS[:20], [*COPIES[:2], *SIMILAR, *TEXTS[20:], COPIES[2]])
    single = write(tmp_path / "single", TEXTS[:20], [*SIMILAR[near:], *TEXTS[20:]])
    flags = ["--vocab", str(vocabulary), "--holdout", "0.2"]
    assert main(["prepare", str(single), *flags, "--output", str(tmp_path / "wanted")]) == 0
    capsys.readouterr()
    for workers in ("1", "2"):
        output = tmp_path / f"made-{workers}"
        more = ["--duplicates", handling, "--workers", workers, "--output", str(output)]
        assert main(["prepare", str(repeating), *flags, *more]) == 0
        counted = f"duplicates left out: 3 exact, {near} near"
        assert counted in capsys.readouterr().out
        assert shards(output) == shards(tmp_path / "wanted")
        assert not list(output.glob(".*"))
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["settings"]["duplicates"] == handling
    assert manifest["left_out_duplicates"] == {"exact": 3, "near": near}
    assert (
        main(["inspect", str(output), "--max-seq-length", "32", "--sequences", "9", "--examples", "0"]) == 0
    )
    assert counted in capsys.readouterr().out


def test_the_first_of_each_text_stays(tmp_path, threads, monkeypatch):
    monkeypatch.setattr(duplicates, "_CHUNK_DOCUMENTS", 3)
    directory = write(tmp_path / "text", ["a b", "c", "A  b", "d"], [], ["c", "\ufb01n", "fin", "c"])
    found = find(directory, "exact", workers=3)
    assert found.found.tolist() == [(0, 2, False), (2, 0, False), (2, 2, False), (2, 3, False)]
    kept = found.leave_out(find_inputs(Source((str(directory),))))
    assert list(kept.documents()) == ["a b", "c", "d", "\ufb01n"]
    assert list(kept.part(2, 3).documents()) == ["\ufb01n"]


def test_a_restart_takes_what_was_found(tmp_path, vocabulary, monkeypatch):
    directory = write(tmp_path / "text", [*TEXTS, *COPIES])
    settings = PrepareSettings(Source((str(directory),)), vocab=str(vocabulary), duplicates="near")

    class Stopped(LocalRunner):
        def make_shards(self, job, on_progress):
            raise Unfinished("a worker is gone")

    with pytest.raises(Unfinished):
        prepare(settings, tmp_path / "made", runner=Stopped(1))
    monkeypatch.setattr(duplicates, "_describe_all", lambda *_: pytest.fail("it reads all again"))
    manifest = prepare(settings, tmp_path / "made", runner=LocalRunner(1))
    assert manifest["left_out_duplicates"] == {"exact": 3, "near": 0}
    assert sum(split["documents"] for split in manifest["splits"].values()) == len(TEXTS)


@pytest.mark.parametrize("at_once", [1, 4096])
def test_a_document_that_is_similar_only_to_one_left_out_stays(at_once, monkeypatch):
    monkeypatch.setattr(near_duplicates, "_COMPARED_AT_ONCE", at_once)
    first = np.arange(128, dtype=np.uint32)
    second, third = first.copy(), first.copy()
    second[:20] += 1000
    third[:40] += 1000
    signatures = np.stack([first, second, third, third])
    assert find_near_duplicates(signatures, 0.8).tolist() == [1, 3]
    assert find_near_duplicates(signatures, 0.6).tolist() == [1, 2, 3]
    assert find_near_duplicates(signatures[[0, 2]], 0.8).tolist() == []


@pytest.mark.parametrize(
    "text", [" ".join(f"word{i}" for i in range(300)), "".join(map(chr, range(0x5000, 0x5120)))]
)
def test_estimated_similarity_is_that_of_the_runs_of_five_words(text):
    """The texts share all but the runs around a word that was changed, also without blanks between words."""
    words = text.split() if " " in text else list(text)
    changed = [*words[:100], "new" if " " in text else "新", *words[101:]]
    joined = (" " if " " in text else "").join
    one, other, third = make_signatures([joined(words), joined(changed), joined(words[::-1])])
    runs = len(words) - 4
    similarity = (runs - 5) / (runs + 5)
    assert abs((one == other).mean() - similarity) < 4 * (similarity * (1 - similarity) / 128) ** 0.5
    assert (one == third).mean() < 0.05


def test_texts_without_words_are_similar_to_no_other():
    signatures = make_signatures(["!!! ...", "??? ---", "one", "one two"])
    assert find_near_duplicates(signatures, 0.5).tolist() == []


def test_signatures_are_the_same_on_every_machine():
    assert make_signatures(["the cat sat on the mat"])[0, :3].tolist() == [978493553, 2368359290, 67307673]


@pytest.mark.parametrize("similarity", [0.5, 0.7, 0.8, 0.9, 1.0])
def test_documents_at_the_threshold_are_nearly_always_compared(similarity):
    rows = rows_per_band(similarity)
    draw = np.random.default_rng(1)
    equal = draw.random((4000, 128 // rows, rows)) < similarity
    assert equal.all(axis=2).any(axis=1).mean() > 0.985
