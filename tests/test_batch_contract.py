"""What `data_pipeline` puts into a batch is what `bert_jax` compiles later phases for, ahead of any batch."""

import numpy as np
import pytest

from bert_jax.pretraining.task import abstract_batch
from data_pipeline.batches import batch_features
from data_pipeline.config import Phase


@pytest.mark.parametrize("instances", [1, 3])
def test_both_sides_name_the_same_keys_shapes_and_types(instances: int) -> None:
    phase = Phase(max_seq_length=32, max_predictions_per_seq=5)
    made = {
        name: ((4, *shape), np.dtype(dtype.as_numpy_dtype))
        for name, (shape, dtype) in batch_features(phase, instances).items()
    }
    expected = abstract_batch(phase, rows=4, instances=instances)
    assert made == {name: (array.shape, array.dtype) for name, array in expected.items()}
