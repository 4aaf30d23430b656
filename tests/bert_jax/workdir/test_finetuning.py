"""The record of a fine-tuned model, in its `config.json`."""

from pathlib import Path

from bert_jax.finetuning_config import FeatureConfig, FineTuningConfig, TransformersHead
from bert_jax.workdir.finetuning import FineTuningRecord, read_record, write_record
from bert_jax.workdir.pretraining_identity import Pretraining
from tests.bert_jax.small_run import make_experiment


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    config = FineTuningConfig(model=make_experiment("mlm", 50).model, features=FeatureConfig(combine="sum"))
    record = FineTuningRecord(
        "mine",
        config,
        labels=("a", "b"),
        settings={"columns": ("text", "title"), "max_seq_length": 64, "negative": None},
        exports_as=TransformersHead("BertForSequenceClassification"),
        learnt={"threshold": 0.5},
        packing={"length": 32},
        pretraining=Pretraining("base", 1, 0, 100, "abc"),
        starts=({"devices": "1 x cpu"},),
    )
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
