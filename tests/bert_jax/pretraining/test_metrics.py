"""Metrics from sums, what guessing scores, and the file that holds the rows."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from bert_jax.model_config import ModelConfig
from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.pretraining.evaluation import label_counts, phase_at
from bert_jax.training.metric_log import METRICS_FILE, MetricLog, read_rows
from data_pipeline.config import DataConfig, Phase

SUMS = {
    "mlm_loss": 12.0,
    "mlm_correct": 3.0,
    "mlm_weight": 6.0,
    "lm_loss": 9.0,
    "lm_correct": 1.0,
    "lm_weight": 3.0,
    "nsp_loss": 2.0,
    "nsp_correct": 3.0,
    "examples": 4.0,
    "tokens": 100.0,
    "grad_norm": 5.0,
    "steps": 2.0,
}


def test_means_of_both_tasks() -> None:
    row = OBJECTIVES["mlm_nsp"]().means(SUMS)
    assert row == {
        "loss": 2.5,
        "mlm_loss": 2.0,
        "mlm_perplexity": pytest.approx(math.exp(2)),
        "mlm_accuracy": 0.5,
        "nsp_loss": 0.5,
        "nsp_accuracy": 0.75,
    }


def test_objectives_decide_the_names() -> None:
    assert set(OBJECTIVES["mlm"]().means(SUMS)) == {"loss", "mlm_loss", "mlm_perplexity", "mlm_accuracy"}
    left_to_right = OBJECTIVES["ltr"]().means(SUMS)
    assert set(left_to_right) == {"loss", "lm_loss", "lm_perplexity", "lm_accuracy"}
    assert left_to_right["loss"] == 3.0


def test_the_phase_of_a_step_has_made_its_parameters() -> None:
    short, long, longer = Phase(64, 10, 0.001), Phase(128, 20, 0.5), Phase(256, 40, 0.499)
    experiment = Experiment(data=DataConfig(phases=(short, long, longer)), num_train_steps=100)
    # The first phase has no step at all.
    assert [phase_at(experiment, step) for step in (0, 1, 50, 51, 100)] == [long, long, long, longer, longer]


def test_huge_losses_stay_numbers() -> None:
    assert math.isfinite(OBJECTIVES["mlm"]().means(SUMS | {"mlm_loss": 1e9})["mlm_perplexity"])


def guessed(objective: str, batch: dict[str, np.ndarray]) -> dict[str, float]:
    """Accuracy of always guessing the most frequent label, by the name of the metric."""
    task = PretrainingTask(OBJECTIVES[objective](), ModelConfig(vocab_size=10))
    return {name: counts.max() / counts.sum() for name, counts in label_counts(task, batch).items()}


def batch() -> dict[str, np.ndarray]:
    """Three rows, the last one padding."""
    return {
        "input_ids": np.array([[2, 7, 7, 3], [2, 8, 3, 0], [0, 0, 0, 0]], np.int32),
        "input_mask": np.array([[1, 1, 1, 1], [1, 1, 1, 0], [0, 0, 0, 0]], np.int32),
        "masked_lm_ids": np.array([[9, 9], [7, 0], [0, 0]], np.int32),
        "masked_lm_weights": np.array([[1, 1], [1, 0], [0, 0]], np.float32),
        "next_sentence_labels": np.array([1, 1, 0], np.int32),
    }


def test_guessing_counts_predictions_and_real_rows_alone() -> None:
    assert guessed("mlm_nsp", batch()) == {"mlm_accuracy": pytest.approx(2 / 3), "nsp_accuracy": 1.0}


def test_guessing_left_to_right_counts_every_next_token() -> None:
    assert guessed("ltr", batch()) == {"lm_accuracy": pytest.approx(2 / 5)}


def test_guessing_in_packed_rows_counts_each_instance_for_itself() -> None:
    packed = batch() | {
        "instance_starts": np.array([[0, 2], [0, 0], [0, 0]], np.int32),
        "next_sentence_labels": np.array([[1, 0], [0, 0], [0, 0]], np.int32),
    }
    assert guessed("mlm_nsp", packed)["nsp_accuracy"] == pytest.approx(2 / 3)
    assert guessed("ltr", packed) == {"lm_accuracy": 0.5}  # next tokens: 7, 3 and 8, 3


def test_rows_after_the_restored_step_are_cut(tmp_path: Path) -> None:
    log = MetricLog(tmp_path, step=0)
    for step in (5, 10, 15):
        log.write({"step": step, "split": "train", "loss": 1.0, "timing": {"seconds": 2.0}})
    log.close()
    MetricLog(tmp_path, step=10).close()
    assert [row["step"] for row in read_rows(tmp_path / METRICS_FILE)] == [5, 10]


@pytest.mark.parametrize("torn", ['{"step": 10, "spl', '{"step"', "\n", '{"step": 10}{'])
def test_a_torn_last_line_is_dropped(torn: str, tmp_path: Path) -> None:
    whole = {"step": 5, "split": "train", "loss": 1.0}
    (tmp_path / METRICS_FILE).write_text(json.dumps(whole) + "\n" + torn)
    log = MetricLog(tmp_path, step=20)
    log.write({"step": 25, "split": "train", "loss": 0.5})
    log.close()
    lines = (tmp_path / METRICS_FILE).read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [5, 25]
