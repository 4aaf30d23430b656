"""Fine-tuned models in transformers: the same outputs from its own task classes."""

import functools
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.checkpoints import Checkpoints
from bert_jax.convert import convert
from bert_jax.finetuning.config import FineTuning, Kind, make_task
from bert_jax.finetuning.finetuned import TOKENIZER_FILE
from bert_jax.finetuning.record import FineTuningRecord, write_record
from bert_jax.finetuning.settings import FeatureConfig
from bert_jax.formats.huggingface_tokenizer import make_tokenizer
from bert_jax.formats.vocabulary import read_vocabulary
from bert_jax.train_step import predict_step
from data_pipeline.errors import UserError
from tests.bert_jax.finetuning.test_tasks import make_batch
from tests.bert_jax.small_run import make_experiment
from tests.bert_jax.small_run import make_tokenizer as make_small_tokenizer

pytestmark = pytest.mark.parity

LABELS = ("alpha", "beta", "gamma")
LAST_LAYER = FeatureConfig()
CLASSES: dict[Kind, str] = {
    "classification": "BertForSequenceClassification",
    "regression": "BertForSequenceClassification",
    "choice": "BertForMultipleChoice",
    "tagging": "BertForTokenClassification",
    "spans": "BertForQuestionAnswering",
}


def make_folder(folder: Path, kind: Kind, features: FeatureConfig = LAST_LAYER) -> tuple[FineTuning, dict]:
    """A cell as `bert-jax finetune` leaves it, with parameters of which none is zero."""
    small = make_small_tokenizer("wordpiece", "uncased")
    small.save(folder / "tokenizer")
    make_tokenizer(read_vocabulary(folder / "tokenizer")).save(str(folder / TOKENIZER_FILE))
    model = make_experiment("mlm_nsp", small.vocab_size).model
    config = FineTuning(kind=kind, model=model, num_labels=len(LABELS), features=features)
    task = make_task(config)
    init = functools.partial(task.module.init, deterministic=True)
    shapes = jax.eval_shape(init, jax.random.key(0), task.example_batch())["params"]
    random = np.random.default_rng(1)
    params = jax.tree.map(lambda leaf: random.normal(0.2, 0.2, leaf.shape).astype(np.float32), shapes)
    labels = LABELS if kind in ("classification", "tagging") else ()
    write_record(folder, FineTuningRecord(str(kind), config, labels, {}, trained_from="tiny"))
    checkpoints = Checkpoints(folder, keep=1, say=print)
    checkpoints.save(1, {"params": params})
    checkpoints.close()
    return config, params


@pytest.mark.parametrize("kind", CLASSES)
def test_the_task_classes_give_the_same_outputs(tmp_path: Path, kind: Kind) -> None:
    import torch
    import transformers

    config, params = make_folder(tmp_path, kind)
    convert(tmp_path, tmp_path / "exported")
    theirs = getattr(transformers, CLASSES[kind]).from_pretrained(tmp_path / "exported").eval()
    batch = make_batch(kind)
    inputs = {
        "input_ids": torch.tensor(batch["input_ids"]),
        "attention_mask": torch.tensor(batch["input_mask"]),
        "token_type_ids": torch.tensor(batch["segment_ids"]),
    }
    with torch.no_grad():
        found = theirs(**inputs)
    ours = np.asarray(predict_step(params, batch, task=make_task(config)))
    if kind == "spans":
        real = batch["input_mask"] > 0
        np.testing.assert_allclose(ours[real][:, 0], found.start_logits.numpy()[real], atol=1e-5)
        np.testing.assert_allclose(ours[real][:, 1], found.end_logits.numpy()[real], atol=1e-5)
        return
    real = batch["input_mask"] > 0 if kind == "tagging" else slice(None)
    np.testing.assert_allclose(ours[real], found.logits.numpy()[real], atol=1e-5)
    if kind in ("classification", "tagging"):
        assert theirs.config.id2label == dict(enumerate(LABELS))


@pytest.mark.parametrize("kind", ["classification", "tagging", "in_batch_ranking"])
@pytest.mark.parametrize(
    "features", [FeatureConfig(layers=(-2,)), FeatureConfig(lstm_layers=1, lstm_width=4)]
)
def test_heads_that_see_more_than_the_last_layer_are_refused(
    tmp_path: Path, kind: Kind, features: FeatureConfig
) -> None:
    make_folder(tmp_path, kind, features)
    with pytest.raises(UserError, match=r"fine-tuned with --features\.\*"):
        convert(tmp_path, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()
