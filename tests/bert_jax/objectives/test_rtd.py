"""Replaced token detection: its sizes, loss and metrics, and a run from its first step to its exports."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.formats.convert import convert
from bert_jax.formats.open_model import open_model
from bert_jax.model.replaced_tokens import Detection
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import ReplacedTokenDetection
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from data_pipeline.errors import UserError
from tests.bert_jax.model.test_packed_rows import make_batches
from tests.tiny_run import arguments, deterministic_rows, final_state


def test_the_generator_is_a_fraction_of_the_discriminator() -> None:
    generator = ReplacedTokenDetection(generator_size=1 / 3).generator(ModelConfig())
    sizes = (generator.hidden_size, generator.num_heads, generator.intermediate_size, generator.num_layers)
    assert sizes == (256, 4, 1024, 12)
    assert generator.embedding_size == 768
    small = ModelConfig(hidden_size=256, num_heads=4, intermediate_size=1024, embedding_size=128)
    generator = ReplacedTokenDetection().generator(small)
    assert (generator.hidden_size, generator.num_heads, generator.embedding_size) == (64, 1, 128)


@pytest.mark.parametrize("size", [0.0, 1.5, float("nan")])
def test_a_generator_wider_than_its_discriminator_is_refused(size: float) -> None:
    with pytest.raises(UserError, match=r"objective.generator_size is .*; it must be above 0 and at most 1"):
        ReplacedTokenDetection(generator_size=size)


def test_a_width_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(UserError, match=r"generator_size 0\.3: model\.num_heads \(3\) does not divide"):
        Experiment().with_objective(ReplacedTokenDetection(generator_size=0.3))


def test_sums_loss_and_metrics_are_those_of_a_loop() -> None:
    random = np.random.default_rng(0)
    mask = (np.arange(6) < np.array([6, 4, 0])[:, None]).astype(np.int32)
    weights = (np.arange(2) < np.array([2, 1, 0])[:, None]).astype(np.float32)
    batch = {
        "input_ids": mask,
        "input_mask": mask,
        "masked_lm_ids": random.integers(0, 5, weights.shape),
        "masked_lm_weights": weights,
    }
    logits = random.normal(size=(3, 6)).astype(np.float32)
    replaced = random.random((3, 6)) < 0.4
    outputs = Detection(random.normal(size=(3, 2, 5)).astype(np.float32), logits, replaced)
    learns = ReplacedTokenDetection(weight=7.0)
    totals = learns.denominators(batch)
    sums = {**learns.numerators(outputs, batch), **totals}
    row = learns.means({name: float(value) for name, value in sums.items()})

    cells = [(logits[i, j], replaced[i, j]) for i in range(3) for j in range(6) if mask[i, j]]
    losses = [-np.log(1 / (1 + np.exp(-x if true else x))) for x, true in cells]
    assert row["rtd_loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert row["rtd_accuracy"] == pytest.approx(np.mean([(x > 0) == true for x, true in cells]))
    assert row["rtd_precision"] == pytest.approx(np.mean([true for x, true in cells if x > 0]))
    assert row["rtd_recall"] == pytest.approx(np.mean([x > 0 for x, true in cells if true]))
    assert row["rtd_guess_accuracy"] == pytest.approx(1 - np.mean([true for _, true in cells]))
    assert row["loss"] == pytest.approx(row["mlm_loss"] + 7 * row["rtd_loss"])
    assert float(learns.loss(sums, totals)) == pytest.approx(row["loss"], rel=1e-4)


@pytest.fixture(scope="module")
def run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work directory of a finished run on packed rows."""
    workdir = tmp_path_factory.mktemp("rtd") / "run"
    assert main(flags(workdir, corpus)) == 0
    return workdir


def flags(workdir: Path, corpus: Path) -> list[str]:
    own = ("--objective", "rtd", "--objective.generator-size", "0.5", "--model.embedding-size", "8")
    return arguments(
        workdir,
        corpus,
        *own,
        "--data.max-instances-per-row",
        "2",
        "--num-train-steps",
        "60",
        "--eval-every",
        "60",
    )


