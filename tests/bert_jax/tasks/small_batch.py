"""A small batch for every kind of head."""

import dataclasses

import numpy as np

from tests.bert_jax.tiny_model import TINY

MODEL = dataclasses.replace(TINY, initializer_range=0.5)
LABELS = 3
ROWS, LENGTH = 4, 8


def make_batch(kind: str, rows: int = ROWS, length: int = LENGTH, padding_rows: int = 0) -> dict:
    """The same rows whatever `length` they are padded to, then rows of padding."""
    random = np.random.default_rng(0)
    width = {"choice": (3,), "in_batch_ranking": (3,), "triplet_ranking": (3,)}.get(kind, ())
    lengths = random.integers(4, LENGTH + 1, (rows, *width, 1))
    ids = random.integers(1, MODEL.vocab_size, (rows, *width, LENGTH)).astype(np.int32)
    mask = np.arange(length) < lengths
    wide = np.zeros((rows, *width, length), np.int32)
    wide[..., : min(length, LENGTH)] = ids[..., :length]
    batch = {
        "input_ids": wide * mask,
        "input_mask": mask.astype(np.int32),
        "segment_ids": (np.arange(length) > 2).astype(np.int32) * mask,
        "labels": random.integers(0, LABELS, rows).astype(np.int32),
        "values": random.normal(size=rows).astype(np.float32),
        "start_positions": random.integers(0, 3, rows).astype(np.int32),
        "end_positions": random.integers(0, 4, rows).astype(np.int32),
        "entity_positions": random.integers(0, 4, (rows, 2)).astype(np.int32),
        "text_numbers": np.arange(3 * rows, dtype=np.int32).reshape(rows, 3),
        "tag_ids": np.where((np.arange(length) % 2 == 1) & mask, 2, -1).astype(np.int32),
    }
    return {name: _append_padding(name, x, padding_rows) for name, x in batch.items()}


def _append_padding(name: str, x: np.ndarray, rows: int) -> np.ndarray:
    filler = -1 if name == "tag_ids" else 0
    return np.concatenate([x, np.full((rows, *x.shape[1:]), filler, x.dtype)])
