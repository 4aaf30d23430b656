"""Fine-tuned models of each family in transformers' own task classes, and training beside transformers."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.config import OptimizerConfig
from bert_jax.cross_entropy import cross_entropy
from bert_jax.finetuning_config import FineTuningConfig
from bert_jax.formats import huggingface
from bert_jax.formats.open_model import open_model
from bert_jax.formats.pretrained import PretrainedModel, TaskHead
from bert_jax.formats.tensors import to_tensors
from bert_jax.inference.fill_mask import logits_at_positions
from bert_jax.model.pretraining import BertForPreTraining
from bert_jax.objectives import MaskedLM
from bert_jax.training.program import make_program
from bert_jax.training.train_step import predict_step
from bert_jax.training.warm_start import start_from
from data_pipeline.tasks.finetuning.batches import training_batches
from data_pipeline.tasks.finetuning.encode import encode_texts, make_task_tokenizer
from tests.bert_jax.formats.family_directories import (
    ENCODERS,
    TEXTS,
    small_config,
    small_model,
    tokenizer_of,
)
from tests.bert_jax.tasks.heads import HEADS
from tests.parity.test_convert import load
from tests.parity.test_finetuned import CLASSES
from tests.parity.test_pretrained import minilm_directory

pytestmark = pytest.mark.parity

LABELS = ("alpha", "beta", "gamma")
LENGTH = 12


def fine_tuned(model_type: str, kind: str) -> tuple[PretrainedModel, FineTuningConfig, dict]:
    """A model of random parameters with the head of a task."""
    labels = LABELS if kind in ("classification", "tagging") else ()
    model = small_config(model_type)
    config = FineTuningConfig(model=model, num_labels=max(len(labels), 1))
    head, random = HEADS[kind](config), np.random.default_rng(1)
    params = jax.tree.map(
        lambda leaf: random.normal(0.1, 0.3, leaf.shape).astype(np.float32), head.abstract_params()
    )
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


@pytest.mark.parametrize("model_type", ["roberta", "modernbert", "distilbert", "electra", "albert"])
def test_gradients_are_those_of_transformers(tmp_path: Path, model_type: str) -> None:
    import torch

    model = small_model(model_type, MaskedLM(), ("encoder", "language_model"))
    huggingface.write(tmp_path, model)
    theirs = load(huggingface.transformers_class(model), tmp_path)
    batch = make_batch("tagging", model.config.vocab_size, 0)
    labels = np.where(
        np.random.default_rng(3).random(batch["input_mask"].shape) < 0.4, batch["input_ids"], -100
    )
    labels = np.where(batch["input_mask"] > 0, labels, -100)
    pad = theirs.config.pad_token_id
    theirs(
        input_ids=torch.tensor(np.where(batch["input_mask"] > 0, batch["input_ids"], pad)).long(),
        attention_mask=torch.tensor(batch["input_mask"]).long(),
        labels=torch.tensor(labels).long(),
    ).loss.backward()

    columns = np.tile(np.arange(LENGTH, dtype=np.int32), (len(labels), 1))
    module = BertForPreTraining(model.config)

    def loss(params: dict) -> jax.Array:
        inputs = {**batch, "masked_lm_positions": columns}
        logits = module.apply({"params": params}, inputs, method=logits_at_positions)
        losses, _ = cross_entropy(logits, np.maximum(labels, 0))
        return (losses * (labels >= 0)).sum() / (labels >= 0).sum()

    gradients = jax.device_get(jax.jit(jax.grad(loss))(model.params))
    ours = to_tensors(gradients, huggingface.family_of(model).entries(model.config))
    found = {name: parameter.grad.numpy() for name, parameter in theirs.named_parameters()}
    assert set(ours) == set(found)
    for name, gradient in ours.items():
        expected = found[name][-len(gradient) :]  # without rows of the position table that no token reads
        largest = np.abs(expected).max()
        # Small gradients are what is left of larger terms, so that float32 rounds them by up to 1.1e-7 here.
        np.testing.assert_allclose(gradient, expected, atol=1e-4 * largest + 3e-7, rtol=0, err_msg=name)
        assert gradient.ndim == 1 or largest > 2e-6, name  # a key's bias has none


def pretrained_model(name: str, directory: Path) -> PretrainedModel:
    """A model as it is read: a small one of a family with random parameters, or MiniLM, a BERT."""
    if name == "MiniLM":
        return open_model(minilm_directory())
    directory.mkdir()
    huggingface.write(directory, small_model(name, MaskedLM(), ("encoder", "language_model")))
    return open_model(directory)


def without_dropout(model: PretrainedModel) -> PretrainedModel:
    config = dataclasses.replace(model.config, dropout_rate=0.0, attention_dropout_rate=0.0)
    return dataclasses.replace(model, config=config)


@pytest.mark.parametrize(
    ("model_type", "rate"),
    [
        *((name, 5e-3) for name in ("roberta", "modernbert", "distilbert", "electra", "albert")),
        ("MiniLM", 2e-4),
    ],
)
def test_twenty_steps_of_fine_tuning_have_the_losses_of_transformers(
    tmp_path: Path, model_type: str, rate: float
) -> None:
    import torch

    texts = TEXTS * 4
    model = without_dropout(pretrained_model(model_type, tmp_path / "pretrained"))
    labels = np.arange(len(texts), dtype=np.int32) % len(TEXTS) % 3
    rows = encode_texts(make_task_tokenizer(model.tokenizer), texts, 32, {"labels": labels})
    optimizer = OptimizerConfig(learning_rate=rate, bias_correction="adam", epsilon=1e-8)
    config = FineTuningConfig(
        model=model.config, num_labels=3, optimizer=optimizer, num_train_steps=20, global_batch_size=4
    )
    task = HEADS["classification"](config)
    program = make_program(task, config)
    state = start_from(program, model.params)
    begun = jax.device_get(state.params)
    directory = tmp_path / "begun"
    directory.mkdir()
    head = TaskHead(
        "classification", LABELS, {"classifier": begun["classifier"]}, config.features, task.exports_as
    )
    params = {part: begun[part] for part in ("encoder", "pooler")}
    at_step_0 = dataclasses.replace(model, params=params, objective=None, head=head)
    huggingface.write(directory, at_step_0)
    theirs = load(huggingface.transformers_class(at_step_0), directory).train()
    decayed = [parameter for parameter in theirs.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in theirs.parameters() if parameter.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.999), eps=1e-8)

    batches = training_batches(
        rows,
        batch_size=4,
        seed=0,
        first_step=0,
        num_steps=20,
        lengths=(32,),
    )
    losses = []
    for batch in batches:
        state = program.reset_sums(state)
        state = program.train_step(state, program.put(batch), rate)
        mask = torch.tensor(batch["input_mask"]).long()
        ids = torch.tensor(batch["input_ids"]).long().where(mask > 0, theirs.config.pad_token_id)
        outputs = theirs(input_ids=ids, attention_mask=mask, labels=torch.tensor(batch["labels"]).long())
        adamw.zero_grad()
        outputs.loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        adamw.step()
        losses.append((float(state.sums["loss"] / state.sums["targets"]), outputs.loss.item()))
    ours, expected = np.array(losses).T
    assert len(ours) == 20
    np.testing.assert_allclose(ours, expected, atol=1e-4, rtol=0)
    assert ours[-3:].mean() < 0.9 * ours[:3].mean()
