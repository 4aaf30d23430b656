"""Generator and discriminator: what is filled in, what counts as replaced, and who learns from whom."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model.encoder import Encoder
from bert_jax.model.heads import ReplacedTokenHead
from bert_jax.model.replaced_tokens import Detection
from bert_jax.objectives import ReplacedTokenDetection
from bert_jax.objectives.task import PretrainingTask
from tests.bert_jax.model.test_packed_rows import make_batches
from tests.bert_jax.small_run import trainable_params
from tests.bert_jax.tiny_model import TINY
from tests.data_pipeline.unmasked import unmasked_ids

MODEL = dataclasses.replace(
    TINY, num_layers=2, embedding_size=6, dropout_rate=0.0, attention_dropout_rate=0.0
)
RTD = ReplacedTokenDetection(generator_size=0.5)
TASK = PretrainingTask(RTD, MODEL)
BATCH = make_batches()[0]
PARAMS = trainable_params(MODEL, RTD)


@jax.jit
def apply(params: dict, key: jax.Array | None = None) -> Detection:
    rngs = {} if key is None else {"sampling": key}
    return TASK.module.apply({"params": params}, BATCH, deterministic=True, rngs=rngs)


def test_the_discriminator_reads_what_the_generator_filled_in() -> None:
    """A generator that always draws one token: everything else follows by hand."""
    drawn = int(BATCH["masked_lm_ids"][0, 0])
    bias = np.where(np.arange(MODEL.vocab_size) == drawn, 1e4, 0).astype(np.float32)
    generator = {**PARAMS["generator"]}
    generator["language_model"] = {**generator["language_model"], "bias": bias}
    outputs = apply({**PARAMS, "generator": generator})

    original, filled = unmasked_ids(BATCH), unmasked_ids(BATCH)
    rows, slots = np.nonzero(BATCH["masked_lm_weights"])
    filled[rows, BATCH["masked_lm_positions"][rows, slots]] = drawn
    np.testing.assert_array_equal(outputs.is_replaced, filled != original)
    assert 0 < np.asarray(outputs.is_replaced).sum() < len(rows)
    encoder = Encoder(MODEL).apply({"params": PARAMS["encoder"]}, {**BATCH, "input_ids": filled}, True)
    logits = ReplacedTokenHead(MODEL).apply({"params": PARAMS["replaced_token"]}, encoder)
    np.testing.assert_allclose(outputs.replaced_logits, logits, rtol=1e-5, atol=1e-5)


def test_draws_are_the_streams_and_without_one_always_the_same() -> None:
    first, again = apply(PARAMS), apply(PARAMS)
    np.testing.assert_array_equal(first.is_replaced, again.is_replaced)
    others = [apply(PARAMS, jax.random.key(seed)).is_replaced for seed in range(2)]
    assert (np.asarray(others[0]) != np.asarray(others[1])).any()


def test_the_generator_learns_from_its_own_loss_alone() -> None:
    @jax.jit
    def gradients(params: dict) -> tuple[dict, dict]:
        sums, backward = jax.vjp(lambda p: RTD.numerators(apply(p), jax.tree.map(jnp.asarray, BATCH)), params)
        return tuple(
            backward({other: jnp.float32(other == name) for other in sums})[0]
            for name in ("rtd_loss", "mlm_loss")
        )

    of_detection, of_tokens = gradients(PARAMS)
    assert not any(np.abs(leaf).max() for leaf in jax.tree.leaves(of_detection["generator"]))
    assert np.abs(of_tokens["encoder"]["embeddings"]["word_embeddings"]["embedding"]).max() > 0
    assert not any(
        np.abs(leaf).max()
        for part in (of_tokens["replaced_token"], of_tokens["encoder"]["layer_0"])
        for leaf in jax.tree.leaves(part)
    )
