"""FLOPs of every named experiment, against those that the compiler counts in its compiled gradients."""

import dataclasses
import math
import re

import jax
import pytest
from jax.stages import Compiled

from bert_jax.model import size
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import (
    HybridLanguageModel,
    LeftToRight,
    MaskedLMAndSpanBoundary,
    ReplacedTokenDetection,
)
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from experiments import EXPERIMENTS


def with_few_layers(model: ModelConfig) -> ModelConfig:
    """The model with two layers, or as many as have one of each kind and one more, and what is counted alone.

    In float32, since CPUs convert bfloat16, and without dropout, whose random bits are counted.
    """
    return dataclasses.replace(
        model,
        num_layers=1 + (model.global_every or 1),
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        dtype="float32",
        attention_kernel="none",
    )


def distinct_cases() -> dict[str, tuple[Experiment, int]]:
    """Experiments with few layers and their phases, by name; those of the same sizes once."""
    cases = {}
    for name, experiment in EXPERIMENTS.items():
        few = dataclasses.replace(experiment, model=with_few_layers(experiment.model))
        for number, phase in enumerate(few.data.phases):
            sizes = (few.model, few.objective, dataclasses.replace(phase, fraction=1.0))
            cases.setdefault((*sizes, few.data.max_instances_per_row), (name, few, number))
    return {f"{name}-{number}": (few, number) for name, few, number in cases.values()}


CASES = distinct_cases()


def not_computed(experiment: Experiment, length: int, predictions: int) -> int:
    """FLOPs of the last layer at positions that nothing is predicted from, which are counted all the same."""
    objective, model = experiment.objective, experiment.model
    queries = predictions + experiment.data.max_instances_per_row
    if isinstance(objective, LeftToRight | HybridLanguageModel) or not predictions:  # a causal phase
        return 0
    if isinstance(objective, MaskedLMAndSpanBoundary):  # the masked position and those beside its span
        queries = 3 * predictions
    if isinstance(objective, ReplacedTokenDetection):  # the discriminator says something of each position
        model, queries = objective.generator(model), predictions
    width, kernels = model.hidden_size, size._FEED_FORWARD_KERNELS[model.feed_forward]
    products = 2 * (2 * width * width + kernels * width * model.intermediate_size)
    return 3 * (length - queries) * (products + 4 * length * width)


def products(text: str) -> int:
    """FLOPs of the matrix products in a compiled program's text.

    A product of a column of ones and a matrix is how CPUs sum over rows, and is not counted.
    """
    shapes, total = {}, 0
    for name, shape, operation in re.findall(r"^ +(?:ROOT )?%(\S+) = \w+\[([\d,]*)\]\S* (.*)$", text, re.M):
        shapes[name] = [int(size) for size in shape.split(",") if size]
        found = re.match(r"dot\(%([^,]+), .*lhs_contracting_dims=\{([\d,]+)\}", operation)
        if found and not (shapes[name][0] == 1 and found[2] == "0"):
            contracted = (shapes[found[1]][int(axis)] for axis in found[2].split(","))
            total += 2 * math.prod(shapes[name]) * math.prod(contracted)
    return total


def compile_gradients(task: PretrainingTask, batch: dict[str, jax.ShapeDtypeStruct]) -> Compiled:
    """The program that computes the gradients of a task's loss, for a batch of these shapes."""

    def loss(params: dict, batch: dict) -> jax.Array:
        outputs = task.module.apply({"params": params}, batch, deterministic=True)
        return task.loss(task.numerators(outputs, batch), task.denominators(batch))

    return jax.jit(jax.grad(loss)).lower(task.abstract_params(), batch).compile()


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case == "electra_small-0" else pytest.mark.slow) for case in CASES],
)
def test_operations_are_those_that_the_compiler_counts(case: str) -> None:
    experiment, number = CASES[case]
    phase = experiment.data.phases[number]
    task = PretrainingTask(experiment.objective, experiment.model)
    batch = task.abstract_batch(phase, 1, experiment.data.max_instances_per_row)

    compiled = compile_gradients(task, batch)
    skipped = not_computed(experiment, phase.max_seq_length, phase.max_predictions_per_seq)
    counted = compiled.cost_analysis()["flops"] + skipped
    expected = task.flops(batch)
    assert products(compiled.as_text()) + skipped == pytest.approx(expected, rel=1e-3)
    # The compiler counts additions and the like too, which are more beside the products of narrow layers.
    assert counted == pytest.approx(expected, rel=0.02 if experiment.model.hidden_size >= 512 else 0.05)
