"""What fine-tuning takes over from a pretrained model, and what it refuses."""

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.finetuning_config import FineTuningConfig
from bert_jax.tasks.classify import Classification
from bert_jax.tasks.finetuning.trials import Programs
from bert_jax.training.warm_start import ROWS_OF_TOKENS, start_from
from data_pipeline.errors import UserError
from tests.bert_jax.small_run import random_params
from tests.bert_jax.tasks.small_batch import MODEL

CONFIG = FineTuningConfig(model=MODEL, global_batch_size=4, num_train_steps=10)


@pytest.fixture(scope="module")
def programs() -> Programs:
    return Programs(Classification)


def test_encoder_and_pooler_are_taken_over_and_the_head_is_new(programs: Programs) -> None:
    given = flatten_dict(random_params(MODEL))
    state = start_from(programs.get(CONFIG), unflatten_dict(given))
    ours = flatten_dict(state.params)
    taken = [path for path in ours if path[0] in ("encoder", "pooler")]
    assert len(taken) > 10
    for path in taken:
        np.testing.assert_array_equal(ours[path], given[path])
    assert {path[0] for path in ours} == {"encoder", "pooler", "classifier"}
    assert int(state.step) == 0
    assert not any(np.asarray(x).any() for x in jax.tree.leaves(state.opt_state))


def test_what_does_not_fit_is_named(programs: Programs) -> None:
    given = flatten_dict(random_params(MODEL))
    path = ("encoder", "layer_0", "intermediate", "kernel")
    with pytest.raises(UserError, match=r"layer_0/intermediate/kernel is \[1, 2\]; it must be \[16, 32\]"):
        start_from(programs.get(CONFIG), unflatten_dict({**given, path: np.zeros((1, 2), np.float32)}))
    table = ("encoder", "embeddings", "word_embeddings", "embedding")
    fewer = {**given, table: given[table][:-1]}
    with pytest.raises(UserError, match=r"word_embeddings/embedding is \[31, 16\]; it must be \[32, 16\]"):
        start_from(programs.get(CONFIG), unflatten_dict(fewer))
    for wrong in (np.zeros((33, 16), np.float32), np.zeros((31, 15), np.float32)):
        with pytest.raises(UserError, match=r"; it must be \[32, 16\]"):
            start_from(programs.get(CONFIG), unflatten_dict({**given, table: wrong}), ROWS_OF_TOKENS)
    del given[path]
    with pytest.raises(UserError, match="no encoder/layer_0/intermediate/kernel"):
        start_from(programs.get(CONFIG), unflatten_dict(given))
