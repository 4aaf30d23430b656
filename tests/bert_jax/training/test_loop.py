"""The loop on a real corpus with a tiny model: its rows, its checkpoints, and the ways it ends."""

import dataclasses
import gzip
import itertools
import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.config import OptimizerConfig, ParallelConfig
from bert_jax.pretraining import evaluate_run, evaluation
from bert_jax.pretraining import run as pretraining_run
from bert_jax.pretraining.run import compile_later_phases
from bert_jax.task import Batch
from bert_jax.training.checkpoints import saved_steps
from bert_jax.training.failures import storage_errors_as_unfinished
from bert_jax.training.metric_log import METRICS_FILE, MetricLog, read_rows
from bert_jax.training.optimizer import make_schedule
from bert_jax.training.prefetch import Prefetch
from bert_jax.training.program import Program
from bert_jax.training.train_step import TrainState
from bert_jax.workdir.record import read_record, write_record
from data_pipeline.config import DataConfig, Phase
from data_pipeline.errors import Unfinished, UserError
from data_pipeline.pretraining.batches import evaluation_batches, training_batches
from tests.damage import flip_a_bit
from tests.tiny_run import (
    FLAGS,
    WORDS,
    arguments,
    assert_same_run,
    deterministic_rows,
    final_state,
    write_corpus,
)


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work directory of an undisturbed run."""
    workdir = tmp_path_factory.mktemp("loop") / "finished"
    assert main(arguments(workdir, corpus)) == 0
    return workdir


def test_rows_and_checkpoints_come_at_their_cadence(finished: Path) -> None:
    rows = read_rows(finished / METRICS_FILE)
    steps = {split: [row["step"] for row in rows if row["split"] == split] for split in ("train", "heldout")}
    assert steps == {"train": list(range(10, 201, 10)), "heldout": [100, 200]}
    assert saved_steps(finished) == [180, 200]
    assert {"loss", "mlm_accuracy", "nsp_accuracy", "learning_rate", "grad_norm"} <= rows[0].keys()
    assert {"sequences_per_second", "model_flops_per_second", "waiting_for_data"} <= rows[0]["timing"].keys()
    assert {"mlm_perplexity", "mlm_guess_accuracy", "nsp_guess_accuracy"} <= rows[-1].keys()
    assert list((finished / "tensorboard").glob("events.*"))
    assert (finished / "tokenizer" / "vocab.txt").exists()


def test_rows_are_means_of_their_own_steps(finished: Path, corpus: Path, tmp_path: Path) -> None:
    assert main(arguments(tmp_path, corpus, "--log-every", "1", "--checkpoint-every", "1000")) == 0
    every_step = {row["step"]: row for row in deterministic_rows(tmp_path) if row["split"] == "train"}
    for row in deterministic_rows(finished):
        if row["split"] == "train":
            own = [every_step[step] for step in range(row["step"] - 9, row["step"] + 1)]
            for name in ("nsp_loss", "nsp_accuracy", "grad_norm"):
                assert row[name] == pytest.approx(np.mean([r[name] for r in own]), rel=1e-5)


@pytest.mark.parametrize(("seconds", "times"), [(0.0, 1), (1000.0, 0)])
def test_the_time_left_is_said_once_if_the_first_row_takes_long(
    seconds: float,
    times: int,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("bert_jax.training.log._SECONDS_WITHOUT_A_WORD", seconds)
    assert main(arguments(tmp_path, corpus, "--num-train-steps", "20")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if re.fullmatch(r"step \d/20: about \d+ s left", line)] == [
        line for line in lines if "about" in line and "left" in line
    ]
    assert sum("/20: about" in line for line in lines) == times


def test_every_step_gets_its_learning_rate_and_rows_name_it(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, train_step = [], Program.train_step

    def note_and_step(program: Program, state: TrainState, batch: Batch, rate: np.float32) -> TrainState:
        given.append(rate)
        return train_step(program, state, batch, rate)

    monkeypatch.setattr(Program, "train_step", note_and_step)
    assert main(arguments(tmp_path, corpus, "--num-train-steps", "15", "--log-every", "1")) == 0
    rate_of = make_schedule(OptimizerConfig(learning_rate=0.01, warmup_steps=10), 15)
    rates = [rate_of(step) for step in range(15)]
    assert given == rates
    rows = [row for row in read_rows(tmp_path / METRICS_FILE) if row["split"] == "train"]
    assert [row["learning_rate"] for row in rows] == pytest.approx(rates)


def test_a_finished_run_has_nothing_left_to_do(
    finished: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished / METRICS_FILE).read_bytes()
    assert main(arguments(finished, corpus)) == 0
    assert (finished / METRICS_FILE).read_bytes() == before
    assert "always guessing the most frequent token" in capsys.readouterr().out


def send_when(workdir: Path, step: int, number: signal.Signals) -> None:
    """Sends this process a signal once the run in `workdir` has logged a step."""

    def wait_and_send() -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if any(row["step"] >= step for row in read_rows(workdir / METRICS_FILE)):
                os.kill(os.getpid(), number)
                return
            time.sleep(0.005)

    threading.Thread(target=wait_and_send, daemon=True).start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_same_command_ends_the_same(
    number: signal.Signals,
    finished: Path,
    corpus: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rare = ("--checkpoint-every", "1000")
    send_when(tmp_path, 20, number)
    assert main(arguments(tmp_path, corpus, *rare)) == 75
    (step,) = saved_steps(tmp_path)
    assert 20 <= step < 200
    assert "run the same command again to resume" in capsys.readouterr().out

    assert main(arguments(tmp_path, corpus, *rare)) == 0
    assert f"resuming from step {step} of 200" in capsys.readouterr().out
    assert_same_run(tmp_path, finished)


@pytest.mark.slow
def test_an_evaluation_that_a_stop_left_out_is_made_up(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def evaluated() -> list[int]:
        return [row["step"] for row in read_rows(tmp_path / METRICS_FILE) if row["split"] == "heldout"]

    flags = ("--eval-every", "1", "--eval-examples", "8", "--checkpoint-every", "1000")
    send_when(tmp_path, 10, signal.SIGTERM)
    assert main(arguments(tmp_path, corpus, *flags, "--num-train-steps", "100")) == 75
    (step,) = saved_steps(tmp_path)
    assert evaluated() == list(range(1, step))  # the stop left no time for the last one
    assert "the last checkpoint took " in capsys.readouterr().out
    # The next start runs it, even if no step is left to train.
    for last in (step, step + 2, step + 2):
        assert main(arguments(tmp_path, corpus, *flags, "--num-train-steps", str(last))) == 0
        assert evaluated() == list(range(1, last + 1))


@pytest.mark.slow
def test_an_evaluation_that_fails_does_not_cost_the_checkpoint(
    finished: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "evaluate", raise_no_evaluation)
    with pytest.raises(RuntimeError, match="no evaluation"):
        main(arguments(tmp_path, corpus))
    monkeypatch.undo()
    assert saved_steps(tmp_path) == [80, 100]  # both are due at 100
    assert main(arguments(tmp_path, corpus)) == 0
    assert_same_run(tmp_path, finished)


def test_an_evaluation_under_way_is_left_and_made_up(
    finished: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def batches_with_a_signal(*args: Any, **settings: Any) -> Iterator[dict[str, np.ndarray]]:
        for number, batch in enumerate(evaluation_batches(*args, **settings)):
            if number == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            taken.append(number)
            yield batch

    flags = ("--checkpoint-every", "150")
    with monkeypatch.context() as patched:
        patched.setattr(evaluation, "evaluation_batches", batches_with_a_signal)
        assert main(arguments(tmp_path, corpus, *flags)) == 75
    assert taken == [0, 1]
    assert saved_steps(tmp_path) == [100]  # no step after the one to evaluate
    assert read_rows(tmp_path / METRICS_FILE)[-1]["split"] == "train"
    assert main(arguments(tmp_path, corpus, *flags)) == 0
    assert_same_run(tmp_path, finished)


def raise_no_evaluation(*_: object) -> None:
    raise RuntimeError("no evaluation")


def test_all_that_the_loop_stands_still_for_is_counted(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow uploads of metrics, and the compilation for a later phase."""
    sync = MetricLog.sync

    def sync_slowly(log: MetricLog) -> None:
        time.sleep(1)
        sync(log)

    def compile_slowly(*args: Any) -> float:
        return compile_later_phases(*args) + 1000

    monkeypatch.setattr(MetricLog, "sync", sync_slowly)
    monkeypatch.setattr(pretraining_run, "compile_later_phases", compile_slowly)
    flags = ("--num-train-steps", "20", "--checkpoint-every", "10")
    assert main(arguments(tmp_path, corpus, *flags)) == 0
    first, second = [row["timing"] for row in read_rows(tmp_path / METRICS_FILE) if row["split"] == "train"]
    assert first["seconds_compiling"] > 1000
    assert second["seconds_saving"] > 1


