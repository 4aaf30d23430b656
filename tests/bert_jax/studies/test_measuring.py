"""What measures without trials find: held-out language modelling and minimal pairs, with their items."""

import dataclasses
import json
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest

from bert_jax.formats.open_model import open_model
from bert_jax.inference.sentence_scores import sentence_scores
from bert_jax.objectives.experiment import Experiment
from bert_jax.studies.heldout_language_model import heldout_language_model
from bert_jax.studies.measuring import _scale, measure
from bert_jax.studies.plan import MeasuringJob, PretrainingJob
from bert_jax.study import Changes, Finetuned, HeldoutLM, Measure, MinimalPairs, Probe
from bert_jax.task import Metric
from bert_jax.tasks import classify
from bert_jax.tasks.finetuning.labelled_data import MACRO_F1, SCORERS, scorers
from bert_jax.tasks.finetuning.results import read_results
from bert_jax.training.metric_log import METRICS_FILE, read_rows
from data_pipeline.errors import UserError
from data_pipeline.tasks.minimal_pairs import fingerprint, read_minimal_pairs
from tests.bert_jax.small_run import TEXTS, make_run, trainable_params
from tests.data_pipeline.small_corpus import write_corpus

PAIRS = {
    "order": [
        ("the cats sat", "cats the sat"),
        ("a dog saw the cat", "a dog the saw cat"),
        ("a mat", "mat a"),
    ],
    "word": [("the city of Paris", "the cat of Paris")],
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study's directory with two pretrained models, beside their corpus and the pairs."""
    directory = tmp_path_factory.mktemp("measuring")
    for name, objective in (("masked", "mlm_nsp"), ("ltr", "ltr")):
        _, tokenizer = make_run(
            directory / name, objective=objective, make_params=trainable_params, num_layers=1
        )
    documents = [tokenizer.encode_batch(TEXTS[:4])] * 3
    write_corpus(directory / "corpus", [documents], [documents], tokenizer)
    (directory / "pairs").mkdir()
    for name, pairs in PAIRS.items():
        lines = (json.dumps({"sentence_good": good, "sentence_bad": bad}) + "\n" for good, bad in pairs)
        (directory / "pairs" / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    return directory


def measured(
    directory: Path, model: str, what: Measure, path: str, flags: Changes | None = None
) -> tuple[dict[str, Any], ...]:
    """What a measure of a model finds."""
    data = dataclasses.replace(Experiment().data, corpus=str(directory / "corpus"))
    pretrained = PretrainingJob(PurePosixPath(model), Experiment(data=data))
    job = MeasuringJob(PurePosixPath(path), pretrained, 10, what, flags or {})
    return measure(job, directory, str(directory))


def run(directory: Path, model: str, what: Measure, path: str) -> tuple[dict, dict[str, np.ndarray]]:
    """The measurement, and the items in its file."""
    (found,) = measured(directory, model, what, path)
    with np.load(directory / path / found["items"]) as items:
        return found, dict(items)


@pytest.mark.parametrize(("model", "name"), [("masked", "bits_per_byte"), ("ltr", "ltr_loss")])
def test_heldout_language_modelling_is_measured_on_the_corpus_of_the_experiment(
    directory: Path, model: str, name: str
) -> None:
    found, items = run(directory, model, HeldoutLM("LM", name), f"{model}-heldout")
    expected = heldout_language_model(open_model(directory / model), directory / "corpus")
    assert found["metrics"] == expected.metrics
    assert items.keys() == expected.items.keys() == found["metrics"].keys()
    assert items[name].shape == (3, 2)
    total, count = items[name].sum(axis=0)
    assert found["metrics"][name] == pytest.approx(total / count)
    assert sorted(path.name for path in (directory / f"{model}-heldout").iterdir()) == ["items.npz"]


@pytest.mark.parametrize(("model", "scoring"), [("masked", "pll_word_l2r"), ("ltr", "likelihood")])
def test_paradigms_of_minimal_pairs_count_equally(directory: Path, model: str, scoring: str) -> None:
    what = MinimalPairs("BLiMP", "accuracy", "pairs")
    found, items = run(directory, model, what, f"{model}-pairs")
    right = []
    for pairs in PAIRS.values():
        sentences = [sentence for pair in pairs for sentence in pair]
        scores = sentence_scores(open_model(directory / model), sentences, scoring)  # type: ignore[arg-type]
        right.append(scores[::2] > scores[1::2])
    expected = np.mean([of_one.mean() for of_one in right])
    assert found["metrics"] == {"accuracy": pytest.approx(100 * expected)}
    read = read_minimal_pairs(directory / "pairs")
    assert found["data_fingerprint"] == fingerprint(read) != fingerprint(read[::-1])
    np.testing.assert_array_equal(items["accuracy"] > 0, np.concatenate(right))
    np.testing.assert_allclose(items["accuracy"], 100 * np.concatenate(right) * [4 / 6, 4 / 6, 4 / 6, 2])
    assert items["accuracy"].mean() == pytest.approx(100 * expected)


def test_a_probe_computes_the_features_once_and_measures_each_layer_alone(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "topic").mkdir()
    for split, count in (("train", 4), ("dev", 2)):
        lines = ["text\tlabel", *["the cat sat\tcat", "a dog saw\tdog"] * count]
        (directory / "topic" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    probe = Probe("topic", "accuracy", "classify", "topic")
    flags = {"learning_rate": (0.5,), "batch_size": (4,), "epochs": (1.0,), "max_seq_length": 8}

    def probed(path: str, **more: object) -> tuple[dict, ...]:
        return measured(directory, "masked", probe, path, {**flags, **probe.flags_of(1), **more})

    together = probed("probe")
    assert capsys.readouterr().out.count("computing the encoder's features") == 2  # of train and dev
    assert [found["layer"] for found in together] == [0, 1]
    assert together[1]["hyperparameters"] == "layer1-lr0.5-batch4-epochs1"
    losses = [loss_of(directory / "probe", found) for found in together]
    assert len(set(losses)) == 2
    for layer, loss in enumerate(losses):
        (alone,) = probed(f"probe-{layer}", **{"features.layers": (layer,)})
        assert loss_of(directory / f"probe-{layer}", alone) == pytest.approx(loss, rel=1e-5)


def loss_of(output: Path, found: dict) -> float:
    """The last training loss of a trial."""
    rows = read_rows((output / found["items"]).parent / METRICS_FILE)
    return [row["loss"] for row in rows if row["split"] == "train"][-1]


def test_pairs_that_cannot_be_read_are_named(directory: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.jsonl cannot be read: No such file"):
        run(directory, "masked", MinimalPairs("BLiMP", "accuracy", "nowhere.jsonl"), "missing")
    assert not (directory / "missing").exists()


@pytest.mark.parametrize("chosen_by", ["accuracy", "macro_f1"])
def test_each_metric_has_the_scale_of_its_own(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen_by: str
) -> None:
    error = dataclasses.replace(MACRO_F1, better="lower")
    monkeypatch.setattr(classify, "_LABEL_SCORERS", {**scorers("accuracy"), error: SCORERS[MACRO_F1]})
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.tsv").write_text("text\tlabel\n" + "the cats sat\tx\na dog saw\ty\n" * 2)
    flags = {"learning_rate": (1e-3,), "epochs": (1.0,), "batch_size": (4,), "max_seq_length": 16}
    what = Finetuned("topic", "accuracy", "classify", str(tmp_path))
    path = f"by-{chosen_by}"
    (found,) = measured(directory, "masked", what, path, {**flags, "metric": chosen_by})
    (result,) = read_results(directory / path)
    scales = {"accuracy": 100, "macro_f1": 1, "test_accuracy": 100, "test_macro_f1": 1}
    assert found["metrics"] == {name: scales[name] * value for name, value in result["metrics"].items()}
    assert found["items_scale"] == scales


def test_trials_of_an_earlier_start_with_other_flags_do_not_count(directory: Path) -> None:
    topic = directory / "mats"
    topic.mkdir()
    for split in ("train", "dev"):
        rows = ["the cats sat\tmany", "a dog saw the cat\tone"] * 4
        (topic / f"{split}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    what = Finetuned("topic", "accuracy", "classify", "mats")
    for rate in (1e-3, 2e-3):
        flags = {"learning_rate": (rate,), "epochs": (1.0,), "batch_size": (4,), "max_seq_length": 16}
        (found,) = measured(directory, "masked", what, "trained", flags)
        assert found["hyperparameters"] == f"lr{rate:g}-batch4-epochs1"


def test_a_metric_has_its_own_scale_where_another_ends_its_name() -> None:
    metrics = [Metric("f1", "F1", in_percent=True), Metric("macro_f1", "macro F1")]
    assert [_scale(name, metrics) for name in ("dev_f1", "dev_macro_f1")] == [1.0, 100.0]
