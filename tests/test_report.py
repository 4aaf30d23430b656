"""Runs side by side: what `bert-jax report` groups, shows, writes and refuses."""

import csv
import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from bert_jax.cli.main import main
from bert_jax.finetuning_config import FeatureConfig, FineTuningConfig
from bert_jax.objectives.experiment import Experiment
from bert_jax.report.curves import _draw
from bert_jax.report.finetuning import _pretraining
from bert_jax.report.pretraining import group_runs, read_run, settings_that_differ
from bert_jax.task import Metric
from bert_jax.workdir.finetuning import FineTuningRecord
from bert_jax.workdir.finetuning import write_record as write_finetuning_record
from bert_jax.workdir.grid import write_trials
from bert_jax.workdir.pretraining_identity import Pretraining, hash_of_settings, pretraining_of
from bert_jax.workdir.record import BranchPoint, RunRecord, read_record, write_record
from experiments import EXPERIMENTS
from tests.bert_jax.small_run import make_experiment
from tests.conftest import Refused

RULES = str.maketrans("", "", "│┃")


def pretrained(
    directory: Path, accuracies: Mapping[int, float], objective: str = "mlm_nsp", **changes: Any
) -> Path:
    """A work directory whose evaluations had these accuracies, by step."""
    directory.mkdir(parents=True)
    experiment = dataclasses.replace(make_experiment(objective, 50), **changes)
    write_record(directory, RunRecord("tiny", experiment, "fingerprint"))
    rows = [{"step": 1, "split": "train", "mlm_accuracy": 0.0}]
    for step, accuracy in accuracies.items():
        metrics = {"mlm_accuracy": accuracy, "mlm_guess_accuracy": 0.01, "mlm_perplexity": 8.0}
        rows.append({"step": step, "split": "heldout", "max_seq_length": 16, **metrics})
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory


def finetuned(
    directory: Path,
    task: str,
    scores: Mapping[float, tuple[float | None, ...]],
    model: str,
    name: str = "export",
    data: str = "",
    in_percent: bool = False,
    better: Literal["higher", "lower"] = "higher",
    metric: str = "accuracy",
    vocabulary: str = "",
    features: Mapping[str, Any] | None = None,
    **record: Any,
) -> Path:
    """An output directory whose trials had these scores, a tuple of seeds for each learning rate."""
    trial = directory / "trials" / "a"
    trial.mkdir(parents=True)
    model_config = make_experiment("mlm_nsp", 50).model
    config = FineTuningConfig(model=model_config, features=FeatureConfig(**features or {}))
    record = {"settings": {}, "trained_from": name, "model_fingerprint": model, "data": data, **record}
    write_finetuning_record(trial, FineTuningRecord(task, config, ("a", "b"), **record))
    (trial / "tokenizer.json").write_text(vocabulary)
    (trial / "result.json").write_text("{}")
    (directory / "best").symlink_to("trials/a", target_is_directory=True)
    rows: list[dict[str, Any]] = []
    trials: list[dict[str, Any]] = []
    for rate, values in scores.items():
        of_rate = {"learning_rate": rate, "batch_size": 16, "epochs": 3.0}
        known = [value for value in values if value is not None]
        mean = sum(known) / len(known) if len(known) == len(values) else None
        rows.append({**of_rate, "seeds": len(values), "mean": mean, "stdev": 0.25})
        trials += [
            {**of_rate, "seed": seed, "metrics": {metric: value, "macro_f1": 0.25}}
            for seed, value in enumerate(values)
        ]
    how = dataclasses.asdict(Metric(metric, metric, in_percent=in_percent, better=better))
    (directory / "results.json").write_text(json.dumps({"metric": how, "rows": rows, "trials": trials}))
    return directory


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def words_of(printed: str) -> list[list[str]]:
    """The words of each line, without the rules between columns."""
    return [line.translate(RULES).split() for line in printed.splitlines()]


def shown(capsys: pytest.CaptureFixture[str], *words: str | Path) -> list[list[str]]:
    """The words of each line that is printed."""
    assert main(["report", *map(str, words)]) == 0
    return words_of(capsys.readouterr().out)


