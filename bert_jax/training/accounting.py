"""The size of a model and the amount of its arithmetic: plain sums over its shape, without jax."""

import re

from bert_jax.config import Experiment, ModelConfig
from data_pipeline.config import Phase

PEAK_FLOPS = {
    "v6e": 918e12,
    "v6": 918e12,
    "v5p": 459e12,
    "v5 lite": 197e12,
    "v5e": 197e12,
    "v5": 459e12,
    "v4": 275e12,
    # Cards for a PCIe slot are slower than SXM modules. These values are half of the figures with sparsity
    # at nvidia.com/en-us/data-center/h200 (1,979; NVL 1,671) and /h100 (1,979; NVL 1,671; PCIe 1,513).
    "h200 nvl": 835e12,
    "h200": 989e12,
    "h100 nvl": 835e12,
    "h100 pcie": 756e12,
    "h100": 989e12,
    "a100": 312e12,
}
"""Dense bfloat16 FLOP/s of one device, from the makers' data sheets. Keys are matched as whole words in
`device_kind.lower()`. The first match wins, so specific names come before general ones."""


def encoder_parameters(model: ModelConfig) -> int:
    """Parameters of embeddings, layers and pooler, without the pretraining heads."""
    width, inner = model.hidden_size, model.intermediate_size
    rows = model.vocab_size + model.max_position_embeddings + model.type_vocab_size
    embeddings = rows * width + 2 * width
    attention = 4 * (width * width + width) + 2 * width
    feed_forward = 2 * width * inner + inner + width + 2 * width
    pooler = width * width + width
    return embeddings + model.num_layers * (attention + feed_forward) + pooler


def total_parameters(model: ModelConfig) -> int:
    """Parameters with the language model and next sentence heads; tied weights counted once."""
    width = model.hidden_size
    language_model = width * width + width + 2 * width + model.vocab_size
    return encoder_parameters(model) + language_model + 2 * width + 2


def flops_per_row(model: ModelConfig, length: int, predictions: int, instances: int = 1) -> int:
    """Floating-point operations of training on one row of a batch.

    Counts matrix products alone: a multiply and an add are two operations, and the backward pass is twice
    the forward pass. Padding, and attention between the instances of a packed row, count, since they are
    computed; recomputation to save memory does not. The last layer counts in full, though a step may compute
    most of it for the predicted positions alone.

    Args:
      model: shape and objective.
      length: positions of the row.
      predictions: slots of masked tokens; ignored by an objective that predicts next tokens.
      instances: how many the row may hold; each is pooled.
    """
    width = model.hidden_size
    predictions = length - 1 if model.learns.predicts == "next_tokens" else predictions
    language_model = 2 * predictions * width * (width + model.vocab_size)
    next_sentence = 2 * instances * width * (width + 2) if model.learns.next_sentence else 0
    return encoder_flops(model, length) + 3 * (language_model + next_sentence)


def encoder_flops(model: ModelConfig, length: int, frozen_layers: int = 0) -> int:
    """As `flops_per_row`, for the layers alone; the lowest `frozen_layers` have no backward pass."""
    width = model.hidden_size
    layer = 2 * length * (4 * width * width + 2 * width * model.intermediate_size)
    layer += 4 * length * length * width
    return (3 * model.num_layers - 2 * frozen_layers) * layer


def run_tokens(experiment: Experiment) -> int:
    """Number of positions in a whole run, padding included."""
    return sum(
        steps * experiment.global_batch_size * phase.max_seq_length
        for phase, steps in _steps_by_phase(experiment)
    )


def run_flops(experiment: Experiment) -> int:
    """Floating-point operations of a whole run, counted as in `flops_per_row`."""
    return flops_left(experiment, 0)


def flops_left(experiment: Experiment, step: int) -> int:
    """The part of `run_flops` that remains when `step` steps are done."""
    instances = experiment.data.max_instances_per_row
    return sum(
        steps
        * experiment.global_batch_size
        * flops_per_row(experiment.model, phase.max_seq_length, phase.max_predictions_per_seq, instances)
        for phase, steps in _steps_by_phase(experiment, step)
    )


def peak_flops(device_kind: str) -> float | None:
    """Dense bfloat16 FLOP/s of a device by its jax `device_kind`, or None where unknown."""
    kind = device_kind.lower()
    return next((peak for words, peak in PEAK_FLOPS.items() if re.search(rf"\b{words}\b", kind)), None)


def _steps_by_phase(experiment: Experiment, first_step: int = 0) -> list[tuple[Phase, int]]:
    return [
        (phase, max(stop - max(start, first_step), 0))
        for _, phase, start, stop in experiment.data.stretches(experiment.num_train_steps)
    ]
