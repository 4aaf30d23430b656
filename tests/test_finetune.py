"""`bert-jax finetune` and `predict` from the command line, with a tiny model."""

import csv
import dataclasses
import json
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.config import OptimizerConfig, ParallelConfig
from bert_jax.finetuning_config import FineTuningConfig, Trial
from bert_jax.parallel import interrupt
from bert_jax.task import Metric
from bert_jax.tasks.finetuning import packing
from bert_jax.tasks.finetuning.grid import Grid
from bert_jax.tasks.finetuning.outputs import outputs_of
from bert_jax.tasks.finetuning.results import report
from bert_jax.training.checkpoints import load_params
from bert_jax.workdir.finetuning import FineTuningRecord, check_same, read_record
from data_pipeline.atomic import write_json
from data_pipeline.errors import UserError
from tests.bert_jax.small_run import make_run, random_params, trainable_params
from tests.data_pipeline.tasks.small_rows import make_rows

SUBJECTS = ("cat", "dog", "mat", "cafe")


def write_table(path: Path, rows: int, seed: int) -> None:
    """Texts about one of four things, which is the label; one in four is three times as long."""
    random = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["title", "topic"])
        for thing in random.choice(SUBJECTS, rows):
            more = ", on the mat, on the city, on the mat" if random.random() < 0.25 else ""
            table.writerow([f"the {thing} is here{more}", thing])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pretrained model, tables, and what `finetune` made of them."""
    directory = tmp_path_factory.mktemp("finetune")
    make_run(directory / "model", make_params=trainable_params, num_layers=1)
    (directory / "data").mkdir()
    write_table(directory / "data" / "train.csv", 256, 0)
    write_table(directory / "data" / "dev.csv", 24, 1)
    assert main(command(directory)) == 0
    return directory


def command(directory: Path, *more: str, output: str = "output") -> list[str]:
    paths = [f"--{name}={directory / name}" for name in ("model", "data")]
    flags = ["--text-column=title", "--label-column=topic", "--max-seq-length=24", "--batch-size=8"]
    grid = ["--epochs=6", "--learning-rate", "3e-3", "1e-9"]
    return ["finetune", "classify", *paths, f"--output={directory / output}", *flags, *grid, *more]


def results(directory: Path, output: str = "output") -> dict:
    return json.loads((directory / output / "results.json").read_text())


def test_it_learns_and_the_best_trial_is_kept(directory: Path) -> None:
    found = results(directory)
    assert found["metric"]["name"] == "accuracy"
    assert [row["stdev"] for row in found["rows"]] == [None, None]  # of one seed each
    assert found["best"]["learning_rate"] == 3e-3
    assert found["best"]["metrics"]["accuracy"] > 0.9
    assert (directory / "output" / "best" / "checkpoints").is_dir()
    worse = directory / "output" / "trials" / "lr1e-09-batch8-epochs6-seed0"
    assert (worse / "result.json").exists()
    assert not (worse / "checkpoints").exists()
    record = read_record(directory / "output" / "best")
    assert record.labels == tuple(sorted(SUBJECTS))
    assert Path(record.data) == directory / "data"


@pytest.mark.slow
def test_a_frozen_encoder_is_applied_once_to_each_split(
    directory: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--frozen-layers=1", "--epochs=2", "--features.lstm-layers=1", "--features.lstm-width=8"]
    assert main(command(directory, *flags, output="cached")) == 0
    assert capsys.readouterr().out.count("computing the encoder's features") == 2
    assert not (directory / "cached" / "features").exists()
    monkeypatch.setattr(Grid, "_feature_cache", lambda self: None)
    assert main(command(directory, *flags, output="computed")) == 0
    cached, computed = (
        load_params(directory / name / "best")[1]["classifier"] for name in ("cached", "computed")
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), cached, computed)


def test_it_says_how_much_there_is_and_what_is_cut(directory: Path, capsys: pytest.CaptureFixture) -> None:
    shutil.copytree(directory / "data", directory / "long")
    with (directory / "long" / "dev.csv").open("a") as file:
        file.write(f"the {'very ' * 20}cat,cat\n")
    (directory / "long" / "test.csv").write_text("title\nthe cat\n")
    flags = ["--epochs=0.1", "--learning-rate", "1e-3", "1e-4", f"--data={directory / 'long'}"]
    assert main(command(directory, *flags, output="long-output")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "sequences: train 256, dev 25, test 1"
    assert lines[1] == "warning: cut to --max-seq-length 24: 1 of dev"
    assert lines[2] == "trial 1 of 2: lr0.001-batch8-epochs0.1-seed0"
    assert [number for number, line in enumerate(lines) if line.startswith("compiling the step")] == [3]
    (second,) = (line for line in lines if line.startswith("trial 2"))
    assert re.fullmatch(
        r"trial 2 of 2: lr0.0001-batch8-epochs0.1-seed0; about \d+ (s|min) left for all", second
    )


def test_trials_are_in_the_order_of_their_numbers_and_equal_warnings_are_one(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for epochs in (10.0, 2.0, 1.0):
        trial = Trial(1e-3, 8, epochs, seed=0)
        metrics = {"accuracy": 0.5, "f1": epochs}
        degenerate = "all the same" if epochs > 1 else None
        result = {
            "trial": trial.name,
            **dataclasses.asdict(trial),
            "metrics": metrics,
            "examples": [],
            "diverged": None,
        }
        (tmp_path / "trials" / trial.name).mkdir(parents=True)
        write_json(tmp_path / "trials" / trial.name / "result.json", {**result, "degenerate": degenerate})
    report(tmp_path, "task", Metric("f1", "F1"))
    said = capsys.readouterr().out
    assert [line.split("│")[3].strip() for line in said.splitlines() if "│" in line] == ["1", "2", "10"]
    assert said.count("warning") == 1
    assert "warning: 2 of 3 trials: all the same" in said
    assert "epochs10-seed0: f1 10  accuracy 0.5" in said


def test_degenerate_trials_are_named(directory: Path) -> None:
    worse = next(trial for trial in results(directory)["trials"] if trial["learning_rate"] == 1e-9)
    assert worse["degenerate"].startswith("every prediction is ")


def test_a_trial_that_diverges_does_not_end_the_grid(directory: Path, capsys: pytest.CaptureFixture) -> None:
    flags = ["--seeds=2", "--epochs=0.1", "--learning-rate", "1e38", "1e-3"]
    assert main(command(directory, *flags, output="diverging")) == 0
    found = results(directory, "diverging")
    assert found["best"]["learning_rate"] == 1e-3
    for metric in ("mean", "stdev"):
        assert [row[metric] is None for row in found["rows"]] == [False, True]
    assert [row["diverged"] > 0 for row in found["rows"]] == [False, True]
    assert "warning: lr1e+38-batch8-epochs0.1-seed0: diverged: the loss or" in capsys.readouterr().out
    assert (directory / "diverging" / "best" / "checkpoints").is_dir()


def test_where_all_trials_diverge_it_ends_with_an_error(
    directory: Path, capsys: pytest.CaptureFixture
) -> None:
    flags = ["--epochs=0.1", "--frozen-layers=1", "--learning-rate", "1e38", "2e38"]
    for again in ([], [], ["--learning-rate=1e38"]):
        assert main(command(directory, *flags, *again, output="all-diverging")) == 1
        said = capsys.readouterr()
        assert "NaN or infinite at step" in said.err
        assert "; try a lower --learning-rate\n" in said.err
        assert "try it" not in said.out
        assert not (directory / "all-diverging" / "features").exists()


def test_a_trial_whose_last_update_ruins_the_model_diverges(
    directory: Path, capsys: pytest.CaptureFixture
) -> None:
    flags = ["--batch-size=256", "--epochs=1", "--learning-rate", "1e30", "1e-3"]
    assert main(command(directory, *flags, output="ruined")) == 0
    assert "outputs of the trained model are NaN or infinite" in capsys.readouterr().out
    found = results(directory, "ruined")
    assert found["best"]["learning_rate"] == 1e-3
    assert [row["mean"] is None for row in found["rows"]] == [False, True]


def test_a_finished_grid_is_not_trained_again_and_other_settings_are_refused(
    directory: Path, capsys: pytest.CaptureFixture
) -> None:
    result = directory / "output" / "best" / "result.json"
    before = result.stat().st_mtime_ns
    for config in (directory / "output").glob("trials/*/config.json"):
        record = json.loads(config.read_text())
        del record["settings"]["encoding"]  # as of a version without that flag
        config.write_text(json.dumps(record))
    assert main(command(directory)) == 0
    assert result.stat().st_mtime_ns == before
    capsys.readouterr()
    assert main(command(directory, "--max-seq-length=12")) == 2
    # The data's hashes, which follow from it, are not named.
    assert "other settings or data: settings.max_seq_length 24 -> 12; undo" in capsys.readouterr().err


def test_a_grid_grows_from_run_to_run_and_the_best_of_all_is_kept(directory: Path) -> None:
    before = results(directory)["best"]["trial"]
    grown = [flag if flag != "3e-3" else "2e-9" for flag in command(directory)]
    assert main(grown) == 0
    assert len(results(directory)["trials"]) == 3
    assert results(directory)["best"]["trial"] == before
    assert (directory / "output" / "best" / "checkpoints").is_dir()


def test_other_training_data_or_labels_are_refused(directory: Path, capsys: pytest.CaptureFixture) -> None:
    train = directory / "data" / "train.csv"
    content = train.read_text()
    for changed, message in (
        (content.replace("mat is", "mat was", 1), "other settings or data: data "),
        (content + "the city,city\n", "labels cafe, cat, dog, mat -> cafe, cat, city, dog, mat"),
    ):
        train.write_text(changed)
        try:
            assert main(command(directory)) == 2
        finally:
            train.write_text(content)
        assert message in capsys.readouterr().err


def test_another_model_of_the_same_name_is_refused(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    make_run(tmp_path / "model", make_params=random_params, num_layers=1)
    assert main(command(directory, f"--model={tmp_path / 'model'}")) == 2
    assert "other settings or data: model model " in capsys.readouterr().err


def test_the_same_model_under_another_name_goes_on(tmp_path: Path) -> None:
    before = FineTuningRecord("cola", FineTuningConfig(), (), {}, trained_from="base", model_fingerprint="a")
    check_same(tmp_path, before, dataclasses.replace(before, trained_from="base-0"))
    another = dataclasses.replace(before, trained_from="base-0", model_fingerprint="b")
    with pytest.raises(UserError, match="model base a -> base-0 b"):
        check_same(tmp_path, before, another)


@pytest.fixture
def stopped_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupts training once, 21 steps after `directory` was made."""
    count = 0

    class StopOnce(interrupt.Interrupt):
        def requested(self) -> bool:
            nonlocal count
            count += 1
            return count == 21

        def check(self) -> None:
            pass  # only between two steps

    monkeypatch.setattr(interrupt, "Interrupt", StopOnce)