def test_seeds_share_a_line_and_others_do_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        pretrained(tmp_path / "a", {5: 0.1, 10: 0.50}),
        pretrained(tmp_path / "b", {5: 0.9, 10: 0.54}, seed=1, log_every=7),
        pretrained(tmp_path / "no_nsp", {10: 0.25}, objective="mlm"),
        pretrained(tmp_path / "young", {5: 0.2}, seed=2),
    ]
    assert main(["report", *map(str, runs)]) == 0
    said = capsys.readouterr().out
    lines = words_of(said)
    assert ["a", "+1", "2", "10", "16", "52.0", "±", "2.8%", "8", "±", "0"] in lines
    assert ["no_nsp", "1", "10", "16", "25.0%", "8"] in lines
    assert ["young", "1", "5", "16", "20.0%", "8"] in lines
    assert ["objective", "mlm_nsp", "mlm", "mlm_nsp"] in lines
    assert "log_every" not in said
    assert "note: young: evaluated at step 5, of 10 steps" in said
    assert "held-out metrics answer different questions" in " ".join(said.split())  # data.pairing differs
    assert max(map(len, said.partition("note:")[0].splitlines())) <= 80


def test_settings_of_many_runs_are_not_broken_on_a_narrow_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    names = [f"{letter}_short_name" for letter in "abcd"]
    runs = [
        pretrained(tmp_path / name, {10: 0.5}, global_batch_size=8 * n) for n, name in enumerate(names, 1)
    ]
    lines = shown(capsys, *runs)
    assert [words for words in lines if words and words[0] == "global_batch_size"] == [
        ["global_batch_size", "8", "16"],
        ["global_batch_size", "24", "32"],
    ]
    assert names[:2] in lines
    assert names[2:] in lines


def test_a_seed_that_met_nan_shows_as_nan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        pretrained(tmp_path / "a", {10: 0.50}),
        pretrained(tmp_path / "b", {10: math.nan}, seed=1),
    ]
    assert any("nan" in "".join(words) for words in shown(capsys, *runs))


def test_copies_and_branches_are_no_repeats(tmp_path: Path) -> None:
    branch = pretrained(tmp_path / "branch", {10: 0.58}, seed=1)
    record = read_record(branch)
    write_record(branch, dataclasses.replace(record, branched_from=BranchPoint("other", 5)))
    runs = [
        pretrained(tmp_path / "a", {10: 0.50}),
        pretrained(tmp_path / "b", {10: 0.54}, seed=1),
        pretrained(tmp_path / "copy", {10: 0.50}),
        branch,
    ]
    assert main(["report", *map(str, runs), "--csv", str(tmp_path / "out.csv")]) == 0
    groups = [row["group"] for row in read_csv(tmp_path / "out.csv")]
    assert groups[0] == groups[1] == "a +1"
    assert len(set(groups)) == 3
    assert pretraining_of(read_record(branch), 10).given != pretraining_of(record, 10).given


def test_the_csv_has_a_line_for_each_run(tmp_path: Path) -> None:
    runs = [
        pretrained(tmp_path / "a", {10: 0.50}),
        pretrained(tmp_path / "b", {10: 0.54}, seed=1),
        pretrained(tmp_path / "long", {10: 0.25}, num_train_steps=20),
    ]
    assert main(["report", *map(str, runs), "--csv", str(tmp_path / "out.csv")]) == 0
    rows = read_csv(tmp_path / "out.csv")
    assert [Path(row["run"]).name for row in rows] == ["a", "b", "long"]
    assert [row["group"] for row in rows] == ["a +1", "a +1", "long"]
    assert [row["seed"] for row in rows] == ["0", "1", "0"]
    assert [row["num_train_steps"] for row in rows] == ["10", "10", "20"]
    assert [row["mlm_accuracy"] for row in rows] == ["0.5", "0.54", "0.25"]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_curves_are_drawn(tmp_path: Path, suffix: str) -> None:
    runs = [pretrained(tmp_path / "a", {5: 0.1, 10: 0.5}), pretrained(tmp_path / "b", {5: 0.2}, seed=1)]
    picture = tmp_path / f"curves{suffix}"
    assert main(["report", *map(str, runs), "--plot", str(picture)]) == 0
    begins = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    assert picture.read_bytes().startswith(begins)