@pytest.mark.slow
def test_a_run_learns_and_its_evaluation_repeats(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = deterministic_rows(run)
    training = [row for row in rows if row["split"] == "train"]
    assert training[-1]["loss"] < training[0]["loss"]
    heldout = [row for row in rows if row["split"] == "heldout"][-1]
    assert {"rtd_precision", "rtd_recall", "rtd_guess_accuracy", "mlm_guess_accuracy"} <= set(heldout)
    assert main(["evaluate", "--workdir", str(run)]) == 0
    (again,) = json.loads((run / "evaluation-60.json").read_text())
    # Its batches are larger; the draws are the same.
    for name in ("rtd_loss", "rtd_accuracy", "rtd_precision", "rtd_recall", "rtd_guess_accuracy"):
        assert again[name] == pytest.approx(heldout[name], rel=1e-6)


def test_the_discriminator_is_exported_with_its_generator(run: Path, tmp_path: Path) -> None:
    model = open_model(run)
    assert set(model.params) == {"encoder", "replaced_token", "generator"}
    assert model.objective == ReplacedTokenDetection(generator_size=0.5)
    convert(run, tmp_path / "npz", "npz")
    jax.tree.map(np.testing.assert_array_equal, open_model(tmp_path / "npz").params, model.params)
    with pytest.raises(UserError, match="`bert-jax convert --format npz`"):
        convert(run, tmp_path / "hf", "hf")
    assert not (tmp_path / "hf").exists()


def test_the_generator_is_exported_alone(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = convert(run, tmp_path / "npz", "npz", part="generator")
    assert generator.name == "run-generator"
    assert (generator.config.hidden_size, generator.config.embedding_size) == (8, 8)
    again = open_model(tmp_path / "npz")
    assert again.pretraining is None
    assert set(again.params) == {"encoder", "language_model"}
    jax.tree.map(np.testing.assert_array_equal, again.params, generator.params)
    whole = open_model(run).params
    assert again.params["encoder"]["embeddings"].keys() == whole["encoder"]["embeddings"].keys()
    output = str(tmp_path / "again")
    assert main(["convert", "--model", str(tmp_path / "npz"), "--part", "generator", "--output", output]) == 2
    assert "npz has no generator; runs of objective rtd have one, and what" in capsys.readouterr().err
    assert not Path(output).exists()


@pytest.mark.slow
def test_another_objective_starts_from_the_discriminator(run: Path, corpus: Path, tmp_path: Path) -> None:
    more = ("--init-from", str(run), "--num-train-steps", "1", "--optimizer.warmup-steps", "5")
    assert main(arguments(tmp_path / "mlm", corpus, *more)) == 0
    found = final_state(tmp_path / "mlm")["['params']['encoder']['embeddings_project']['kernel']"]
    trained = open_model(run).params["encoder"]["embeddings_project"]["kernel"]
    np.testing.assert_array_equal(found, trained)  # the rate of the first step is 0


def test_a_generator_may_have_embeddings_of_its_own() -> None:
    model = ModelConfig(50, 2, 16, 2, 24, 12, embedding_size=6)
    learns = ReplacedTokenDetection(generator_embeddings="own")
    params = PretrainingTask(learns, model).abstract_params()
    assert params["generator"]["encoder"]["embeddings"]["word_embeddings"]["embedding"].shape == (50, 6)
    assert learns.num_parameters(model) == sum(leaf.size for leaf in jax.tree.leaves(params))
    batch = make_batches()[0]
    drawn = jax.tree.map(lambda leaf: np.full(leaf.shape, 0.1, np.float32), params)

    def loss(params: dict) -> jax.Array:
        outputs = learns.module(model).apply({"params": params}, batch, True)
        return learns.numerators(outputs, batch)["mlm_loss"]

    gradient = jax.jit(jax.grad(loss))(drawn)
    assert not any(np.abs(leaf).max() for leaf in jax.tree.leaves(gradient["encoder"]))
    assert np.abs(gradient["generator"]["language_model"]["bias"]).max() > 0
