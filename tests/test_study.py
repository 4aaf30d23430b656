"""`bert-jax study` whole: every job once, resumed and shared by workers, and what it says of bad input.

The default is a few kills; `BERT_JAX_KILLS=10 pytest -m slow tests/test_study.py` does as many as are
promised.
"""

import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from bert_jax.cli.main import main
from bert_jax.parallel.leases import Leases
from bert_jax.studies import run
from bert_jax.studies.directory import (
    JOB_FILE,
    LEASES_DIRECTORY,
    Ended,
    claim,
    read_study,
    write_ended,
)
from bert_jax.studies.file import read_studies
from bert_jax.studies.plan import PretrainingJob, make_plan
from bert_jax.workdir.record import RunRecord, write_record
from data_pipeline.atomic import write_json
from data_pipeline.corpus.documents import open_corpus
from data_pipeline.errors import UserError
from tests.data_pipeline import small_corpus
from tests.tiny_run import write_corpus
from tests.tiny_study import FILE, outcomes, run_killed, start_worker, study, write_data

KILLS = int(os.environ.get("BERT_JAX_KILLS", "4"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def undisturbed(data: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("undisturbed") / "study"
    assert main(study(data, output, "--workers", "1")) == 0
    return output


@pytest.mark.slow
def test_every_job_is_done_and_the_report_is_written(undisturbed: Path) -> None:
    done = outcomes(undisturbed)
    assert len(done) == 2 * (3 + 4)
    assert not any(ended["error"] for ended in done.values())  # type: ignore[index]
    assert "mlm/seed-1/pretraining" in done
    assert "ltr_bilstm/seed-0/pretraining" not in done
    for name in ("report.md", "report.html", "results.csv"):
        assert (undisturbed / name).stat().st_size
    made_by = (undisturbed / "report.md").read_text().partition("## How it was made\n\n")[2].splitlines()
    assert made_by[0].startswith("- command: `bert-jax study tiny --corpus")
    assert re.fullmatch(r"- fingerprint of the corpus: `[0-9a-f]{64}`", made_by[1])
    assert made_by[2].startswith("- code: `bert-jax ")


@pytest.mark.slow
def test_what_is_done_is_not_done_again_and_a_new_seed_is_added(
    data: list[str], undisturbed: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "study"
    shutil.copytree(undisturbed, output, symlinks=True)
    assert main(study(data[4:], output, "--status")) == 0
    assert json.loads((output / "progress.json").read_text())["left"] == 0
    assert "14 of 14 done" in capfd.readouterr().out
    assert main(study(data, output, "--workers", "1", "--seeds", "3")) == 0
    begun = [line for line in capfd.readouterr().err.splitlines() if line.endswith(": begun")]
    assert main(study(data[4:], output, "--seeds", "4", "--status")) == 75
    assert len(begun) == 3 + 4
    assert all("/seed-2/" in line for line in begun)
    before, now = outcomes(undisturbed), outcomes(output)
    assert {name: now[name] for name in before} == before
    # The new seed belongs to the study, also where the flag is not given again.
    capfd.readouterr()
    assert main(study(data[4:], output, "--status")) == 0
    assert "21 of 21 done" in capfd.readouterr().out
    (output / "report.md").unlink()
    assert main(study(data[4:], output, "--report")) == 0
    assert "3 pretraining seeds, 21 of 21 jobs done" in (output / "report.md").read_text()
    # A file that no report can be made of keeps no job from being done.
    (output / "base" / "seed-0" / "pretraining" / "metrics.jsonl").write_text("damaged\n{}\n")
    (output / "mlm" / "seed-0" / "classify" / "job.json").unlink()
    (output / "ltr" / "seed-0" / "classify" / "job.json").unlink()
    capfd.readouterr()
    assert main(study(data, output, "--workers", "1")) == 2
    said = capfd.readouterr().err
    assert said.count("no report: ") == 2
    assert said.count(": done, ") == 2


@pytest.mark.slow
def test_the_last_report_has_the_seeds_that_another_machine_has_added(
    data: list[str], undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "study"
    shutil.copytree(undisturbed, output, symlinks=True)
    run_workers = run.run_workers

    def work_meanwhile(*arguments: Any) -> int:
        monkeypatch.setattr(run, "run_workers", run_workers)
        return main(study(data, output, "--workers", "1", "--seeds", "3"))

    monkeypatch.setattr(run, "run_workers", work_meanwhile)
    assert main(study(data, output, "--workers", "1")) == 0
    assert "3 pretraining seeds, 21 of 21 jobs done" in (output / "report.md").read_text()


@pytest.mark.slow
def test_data_of_other_flags_is_compared_too_and_checkpoints_that_are_gone_are_not_asked_for(
    data: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output, tasks, file = tmp_path / "study", tmp_path / "tasks", tmp_path / "mine.py"
    shutil.copytree(data[3], tasks)
    shutil.copy(FILE, tmp_path / "copy_of_small_study.py")  # workers do not find the one in `tests`
    monkeypatch.setattr(sys, "path", [*sys.path])
    given = [*data, "--tasks", str(tasks), "--file", str(file)]
    file.write_text(ONE_ARM.format("", TOPIC_EVERY=None))
    assert main(study(given, output, "--workers", "1")) == 0
    dev = tasks / "topic" / "dev.tsv"
    text = dev.read_text()
    dev.write_text(text + "the cat\tcat\n")
    file.write_text(ONE_ARM.format(', "longer": Arm(TINY, finetuning={"epochs": (2.0,)})', TOPIC_EVERY=None))
    said = refusal(study(given, output, "--workers", "1"), capsys)
    assert f"{tasks}/topic is not the data on which this study has measured classify before" in said
    dev.write_text(text)
    file.write_text(ONE_ARM.format("", TOPIC_EVERY=4))
    said = refusal(study(given, output, "--workers", "1"), capsys)
    assert "base/seed-0/pretraining was made with other settings: keep_every None -> 4" in said


@pytest.mark.slow
def test_a_seed_is_not_added_on_other_data(
    data: list[str], undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, tasks = tmp_path / "study", tmp_path / "tasks"
    shutil.copytree(undisturbed, output, symlinks=True)
    shutil.copytree(data[3], tasks)
    dev = tasks / "topic" / "dev.tsv"
    dev.write_text(dev.read_text() + "the cat\tcat\n")
    flags = ("--tasks", str(tasks), "--workers", "1", "--seeds", "3")
    said = refusal(study(data, output, *flags), capsys)
    assert f"{tasks}/topic is not the data on which this study has measured classify before" in said


@pytest.mark.slow
def test_changed_settings_are_refused_with_the_difference(
    data: list[str], undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(study(data, undisturbed, "--num-train-steps", "9")) == 2
    said = capsys.readouterr().err
    assert "base/seed-0/pretraining was made with other settings: num_train_steps 8 -> 9" in said
    assert main(study(data, undisturbed, "--scale", "one")) == 2
    assert "was begun with other settings: scale tiny -> one; give those" in capsys.readouterr().err
    other = ["--corpus", str(write_corpus(tmp_path / "other", seed=1))]
    for flags in (other, [*other, "--plan"]):
        assert main(study(data, undisturbed, *flags)) == 2
        said = capsys.readouterr().err
        assert "was begun on another corpus, whose fingerprint is" in said
        assert "give that one (the command was `bert-jax study tiny --corpus" in said


@pytest.mark.slow
def test_three_workers_of_which_one_is_killed_again_and_again_do_every_job_once(
    data: list[str], undisturbed: Path, tmp_path: Path
) -> None:
    output = tmp_path / "study"
    words = study(data, output)
    said = run_killed(KILLS, lambda _, log: start_worker(words, log), tmp_path / "log")
    assert outcomes(output) == outcomes(undisturbed)
    assert (output / "results.csv").read_bytes() == (undisturbed / "results.csv").read_bytes()
    # A job that was killed is begun again; none is done twice.
    done = [line.split(": done")[0] for line in said.splitlines() if ": done, " in line]
    assert len(done) == len(set(done))


FAILING = """
import dataclasses

from bert_jax.study import Arm
from tests.bert_jax.studies import small_study

_optimizer = dataclasses.replace(small_study.TINY.optimizer, learning_rate=1e38)
_broken = dataclasses.replace(small_study.TINY, optimizer=_optimizer)
_arms = {"broken": Arm(_broken), "base": Arm(small_study.TINY)}
TINY = dataclasses.replace(small_study.STUDY, arms=_arms, published={})
"""


@pytest.mark.slow
def test_a_job_that_fails_stops_no_other_and_is_tried_again_if_asked(
    data: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Workers import what the file does, from nowhere but Python's path.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    (tmp_path / "failing.py").write_text(FAILING)
    words = [*data, "--file", str(tmp_path / "failing.py"), "--workers", "1", "--scale", "one"]
    output = tmp_path / "study"
    assert main(study(words, output)) == 1
    said = capfd.readouterr().err
    assert "failed: broken/seed-0/pretraining: ended with status 1; its log.txt says why; --retry" in said
    assert "NaN" in (output / "broken" / "seed-0" / "pretraining" / "log.txt").read_text()
    errors = {name: ended["error"] for name, ended in outcomes(output).items()}  # type: ignore[index]
    assert errors["broken/seed-0/classify"] == "its model could not be pretrained"
    assert errors["base/seed-0/pretraining"] == errors["base/seed-0/classify"] == ""
    assert (output / "report.md").stat().st_size
    assert main(study(words, output)) == 1
    assert ": begun" not in capfd.readouterr().err
    # What is refused forgets nothing.
    assert main(study(words, output, "--retry", "--num-train-steps", "9")) == 2
    assert {name: ended["error"] for name, ended in outcomes(output).items()} == errors  # type: ignore[index]
    assert main(study(words, output, "--retry")) == 1
    begun = [line for line in capfd.readouterr().err.splitlines() if line.endswith(": begun")]
    assert begun == ["broken/seed-0/pretraining: begun"]
    # A machine that leaves the last job to another one has not failed.
    last = PurePosixPath("base/seed-0/classify")
    (output / last / JOB_FILE).unlink()
    with Leases(output / LEASES_DIRECTORY).hold(last) as is_held:
        assert is_held
        assert main(study(words, output, "--leave-when-idle")) == 0
    assert main(study(words, output, "--leave-when-idle")) == 1


@pytest.mark.slow
def test_a_study_that_is_asked_to_stop_saves_and_resumes(
    data: list[str], undisturbed: Path, tmp_path: Path
) -> None:
    log, output = tmp_path / "log", tmp_path / "study"
    stopped = start_worker(study(data, output, "--seeds", "1"), log)
    while log.read_text().count(": begun") < 3:
        assert stopped.poll() is None, log.read_text()
        time.sleep(0.05)
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait(120) == 75, log.read_text()
    done = len(outcomes(output))
    expected = {name: ended for name, ended in outcomes(undisturbed).items() if "/seed-0/" in name}
    assert 2 <= done < len(expected)
    assert main(study(data, output, "--workers", "1", "--seeds", "1")) == 0
    assert outcomes(output) == expected


@pytest.mark.slow
def test_a_worker_that_is_killed_is_named(data: list[str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    study_of_one = start_worker(study(data, tmp_path / "study"), log)
    while ": begun" not in log.read_text():
        assert study_of_one.poll() is None, log.read_text()
        time.sleep(0.05)
    (worker,) = Path(f"/proc/{study_of_one.pid}/task/{study_of_one.pid}/children").read_text().split()
    os.kill(int(worker), signal.SIGKILL)
    assert study_of_one.wait(120) == 69
    assert f"worker {worker} was ended by SIGKILL; run the same command again" in log.read_text()


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_all_tasks_whose_files_are_missing_are_named_before_anything_is_run(
    data: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tasks").mkdir()
    output = tmp_path / "study"
    said = refusal(study(data, output, "--tasks", str(tmp_path / "tasks")), capsys)
    assert f"--tasks {tmp_path / 'tasks'} lacks topic" in said
    assert not output.exists()


ONE_WITH_PAIRS = """
import dataclasses
from bert_jax.objectives import MaskedLM
from bert_jax.study import Arm
from tests.bert_jax.studies.small_study import STUDY, TINY
arms = {"base": Arm(TINY.with_objective(MaskedLM()), {"data.pairing": "contiguous"}), "pairs": Arm(TINY)}
STUDY = dataclasses.replace(STUDY, arms=arms, published={})
"""


def test_a_corpus_or_devices_that_do_not_fit_one_arm_are_named_before_anything_is_run(
    data: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, file = tmp_path / "study", tmp_path / "mine.py"
    file.write_text(ONE_WITH_PAIRS)
    tokenizer = open_corpus(data[1], "train").tokenizer
    document = [tokenizer.encode("the cat sees")] * 20
    corpus = small_corpus.write_corpus(tmp_path / "corpus", [[document]], [[document] * 2], tokenizer)
    given = [*data, "--file", str(file)]
    said = refusal(study([*given, "--corpus", str(corpus)], output), capsys)
    assert f"arm pairs: the train split of {corpus} has 1 document(s); data.pairing next_sentence" in said
    said = refusal(study(given, output, "--parallel.fsdp", "3"), capsys)
    assert "arm base: parallel.fsdp x parallel.tensor is 3, which does not divide 1 devices" in said
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scale", "huge"], "study tiny has no scale 'huge'; valid: tiny, one, three_jobs"),
        (["--budget-flops", "10"], "--budget-flops 10 is below one step of"),
        (["--budget-flops", "1e9", "--budget-hours", "1"], "both set the steps; give one of the two"),
        (["--plan", "--status"], "--plan, --status and --report each show one thing; give one of them"),
        (["--budget-hours", "nan"], "--budget-hours is nan; it must be above 0 and finite"),
        (["--topology", "v5e:4x4"], "--topology has an effect only with --plan; add --plan"),
        (["--plan", "--topology", "v5e:3x3"], "no topology 'v5e:3x3'; valid: v5e:1x1"),
        (["--seed", "5"], "--seed is set by the study; give --seeds N"),
        (["--data.corpus", "other"], "--data.corpus is set by the study; give --corpus DIR"),
        (
            ["--num-train-steps", "4", "--budget-flops", "1e9"],
            "--num-train-steps and a budget both set the steps; give one of the two",
        ),
        (["--scale="], "--scale is empty; give it a value"),
        (
            ["--optimizer.warmup-steps", "4", "--optimizer.decay-start", "3", "--check-flags", "1"],
            "optimizer.decay_start is 3; it must be 0, or at least optimizer.warmup_steps (4)",
        ),
        (
            ["--num-train-steps", "1", "--optimizer.decay-start", "7", "--check-flags", "1"],
            "optimizer.decay_start is 7; it must be below num_train_steps (1)",
        ),
        (["--check-flags", "0"], "--check-flags is 0; it must be at least 1"),
        (
            ["--parallel.fsdp", "3", "--check-flags", "4"],
            "arm base: parallel.fsdp x parallel.tensor is 3, which",
        ),
        (["--model.vocab-size", "8"], "entries, but model.vocab_size is 8; pass --model.vocab-size"),
        (["--workers", "0"], "--workers is 0; it must be at least 1"),
        (["--seeds", "0"], "--seeds is 0; it must be at least 1"),
        (["--model.num-heads", "3"], "model.num_heads (3) does not divide model.hidden_size (16)"),
        (
            ["--model.max-position-embeddings", "15", "--data.phases.0.max-seq-length", "15"],
            "has 15 positions",
        ),
        (["--corpus", "nowhere"], "nowhere is not a corpus"),
        (["--budget-hours", "1", "--distributed"], "is one host of several; give --budget-flops"),
    ],
)
def test_bad_flags_are_refused_in_one_line(
    data: list[str], arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refusal(study(data, tmp_path / "study", *arguments), capsys)
    assert not (tmp_path / "study").exists()


ONE_ARM = """
import dataclasses
from bert_jax.study import Arm, Scale
from copy_of_small_study import STUDY, TINY, TOPIC
STUDY = dataclasses.replace(
    STUDY,
    arms={{"base": Arm(TINY, {{"keep_every": {TOPIC_EVERY}}}){}}},
    measures=(dataclasses.replace(TOPIC, every={TOPIC_EVERY}),),
    scales={{"tiny": Scale(seeds=1)}},
    published={{}},
)
"""
MEASURES = """
import dataclasses
from bert_jax.study import Finetuned, MinimalPairs
from tests.bert_jax.studies.small_study import STUDY, TOPIC
STUDY = dataclasses.replace(STUDY, published={{}}, measures=({},))
"""


@pytest.mark.parametrize(
    ("measures", "message"),
    [
        ('Finetuned("x", "accuracy", "clasify", "topic")', "unknown task 'clasify'; nearest: classify"),
        (
            'dataclasses.replace(TOPIC, metric="f1")',
            "topic: no metric 'f1'; valid: accuracy, macro_f1, matthews",
        ),
        (
            'dataclasses.replace(TOPIC, flags={"learning_rate": 1e-3})',
            "fine-tuning on classify: learning_rate is 0.001; it must be a tuple of values",
        ),
        (
            'dataclasses.replace(TOPIC, flags={"epochs": (0.0,)})',
            "epochs is 0; it must be above 0 and finite",
        ),
        (
            'dataclasses.replace(TOPIC, flags={"metric": "f7"})',
            "--metric is 'f7'; valid: accuracy",
        ),
        (
            "dataclasses.replace(TOPIC, lower_is_better=True)",
            "topic: higher accuracy is better; set lower_is_better=False",
        ),
        (
            'MinimalPairs("BLiMP", "accuracy", "pairs.jsonl"), MinimalPairs("y", "accuracy", "none", "pll")',
            "--tasks {tasks} lacks none; {tasks}/pairs.jsonl, line 2 has no column sentence_bad; it has",
        ),
    ],
)
def test_measures_that_cannot_be_made_are_named_before_anything_is_run(
    data: list[str], measures: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = tmp_path / "tasks"
    shutil.copytree(data[3], tasks)
    good, bad = '"sentence_good": "a"', '"sentence_bad": "b"'
    (tasks / "pairs.jsonl").write_text(f"{{{good}, {bad}}}\n{{{good}}}\n")
    (tmp_path / "mine.py").write_text(MEASURES.format(measures))
    flags = ("--tasks", str(tasks), "--file", str(tmp_path / "mine.py"))
    said = refusal(study(data, tmp_path / "study", *flags), capsys)
    assert message.format(tasks=tasks) in said
    assert not (tmp_path / "study").exists()


def test_pairs_are_those_that_other_models_were_measured_on(
    data: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, tasks, file = tmp_path / "study", tmp_path / "tasks", tmp_path / "mine.py"
    tasks.mkdir()
    (tasks / "pairs.jsonl").write_text('{"sentence_good": "the cat", "sentence_bad": "cat the"}\n')
    file.write_text(MEASURES.format('MinimalPairs("BLiMP", "accuracy", "pairs.jsonl")'))
    (mine,) = read_studies(file).values()
    job = make_plan(mine, "tiny", mine.scales["tiny"], {}).measured["base", 0][0]
    measured = {"metrics": {"accuracy": 50.0}, "data_fingerprint": "of other pairs"}
    write_ended(output, job, Ended(job.settings, 1.0, "1 x cpu", (measured,)))
    write_json(output / "study.json", {"study": "tiny", "scale": "tiny", "budget_hours": None})
    said = refusal(study(data, output, "--tasks", str(tasks), "--file", str(file)), capsys)
    assert "pairs.jsonl is not the data on which this study has measured minimal-pairs-pll_word_l2r" in said


def test_status_before_the_start_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["study", "smoke", "--output", str(tmp_path / "study")]
    for flag in ("--status", "--report"):
        said = refusal([*line, flag], capsys)
        assert f"there is no directory {tmp_path / 'study'}; name that of a study" in said
    assert not (tmp_path / "study").exists()
    (tmp_path / "study").mkdir()
    assert main([*line, "--status"]) == 75
    said = capsys.readouterr().out
    assert f"{tmp_path / 'study'} holds no study yet" in said
    assert "0 of 24 done, 24 left" in said
    assert main([*line, "--arms", "mlm", "--status"]) == 75
    assert "0 of 16 done, 16 left" in capsys.readouterr().out
    assert "holds no study yet, of which a report could be" in refusal([*line, "--report"], capsys)
    assert list((tmp_path / "study").iterdir()) == []


def test_status_needs_neither_corpus_nor_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["study", "figure5", "--scale", "small", "--output", str(tmp_path), "--budget-flops", "4e13"]
    planned = {}
    for size in (4000, 8000):  # a larger vocabulary leaves fewer steps, and so fewer checkpoints to measure
        identity = {"study": "figure5", "scale": "small", "budget_hours": None, "vocabulary_size": size}
        (tmp_path / "study.json").write_text(json.dumps(identity))
        assert main([*words, "--status"]) == 75
        planned[size] = int(re.search(r"0 of (\d+) done", capsys.readouterr().out)[1])  # type: ignore[index]
    assert planned[4000] > planned[8000] > 0


def test_report_and_status_of_other_settings_than_those_of_the_runs_are_refused(
    data: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = read_studies(FILE)["tiny"]
    plan = make_plan(mine, "tiny", mine.scales["tiny"], {"num_train_steps": 4})
    job = next(job for job in plan.jobs if isinstance(job, PretrainingJob))
    (tmp_path / job.path).mkdir(parents=True)
    write_record(tmp_path / job.path, RunRecord("tiny/base", job.experiment, "corpus"))
    write_json(tmp_path / "study.json", {"study": "tiny", "scale": "tiny", "budget_hours": None})
    for flag in ("--status", "--report"):
        said = refusal(study(data[4:], tmp_path, flag), capsys)
        assert "base/seed-0/pretraining was made with other settings: optimizer.warmup_steps 1 -> 2; " in said
        assert said.strip().endswith("give the flags that it was made with")
    command = "tiny --num-train-steps 4"
    write_json(tmp_path / "progress.json", {"command": command, "jobs": 1, "failed": 0, "left": 1})
    said = refusal(study(data[4:], tmp_path, "--status"), capsys)
    assert said.strip().endswith(f"give the flags that it was made with by `bert-jax study {command}`")
    assert main(study(data[4:], tmp_path, "--status", "--num-train-steps", "4")) == 75
    assert not (tmp_path / "report.md").exists()


def test_impossible_settings_are_refused_before_the_data_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["study", "smoke", "--output", str(tmp_path / "study"), "--budget-flops", "1"]
    assert "--budget-flops 1 is below one step" in refusal(words, capsys)
    assert not (tmp_path / "study").exists()


def test_a_study_of_which_only_the_data_is_made_gets_its_budget_when_it_begins(tmp_path: Path) -> None:
    of_data = {"study": "smoke", "scale": "smoke"}
    claim(tmp_path / "study", of_data)
    claim(tmp_path / "study", {**of_data, "budget_hours": 1.0})
    assert read_study(tmp_path / "study") == {**of_data, "budget_hours": 1.0}
    with pytest.raises(UserError, match=r"was begun with other settings: budget_hours 1\.0 -> None"):
        claim(tmp_path / "study", {**of_data, "budget_hours": None})


@pytest.mark.tpu
def test_a_plan_has_the_hours_on_a_slice(
    data: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--scale", "one", "--plan", "--topology", "v5e:2x2", "--budget-hours", "1")
    assert main(study(data, tmp_path / "study", *flags)) == 0
    said = capsys.readouterr()
    # The arms' encoders are alike; what they predict is not.
    assert said.err.count("compiling a step of 8 x 32 for v5e:2x2") == 3
    assert "on v5e:2x2 by the TPU compiler's estimate" in said.out
    lines = (line.rstrip() for line in said.out.splitlines())
    assert "base/seed-0" in lines
    assert re.search(r"^  pretraining .* 1 h 0 min", next(lines))
    assert not (tmp_path / "study").exists()


def test_a_directory_of_something_else_is_refused(
    data: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not empty and holds no study" in refusal(study(data, tmp_path), capsys)
    said = refusal(study(data, tmp_path / "notes.txt"), capsys)
    assert f"--output {tmp_path / 'notes.txt'} is a file; name a directory" in said
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "defines no Study"),
        ("x = (\n", "cannot be executed: SyntaxError"),
        ("raise KeyError('a')\n", "cannot be executed: KeyError: 'a'"),
        ("import sys\nsys.exit(3)\n", "cannot be executed: SystemExit: 3"),
        (None, "is not a file"),
        (
            "import dataclasses\nfrom tests.bert_jax.studies.small_study import STUDY\n"
            "OTHER = dataclasses.replace(STUDY, title='other')\n",
            "mine.py has two studies named 'tiny'; give one of them another name",
        ),
    ],
)
def test_a_file_that_is_no_study_is_refused(
    text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    if text is not None:
        file.write_text(text)
    said = refusal(["study", "tiny", "--file", str(file), "--output", str(tmp_path / "out")], capsys)
    assert message in said


def test_a_file_without_a_name_names_its_studies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from tests.bert_jax.studies.small_study import STUDY\n")
    assert f"{file} has tiny" in refusal(["study", "--file", str(file), "--output", "out"], capsys)


def test_a_file_may_import_the_one_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_my_study.py").write_text("from tests.bert_jax.studies.small_study import STUDY\n")
    (tmp_path / "my_study_and_another.py").write_text("from beside_my_study import STUDY\n")
    assert read_studies(tmp_path / "my_study_and_another.py")


def test_a_file_may_not_take_the_place_of_a_module(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "statistics.py").write_text("x = 1\n")
    said = refusal(["study", "tiny", "--file", str(tmp_path / "statistics.py"), "--output", "out"], capsys)
    assert "statistics.py has the name of an installed module; give it another one" in said


def test_the_directory_of_a_file_may_be_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from tests.bert_jax.studies.small_study import STUDY\n"
    (tmp_path / "my_study_on_the_path.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert read_studies(tmp_path / "my_study_on_the_path.py")
