"""The cross-entropy of pretraining and fine-tuning."""

import jax
import jax.numpy as jnp


def cross_entropy(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cross-entropy (nats) and whether the label scores highest, [...] each, from [..., classes].

    A negative label is no class: its cross-entropy is finite but means nothing. A label that shares the
    highest score counts as the highest.
    """
    # The label's score is picked by comparing with every class rather than by indexing: the
    # gradient is then one pass over the logits and not a scatter into a second array of their size.
    is_label = jnp.arange(logits.shape[-1]) == labels[..., None]
    label_score = jnp.where(is_label, logits, 0).sum(-1)
    return jax.nn.logsumexp(logits, axis=-1) - label_score, label_score >= logits.max(-1)
