"""Every head learns from packed rows what it learns from the same rows in lines of their own."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import ParallelConfig
from bert_jax.finetuning_config import FeatureConfig, FineTuningConfig
from bert_jax.model_config import Attention
from bert_jax.tasks.finetuning.head import Head
from bert_jax.tasks.ranking import InBatch
from bert_jax.tasks.squad import Spans
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.train_step import init_state, train_step
from data_pipeline.tasks.finetuning.batches import training_batches
from data_pipeline.tasks.finetuning.packing import Packing
from tests.bert_jax.drawn import draw_head
from tests.bert_jax.tasks.heads import HEADS, KINDS
from tests.bert_jax.tasks.small_rows import LABELS, ROWS, make_rows
from tests.bert_jax.tiny_model import TINY

MODEL = dataclasses.replace(TINY, initializer_range=0.5, dropout_rate=0.0, attention_dropout_rate=0.0)
PACKING = Packing(length=40, max_rows=4, unit=2)


def batches(kind: str) -> tuple[dict, dict]:
    """The same rows padded and packed."""
    make = functools.partial(
        training_batches, make_rows(kind), batch_size=ROWS, seed=0, first_step=0, num_steps=1
    )
    (padded,), (packed,) = make(), make(packing=PACKING)
    assert packed["row"].shape[0] < ROWS
    return padded, packed


def sums_and_gradient(task: Head, params: dict, batch: dict) -> tuple[dict, dict]:
    def loss(params: dict) -> tuple[jax.Array, dict]:
        totals = task.denominators(batch)
        sums = task.numerators(task.module.apply({"params": params}, batch, deterministic=True), batch)
        return task.loss(sums, totals), sums | totals

    gradient, sums = jax.jit(jax.grad(loss, has_aux=True))(params)
    return sums, gradient


def check_same(kind: str, config: FineTuningConfig) -> None:
    task = HEADS[kind](config)
    params = draw_head(task)
    padded, packed = (sums_and_gradient(task, params, batch) for batch in batches(kind))
    assert padded[0]["examples"] == ROWS
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), packed, padded)


# With a target for each row, with several sequences in a row, and with a target for each token.
IN_EVERY_RUN = ("classification", "choice", "tagging")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in IN_EVERY_RUN else pytest.mark.slow) for kind in KINDS]
)
def test_sums_and_gradients_are_those_of_padded_rows(kind: str) -> None:
    check_same(kind, FineTuningConfig(model=MODEL, num_labels=LABELS))


@pytest.mark.parametrize(
    ("kind", "attention", "layers"),
    [
        ("classification", "causal", (-1,)),
        pytest.param("choice", "causal", (0, -1), marks=pytest.mark.slow),
        pytest.param("tagging", "bidirectional", (0, -1), marks=pytest.mark.slow),
    ],
)
def test_sums_and_gradients_agree_for_causal_attention_and_several_layers(
    kind: str, attention: Attention, layers: tuple[int, ...]
) -> None:
    features = FeatureConfig(layers=layers, combine="sum")
    model = dataclasses.replace(MODEL, attention=attention)
    check_same(kind, FineTuningConfig(model=model, num_labels=LABELS, features=features))


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("classification", marks=pytest.mark.slow),
        pytest.param("choice", marks=pytest.mark.slow),
        "tagging",
    ],
)
def test_a_bilstm_reads_them_one_at_a_time(kind: str) -> None:
    features = FeatureConfig(layers=(0, -1), combine="sum", lstm_layers=2, lstm_width=4)
    check_same(kind, FineTuningConfig(model=MODEL, num_labels=LABELS, features=features))


def test_micro_batches_of_packed_rows_add_up_to_the_step() -> None:
    config = FineTuningConfig(model=MODEL)
    task, tx = Spans(config), make_optimizer(config.optimizer)
    _, packed = batches("spans")
    state = jax.jit(functools.partial(init_state, task, tx))(0)

    def step(parts: int) -> dict:
        run = functools.partial(train_step, task=task, tx=tx, accumulation_steps=parts)
        after = jax.jit(run)(state, packed, jnp.float32(1e-3), jax.random.key(0))
        return {"params": after.params, "sums": after.sums}

    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), step(1), step(2))


def test_rows_keep_lines_of_their_own_where_sharing_would_change_something() -> None:
    in_parts, by_pmap = ParallelConfig(accumulation_steps=2), ParallelConfig(mode="pmap")
    assert Spans(FineTuningConfig()).may_pack
    assert InBatch(FineTuningConfig()).may_pack
    assert Spans(FineTuningConfig(parallel=in_parts)).may_pack
    for head in (
        Spans(FineTuningConfig(pack=False)),
        InBatch(FineTuningConfig(parallel=in_parts)),
        InBatch(FineTuningConfig(parallel=by_pmap)),
    ):
        assert not head.may_pack
