"""An objective that is defined in this file alone does all that a resident does."""

import dataclasses
import itertools
import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import load_model
from bert_jax.cli.experiment_argument import take_experiment
from bert_jax.cli.main import main
from bert_jax.cross_entropy import cross_entropy
from bert_jax.formats.convert import convert
from bert_jax.formats.open_model import open_model
from bert_jax.model.encoder import Encoder
from bert_jax.model.linear import Linear
from bert_jax.model.size import encoder_flops, encoder_parameters
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import Objective, find_objective, register
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.mlm import MaskedLM
from bert_jax.objectives.task import PretrainingTask
from bert_jax.parallel.interrupt import Interrupt
from bert_jax.task import Batch, Metric, Sums
from bert_jax.training.checkpoints import saved_steps
from data_pipeline.errors import UserError
from tests.bert_jax.tpu.small_step import MODEL, PHASE
from tests.tiny_run import arguments, assert_same_run, deterministic_rows, final_state

STEPS = 60


class SegmentModel(nn.Module):
    """Scores of the two segments at every position, float32 [B, T, 2]."""

    config: ModelConfig

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        states_BTD = Encoder(self.config, name="encoder")(batch, deterministic)
        return Linear(self.config, (2,), result=jnp.float32, name="segment")(states_BTD)


