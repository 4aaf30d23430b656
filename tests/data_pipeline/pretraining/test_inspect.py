"""`bert-jax inspect` and the statistics behind it."""

import dataclasses
import re

import pytest

from bert_jax.cli.main import main
from bert_jax.workdir.record import RunRecord, write_record
from data_pipeline.config import DataConfig, MaskingConfig, Phase
from data_pipeline.corpus.documents import open_corpus
from data_pipeline.pretraining.batches import make_corpus_source, training_batches
from data_pipeline.pretraining.statistics import compare, draw_examples, measure
from experiments import EXPERIMENTS
from tests.damage import flip_a_bit
from tests.data_pipeline.small_corpus import make_corpus, write_corpus
from tests.data_pipeline.small_records import write_records

PHASE = Phase(64, 10)


@pytest.fixture(scope="module")
def drawn(corpus):
    source = make_corpus_source(corpus, DataConfig(), PHASE)
    return [draw_examples(source, 0, 0, first, 500) for first in range(0, 3000, 500)]


@pytest.mark.parametrize(
    "data",
    [
        DataConfig(),
        DataConfig(pairing="contiguous", short_seq_prob=0.0),
        DataConfig(pairing="sentence_order", random_next_prob=0.3),
        DataConfig(masking=MaskingConfig(rate=0.3, mask=0.0, same=0.2, random=0.8), random_next_prob=0.1),
        DataConfig(masking=MaskingConfig(unit="whole_word")),
        DataConfig(masking=MaskingConfig(unit="span"), pairing="contiguous"),
        DataConfig(masking=MaskingConfig(unit="ngram")),
        DataConfig(masking=MaskingConfig(unit="span"), max_instances_per_row=3),
        DataConfig(masking=MaskingConfig(rate=0.0)),
    ],
)
def test_what_the_settings_promise_is_found(corpus, data):
    statistics = measure(make_corpus_source(corpus, data, PHASE), 0, 0, 2000)
    assert [check for check in statistics.checks if not check.is_within] == []


def test_texts_of_one_token_have_nothing_to_swap(tmp_path):
    one_token_each = open_corpus(write_corpus(tmp_path, [[[[7]], [[8]]]]), "train")
    source = make_corpus_source(one_token_each, DataConfig(pairing="sentence_order"), PHASE)
    assert "A and B swapped" not in [check.name for check in measure(source, 0, 0, 20).checks]


@pytest.mark.parametrize(
    ("promised", "broken"),
    [
        (DataConfig(masking=MaskingConfig(rate=0.12)), {"tokens to predict"}),
        (DataConfig(masking=MaskingConfig(mask=0.76, same=0.14)), {"  now [MASK]", "  left as they are"}),
        (DataConfig(random_next_prob=0.4), {"B from another document"}),
        (DataConfig(short_seq_prob=0.2), {"sequences drawn short"}),
    ],
)
def test_a_broken_promise_is_flagged(corpus, drawn, promised, broken):
    statistics = compare(drawn, make_corpus_source(corpus, promised, PHASE))
    assert {check.name for check in statistics.checks if not check.is_within} == broken


def test_too_few_slots_are_warned_of(corpus):
    few, enough = Phase(64, 3), Phase(64, 10)
    for phase, count in ((few, 1), (enough, 0)):
        statistics = measure(make_corpus_source(corpus, DataConfig(), phase), 0, 0, 500)
        assert len(statistics.warnings(phase)) == count
    warning = measure(make_corpus_source(corpus, DataConfig(), few), 0, 0, 500).warnings(few)[0]
    assert "10 leaves out none" in warning


def test_a_rate_that_changes_is_that_of_the_phase(corpus):
    data = DataConfig(masking=MaskingConfig(rate=0.3, last_rate=0.15))
    source = make_corpus_source(corpus, data, PHASE)
    begin, end = (measure(source, 0, 0, 500, progress) for progress in (0.0, 1.0))
    assert begin.wanted_slots == round(0.3 * 64)
    assert end.wanted_slots == round(0.15 * 64)
    assert begin.cut_predictions > 0.3 > end.cut_predictions
    assert [check for check in (*begin.checks, *end.checks) if not check.is_within] == []


