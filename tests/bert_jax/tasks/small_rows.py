"""A few rows of different lengths for every kind of head."""

import numpy as np

from data_pipeline.tasks.finetuning.rows import Rows
from tests.bert_jax.tiny_model import TINY

LABELS, ROWS = 3, 6
_WIDTHS = {"choice": 3, "in_batch_ranking": 3, "triplet_ranking": 3}


def make_rows(kind: str) -> Rows:
    random = np.random.default_rng(0)
    width = _WIDTHS.get(kind, 1)
    lengths = random.integers(4, 10, ROWS * width)
    if kind == "choice":
        lengths[[2, 8]] = 0  # two rows have one choice fewer
    ids = [random.integers(1, TINY.vocab_size, length).astype(np.int32) for length in lengths]
    targets = {
        "labels": random.integers(0, 2, ROWS).astype(np.int32),
        "values": random.normal(size=ROWS).astype(np.float32),
        "start_positions": random.integers(0, 3, ROWS).astype(np.int32),
        "end_positions": random.integers(0, 4, ROWS).astype(np.int32),
        "entity_positions": random.integers(0, 4, (ROWS, 2)).astype(np.int32),
        "text_numbers": np.arange(3 * ROWS, dtype=np.int32).reshape(ROWS, 3),
    }
    return Rows(
        tokens={
            "input_ids": ids,
            "segment_ids": [(np.arange(len(x)) > 2).astype(np.int32) for x in ids],
            "tag_ids": [np.where(np.arange(len(x)) % 2, x % LABELS, -1).astype(np.int32) for x in ids],
        },
        targets=targets,
        example=np.arange(ROWS, dtype=np.int32),
        sequences_per_row=width,
    )
