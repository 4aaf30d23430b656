"""Makes the folder of a finished `bert-jax finetune` cell with a tiny model, without any training."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.finetuning.config import FeatureConfig, FineTuningConfig, HeadKind
from bert_jax.finetuning.grid_folder import RESULT_FILE
from bert_jax.finetuning.record import FineTuningRecord, write_record
from bert_jax.finetuning.tasks import make_task
from bert_jax.formats.huggingface_tokenizer import TOKENIZER_FILE, make_tokenizer
from bert_jax.training.checkpoints import Checkpoints
from data_pipeline.atomic import write_json
from data_pipeline.vocabulary_file import read_vocabulary
from tests.bert_jax.small_run import make_experiment
from tests.bert_jax.small_run import make_tokenizer as make_small_tokenizer

LAST_LAYER = FeatureConfig()


def make_cell(
    folder: Path,
    kind: HeadKind,
    task: str,
    labels: tuple[str, ...] = (),
    *,
    features: FeatureConfig = LAST_LAYER,
    settings: Mapping[str, Any] | None = None,
    learnt: Mapping[str, Any] | None = None,
) -> tuple[FineTuningConfig, dict]:
    """Fills a folder; returns the configuration and the parameters, of which none is zero.

    Args:
      settings: the task's flags that are not its defaults.
      learnt: what was tuned on the development set.
    """
    folder.mkdir(exist_ok=True)
    make_small_tokenizer("wordpiece", "uncased").save(folder / "tokenizer")
    with (folder / "tokenizer" / "vocab.txt").open("a") as file:
        file.write("$\n#\n")  # which mark the entities of a relation
    tokenizer = make_tokenizer(read_vocabulary(folder / "tokenizer"))
    tokenizer.save(str(folder / TOKENIZER_FILE))
    model = make_experiment("mlm_nsp", tokenizer.get_vocab_size()).model
    config = FineTuningConfig(kind=kind, model=model, num_labels=max(len(labels), 1), features=features)
    module = make_task(config).module
    init = functools.partial(module.init, deterministic=True)
    shapes = jax.eval_shape(init, jax.random.key(0), make_task(config).example_batch())["params"]
    random = np.random.default_rng(1)
    params = jax.tree.map(lambda leaf: random.normal(0.2, 0.2, leaf.shape).astype(np.float32), shapes)
    record = FineTuningRecord(task, config, labels, settings or {}, learnt or {}, trained_from="tiny")
    write_record(folder, record)
    write_json(folder / RESULT_FILE, {})
    checkpoints = Checkpoints(folder, keep=1, say=print)
    checkpoints.save(1, {"params": params})
    checkpoints.close()
    return config, params