def test_a_run_that_another_machine_took_over_saves_nothing_more(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def take_over() -> None:
        deadline = time.monotonic() + 120
        while not saved_steps(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.005)
        record = read_record(tmp_path)
        other = {**record.starts[-1], "host": "elsewhere"}
        write_record(tmp_path, dataclasses.replace(record, starts=(*record.starts, other)))

    thread = threading.Thread(target=take_over, daemon=True)
    thread.start()
    assert main(arguments(tmp_path, corpus, "--num-train-steps", "2000")) == 2
    thread.join()
    assert "was taken over by a start on elsewhere at " in capsys.readouterr().err
    assert saved_steps(tmp_path)[-1] < 2000


def test_where_two_runs_fail_each_others_files_the_takeover_is_named(tmp_path: Path) -> None:
    def check() -> None:
        raise UserError("taken over")

    with pytest.raises(UserError, match="taken over"), storage_errors_as_unfinished(tmp_path, check):
        raise Unfinished("no such file")


@pytest.mark.slow
def test_a_few_steps_are_recorded_for_the_profiler(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--num-train-steps", "8", "--eval-every", "8")
    assert main(arguments(tmp_path, corpus, *flags, "--profile", "3")) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("recorded steps"))
    (recording,) = (tmp_path / "tensorboard" / "plugins" / "profile").iterdir()
    assert f"recorded steps 3 to 5 in {recording};" in line
    assert list(recording.glob("*.xplane.pb"))
    (trace,) = recording.glob("*.trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    numbers = [event["args"]["step_num"] for event in events if event.get("name") == "train"]
    assert sorted(map(int, numbers)) == [2, 3, 4]

    assert main(arguments(tmp_path, corpus, *flags, "--profile", "3", "--num-train-steps", "9")) == 0
    assert "ended before there was a step to record" in capsys.readouterr().out
    longer = ("--num-train-steps", "12")
    assert main(arguments(tmp_path, corpus, *flags, "--profile", "30", *longer)) == 0
    assert "recorded steps 12 to 12 in" in capsys.readouterr().out


@pytest.mark.slow
def test_other_settings_are_refused_and_a_longer_run_is_not(
    finished: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workdir = tmp_path / "copy"
    shutil.copytree(finished, workdir)
    assert main(arguments(workdir, corpus, "--model.num-layers", "2", "--seed", "1")) == 2
    assert "seed 0 -> 1; model.num_layers 1 -> 2" in capsys.readouterr().err
    capsys.readouterr()
    smaller = ("--parallel.accumulation-steps", "2", "--parallel.remat", "layers")
    assert main(arguments(workdir, corpus, "--num-train-steps", "205", *smaller)) == 0
    assert saved_steps(workdir)[-1] == 205
    said = capsys.readouterr().out
    assert "num_train_steps 200 -> 205" in said
    assert "parallel.accumulation_steps 1 -> 2; parallel.remat none -> layers: the run goes on" in said


@pytest.mark.slow
def test_going_on_without_a_flag_deletes_nothing_that_was_kept(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    often = ("--checkpoint-every", "5", "--keep-checkpoints", "1")
    assert main(arguments(tmp_path, corpus, *often, "--keep-every", "10", "--num-train-steps", "20")) == 0
    for steps in ("25", "45"):
        assert main(arguments(tmp_path, corpus, *often, "--num-train-steps", steps)) == 0
        note = "the run keeps the newest checkpoint and those of all steps that 10 divides"
        assert note in capsys.readouterr().out
    assert saved_steps(tmp_path) == [10, 20, 30, 40, 45]
    rarely = ("--checkpoint-every", "15", "--keep-checkpoints", "1", "--num-train-steps", "65")
    assert main(arguments(tmp_path, corpus, *rarely)) == 0
    assert saved_steps(tmp_path) == [10, 20, 30, 40, 50, 60, 65]

    record = (tmp_path / "config.json").read_bytes()
    assert main(arguments(tmp_path, corpus, "--num-train-steps", "40")) == 2
    assert f"{tmp_path} is at step 65, beyond num_train_steps 40" in capsys.readouterr().err
    assert (tmp_path / "config.json").read_bytes() == record


def test_another_corpus_is_refused(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_corpus(tmp_path / "other", seed=1)
    assert main(arguments(finished, other)) == 2
    assert "the text or the vocabulary of data.corpus changed" in capsys.readouterr().err


def test_a_copy_of_the_corpus_is_verified_at_every_start(
    finished: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(corpus, tmp_path / "copy")
    shard = copy / "train-00000.arrow"
    flip_a_bit(shard)
    assert main(arguments(finished, copy)) == 2
    assert f"{shard} was altered" in capsys.readouterr().err


def test_phases_follow_each_other_in_one_run(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = ["--workdir", str(tmp_path), "--data.corpus", str(corpus)]
    flags = {name: value for name, value in FLAGS.items() if ".phases." not in name}
    lengths = {
        "--data.phases.0.max-seq-length": 8,
        "--data.phases.0.max-predictions-per-seq": 2,
        "--data.phases.0.fraction": 0.5,
        "--data.phases.1.max-seq-length": 16,
        "--data.phases.1.max-predictions-per-seq": 4,
        "--data.phases.1.fraction": 0.5,
        # The step for length 16 is then that of the other runs.
        "--model.dtype": "float32",
        "--model.initializer-range": 0.08,
        "--model.dropout-rate": 0.0,
        "--model.attention-dropout-rate": 0.0,
        "--num-train-steps": 40,
        "--eval-every": 10,
    }
    words = [str(word) for item in (flags | lengths).items() for word in item]
    assert main(["pretrain", "base", *experiment, *words]) == 0
    assert "compiling the step for 8 x 16" in capsys.readouterr().out
    rows = read_rows(tmp_path / METRICS_FILE)
    train = {row["step"]: row for row in rows if row["split"] == "train"}
    assert {step: row["max_seq_length"] for step, row in train.items()} == {10: 8, 20: 8, 30: 16, 40: 16}
    heldout = {row["step"]: row for row in rows if row["split"] == "heldout"}
    assert {step: row["max_seq_length"] for step, row in heldout.items()} == {10: 8, 20: 8, 30: 16, 40: 16}
    guessed = [row["mlm_guess_accuracy"] for row in heldout.values()]  # depends on the batches alone
    assert guessed[0] == guessed[1] != guessed[2] == guessed[3]
    # A row of length 16 is twice the work of one of length 8; the step that compiled is not counted.
    timing = train[10]["timing"]
    assert 2 * 20 + 10 < 9 * timing["seconds_left"] / timing["seconds"] < 2.5 * 20 + 10

    assert main(["pretrain", "base", *experiment, *words, "--num-train-steps", "60"]) == 2
    assert "would end phase 0 at step 30 instead of 20" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_resumes_across_changes_of_batch_size_and_objective(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (
        *("--objective", "clm_then_mlm", "--data.pairing", "contiguous"),
        *("--data.phases.0.max-predictions-per-seq", "0", "--data.phases.1.max-seq-length", "16"),
        *("--data.phases.1.max-predictions-per-seq", "4", "--data.batch-schedule", "0.5", "0.5"),
        *("--num-train-steps", "40", "--eval-every", "10", "--log-every", "8"),
        *("--checkpoint-every", "5", "--keep-checkpoints", "9"),
    )
    whole = tmp_path / "whole"
    assert main(arguments(whole, corpus, *flags)) == 0
    said = capsys.readouterr().out
    assert (
        "compiling the step for 4 x 16, from step 10 on\ncompiling the step for 8 x 16, from step 20 on"
        in said
    )
    rows = {(row["split"], row["step"]): row for row in deterministic_rows(whole)}
    learnt = {
        place: [kind for kind in ("lm", "mlm") if f"{kind}_accuracy" in row] for place, row in rows.items()
    }
    assert learnt == {
        ("train", 8): ["lm"],
        ("train", 16): ["lm", "mlm"],
        ("heldout", 10): ["lm"],
        **{("train", step): ["mlm"] for step in (24, 32, 40)},
        **{("heldout", step): ["mlm"] for step in (20, 30, 40)},
    }
    stopped = shutil.copytree(whole, tmp_path / "stopped")
    for step in saved_steps(stopped)[1:]:
        shutil.rmtree(stopped / "checkpoints" / str(step))
    assert main(arguments(stopped, corpus, *flags)) == 0
    assert "resuming from step 5 of 40" in capsys.readouterr().out
    assert_same_run(stopped, whole)
    assert main(["evaluate", "--workdir", str(whole)]) == 0
    causal, masked = capsys.readouterr().out.split("step 40, phase 1, length 16:\n")
    assert causal.startswith("step 40, phase 0, length 16:\n")
    assert " lm_loss" in causal
    assert " mlm_loss" in masked


def test_nan_stops_the_run_and_spares_the_good_checkpoint(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = ("--optimizer.learning-rate", "1e38", "--checkpoint-every", "1", "--log-every", "50")
    assert main(arguments(tmp_path, corpus, *wild)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "--optimizer.learning-rate" in line
    (batch_file,) = (tmp_path / "nonfinite").glob("step-*.npz")
    step = int(batch_file.stem.removeprefix("step-"))
    assert f"at step {step}" in line
    assert max(saved_steps(tmp_path), default=0) <= step
    assert all(np.isfinite(leaf).all() for leaf in final_state(tmp_path).values())
    assert json.loads(batch_file.with_suffix(".json").read_text())["step"] == step
    phases = (Phase(max_seq_length=16, max_predictions_per_seq=4),)
    batches = training_batches(
        str(corpus),
        DataConfig(phases=phases),
        seed=0,
        global_batch_size=8,
        num_train_steps=200,
        first_step=step,
    )
    saved, expected = np.load(batch_file), next(batches)
    assert all(np.array_equal(saved[name], expected[name]) for name in expected)


def test_evaluate_measures_what_the_run_logged(
    finished: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "--workdir", str(finished)]) == 0
    assert "mlm_accuracy" in capsys.readouterr().out
    rows = json.loads((finished / "evaluation-200.json").read_text())
    (row,) = [row for row in rows if row["corpus"] == str(corpus)]
    logged = deterministic_rows(finished)[-1]
    for name, value in logged.items():
        assert row[name] == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value)


def test_evaluations_on_another_corpus_stand_beside_those_on_the_runs_own(
    finished: Path, corpus: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(corpus, tmp_path / "copy")
    for _ in range(2):
        assert main(["evaluate", "--workdir", str(finished)]) == 0
        assert main(["evaluate", "--workdir", str(finished), "--data.corpus", str(copy)]) == 0
    rows = json.loads((finished / "evaluation-200.json").read_text())
    assert sorted(row["corpus"] for row in rows) == sorted(map(str, (corpus, copy)))
    directory = shutil.copytree(finished, tmp_path / "damaged")
    (directory / "evaluation-200.json").write_text("[")
    assert main(["evaluate", "--workdir", str(directory)]) == 2


def test_an_evaluation_keeps_the_rows_of_one_that_ends_before_it(
    finished: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workdir = shutil.copytree(finished, tmp_path / "evaluated twice at once")
    file = workdir / "evaluation-200.json"
    file.unlink(missing_ok=True)

    def evaluate_beside_another(*args: Any) -> dict[str, float]:
        metrics = evaluation.evaluate(*args)
        file.write_text(json.dumps([{"corpus": "elsewhere"}]))
        return metrics

    monkeypatch.setattr(evaluate_run, "evaluate", evaluate_beside_another)
    assert main(["evaluate", "--workdir", str(workdir)]) == 0
    assert [row["corpus"] for row in json.loads(file.read_text())] == ["elsewhere", str(corpus)]


def test_evaluate_takes_the_devices_at_hand(finished: Path, tmp_path: Path) -> None:
    workdir = shutil.copytree(finished, tmp_path / "from four chips")
    record = read_record(workdir)
    four_chips = ParallelConfig(fsdp=4, accumulation_steps=2)
    experiment = dataclasses.replace(record.experiment, parallel=four_chips)
    write_record(workdir, dataclasses.replace(record, experiment=experiment))
    assert main(["evaluate", "--workdir", str(workdir)]) == 0


def test_evaluate_refuses_a_corpus_of_another_vocabulary(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_corpus(tmp_path / "other", words=WORDS[::-1])
    assert main(["evaluate", "--workdir", str(finished), "--data.corpus", str(other)]) == 2
    assert f"{other} has another vocabulary than the run in {finished}" in capsys.readouterr().err


def numbered(last: int) -> Iterator[dict[str, np.ndarray]]:
    return ({"n": np.array([n])} for n in range(last))


def test_prefetch_keeps_the_order_and_ends() -> None:
    batches = Prefetch(numbered(5), lambda batch: int(batch["n"][0]))
    idle = jnp.zeros(())
    assert [batches.next(idle) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(StopIteration):
        batches.next(idle)
    batches.close()


def test_prefetch_passes_errors_on_and_counts_waiting() -> None:
    def slow_then_broken() -> Iterator[dict[str, np.ndarray]]:
        time.sleep(1)
        yield {"n": np.array([0])}
        raise RuntimeError("shard gone")

    batches = Prefetch(slow_then_broken(), lambda batch: batch)
    idle = jnp.zeros(())
    batches.next(idle)
    assert batches.take_seconds_waited() > 0.1
    assert batches.take_seconds_waited() == 0
    with pytest.raises(RuntimeError, match="shard gone"):
        batches.next(idle)
    batches.close()


def test_prefetch_makes_only_a_few_batches_ahead() -> None:
    made = itertools.count()
    batches = Prefetch(numbered(1000), lambda batch: next(made))
    time.sleep(0.2)
    batches.close()
    assert next(made) <= 4