@pytest.mark.usefixtures("stopped_once")
def test_an_interrupted_trial_goes_on_to_the_same_parameters(
    directory: Path, capsys: pytest.CaptureFixture
) -> None:
    once = command(directory, "--epochs=2.5", output="again")
    assert main(once) == 75
    trials = sorted((directory / "again" / "trials").iterdir())
    assert len(trials) == 1
    assert len(json.loads((directory / "again" / "grid.json").read_text())["trials"]) == 2
    capsys.readouterr()
    assert main([*once, "1e-2", "--max-seq-length=12"]) == 2
    assert "settings.max_seq_length 24 -> 12" in capsys.readouterr().err
    assert sorted((directory / "again" / "trials").iterdir()) == trials
    (record,) = (directory / "again").glob("trials/*/config.json")
    record.write_text(re.sub('"jax": "[^"]*"', '"jax": "0.1"', record.read_text()))
    assert main(once) == 0
    assert "note: jax 0.1 -> " in capsys.readouterr().out
    assert main(command(directory, "--epochs=2.5", output="whole")) == 0
    assert results(directory, "again")["best"]["trial"] == trials[0].name, "the best is the one interrupted"
    whole, again = (load_params(directory / name / "best")[1] for name in ("whole", "again"))
    jax.tree.map(np.testing.assert_array_equal, whole, again)


