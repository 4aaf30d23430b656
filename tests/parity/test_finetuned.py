"""Fine-tuned models in transformers: the same outputs from its own task classes."""

from pathlib import Path

import numpy as np
import pytest

from bert_jax.finetuning_config import FeatureConfig
from bert_jax.formats.convert import convert
from bert_jax.training.train_step import predict_step
from data_pipeline.errors import UserError
from tests.bert_jax.small_finetuned import make_trial
from tests.bert_jax.tasks.heads import HEADS
from tests.bert_jax.tasks.small_batch import make_batch

pytestmark = pytest.mark.parity

LABELS = ("alpha", "beta", "gamma")
CLASSES: dict[str, str] = {
    "classification": "BertForSequenceClassification",
    "regression": "BertForSequenceClassification",
    "choice": "BertForMultipleChoice",
    "tagging": "BertForTokenClassification",
    "spans": "BertForQuestionAnswering",
}


@pytest.mark.parametrize("kind", CLASSES)
def test_the_task_classes_give_the_same_outputs(tmp_path: Path, kind: str) -> None:
    import torch
    import transformers

    labels = LABELS if kind in ("classification", "tagging") else ()
    config, params = make_trial(tmp_path, kind, str(kind), labels)
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
    ours = np.asarray(predict_step(params, batch, task=HEADS[kind](config)))
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
    tmp_path: Path, kind: str, features: FeatureConfig
) -> None:
    make_trial(tmp_path, kind, str(kind), features=features)
    with pytest.raises(UserError, match=r"fine-tuned with --features\.\*"):
        convert(tmp_path, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()