def test_the_command_shows_the_rate_at_which_a_phase_begins(corpus, capsys, tmp_path):
    phases = (Phase(32, 10, 0.5), Phase(64, 20, 0.5))
    data = DataConfig(
        corpus=str(corpus.directory), masking=MaskingConfig(rate=0.3, last_rate=0.1), phases=phases
    )
    run = dataclasses.replace(EXPERIMENTS["base"], data=data, num_train_steps=8)
    write_record(tmp_path, RunRecord("base", run, "fingerprint"))

    def rates(*flags: str) -> list[float]:
        assert main(["inspect", str(tmp_path), "--sequences", "500", "--examples", "0", *flags]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [float(line.split()[3].rstrip("%")) for line in lines if line.startswith("tokens to predict")]

    assert rates() == pytest.approx([30, 20], abs=2)
    assert rates("--split", "heldout") == pytest.approx([10, 10], abs=2)


def test_statistics_of_lengths(corpus, drawn):
    statistics = compare(drawn, make_corpus_source(corpus, DataConfig(), PHASE))
    tokens = sum(int(d.batch["input_mask"].sum()) for d in drawn)
    assert statistics.mean_length == pytest.approx(tokens / 3000)
    assert statistics.padding == pytest.approx(1 - tokens / 3000 / 64)
    assert statistics.lengths[-1] == 64


def test_the_command_shows_numbers_and_marked_examples(corpus, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    flags = ["--max-seq-length", "48", "--sequences", "500", "--examples", "6", "--seed", "2"]
    assert main(["inspect", str(corpus.directory), *flags]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "checksums match" in out
    assert "OUTSIDE" not in out
    assert "→MASK]" in out
    assert "B follows A" in out
    assert "B comes from another document" in out


def test_the_command_shows_packed_rows(corpus, capsys):
    flags = ["--max-seq-length", "128", "--max-instances-per-row", "3", "--sequences", "500"]
    flags += ["--examples", "20"]
    assert main(["inspect", str(corpus.directory), *flags]) == 0
    out = capsys.readouterr().out
    assert "OUTSIDE" not in out
    assert "at most 3, of 3 that it may hold" in out
    later = out[out.index(", sequence 2, ") :]
    assert "→MASK]" in later[: later.index("\nexample")]


def test_the_batch_of_any_step_of_a_run_can_be_seen(corpus, capsys, tmp_path):
    data = DataConfig(corpus=str(corpus.directory), phases=(Phase(48, 7, 0.5), Phase(96, 14, 0.5)))
    run = dataclasses.replace(EXPERIMENTS["base"], data=data, num_train_steps=8, global_batch_size=6, seed=3)
    write_record(tmp_path, RunRecord("base", run, "fingerprint"))
    for step in (1, 6):
        assert main(["inspect", str(tmp_path), "--step", str(step), "--examples", "4"]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"step {step}, length {48 if step == 1 else 96}: 4 of 6 rows")
        shown = [int(number) for number in re.findall(r"example \d, (\d+) tokens", out)]
        batch = next(
            training_batches(
                data.corpus, data, seed=3, global_batch_size=6, num_train_steps=8, first_step=step
            )
        )
        assert shown == batch["input_mask"].sum(axis=1)[:4].tolist()
    assert main(["inspect", str(tmp_path), "--sequences", "100", "--examples", "0"]) == 0
    assert "length 96" in capsys.readouterr().out
    refused = {
        ("--step", "8"): "--step is 8; the steps of the run are 0 to 7",
        ("--experiment", "base"): f"{tmp_path} is a run and has its own settings",
        ("--step", "1", "--split", "heldout", "--sequences", "9"): "leave --split, --sequences out",
        ("--step", "1", "--max-seq-length", "48"): "leave --max-seq-length out",
        ("--step", "1", "--max-predictions-per-seq", "7"): "leave --max-predictions-per-seq out",
        ("--step", "1", "--max-instances-per-row", "2"): "leave --max-instances-per-row out",
        ("--step", "1", "--seed", "9"): "leave --seed out",
    }
    for flags, message in refused.items():
        assert main(["inspect", str(tmp_path), *flags]) == 2
        assert message in capsys.readouterr().err
    assert main(["inspect", data.corpus, "--step", "1"]) == 2
    assert f"the work directory of a run, which {data.corpus} is not" in capsys.readouterr().err


def test_the_command_names_what_is_wrong(corpus, capsys, tmp_path):
    assert main(["inspect", str(tmp_path)]) == 2
    assert "is not a corpus" in capsys.readouterr().err
    assert main(["inspect", str(corpus.directory), "--experiment", "bse"]) == 2
    assert "base" in capsys.readouterr().err
    damaged = make_corpus(tmp_path / "damaged").directory / "train-00001.arrow"
    flip_a_bit(damaged)
    assert main(["inspect", str(damaged.parent)]) == 2
    assert "train-00001.arrow" in capsys.readouterr().err


def test_the_first_examples_are_those_of_training(corpus):
    data = dataclasses.replace(DataConfig(), phases=(PHASE,))
    (batch,) = training_batches(
        str(corpus.directory), data, seed=5, global_batch_size=20, num_train_steps=1, first_step=0
    )
    shown = draw_examples(make_corpus_source(corpus, data, PHASE), 5, 0, 0, 20)
    assert all(shown.batch[key].tobytes() == values.tobytes() for key, values in batch.items())


def test_a_step_of_tfrecords_is_refused_as_such(capsys, tmp_path):
    records = tmp_path / "records"
    records.mkdir()
    write_records(records / "train.tfrecord", range(8))
    data = DataConfig(corpus=str(records), phases=(Phase(16, 3),))
    run = dataclasses.replace(EXPERIMENTS["base"], data=data, num_train_steps=8)
    write_record(tmp_path, RunRecord("base", run, "fingerprint"))
    assert main(["inspect", str(tmp_path), "--step", "1"]) == 2
    assert f"{records} holds TFRecords, whose pairs and masks are fixed" in capsys.readouterr().err


def test_padding_of_packed_rows(corpus):
    data = DataConfig(max_instances_per_row=4, short_seq_prob=1.0)
    source = make_corpus_source(corpus, data, Phase(64, 10))
    drawn = draw_examples(source, 0, 0, 0, 64)
    assert compare([drawn], source).padding == pytest.approx(1 - drawn.batch["input_mask"].mean())
