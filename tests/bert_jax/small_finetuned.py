"""Makes the directory of a finished `bert-jax finetune` trial with a tiny model, without any training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.finetuning_config import FeatureConfig, FineTuningConfig
from bert_jax.formats.huggingface_tokenizer import TOKENIZER_FILE, make_tokenizer
from bert_jax.retention import Kept
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.workdir.finetuning import FineTuningRecord, write_record
from bert_jax.workdir.grid import RESULT_FILE
from data_pipeline.atomic import write_json
from data_pipeline.corpus.vocabulary_file import read_vocabulary
from tests.bert_jax.small_run import make_experiment
from tests.bert_jax.small_run import make_tokenizer as make_small_tokenizer
from tests.bert_jax.tasks.heads import HEADS

LAST_LAYER = FeatureConfig()


def make_trial(
    directory: Path,
    kind: str,
    task: str,
    labels: tuple[str, ...] = (),
    *,
    features: FeatureConfig = LAST_LAYER,
    settings: Mapping[str, Any] | None = None,
    learnt: Mapping[str, Any] | None = None,
) -> tuple[FineTuningConfig, dict]:
    """Fills a directory; returns the configuration and the parameters, of which none is zero.

    Args:
      settings: the task's flags that are not its defaults.
      learnt: what was tuned on the development set.
    """
    directory.mkdir(exist_ok=True)
    make_small_tokenizer("wordpiece", "uncased").save(directory / "tokenizer")
    with (directory / "tokenizer" / "vocab.txt").open("a") as file:
        file.write("$\n#\n")  # which mark the entities of a relation
    tokenizer = make_tokenizer(read_vocabulary(directory / "tokenizer"))
    tokenizer.save(str(directory / TOKENIZER_FILE))
    model = make_experiment("mlm_nsp", tokenizer.get_vocab_size()).model
    config = FineTuningConfig(model=model, num_labels=max(len(labels), 1), features=features)
    head = HEADS[kind](config)
    random = np.random.default_rng(1)
    params = jax.tree.map(
        lambda leaf: random.normal(0.2, 0.2, leaf.shape).astype(np.float32), head.abstract_params()
    )
    record = FineTuningRecord(
        task,
        config,
        labels,
        settings or {},
        head.kind,
        head.exports_as,
        learnt or {},
        trained_from="tiny",
    )
    write_record(directory, record)
    write_json(directory / RESULT_FILE, {})
    checkpoints = Checkpoints(directory, Kept(1))
    checkpoints.save(1, {"params": params})
    checkpoints.close()
    return config, params
