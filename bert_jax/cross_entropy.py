"""The cross-entropy of pretraining and fine-tuning."""

import jax
import jax.numpy as jnp


def cross_entropy(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cross-entropy (nats) and whether the label scores highest, [...] each, from [..., classes].

    A negative label is no class: its cross-entropy is finite but means nothing. A label that shares the
    highest score counts as the highest.
    """
    label_score = _label_score(logits, labels)
    return jax.nn.logsumexp(logits, axis=-1) - label_score, label_score >= logits.max(-1)


@jax.custom_vjp
def _label_score(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The logit of each label, [...].

    On CPU, comparing it with all classes would write another array as large as the logits. Elsewhere XLA does
    so while it reads the logits anyway.
    """
    return jax.lax.platform_dependent(logits, labels, cpu=score_by_index, default=score_by_comparison)


def score_by_index(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The logit of each label, [...]; a negative one counts as 0."""
    return jnp.take_along_axis(logits, labels[..., None], axis=-1, mode="clip")[..., 0]


def score_by_comparison(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The logit of each label, [...]; 0 for a negative one."""
    return jnp.where(jnp.arange(logits.shape[-1]) == labels[..., None], logits, 0).sum(-1)


def _forward(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _label_score(logits, labels), (jnp.arange(logits.shape[-1]), labels)


def _backward(residuals: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, None]:
    # One pass over the logits. The gradient of an index would be a scatter into a second array of their size.
    classes, labels = residuals
    return jnp.where(classes == labels[..., None], gradient[..., None], 0), None


_label_score.defvjp(_forward, _backward)