@register
@dataclasses.dataclass(frozen=True)
class SegmentPrediction(Objective):
    """Predicts which segment each token belongs to."""

    name = "segments"
    metrics = (
        Metric(
            "segment_accuracy", "segment accuracy", "{:.1%}", guess="the longer segment", panel="accuracy"
        ),
    )
    batch_arrays = ("input_ids", "input_mask", "segment_ids")
    trained_parts = frozenset(("encoder", "segment"))

    weight: float = 1.0
    """Factor on the loss."""

    def module(self, model: ModelConfig) -> SegmentModel:
        return SegmentModel(model)

    def denominators(self, batch: Batch) -> Sums:
        mask = batch["input_mask"].astype(jnp.float32)
        return {"examples": mask.max(-1).sum(), "tokens": mask.sum()}

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        loss, correct = cross_entropy(outputs, batch["segment_ids"])
        mask = batch["input_mask"].astype(jnp.float32)
        return {"segment_loss": (loss * mask).sum(), "segment_correct": (correct * mask).sum()}

    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        return self.weight * sums["segment_loss"] / jnp.maximum(totals["tokens"], 1.0)

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        loss = self.weight * sums["segment_loss"] / sums["tokens"]
        return {"loss": loss, "segment_accuracy": sums["segment_correct"] / sums["tokens"]}

    def predicted(self, batch: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return {"segment_accuracy": (batch["segment_ids"], batch["input_mask"] > 0)}

    def flops(self, model: ModelConfig, length: int, predictions: int, instances: int) -> int:
        return encoder_flops(model, length) + 3 * 2 * length * model.hidden_size * 2

    def num_parameters(self, model: ModelConfig) -> int:
        return encoder_parameters(model) + 2 * model.hidden_size + 2


class Misspelt(SegmentPrediction):
    """Not registered, so called by its module and class."""

    batch_arrays = ("input_idz", "input_mask", "segment_ids")


class Unweighted(SegmentPrediction):
    """Metrics that forget the weight of the loss."""

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        return super().means(sums) | {"loss": sums["segment_loss"] / sums["tokens"]}


def pretrain_flags(workdir: Path, corpus: Path) -> list[str]:
    own = ("--objective", "segments", "--objective.weight", "2", "--num-train-steps", str(STEPS))
    return arguments(workdir, corpus, *own, "--eval-every", "30")


@pytest.fixture(scope="module")
def run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work directory of a run that was stopped once and resumed."""
    workdir = tmp_path_factory.mktemp("own") / "run"
    steps = itertools.count(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Interrupt, "requested", lambda self: next(steps) == 25)
        assert main(pretrain_flags(workdir, corpus)) == 75
    assert saved_steps(workdir) == [20, 25]
    assert main(pretrain_flags(workdir, corpus)) == 0
    return workdir


def test_it_resumes_to_the_bit(run: Path, corpus: Path, tmp_path: Path) -> None:
    assert main(pretrain_flags(tmp_path / "undisturbed", corpus)) == 0
    assert any("segment" in path for path in final_state(run))
    assert_same_run(run, tmp_path / "undisturbed")


def test_it_learns_and_says_so(run: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(pretrain_flags(run, corpus)) == 0  # finished: the closing lines alone
    line = next(x for x in capsys.readouterr().out.splitlines() if x.strip().startswith("segment accuracy"))
    assert "always guessing the longer segment" in line
    rows = [row for row in deterministic_rows(run) if row["split"] == "heldout"]
    assert rows[-1]["segment_accuracy"] > rows[-1]["segment_guess_accuracy"]


def test_it_is_evaluated_reported_and_plotted(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--workdir", str(run)]) == 0
    assert "segment_guess_accuracy" in capsys.readouterr().out
    table, plot = run.parent / "table.csv", run.parent / "curves.svg"
    assert main(["report", str(run), "--csv", str(table), "--plot", str(plot)]) == 0
    assert "segment accuracy" in " ".join(capsys.readouterr().out.split())
    assert "segment_accuracy" in table.read_text().splitlines()[0].split(",")
    assert plot.read_text().startswith("<?xml")


def test_the_checkpoint_carries_it(run: Path, tmp_path: Path) -> None:
    model = open_model(run)
    assert model.objective == SegmentPrediction(weight=2.0)
    assert set(model.params) == {"encoder", "segment"}
    again = convert(run, tmp_path / "npz", "npz"), open_model(tmp_path / "npz")
    assert again[1].objective == model.objective
    jax.tree.map(np.testing.assert_array_equal, again[1].params, model.params)
    with pytest.raises(UserError, match="transformers has no class for run, trained by objective segments"):
        convert(run, tmp_path / "hf", "hf")
    assert not (tmp_path / "hf").exists()


def test_its_encoder_reads_texts_and_starts_other_runs(run: Path, corpus: Path, tmp_path: Path) -> None:
    encoded = load_model(run).encode(["the old cat"], outputs=("sequence_output",))
    states = encoded.sequence_output[0]
    assert np.isfinite(states).all()
    masked_lm = arguments(tmp_path / "mlm", corpus, "--init-from", str(run), "--num-train-steps", "1")
    assert main(masked_lm) == 0


def test_an_array_that_batches_lack_is_named(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--objective", "tests.test_own_objective:Misspelt")
    assert main(arguments(corpus.parent / "misspelt", corpus, *flags)) == 2
    error = capsys.readouterr().err
    assert "objective tests.test_own_objective:Misspelt reads input_idz, which batches do not have" in error


@pytest.mark.parametrize("mode", ["jit", "pmap"])
def test_another_loss_in_metrics_than_in_training_is_noted(
    mode: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--objective.weight", "2", "--parallel.mode", mode, "--num-train-steps", "1")
    for kind in ("Unweighted", "SegmentPrediction"):
        own = ("--objective", f"tests.test_own_objective:{kind}", *flags)
        assert main(arguments(tmp_path / kind, corpus, *own)) == 0
        notes = re.findall(
            r"note: for the first batch loss\(\) is (\S+),.* of means\(\) is (\S+),", capsys.readouterr().out
        )
        assert [float(a) / float(b) for a, b in notes] == pytest.approx(
            [2] * (kind == "Unweighted"), rel=1e-2
        )


def test_it_counts_its_parameters() -> None:
    task = PretrainingTask(SegmentPrediction(), MODEL)
    counted = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(task.abstract_params()))
    assert task.objective.num_parameters(MODEL) == counted


def test_it_is_found_by_its_module_and_class() -> None:
    assert find_objective("tests.test_own_objective:SegmentPrediction") is SegmentPrediction


def test_an_objective_of_the_working_directory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", os.getcwd())])
    monkeypatch.chdir(tmp_path)
    Path("my_objective.py").write_text("from tests.test_own_objective import SegmentPrediction as Mine\n")
    # A model's directory may name it, which must not run files that lie here.
    with pytest.raises(UserError, match="No module named 'my_objective'; its module must be installed, or"):
        find_objective("my_objective:Mine")
    words = ["base", "--objective", "my_objective:Mine"]
    _, experiment = take_experiment(words, usage="", page="")
    assert experiment.objective == SegmentPrediction()
    assert "" not in sys.path


def test_an_experiments_own_objective_keeps_its_settings() -> None:
    def objective_of(*words: str) -> Objective:
        return take_experiment(["electra_base", *words], usage="", page="")[1].objective

    assert objective_of("--objective", "rtd") == objective_of()
    assert objective_of("--objective", "mlm") == MaskedLM()


def test_an_objective_that_does_not_fit_the_experiment_is_named() -> None:
    words = ["size_6_768_3", "--objective", "ltr_rtl", "--model.num-heads", "4"]
    with pytest.raises(UserError, match=r"ltr_rtl does not fit experiment size_6_768_3 itself: .* it is 3"):
        take_experiment(words, usage="", page="")


@pytest.mark.parametrize(
    "name",
    [
        *("mlmm", "no_such_module:Mine", "tests.test_own_objective:SegmentModel"),
        "bert_jax.objectives.language_model:TokenObjective",
    ],
)
def test_a_name_that_is_none_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "base", "--workdir", "runs/x", "--objective", name]) == 2
    assert name.rpartition(":")[2] in capsys.readouterr().err


@pytest.mark.tpu
def test_it_compiles_for_a_slice() -> None:
    from bert_jax.tpu.report import compile_step
    from bert_jax.tpu.topology import open_slice

    experiment = Experiment(objective=SegmentPrediction(), model=MODEL, global_batch_size=32)
    report: Any = compile_step(experiment, PHASE, open_slice("v5e:2x2"))
    flops = SegmentPrediction().flops(MODEL, PHASE.max_seq_length, 0, 1)
    assert report.model_flops == 32 * flops / 4
