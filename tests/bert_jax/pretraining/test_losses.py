"""Sums of losses and hits: what counts, what does not, and that sums of parts are sums of the whole."""

import jax
import numpy as np
import pytest

from bert_jax.objectives import OBJECTIVES

VOCABULARY = 11
MLM_NSP = OBJECTIVES["mlm_nsp"]()


def make_case(objective: str) -> tuple[tuple[np.ndarray, np.ndarray], dict[str, np.ndarray]]:
    """Random logits and a batch whose last row is padding."""
    random = np.random.default_rng(1)
    mask = (np.arange(6) < np.array([6, 4, 5, 0])[:, None]).astype(np.int32)
    weights = (np.arange(3) < np.array([3, 1, 2, 0])[:, None]).astype(np.float32)
    batch = {
        "input_ids": random.integers(0, VOCABULARY, mask.shape, dtype=np.int32),
        "input_mask": mask,
        "masked_lm_ids": random.integers(0, VOCABULARY, weights.shape, dtype=np.int32),
        "masked_lm_weights": weights,
        "next_sentence_labels": np.array([0, 1, 1, 1], np.int32),
    }
    predicted = (4, 5) if objective == "ltr" else weights.shape
    logits = random.normal(size=(*predicted, VOCABULARY)) * 3, random.normal(size=(4, 2)) * 3
    return tuple(x.astype(np.float32) for x in logits), batch


def negative_log_likelihood(logits: np.ndarray, target: int) -> float:
    logits = logits.astype(np.float64)
    return float(np.log(np.exp(logits - logits[target]).sum()))


def by_hand(
    logits: tuple[np.ndarray, np.ndarray], batch: dict[str, np.ndarray], objective: str
) -> dict[str, float]:
    """The same sums, computed by a loop over the predictions."""
    kind = "lm" if objective == "ltr" else "mlm"
    names = (f"{kind}_loss", f"{kind}_correct", f"{kind}_weight", "nsp_loss", "nsp_correct", "examples")
    sums = dict.fromkeys(names, 0.0)
    for row in range(3):
        length = int(batch["input_mask"][row].sum())
        if objective == "ltr":
            targets = batch["input_ids"][row, 1:length]
        else:
            targets = batch["masked_lm_ids"][row, : int(batch["masked_lm_weights"][row].sum())]
        for slot, target in enumerate(targets):
            sums[f"{kind}_loss"] += negative_log_likelihood(logits[0][row, slot], target)
            sums[f"{kind}_correct"] += logits[0][row, slot].argmax() == target
            sums[f"{kind}_weight"] += 1
        label = batch["next_sentence_labels"][row]
        sums["nsp_loss"] += negative_log_likelihood(logits[1][row], label)
        sums["nsp_correct"] += logits[1][row].argmax() == label
        sums["examples"] += 1
    return {**sums, "tokens": float(batch["input_mask"].sum())}


@pytest.mark.parametrize("objective", ["mlm_nsp", "mlm_sop", "mlm", "ltr"])
def test_sums_count_real_predictions_only(objective: str) -> None:
    learns = OBJECTIVES[objective]()
    logits, batch = make_case(objective)
    totals = learns.denominators(batch)
    sums = {**learns.numerators(logits, batch), **totals}
    expected = by_hand(logits, batch, objective)
    if objective == "mlm_sop":
        expected = {name.replace("nsp_", "sop_"): value for name, value in expected.items()}
    elif objective != "mlm_nsp":
        expected = {name: value for name, value in expected.items() if not name.startswith("nsp_")}
    assert sums.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(sums[name], value, rtol=1e-5, err_msg=name)

    kind = "lm" if objective == "ltr" else "mlm"
    loss = expected[f"{kind}_loss"] / (expected[f"{kind}_weight"] + 1e-5)
    if objective.startswith("mlm_"):
        loss += expected[f"{objective.removeprefix('mlm_')}_loss"] / 3
    np.testing.assert_allclose(learns.loss(sums, totals), loss, rtol=1e-5)


def test_parts_of_a_batch_add_up_to_its_loss() -> None:
    logits, batch = make_case("mlm_nsp")
    totals = MLM_NSP.denominators(batch)
    whole = MLM_NSP.loss(MLM_NSP.numerators(logits, batch), totals)
    parts = []
    for rows in (slice(0, 1), slice(1, 4)):
        part = jax.tree.map(lambda x, rows=rows: x[rows], (logits, batch))
        parts.append(MLM_NSP.loss(MLM_NSP.numerators(*part), totals))
    np.testing.assert_allclose(sum(parts), whole, rtol=1e-6)


def test_a_batch_without_predictions_has_a_finite_loss() -> None:
    logits, batch = make_case("mlm_nsp")
    empty = {name: np.zeros_like(value) for name, value in batch.items()}
    totals = MLM_NSP.denominators(empty)
    assert float(MLM_NSP.loss(MLM_NSP.numerators(logits, empty), totals)) == 0