@pytest.mark.usefixtures("stopped_once")
def test_results_are_those_of_all_finished_trials_wherever_it_stops(directory: Path) -> None:
    # The trials have 16 steps each, so the second one is interrupted.
    assert main(command(directory, "--epochs=0.5", "--learning-rate", "1e-3", "1e-4", output="stopped")) == 75
    (trial,) = results(directory, "stopped")["trials"]
    assert results(directory, "stopped")["best"] == trial
    assert (directory / "stopped" / "trials" / trial["trial"] / "result.json").exists()


def test_an_evaluation_or_prediction_that_was_left_is_made_up(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, stop_at = 0, -1

    class StopInAnEvaluation(interrupt.Interrupt):
        def check(self) -> None:
            nonlocal asked
            asked += 1
            if asked == stop_at:
                raise interrupt.Interrupted

    monkeypatch.setattr(interrupt, "Interrupt", StopInAnEvaluation)
    once = ("--epochs=0.5", "--learning-rate=1e-3")
    assert main(command(directory, *once, output="not-left")) == 0
    for stop_at in (1, asked):  # the last one is in the prediction
        asked, output = 0, f"left-{stop_at}"
        assert main(command(directory, *once, output=output)) == 75
        assert not list(directory.glob(f"{output}/trials/*/result.json"))
        assert main(command(directory, *once, output=output)) == 0
        assert results(directory, output) == results(directory, "not-left")


@pytest.mark.slow
@pytest.mark.usefixtures("stopped_once")
def test_an_interrupted_trial_goes_on_in_less_memory(directory: Path, capsys: pytest.CaptureFixture) -> None:
    short = command(directory, "--epochs=1", "--learning-rate=1e-3", output="in-parts")
    assert main(short) == 75
    assert main([*short, "--parallel.accumulation-steps=2", "--parallel.remat=layers"]) == 0
    assert "the run goes on, but not bit for bit: dropout draws other bits" in capsys.readouterr().out


def test_wrong_answers_in_a_batch_stay_what_they_were(tmp_path: Path) -> None:
    before = FineTuningRecord("rank", FineTuningConfig(), (), {})
    in_parts = dataclasses.replace(before.config, parallel=ParallelConfig(accumulation_steps=2))
    with pytest.raises(UserError, match="accumulation_steps 1 -> 2"):
        check_same(tmp_path, before, dataclasses.replace(before, config=in_parts), rows_compete=True)


def test_the_optimizer_is_the_users(directory: Path, capsys: pytest.CaptureFixture) -> None:
    flags = ["--weight-decay=0.1", "--warmup-proportion=0.5", "--decay-start=warmup_end", "--clip-norm=None"]
    short = command(directory, "--epochs=0.25", "--learning-rate=1e-3", *flags, output="optimizer")
    assert main(short) == 0
    config = read_record(directory / "optimizer" / "best").config
    assert config.optimizer == OptimizerConfig(
        learning_rate=1e-3, warmup_steps=4, decay_start="warmup_end", weight_decay=0.1, clip_norm=None
    )
    assert main([*short, "--warmup-proportion=1"]) == 2
    assert "warmup_proportion is 1; it must be at least 0 and below 1" in capsys.readouterr().err


def test_dropout_is_the_models_or_the_users(directory: Path, capsys: pytest.CaptureFixture) -> None:
    flags = ["--epochs=0.1", "--learning-rate=1e-3", "--dropout-rate=0", "--attention-dropout-rate=0.5"]
    short = command(directory, *flags, output="dropout")
    assert main(short) == 0
    models, users = (read_record(directory / name / "best").config.model for name in ("output", "dropout"))
    assert (models.dropout_rate, models.attention_dropout_rate) == (0.2, 0.3)
    assert users == dataclasses.replace(models, dropout_rate=0, attention_dropout_rate=0.5)
    assert main([*short, "--dropout-rate=0.1"]) == 2
    assert "config.model.dropout_rate 0.0 -> 0.1" in capsys.readouterr().err


def test_a_row_without_outputs_is_not_scored_as_zeros() -> None:
    part = (np.array([0, 2], np.int32), np.ones((2, 3), np.float32))
    with pytest.raises(ValueError, match="1 of 3 rows have no outputs"):
        outputs_of(make_rows([5, 5, 5]), lambda _: iter([part]))


@pytest.mark.slow
def test_short_texts_share_lines(directory: Path) -> None:
    shared = read_record(directory / "output" / "best").packing
    assert shared is not None
    assert shared["length"] == 24
    assert (
        main(command(directory, "--no-pack", "--epochs=0.1", "--learning-rate=1e-3", output="unpacked")) == 0
    )
    assert read_record(directory / "unpacked" / "best").packing is None


@pytest.mark.slow
def test_a_trial_packs_alike_alone_and_in_a_grid(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Makes compiling cost as much as a few steps on this data, so that the number of steps decides.
    monkeypatch.setattr(packing, "_CPU_FLOPS_WHILE_COMPILING", 1e7)
    found = []
    for epochs in (["0.1"], ["0.1", "1"]):
        output = f"packed-{len(epochs)}"
        flags = ["--learning-rate=1e-3", "--epochs", *epochs]
        assert main(command(directory, *flags, output=output)) == 0
        found.append(read_record(directory / output / "trials" / "lr0.001-batch8-epochs0.1-seed0").packing)
    assert found[0] is not None
    assert found[0] == found[1]


def test_the_best_trial_is_named_again_where_the_last_start_ended_before_that(directory: Path) -> None:
    best = directory / "output" / "best"
    trial = best.resolve()
    best.unlink()
    assert main(command(directory)) == 0
    assert best.resolve() == trial


def test_a_best_trial_that_is_no_link_is_named(directory: Path, capsys: pytest.CaptureFixture) -> None:
    shutil.copytree(directory / "output", directory / "copied")  # which follows links
    assert main(command(directory, output="copied")) == 2
    assert (
        "copied/best is a directory, and no link to the best one of trials; move it"
        in capsys.readouterr().err
    )
    shutil.rmtree(directory / "copied" / "best")
    assert main(command(directory, output="copied")) == 0


def test_a_batch_that_devices_cannot_share_is_known_before_any_is_trained(
    directory: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    assert main(command(directory, "--batch-size", "8", "7", output="odd")) == 2
    assert "the batch size is 7; it must be a multiple of 2" in capsys.readouterr().err
    assert not (directory / "odd" / "trials").exists()


def test_a_trained_head_is_kept_if_it_fits(directory: Path, capsys: pytest.CaptureFixture) -> None:
    flags = ["--epochs=0.1", "--learning-rate=1e-9", f"--model={directory / 'output'}"]
    assert main(command(directory, *flags, "--keep-head", output="kept")) == 0
    assert results(directory, "kept")["best"]["metrics"] == results(directory)["best"]["metrics"]
    # The kept head was trained from that which seed 0 draws, so another seed's is unlike it.
    assert main(command(directory, *flags, "--seeds=2", output="not-kept")) == 0
    _, drawn = results(directory, "not-kept")["trials"]
    assert (drawn["seed"], drawn["metrics"]["accuracy"] < 0.9) == (1, True)
    assert main(command(directory, "--keep-head", output="none")) == 2
    assert "has no head to keep" in capsys.readouterr().err
    other = directory / "other-labels"
    shutil.copytree(directory / "data", other)
    for file in other.iterdir():
        file.write_text(file.read_text().replace(",dog", ",horse"))
    assert main(command(directory, *flags, "--keep-head", f"--data={other}", output="none")) == 2
    error = capsys.readouterr().err
    assert "has the labels cafe, cat, dog, mat; training has cafe, cat, horse, mat" in error
    assert not (directory / "none").exists()


def test_predictions_come_back_in_the_form_of_the_input(directory: Path) -> None:
    table, output = directory / "new.csv", directory / "predicted.csv"
    table.write_text('title,other\n"the dog, is here",7\nthe cat is on the mat here,8\n')
    assert main(["predict", f"--model={directory / 'output'}", f"--input={table}", f"--output={output}"]) == 0
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["title"] for row in rows] == ["the dog, is here", "the cat is on the mat here"]
    assert rows[0]["predicted"] == "dog"
    assert rows[1]["other"] == "8"
    shares = [float(rows[0][f"probability_{label}"]) for label in sorted(SUBJECTS)]
    assert sum(shares) == pytest.approx(1, abs=1e-5)
    assert shares[2] == max(shares)


def test_bad_input_is_one_line(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    bad = tmp_path / "data"
    bad.mkdir()
    write_table(bad / "train.csv", 8, 0)
    (bad / "dev.csv").write_text("title,topic\nthe zebra,\n")
    flags = [f"--model={directory / 'model'}", f"--data={bad}", f"--output={tmp_path / 'out'}"]
    columns = ["--text-column=title", "--label-column=topic", "--max-seq-length=16"]
    assert main(["finetune", "classify", *flags, *columns]) == 2
    error = capsys.readouterr().err
    assert "dev.csv, line 2 has no topic; it must be a word or a number" in error
    assert main(["finetune", "classify", *flags, "--text-column=title", "--label-column=topic"]) == 2
    assert "--max-seq-length is 128; the model has 24 positions" in capsys.readouterr().err
    assert main(["finetune", "clasify"]) == 2
    assert "classify" in capsys.readouterr().err
