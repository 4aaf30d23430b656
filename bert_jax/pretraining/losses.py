"""Losses and accuracies as sums, so that parts of a batch can be added up exactly.

A mean over a batch is a numerator divided by a denominator. Devices, processes and micro-batches
each compute both as sums; dividing happens once, after they are added. Averaging the means of
parts is wrong whenever the parts have different numbers of predictions.
"""

import jax
import jax.numpy as jnp

from bert_jax.model.packed_rows import instance_weights, instances_of
from bert_jax.objective import Objective
from bert_jax.task import Batch, Sums

Logits = tuple[jax.Array, jax.Array]

# Keeps the masked LM's mean finite in a batch without predictions (run_pretraining.py:279).
_WEIGHT_EPSILON = 1e-5


def language_model_targets(batch: Batch, objective: Objective) -> tuple[jax.Array, jax.Array]:
    """Ids to predict and their float32 weights: [B, P] for masked tokens, [B, T - 1] for next tokens."""
    if objective.predicts == "next_tokens":
        targets, weights = batch["input_ids"][:, 1:], batch["input_mask"][:, 1:].astype(jnp.float32)
        instances = instances_of(batch)
        if instances is not None:
            weights *= instances[:, 1:] == instances[:, :-1]
        return targets, weights
    return batch["masked_lm_ids"], batch["masked_lm_weights"]


def denominators(batch: Batch, objective: Objective) -> Sums:
    """What the numerators of `numerators` are divided by; needs the batch alone, not the model.

    Returns:
      float32 scalars `mlm_weight` (predicted tokens), `examples` (instances; unless rows are packed, the
      rows that are not padding) and `tokens` (real positions).
    """
    _, weights = language_model_targets(batch, objective)
    input_mask = batch["input_mask"].astype(jnp.float32)
    return {
        "mlm_weight": weights.sum(),
        "examples": instance_weights(batch).sum(),
        "tokens": input_mask.sum(),
    }


def numerators(logits: Logits, batch: Batch, objective: Objective) -> Sums:
    """Summed cross-entropies (nats) and numbers of correct predictions of both heads.

    Rows whose `input_mask` is all zero are padding and do not count.

    Args:
      logits: float32 [B, P, V] of the language model ([B, T - 1, V] left to right), and of next
        sentence prediction [B, 2], or [B, K, 2] for packed rows.
      batch: as `data_pipeline.batches` makes it.

    Returns:
      float32 scalars `mlm_loss`, `mlm_correct`, `nsp_loss`, `nsp_correct`.
    """
    lm_logits, nsp_logits = logits
    targets, weights = language_model_targets(batch, objective)
    is_instance = instance_weights(batch)
    labels = batch["next_sentence_labels"]
    # As rows [B x P, V]: TPUs lay out [B, P, V] in tiles of eight, into which P rarely divides, and
    # XLA would copy all logits from one layout to the other.
    targets, weights = targets.reshape(-1), weights.reshape(-1)
    lm_loss, lm_correct = cross_entropy(lm_logits.reshape(-1, lm_logits.shape[-1]), targets)
    nsp_loss, nsp_correct = cross_entropy(nsp_logits, labels)
    return {
        "mlm_loss": (lm_loss * weights).sum(),
        "mlm_correct": (lm_correct * weights).sum(),
        "nsp_loss": (nsp_loss * is_instance).sum(),
        "nsp_correct": (nsp_correct * is_instance).sum(),
    }


def objective_loss(sums: Sums, totals: Sums, objective: Objective) -> jax.Array:
    """The loss to minimise, or the share of it that `sums` contributes to a batch with `totals`.

    Args:
      sums: numerators of a part of the batch, or of all of it.
      totals: denominators of the whole batch, all devices and micro-batches added up.
      objective: with next sentence prediction, its mean loss is added to the language model's.
    """
    loss = sums["mlm_loss"] / (totals["mlm_weight"] + _WEIGHT_EPSILON)
    if objective.next_sentence:
        loss += sums["nsp_loss"] / jnp.maximum(totals["examples"], 1.0)
    return loss


def cross_entropy(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cross-entropy (nats) and whether the label scores highest, [...] each, from [..., classes].

    A negative label is no class: its cross-entropy is finite but means nothing.
    """
    # The label's score is picked by comparing with every class rather than by indexing: the
    # gradient is then one pass over the logits and not a scatter into a second array of their size.
    is_label = jnp.arange(logits.shape[-1]) == labels[..., None]
    label_score = jnp.where(is_label, logits, 0).sum(-1)
    return jax.nn.logsumexp(logits, axis=-1) - label_score, label_score >= logits.max(-1)
