"""What `data_pipeline` puts into a batch is what `bert_jax` compiles for, ahead of any batch."""

from pathlib import Path

import pytest

from bert_jax.model_config import ModelConfig
from bert_jax.objectives import MaskedLMAndNSP
from bert_jax.objectives.task import PretrainingTask
from data_pipeline.config import DataConfig, Phase
from data_pipeline.pretraining.batches import training_batches
from tests.data_pipeline.small_corpus import random_documents, write_corpus

PHASE = Phase(max_seq_length=32, max_predictions_per_seq=5)


@pytest.mark.parametrize("instances", [1, 3])
def test_a_batch_has_the_keys_shapes_and_types_that_are_compiled_for(tmp_path: Path, instances: int) -> None:
    corpus = write_corpus(tmp_path / "corpus", [random_documents(20)])
    data = DataConfig(phases=(PHASE,), max_instances_per_row=instances)
    batches = training_batches(
        str(corpus), data, seed=0, global_batch_size=4, num_train_steps=1, first_step=0
    )
    task = PretrainingTask(MaskedLMAndNSP(), ModelConfig())
    made = {name: (array.shape, array.dtype) for name, array in task.select(next(batches)).items()}
    expected = task.abstract_batch(PHASE, rows=4, max_instances_per_row=instances)
    assert made == {name: (array.shape, array.dtype) for name, array in expected.items()}
