"""Parameter and operation counts, against published numbers and against the model itself."""

import dataclasses
import math

import jax
import pytest

from bert_jax.model.size import dense_parameters, encoder_parameters
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import OBJECTIVES, MaskedLM, MaskedLMAndNSP
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.training.accounting import (
    flops_left,
    peak_flops,
    run_flops,
    run_tokens,
)
from data_pipeline.config import DataConfig, Phase
from experiments import EXPERIMENTS


def count(tree: dict) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize(("name", "published"), [("base", 109_482_240), ("large", 335_141_888)])
def test_published_parameter_counts(name: str, published: int) -> None:
    model = EXPERIMENTS[name].model
    width = model.hidden_size
    assert encoder_parameters(model) + dense_parameters(model, width, width) == published
    params = PretrainingTask(MaskedLM(), model).abstract_params()
    assert count(params["encoder"]) + count(params["pooler"]) == published
    assert count(params) == MaskedLMAndNSP().num_parameters(model)


@pytest.mark.parametrize(("name", "published"), [("modern_base", 149_655_232), ("modern_large", 395_881_664)])
def test_published_parameter_counts_of_modern_bert(name: str, published: int) -> None:
    """149 M and 395 M in the paper; exactly, those of transformers' `ModernBertForMaskedLM`."""
    model = EXPERIMENTS[name].model
    params = PretrainingTask(MaskedLM(), model).abstract_params()
    assert count(params["encoder"]) + count(params["language_model"]) == published
    assert count(params) == MaskedLM().num_parameters(model)


def test_published_parameter_counts_of_electra_and_albert() -> None:
    """14 M and 12 M in the papers; exactly, those of transformers' `ElectraModel` and `AlbertModel`."""
    assert encoder_parameters(EXPERIMENTS["electra_small"].model) == 13_483_008
    albert = EXPERIMENTS["albert_base"].model
    assert encoder_parameters(albert) + dense_parameters(albert, 768, 768) == 11_683_584


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_counts_the_parameters_of_its_module(name: str) -> None:
    objective = OBJECTIVES[name]()
    model = ModelConfig(
        vocab_size=7,
        num_layers=2,
        hidden_size=4,
        num_heads=2,
        intermediate_size=6,
        attention=objective.attention,
    )
    task = PretrainingTask(objective, model)
    assert task.objective.num_parameters(model) == count(task.abstract_params())


def test_operations_of_a_model_small_enough_to_count() -> None:
    model = ModelConfig(vocab_size=7, num_layers=1, hidden_size=4, num_heads=2, intermediate_size=8)
    length, predictions = 5, 2
    projections = 4 * 2 * length * 4 * 4
    attention = 2 * (2 * length * length * 4)
    feed_forward = 2 * (2 * length * 4 * 8)
    heads = 2 * predictions * 4 * (4 + 7) + 2 * 4 * (4 + 2)
    forward = projections + attention + feed_forward + heads
    assert MaskedLMAndNSP().flops(model, length, predictions, 1) == 3 * forward
    pooling = 2 * 4 * (4 + 2)
    assert MaskedLMAndNSP().flops(model, length, predictions, 3) == 3 * (forward + 2 * pooling)


def test_a_run_adds_up_its_phases() -> None:
    short = Phase(max_seq_length=8, max_predictions_per_seq=2, fraction=0.75)
    long = Phase(max_seq_length=16, max_predictions_per_seq=4, fraction=0.25)
    experiment = Experiment(data=DataConfig(phases=(short, long)), num_train_steps=100, global_batch_size=4)
    assert run_tokens(experiment) == 4 * (75 * 8 + 25 * 16)
    each = [experiment.objective.flops(experiment.model, *shape, 1) for shape in ((8, 2), (16, 4))]
    assert run_flops(experiment) == 4 * (75 * each[0] + 25 * each[1])
    assert flops_left(experiment, 70) == 4 * (5 * each[0] + 25 * each[1])
    assert flops_left(experiment, 90) == 4 * 10 * each[1]
    assert flops_left(experiment, 100) == 0
    schedule = dataclasses.replace(experiment.data, batch_schedule=((0.5, 0.25), (0.8, 0.5)))
    growing = dataclasses.replace(experiment, data=schedule)
    assert run_tokens(growing) == 8 * (50 * 1 + 25 * 2) + 16 * (5 * 2 + 20 * 4)
    assert run_flops(growing) == each[0] * (50 * 1 + 25 * 2) + each[1] * (5 * 2 + 20 * 4)
    assert flops_left(growing, 70) == each[0] * 5 * 2 + each[1] * (5 * 2 + 20 * 4)


def test_peaks_of_known_devices() -> None:
    assert peak_flops("TPU v5 lite") == 197e12
    assert peak_flops("TPU v5p") == 459e12
    assert peak_flops("NVIDIA H100 80GB HBM3") == 989e12
    assert peak_flops("NVIDIA H100 PCIe") == 756e12
    assert peak_flops("NVIDIA H100 NVL") == 835e12
    assert peak_flops("NVIDIA H200") == 989e12
    assert peak_flops("NVIDIA H200 NVL") == 835e12
    assert peak_flops("NVIDIA A100-SXM4-40GB") == 312e12
    assert peak_flops("NVIDIA RTX A1000 Laptop GPU") is None
    assert peak_flops("cpu") is None