def test_metrics_of_one_name_have_headings_and_lines_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [pretrained(tmp_path / "bert", {5: 0.1}), pretrained(tmp_path / "electra", {5: 0.2}, "rtd")]
    picture = tmp_path / "curves.svg"
    said = [word for line in shown(capsys, *runs, "--plot", str(picture)) for word in line]
    assert "generator's" in said
    legend = [comment.split("-->")[0].strip() for comment in picture.read_text().split("<!--")]
    assert "electra, generator's MLM accuracy" in legend
    assert "bert" in legend


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["a$^$b", "_a"])
def test_every_name_of_a_run_stands_in_the_legend(tmp_path: Path, name: str) -> None:
    runs = [pretrained(tmp_path / name, {5: 0.1}), pretrained(tmp_path / "b", {5: 0.2}, "ltr")]
    picture = tmp_path / "curves.svg"
    assert main(["report", *map(str, runs), "--plot", str(picture)]) == 0
    legend = [comment.split("-->")[0].strip() for comment in picture.read_text().split("<!--")]
    assert [text for text in legend if text.endswith(name)], legend


def test_a_branch_is_drawn_from_where_it_branched(tmp_path: Path) -> None:
    run = read_run(pretrained(tmp_path / "run", {5: 0.1, 10: 0.2, 15: 0.3}))
    assert run.own_heldout == run.heldout
    record = dataclasses.replace(run.record, branched_from=BranchPoint("first", 10))
    assert [row["step"] for row in dataclasses.replace(run, record=record).own_heldout] == [10, 15]


def test_runs_from_different_models_differ_by_the_models_names(tmp_path: Path) -> None:
    runs = [read_run(pretrained(tmp_path / name, {5: 0.1})) for name in ("a", "b", "c")]
    models = (("old", "f00"), ("new", "ba5"), ("", ""))
    begun = []
    for run, (name, fingerprint) in zip(runs, models, strict=True):
        record = dataclasses.replace(run.record, init_from=name, init_fingerprint=fingerprint)
        begun.append(dataclasses.replace(run, record=record))
    assert settings_that_differ(group_runs(begun)) == {"init_from": ["old (f00)", "new (ba5)", "unset"]}


def test_a_run_without_evaluations_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(pretrained(tmp_path / "new", {}))]) == 0
    assert "note: new: not evaluated yet, of 10 steps" in capsys.readouterr().out


def test_scores_by_model_and_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        finetuned(tmp_path / "1", "cola", {2e-5: (0.5, 0.7), 3e-5: (None, 0.9)}, model="abcdefgh1"),
        finetuned(tmp_path / "2", "rte", {2e-5: (0.4,)}, model="abcdefgh1"),
        finetuned(tmp_path / "3", "cola", {2e-5: (0.3,)}, model="zyxwvuts2"),
    ]
    lines = shown(capsys, *runs, "--csv", str(tmp_path / "out.csv"))
    # A mean that lacks a diverged seed is not shown. Both models are named `export`, so a hash is added.
    assert ["export", "abcdefgh", "0.6000", "±", "0.2500", "0.4000"] in lines
    assert ["export", "zyxwvuts", "0.3000"] in lines
    rows = read_csv(tmp_path / "out.csv")
    assert [(row["task"], row["seed"], row["score"]) for row in rows] == [
        ("cola", "0", "0.5"),
        ("cola", "1", "0.7"),
        ("cola", "0", ""),
        ("cola", "1", "0.9"),
        ("rte", "0", "0.4"),
        ("cola", "0", "0.3"),
    ]
    assert {row["macro_f1"] for row in rows} == {"0.25"}


