"""The FLOPs of ELECTRA and BERT-BASE from this project's count to the published one, a term at a time.

    python -m benchmarks.published_flops

The published count is that of google-research/electra's `flops_computation.py`, by which ELECTRA's paper has
6.4e19 for BERT-BASE and ELECTRA-BASE (Clark et al. 2020, arXiv 2003.10555, Table 1). The last line of each
table is that count, to the last digit.
"""

import dataclasses
from collections.abc import Iterator

from bert_jax.model_config import ModelConfig
from bert_jax.objectives import MaskedLM, ReplacedTokenDetection
from bert_jax.objectives.experiment import Experiment
from bert_jax.training.accounting import run_flops
from data_pipeline.config import Phase
from experiments import EXPERIMENTS

# Operations on one number, as they are counted there.
_DROPOUT, _NORM, _ACTIVATION, _SOFTMAX = 4, 5, 8, 5
# Fraction of the positions that are predicted.
_PREDICTED = 0.15625


def steps_of(experiment: Experiment) -> Iterator[tuple[str, float]]:
    """What is counted differently, and the count with this and all before it."""
    yield "this project: products alone, a backward pass twice a forward pass", run_flops(experiment)
    length = max(phase.max_seq_length for phase in experiment.data.phases)
    phase = Phase(length, experiment.data.phases[-1].max_predictions_per_seq)
    if len(experiment.data.phases) > 1:
        experiment = dataclasses.replace(
            experiment, data=dataclasses.replace(experiment.data, phases=(phase,))
        )
        yield f"all steps at length {length}", run_flops(experiment)
    if not isinstance(experiment.objective, ReplacedTokenDetection):
        experiment = experiment.with_objective(MaskedLM())
        yield "no next sentence prediction", run_flops(experiment)
    slots = Phase(length, round(_PREDICTED * length))
    experiment = dataclasses.replace(experiment, data=dataclasses.replace(experiment.data, phases=(slots,)))
    before = phase.max_predictions_per_seq / length
    yield f"{_PREDICTED:.3%} of the positions predicted, not {before:.3%}", run_flops(experiment)
    total = run_flops(experiment) * 2 / 3
    yield "a backward pass counted like a forward pass", total
    rows = experiment.num_train_steps * experiment.global_batch_size
    total += 2 * rows * sum(length * lookups(model, length) for model in encoders(experiment))
    yield "embeddings looked up by products with one-hot vectors", total
    total += 2 * rows * length * elementwise(experiment, length)
    yield "softmax, dropout, normalization, GELU, biases, residual sums: published", total


def encoders(experiment: Experiment) -> list[ModelConfig]:
    """The encoders that are trained."""
    model, objective = experiment.model, experiment.objective
    return [model, objective.generator(model)] if isinstance(objective, ReplacedTokenDetection) else [model]


def lookups(model: ModelConfig, length: int) -> int:
    """Products with the tables of words, positions and two segments, for each position."""
    return 2 * model.embedding_width * (model.vocab_size + length + 2)


def elementwise(experiment: Experiment, length: int) -> float:
    """Operations beside products in a forward pass, for each position."""
    models = encoders(experiment)
    total = sum(model.num_layers * in_layer(model, length) + in_embeddings(model) for model in models)
    *discriminators, last = models
    total += sum((1 + _ACTIVATION) * model.hidden_size for model in discriminators)
    width = last.embedding_width
    return total + _PREDICTED * ((1 + _ACTIVATION + _NORM) * width + (_SOFTMAX + 2) * last.vocab_size)


def in_layer(model: ModelConfig, length: int) -> int:
    """Operations beside products in a layer, for each position."""
    width, inner = model.hidden_size, model.intermediate_size
    attention = (3 + 1 + _DROPOUT + 1) * width + (_SOFTMAX + _DROPOUT + 1) * length * model.num_heads
    # There, the normalization after attention counts as one of a single number.
    return attention + _NORM + (_ACTIVATION + 1) * inner + (1 + _DROPOUT + 1 + _NORM) * width


def in_embeddings(model: ModelConfig) -> int:
    """Operations beside products in the embeddings, for each position."""
    bias = model.hidden_size if model.embedding_width != model.hidden_size else 0
    return (2 + _NORM + _DROPOUT) * model.embedding_width + bias


def main() -> None:
    """Prints a table for each model, as Markdown."""
    for name in ("electra_small", "electra_base", "base"):
        print(f"\n| `{name}` | FLOPs | |\n|---|---|---|")
        before = None
        for what, total in steps_of(EXPERIMENTS[name]):
            change = "" if before is None else f"{total / before - 1:+.1%}"
            print(f"| {what} | {total:.4g} | {change} |")
            before = total


if __name__ == "__main__":
    main()
