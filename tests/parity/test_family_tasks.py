"""Fine-tuned models of each family in transformers' own task classes, and training beside transformers."""

import functools
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.finetuning_config import FineTuningConfig
from bert_jax.formats import huggingface
from bert_jax.formats.pretrained import PretrainedModel, TaskHead
from bert_jax.training.train_step import predict_step
from tests.bert_jax.formats.family_directories import ENCODERS, small_config, tokenizer_of
from tests.bert_jax.tasks.heads import HEADS
from tests.parity.test_convert import load
from tests.parity.test_finetuned import CLASSES

pytestmark = pytest.mark.parity

LABELS = ("alpha", "beta", "gamma")
LENGTH = 12


def fine_tuned(model_type: str, kind: str) -> tuple[PretrainedModel, FineTuningConfig, dict]:
    """A model of random parameters with the head of a task."""
    labels = LABELS if kind in ("classification", "tagging") else ()
    model = small_config(model_type)
    config = FineTuningConfig(model=model, num_labels=max(len(labels), 1))
    head, random = HEADS[kind](config), np.random.default_rng(1)
    init = functools.partial(head.module.init, deterministic=True)
    shapes = jax.eval_shape(init, jax.random.key(0), head.example_batch())["params"]
    params = jax.tree.map(lambda leaf: random.normal(0.1, 0.3, leaf.shape).astype(np.float32), shapes)
    new = {"classifier": params["classifier"]}
    model = PretrainedModel(
        name="small",
        config=model,
        params={part: params[part] for part in params if part != "classifier"},
        tokenizer=tokenizer_of(model_type),
        vocabulary=None,
        family=model_type,
        facts={"task": kind},
        head=TaskHead(head.kind, labels, new, config.features, head.exports_as),
    )
    return model, config, params


def make_batch(kind: str, vocab_size: int, segments: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shape = (3, 2, LENGTH) if kind == "choice" else (3, LENGTH)
    mask = (np.arange(LENGTH) < random.integers(4, LENGTH + 1, (*shape[:-1], 1))).astype(np.int32)
    ids = random.integers(5, vocab_size - 10, shape, dtype=np.int32)
    segment_ids = (np.arange(LENGTH) > 2) * mask * (segments > 1)
    return {"input_ids": ids, "input_mask": mask, "segment_ids": segment_ids.astype(np.int32)}


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("model_type", ENCODERS)
def test_the_task_classes_give_the_same_outputs(tmp_path: Path, model_type: str, kind: str) -> None:
    import torch

    model, config, params = fine_tuned(model_type, kind)
    huggingface.write(tmp_path, model)
    theirs = load(huggingface.transformers_class(model), tmp_path)
    batch = make_batch(kind, config.model.vocab_size, config.model.type_vocab_size)
    inputs = {
        "input_ids": torch.tensor(
            np.where(batch["input_mask"] > 0, batch["input_ids"], theirs.config.pad_token_id)
        ),
        "attention_mask": torch.tensor(batch["input_mask"]),
    }
    if config.model.type_vocab_size:
        inputs["token_type_ids"] = torch.tensor(batch["segment_ids"])
    with torch.no_grad():
        found = theirs(**{name: tensor.long() for name, tensor in inputs.items()})
    ours = np.asarray(predict_step(params, batch, task=HEADS[kind](config)))
    real = batch["input_mask"] > 0
    if kind == "spans":
        np.testing.assert_allclose(ours[real][:, 0], found.start_logits.numpy()[real], atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(ours[real][:, 1], found.end_logits.numpy()[real], atol=1e-5, rtol=1e-5)
        return
    chosen = real if kind == "tagging" else slice(None)
    np.testing.assert_allclose(ours[chosen], found.logits.numpy()[chosen], atol=1e-5, rtol=1e-5)
    if kind in ("classification", "tagging"):
        assert theirs.config.id2label == dict(enumerate(LABELS))