def test_a_model_of_two_names_is_one_and_repeats_of_an_experiment_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [
        finetuned(tmp_path / "1", "cola", {2e-5: (0.5,)}, "m", name="base-0"),
        finetuned(tmp_path / "2", "rte", {2e-5: (0.7,)}, "m", name="base"),
        finetuned(tmp_path / "3", "cola", {2e-5: (0.3,)}, "n", name="base-1"),
    ]
    lines = shown(capsys, *runs)
    assert ["base-0", "0.5000", "0.7000"] in lines
    assert ["base-1", "0.3000"] in lines


def test_seeds_of_a_pretraining_share_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(seed: int, experiment: str, scores: tuple[float, ...], settings: str = "a") -> Path:
        known = Pretraining(experiment, seed, 10, settings, "corpus")
        directory = tmp_path / f"{experiment}{seed}{settings}"
        return finetuned(directory, "cola", {2e-5: scores}, f"m{directory.name}", pretraining=known)

    runs = [run(seed, "mine", (value, value)) for seed, value in enumerate((0.5, 0.6, 0.7))]
    lines = shown(capsys, *runs, run(0, "other", (0.4,)), "--csv", str(tmp_path / "out.csv"))
    at = lines.index(["mine", "0.6000", "±", "0.1000"])
    assert lines[at + 1 : at + 3] == [["3", "pretrainings"], ["2", "seeds", "each", "±", "0.2500"]]
    assert ["other", "0.4000"] in lines
    rows = read_csv(tmp_path / "out.csv")
    assert [(row["experiment"], row["pretraining_seed"], row["seed"]) for row in rows] == [
        *(("mine", str(seed), str(n)) for seed in range(3) for n in range(2)),
        ("other", "0", "0"),
    ]
    # An experiment of one name with other settings is another one; the model's name tells them apart.
    known = Pretraining("mine", 0, 10, "b", "corpus")
    changed = finetuned(tmp_path / "changed", "cola", {2e-5: (0.3,)}, "z", "narrow", pretraining=known)
    lines = shown(capsys, *runs, changed)
    assert ["export", "0.6000", "±", "0.1000"] in lines
    assert ["narrow", "0.3000"] in lines


def test_two_runs_of_one_pretraining_seed_are_no_two_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = Pretraining("mine", 0, 10, "a", "corpus")
    runs = [
        finetuned(tmp_path / name, "cola", {2e-5: (score,)}, name, pretraining=known)
        for name, score in (("one", 0.5), ("two", 0.7))
    ]
    said = "\n".join(" ".join(line) for line in shown(capsys, *runs))
    assert "±" not in said
    assert "0.5000" in said
    assert "0.7000" in said


def test_a_lucky_seed_does_not_beat_a_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = finetuned(tmp_path / "a", "cola", {2e-5: (0.5, 0.6), 3e-5: (0.9,)}, "m")
    said = "\n".join(" ".join(line) for line in shown(capsys, grid))
    assert "0.5500" in said
    assert "0.9000" not in said


def test_probes_whose_best_layers_differ_share_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for seed, score in enumerate((0.5, 0.7)):
        known = Pretraining("mine", seed, 10, "a", "corpus")
        features = {"layers": (seed + 1,), "combine": "each"}
        directory = tmp_path / str(seed)
        runs.append(
            finetuned(directory, "cola", {2e-5: (score,)}, f"m{seed}", pretraining=known, features=features)
        )
        results = json.loads((directory / "results.json").read_text())
        results["trials"][0]["layer"] = seed + 1
        (directory / "results.json").write_text(json.dumps(results))
    lines = shown(capsys, *runs, "--csv", str(tmp_path / "out.csv"))
    assert ["mine", "0.6000", "±", "0.1414"] in lines
    rows = read_csv(tmp_path / "out.csv")
    assert [(row["variant"], row["layer"]) for row in rows] == [
        ("features.combine each", "1"),
        ("features.combine each", "2"),
    ]


