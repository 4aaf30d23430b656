"""Heads and losses of fine-tuning: against plain formulas, and blind to padding."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.finetuning_config import FineTuningConfig, LayerRates
from bert_jax.model.encoder import Encoder
from bert_jax.model_config import Attention
from bert_jax.tasks import TASKS, tagging
from bert_jax.tasks.finetuning.head import IMPOSSIBLE, Head
from bert_jax.training.train_step import eval_step, predict_step
from data_pipeline.tasks.tagging.scores import score_words
from tests.bert_jax.drawn import draw_head
from tests.bert_jax.dropped_site import all_dropped_at
from tests.bert_jax.tasks.heads import HEADS, KINDS
from tests.bert_jax.tasks.small_batch import LABELS, LENGTH, MODEL, ROWS, make_batch


@functools.cache
def make(kind: str) -> tuple[Head, dict]:
    """A task and its parameters."""
    task = HEADS[kind](FineTuningConfig(model=MODEL, num_labels=LABELS))
    return task, draw_head(task)


def outputs(kind: str, batch: dict) -> np.ndarray:
    task, params = make(kind)
    return np.asarray(jax.jit(functools.partial(predict_step, task=task))(params, batch))


def sums(kind: str, batch: dict) -> dict[str, float]:
    task, params = make(kind)
    found = jax.jit(functools.partial(eval_step, task=task))(params, batch)
    return {name: float(value) for name, value in found.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_longer_padding_and_rows_of_padding_change_nothing(kind: str) -> None:
    short = sums(kind, make_batch(kind))
    long = sums(kind, make_batch(kind, length=12, padding_rows=2))
    assert short["examples"] == ROWS
    for name, value in short.items():
        assert long[name] == pytest.approx(value, rel=1e-5), name


@pytest.mark.parametrize("kind", KINDS)
def test_losses_follow_their_formulas(kind: str) -> None:
    batch = make_batch(kind)
    logits = outputs(kind, batch).astype(np.float64)
    loss = FORMULAS[kind](logits, batch)
    task, _ = make(kind)
    assert task.means(sums(kind, batch))["loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_not_rounded_to_the_compute_type(kind: str) -> None:
    config = FineTuningConfig(model=dataclasses.replace(MODEL, dtype="bfloat16"), num_labels=LABELS)
    _, params = make(kind)
    predict = jax.jit(functools.partial(predict_step, task=HEADS[kind](config)))
    found = np.asarray(predict(params, make_batch(kind)))
    assert found.dtype == np.float32
    scores = found[found > IMPOSSIBLE]
    assert (scores.astype(jnp.bfloat16).astype(np.float32) != scores).any()


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    shares = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    return -np.log(np.take_along_axis(shares, labels[..., None], -1)[..., 0])


def classes(logits: np.ndarray, batch: dict) -> float:
    return cross_entropy(logits, batch["labels"]).mean()


def spans(logits: np.ndarray, batch: dict) -> float:
    start = cross_entropy(logits[..., 0], batch["start_positions"])
    return ((start + cross_entropy(logits[..., 1], batch["end_positions"])) / 2).mean()


def tags(logits: np.ndarray, batch: dict) -> float:
    there = batch["tag_ids"] >= 0
    return cross_entropy(logits[there], batch["tag_ids"][there]).mean()


def in_batch(vectors: np.ndarray, batch: dict) -> float:
    query, positive, negative = vectors[:, 0], vectors[:, 1], vectors[:, 2]
    scores = 20 * query @ np.concatenate([positive, negative]).T
    return cross_entropy(scores, np.arange(len(query))).mean()


def triplet(vectors: np.ndarray, batch: dict) -> float:
    query, positive, negative = vectors[:, 0], vectors[:, 1], vectors[:, 2]
    return np.maximum(0.2 - (query * positive).sum(-1) + (query * negative).sum(-1), 0).mean()


FORMULAS = {
    "classification": classes,
    "relation": classes,
    "choice": classes,
    "regression": lambda outputs, batch: ((outputs[:, 0] - batch["values"]) ** 2).mean(),
    "spans": spans,
    "tagging": tags,
    "in_batch_ranking": in_batch,
    "triplet_ranking": triplet,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("frozen_layers", [None, MODEL.num_layers])
def test_classifiers_of_all_but_spans_have_dropout_of_their_own(kind: str, frozen_layers: int | None) -> None:
    """Also with a frozen encoder, which itself has no dropout."""
    rates = LayerRates(frozen_layers=frozen_layers)
    model = dataclasses.replace(MODEL, dropout_rate=0.2, attention_dropout_rate=0.3)
    task = HEADS[kind](FineTuningConfig(model=model, num_labels=LABELS, rates=rates))
    _, params = make(kind)
    of_encoder = [] if frozen_layers else [0.2, 0.3, 0.2, 0.2]
    has_its_own = kind not in ("spans", "in_batch_ranking", "triplet_ranking")
    key = {"dropout": jax.random.key(0)}
    if has_its_own:
        bias = np.full_like(params["classifier"]["bias"], 7)
        params = {**params, "classifier": {**params["classifier"], "bias": bias}}
    with all_dropped_at(len(of_encoder)) as used:
        scores = task.module.apply({"params": params}, make_batch(kind), deterministic=False, rngs=key)
    assert used == [*of_encoder, *([0.2] if has_its_own else [])]
    assert np.all(np.asarray(scores) == 7) == has_its_own


def test_a_choice_that_is_not_there_is_never_chosen() -> None:
    batch = make_batch("choice")
    batch["input_mask"][0, 2] = batch["input_ids"][0, 2] = 0
    scores = outputs("choice", batch)
    assert scores[0, 2] == -10000
    assert (scores[1:] > -1000).all()


def test_a_relation_is_told_from_the_states_where_head_and_tail_begin() -> None:
    batch = make_batch("relation")
    batch["entity_positions"] = np.array([[1, 3], [3, 1], [2, 0], [0, 2]], np.int32)
    _, params = make("relation")
    encode = jax.jit(functools.partial(Encoder(MODEL).apply, deterministic=True))
    states = np.asarray(encode({"params": params["encoder"]}, batch))
    pairs = np.stack([states[row, places].ravel() for row, places in enumerate(batch["entity_positions"])])
    expected = pairs @ params["classifier"]["kernel"] + params["classifier"]["bias"]
    np.testing.assert_allclose(outputs("relation", batch), expected, atol=1e-5)


def test_texts_are_ranked_by_the_unit_vectors_of_their_mean_states() -> None:
    _, params = make("in_batch_ranking")
    batch = make_batch("in_batch_ranking")
    texts = {name: batch[name].reshape(-1, LENGTH) for name in ("input_ids", "input_mask", "segment_ids")}
    encode = jax.jit(functools.partial(Encoder(MODEL).apply, deterministic=True))
    states = np.asarray(encode({"params": params["encoder"]}, texts))
    means = [row[mask > 0].mean(0) for row, mask in zip(states, texts["input_mask"], strict=True)]
    expected = [mean / np.linalg.norm(mean) for mean in means]
    found = outputs("in_batch_ranking", batch)
    np.testing.assert_allclose(found.reshape(-1, found.shape[-1]), expected, rtol=1e-4, atol=1e-6)


def test_a_right_answer_is_no_negative_wherever_it_stands() -> None:
    vectors = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    # Row 1 has the positive of row 0, row 2 the query of row 0, and row 3 has its positive as the negative:
    # so texts 1 and 5 are right for the query of rows 0 and 2.
    numbers = np.array([[0, 1, 2], [3, 1, 4], [0, 5, 6], [7, 8, 1]], np.int32)
    wrong = np.ones((4, 8), bool)  # positives, then negatives
    wrong[0, [1, 2, 7]] = wrong[1, [0, 7]] = wrong[2, [0, 1, 7]] = False
    scores = 20 * vectors[:, 0] @ np.concatenate([vectors[:, 1], vectors[:, 2]]).T
    expected = cross_entropy(np.where(wrong, scores, -1e9), np.arange(4)).sum()
    batch = {**make_batch("in_batch_ranking"), "text_numbers": numbers}
    task = HEADS["in_batch_ranking"](FineTuningConfig(model=MODEL, num_labels=LABELS))
    np.testing.assert_allclose(task.numerators(vectors, batch)["loss"], expected, rtol=1e-5)


@pytest.mark.parametrize("attention", ["causal", "anticausal"])
def test_models_of_one_direction_are_pooled_where_they_have_read_all(attention: Attention) -> None:
    model = dataclasses.replace(MODEL, attention=attention)
    task = HEADS["classification"](FineTuningConfig(model=model, num_labels=LABELS))
    params = draw_head(task)
    predict = jax.jit(functools.partial(predict_step, task=task))
    batch, rows = make_batch("classification"), np.arange(ROWS)
    last = batch["input_mask"].sum(-1) - 1
    for place in (np.ones_like(last), last):
        other = {**batch, "input_ids": batch["input_ids"].copy()}
        other["input_ids"][rows, place] -= 1
        changed = np.abs(predict(params, batch) - predict(params, other)).max(axis=-1)
        assert (changed > 1e-4).all()


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_head_that_is_tested(name: str) -> None:
    head = TASKS[name].settings().head(name, FineTuningConfig(model=MODEL))
    assert head.kind in {make(FineTuningConfig(model=MODEL)).kind for make in HEADS.values()}


def test_accuracy_of_words_is_in_percent_in_training_rows_as_in_others() -> None:
    head = tagging.Settings(scheme="none").head("tag", FineTuningConfig(model=MODEL, num_labels=LABELS))
    assert head.means({"loss": 4.0, "correct": 3.0, "targets": 4.0})["accuracy"] == 75
    assert score_words([["A", "B", "A", "A"]], [["A", "B", "A", "B"]])["accuracy"] == 75


def test_a_padding_row_is_no_negative() -> None:
    vectors = np.random.default_rng(0).normal(0, 0.1, (4, 3, 5)).astype(np.float32)
    task = HEADS["in_batch_ranking"](FineTuningConfig(model=MODEL, num_labels=LABELS))
    alone = task.numerators(vectors, make_batch("in_batch_ranking"))
    beside = make_batch("in_batch_ranking", padding_rows=2)
    found = task.numerators(np.pad(vectors, ((0, 2), (0, 0), (0, 0))), beside)
    for name in alone:
        np.testing.assert_allclose(found[name], alone[name], rtol=1e-5)


@pytest.mark.parametrize(("end", "right"), [(0, 4), (1, 3)])
def test_a_span_is_right_where_both_its_ends_are(end: int, right: int) -> None:
    batch, rows = make_batch("spans"), np.arange(4)
    outputs = np.zeros((4, 8, 2), np.float32)
    outputs[rows, batch["start_positions"], 0] = 1
    outputs[rows, (batch["end_positions"] + end * (rows == 2)) % 8, 1] = 1
    task = HEADS["spans"](FineTuningConfig(model=MODEL, num_labels=LABELS))
    assert task.numerators(outputs, batch)["correct"] == right
