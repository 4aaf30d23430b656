"""What a batch was before its tokens were masked."""

from collections.abc import Mapping

import numpy as np


def unmasked_ids(batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """The `input_ids` of a batch with the labels of its predictions in place of what masked them."""
    ids = batch["input_ids"].copy()
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    ids[rows, batch["masked_lm_positions"][rows, slots]] = batch["masked_lm_ids"][rows, slots]
    return ids