def test_ways_of_fine_tuning_have_lines_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = Pretraining("mine", 0, 10, "a", "corpus")
    plain = finetuned(tmp_path / "1", "cola", {2e-5: (0.5,)}, "m", pretraining=known)
    features = {"layers": (-2, -1), "lstm_layers": 2}
    bilstm = finetuned(tmp_path / "2", "cola", {2e-5: (0.6,)}, "m", pretraining=known, features=features)
    lines = shown(capsys, plain, bilstm, "--csv", str(tmp_path / "out.csv"))
    assert ["mine", "0.5000"] in lines
    assert ["mine", "0.6000"] in lines
    variants = [row["variant"] for row in read_csv(tmp_path / "out.csv")]
    assert variants == ["", "features.layers -2 -1, features.lstm_layers 2"]


def test_a_pretraining_has_one_name_whatever_the_way_of_fine_tuning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = (Pretraining("quickstart", 0, 10, settings, "corpus") for settings in "ab")
    grids = [
        finetuned(tmp_path / "1", "cola", {2e-5: (0.5,)}, "q0", pretraining=one),
        finetuned(tmp_path / "2", "cola", {2e-5: (0.6,)}, "q1", pretraining=other),
        finetuned(
            *(tmp_path / "3", "cola", {2e-5: (0.7,)}, "q0"), pretraining=one, features={"layers": (-2, -1)}
        ),
    ]
    lines = shown(capsys, *grids)
    expected = (["q0", "0.5000"], ["q1", "0.6000"], ["q0", "0.7000"])
    assert all(["export", *line] in lines for line in expected)


def test_runs_of_one_name_are_told_apart_by_the_directories_above_them(tmp_path: Path) -> None:
    arms = {"bert": "mlm_nsp", "no_nsp": "mlm"}
    runs = [
        pretrained(tmp_path / arm / f"seed-{seed}" / "pretraining", {10: 0.5}, seed=seed, objective=objective)
        for arm, objective in arms.items()
        for seed in (0, 1)
    ]
    assert main(["report", *map(str, runs), "--csv", str(tmp_path / "out.csv")]) == 0
    groups = dict.fromkeys(row["group"] for row in read_csv(tmp_path / "out.csv"))
    assert [*groups] == ["bert/seed-0/pretraining +1", "no_nsp/seed-0/pretraining +1"]


def test_the_papers_number_is_beside_its_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = EXPERIMENTS["base"]

    def run(name: str, experiment: Experiment, task: str = "mnli") -> list[list[str]]:
        known = Pretraining("base", 0, experiment.num_train_steps, hash_of_settings(experiment), "corpus")
        grid = finetuned(tmp_path / name, task, {2e-5: (0.8,)}, "m", pretraining=known)
        return shown(capsys, grid)

    assert ["paper", "0.8440"] in run("published", dataclasses.replace(base, seed=7, checkpoint_every=5))
    assert ["paper", "0.8440"] not in run("shorter", dataclasses.replace(base, num_train_steps=5))
    # NER is not CoNLL-2003 on other data.
    assert not any("paper" in line for line in run("other_data", base, "ner"))


def test_the_papers_number_for_squad_is_not_beside_scores_of_squad_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = EXPERIMENTS["base"]
    known = Pretraining("base", 0, base.num_train_steps, hash_of_settings(base), "corpus")
    how = {"metric": "f1", "in_percent": True, "pretraining": known}
    grid = finetuned(tmp_path / "squad", "squad", {2e-5: (75.0,)}, "m", **how)
    assert ["paper", "88.5000"] in shown(capsys, grid)
    results = json.loads((grid / "results.json").read_text())
    results["trials"][0]["metrics"]["HasAns_f1"] = 70.0
    (grid / "results.json").write_text(json.dumps(results))
    assert not any("paper" in line for line in shown(capsys, grid))


def test_tasks_are_averaged_if_all_models_have_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [
        finetuned(tmp_path / task, task, {2e-5: (value,)}, "m")
        for task, value in (("cola", 0.5), ("rte", 0.7))
    ]
    lines = shown(capsys, *runs)
    assert ["export", "0.5000", "0.7000", "0.6000"] in lines


