"""Metrics of the two pretraining tasks, from sums to means, and what guessing would score."""

import math
from collections.abc import Mapping
from typing import cast

import numpy as np

from bert_jax.model.packed_rows import instance_weights
from bert_jax.objective import Objective
from bert_jax.parallel import processes
from bert_jax.pretraining.losses import language_model_targets
from bert_jax.task import Batch

# Larger losses are reported with the perplexity of this one, 5.5e34; exp overflows a float above 709.
_LARGEST_LOSS = 80.0


def means(sums: Mapping[str, float], objective: Objective) -> dict[str, float]:
    """Turns the numerators and denominators of `train_step` or `eval_step` into means.

    Args:
      sums: the sums of one or more steps, fetched to the host.
      objective: decides the names: `mlm_*` or `lm_*`, and with next sentence prediction `nsp_*`.

    Returns:
      loss in nats, perplexity, accuracies from 0 to 1.
    """
    sums = {name: float(value) for name, value in sums.items()}
    prefix = objective.metric_prefix
    lm_loss = sums["mlm_loss"] / max(sums["mlm_weight"], 1.0)
    row = {
        "loss": lm_loss,
        f"{prefix}_loss": lm_loss,
        f"{prefix}_perplexity": math.exp(min(lm_loss, _LARGEST_LOSS)),
        f"{prefix}_accuracy": sums["mlm_correct"] / max(sums["mlm_weight"], 1.0),
    }
    if objective.next_sentence:
        examples = max(sums["examples"], 1.0)
        row["nsp_loss"] = sums["nsp_loss"] / examples
        row["nsp_accuracy"] = sums["nsp_correct"] / examples
        row["loss"] += row["nsp_loss"]
    return row


class GuessCounter:
    """Accuracy of always guessing the most frequent label, on the batches that are added.

    The most frequent token is taken from these very labels, so the figure is the best that such a
    guess can reach, a little above that of the training text's most frequent token.
    """

    def __init__(self, objective: Objective, vocab_size: int) -> None:
        self._objective = objective
        self._tokens = np.zeros(vocab_size, np.int64)
        self._labels = np.zeros(2, np.int64)

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Counts the labels of one batch (the arrays of the batch contract)."""
        arrays = cast(Batch, batch)  # numpy arrays work as well
        tokens, weights = language_model_targets(arrays, self._objective)
        self._tokens += np.bincount(tokens[np.asarray(weights) > 0], minlength=len(self._tokens))
        is_real = np.asarray(instance_weights(arrays)) > 0
        self._labels += np.bincount(batch["next_sentence_labels"][is_real], minlength=2)

    def accuracies(self) -> dict[str, float]:
        """Accuracies from 0 to 1, named like those of `means` with `_guess_` in the middle.

        All processes of a run call this together; their counts are added up.
        """
        prefix = self._objective.metric_prefix
        row = {f"{prefix}_guess_accuracy": _largest_share(processes.add_up(self._tokens))}
        if self._objective.next_sentence:
            row["nsp_guess_accuracy"] = _largest_share(processes.add_up(self._labels))
        return row


def _largest_share(counts: np.ndarray) -> float:
    return float(counts.max() / max(counts.sum(), 1))