def test_percentages_and_shares_have_no_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    share = finetuned(tmp_path / "cola", "cola", {2e-5: (0.5,)}, "m")
    answers = finetuned(tmp_path / "squad", "squad", {2e-5: (88.5,)}, "m", in_percent=True, metric="f1")
    tags = finetuned(tmp_path / "ner", "ner", {2e-5: (90.5,)}, "m", in_percent=True, metric="f1")
    assert ["export", "0.5000", "88.5000"] in shown(capsys, share, answers)
    assert ["export", "0.5000", "90.5000"] in shown(capsys, share, tags)
    assert ["export", "88.5000", "90.5000", "89.5000"] in shown(capsys, answers, tags)


def test_errors_and_accuracies_have_no_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = finetuned(tmp_path / "cola", "cola", {2e-5: (0.5,)}, "m")
    error = finetuned(tmp_path / "mine", "mine", {2e-5: (0.25,)}, "m", better="lower", metric="error")
    assert ["export", "0.5000", "0.2500"] in shown(capsys, accuracy, error)


def test_each_data_set_of_a_task_has_a_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(name: str, score: float, model: str, data: str, dev: str) -> Path:
        scores = {2e-5: (score,)}
        return finetuned(tmp_path / name, "classify", scores, model, model, data, dev_fingerprint=dev)

    topics, tone = run("1", 0.5, "m", "d/topics", "a"), run("2", 0.7, "m", "d/tone", "b")
    copied, changed = run("3", 0.25, "n", "copy", "a"), run("4", 0.75, "m", "d/topics", "c")
    lines = shown(capsys, topics, tone, copied, "--csv", str(tmp_path / "out.csv"))
    assert ["topics", "tone"] in lines
    assert ["m", "0.5000", "0.7000"] in lines
    assert ["n", "0.2500"] in lines
    rows = read_csv(tmp_path / "out.csv")
    assert [(row["data"], row["dev_fingerprint"]) for row in rows] == [
        ("topics", "a"),
        ("tone", "b"),
        ("copy", "a"),
    ]
    lines = shown(capsys, topics, changed)
    assert ["1", "4", "mean"] in lines  # two data sets of one name: the directories of the runs
    assert ["m", "0.5000", "0.7500", "0.6250"] in lines


def test_scores_stand_under_their_own_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        finetuned(tmp_path / name, "tag", {2e-5: (score,)}, model, model, in_percent=True, metric=metric)
        for name, score, model, metric in (("1", 80.5, "m", "f1"), ("2", 95.5, "n", "accuracy"))
    ]
    lines = shown(capsys, *runs)
    assert ["model", "f1", "accuracy"] in lines
    assert ["n", "95.5000"] in lines


def test_a_data_set_that_models_encode_in_their_own_ways_has_one_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str, score: float, model: str, **more: Any) -> Path:
        return finetuned(tmp_path / name, "rte", {2e-5: (score,)}, model, model, **more)

    runs = [
        run("1", 0.5, "m", data="glue/RTE", dev_fingerprint="a", vocabulary="cased"),
        run("2", 0.6, "n", data="tfds:glue/rte", dev_fingerprint="b", vocabulary="uncased"),
        run("3", 0.7, "o", data="RTE", dev_fingerprint="c", settings={"max_seq_length": 64}),
    ]
    lines = shown(capsys, *runs)
    for model, score in (("m", "0.5000"), ("n", "0.6000"), ("o", "0.7000")):
        assert [model, score] in lines
    assert ["model", "accuracy"] in lines
    folds = [
        run(f"fold {fold}", 0.5, f"q{fold}", data="mine", vocabulary=str(fold), settings={"dev_fold": fold})
        for fold in range(2)
    ]
    assert ["mine", "mine", "fold", "1"] in shown(capsys, *folds)


def test_a_grid_that_is_not_finished_is_shown_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = finetuned(tmp_path / "grid", "cola", {2e-5: (0.5,)}, "m")
    write_trials(grid, ["b", *(trial.name for trial in (grid / "trials").iterdir())])
    assert main(["report", str(grid)]) == 0
    said = capsys.readouterr()
    assert "0.5000" in said.out
    assert f"the grid of {grid} is not finished: 1 of 2 trials done" in said.err


def test_what_is_no_run_is_refused(tmp_path: Path, refused: Refused) -> None:
    def error(*words: str) -> str:
        return refused(["report", *words])

    run = str(pretrained(tmp_path / "run", {10: 0.5}))
    tuned = str(finetuned(tmp_path / "tuned", "cola", {2e-5: (0.5,)}, "m"))
    lost = finetuned(tmp_path / "lost", "cola", {2e-5: (None,)}, "m")
    begun = finetuned(tmp_path / "begun", "cola", {2e-5: (0.5,)}, "m")
    (begun / "results.json").unlink()
    assert "name the directory of a run, or of several" in error()
    assert f"{tmp_path} is no run, but holds some; name them: {tmp_path}/*" in error(str(tmp_path))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert f"{empty} is not the work directory of a run" in error(str(empty))
    (empty / "config.json").write_text('{"hidden_size": 16}')
    assert f"{empty} is not the work directory of a run: its config.json is that of s" in error(str(empty))
    study = tmp_path / "study"
    study.mkdir()
    (study / "study.json").write_text("{}")
    assert f"{study} is the directory of a study; add --report to its `bert-jax study` command" in error(
        str(study)
    )
    assert f"{tuned}/best is one trial; name the --output" in error(f"{tuned}/best")
    assert f"{begun} is not finished; run its `bert-jax finetune` again" in error(str(begun))
    assert "each setting of the grid has a seed that diverged" in error(str(lost))
    damaged = finetuned(tmp_path / "damaged", "cola", {2e-5: (0.5,)}, "m")
    for content in ("[]", "5", '{"trials": [5], "metric": {}}'):
        (damaged / "results.json").write_text(content)
        assert "results.json is not what `bert-jax finetune` writes" in error(str(damaged))
    assert "--csv takes runs of one kind" in error(run, tuned, "--csv", str(tmp_path / "o.csv"))
    assert "valid: .png, .svg, .pdf" in error(run, "--plot", str(tmp_path / "o.gif"))
    assert "--plot draws the curves of pretraining runs" in error(tuned, "--plot", "o.png")
    assert not list(tmp_path.glob("o.*"))


@pytest.mark.parametrize(
    "row",
    [
        "[]",
        "7",
        '{"split": "heldout"}',
        '{"step": "10", "split": "heldout"}',
        '{"step": 10, "split": 1}',
        '{"step": 10, "split": "heldout", "mlm_accuracy": "high"}',
        '{"step": 10, "split": "heldout", "timing": 3}',
    ],
)
def test_a_wrong_row_of_metrics_is_named(tmp_path: Path, refused: Refused, row: str) -> None:
    run = pretrained(tmp_path / "run", {10: 0.5})
    with (run / "metrics.jsonl").open("a") as file:
        file.write(f"{row}\n")
    error = refused(["report", str(run)])
    assert "metrics.jsonl, line 3 is not a row of metrics; remove the line" in error


def test_evaluations_that_lack_metrics_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [pretrained(tmp_path / f"run-{seed}", {10: 0.5}, seed=seed) for seed in (1, 2)]
    with (runs[1] / "metrics.jsonl").open("a") as file:
        file.write('{"step": 10, "split": "heldout", "mlm_perplexity": 8.0}\n')
    assert main(["report", *map(str, runs), "--plot", str(tmp_path / "plot.svg")]) == 0
    assert "mlm perplexity" in " ".join(capsys.readouterr().out.split())


def test_fractions_are_drawn_in_percent() -> None:
    fraction = Metric("a", "a", "{:.1%}", panel="p")
    picture = _draw(["p"], {"run": ((fraction,), [[{"step": 4, "a": 0.5}]])})
    assert picture.axes[0].lines[0].get_ydata().tolist() == [50.0]  # type: ignore[union-attr]


def test_checkpoints_of_one_run_are_on_lines_of_their_own() -> None:
    runs = (SimpleNamespace(experiment="e", step=step, settings=(), given=()) for step in (1, 2))
    records = (SimpleNamespace(pretraining=run) for run in runs)
    scores: list[Any] = [SimpleNamespace(record=record, variant="") for record in records]
    first, second = map(_pretraining, scores)
    assert first != second
