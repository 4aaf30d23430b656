"""The arrays of a pretraining batch, as the data pipeline makes them and the model reads them.

Names and meanings as in google-research/bert. This module needs the standard library alone, so that both
sides can read it.
"""

from typing import NamedTuple

from data_pipeline.config import Phase

COLUMN_KEYS = ("input_ids", "input_mask", "segment_ids")
"""Arrays with a value for each position of a row."""

SLOT_KEYS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
"""Arrays with a value for each prediction that a row has space for."""

RECORD_KEYS = (*COLUMN_KEYS, *SLOT_KEYS, "next_sentence_labels")
"""The arrays that google-research/bert's TFRecords hold."""

INSTANCE_STARTS = "instance_starts"
"""The array that packed rows alone have: the column of each instance's [CLS]."""


class ArraySpec(NamedTuple):
    """Shape of one row's part of an array, and the array's dtype by numpy's name."""

    shape: tuple[int, ...]
    dtype: str


def batch_spec(phase: Phase, max_instances_per_row: int) -> dict[str, ArraySpec]:
    """The keys of a batch in their order.

    Of packed rows, which hold up to `max_instances_per_row` above 1, `next_sentence_labels` has a value for
    each instance, and so has one further key, `instance_starts`, the column of the instance's [CLS].
    """
    instances = (max_instances_per_row,) if max_instances_per_row > 1 else ()
    starts = {INSTANCE_STARTS: ArraySpec(instances, "int32")} if instances else {}
    return {
        **dict.fromkeys(COLUMN_KEYS, ArraySpec((phase.max_seq_length,), "int32")),
        **dict.fromkeys(SLOT_KEYS, ArraySpec((phase.max_predictions_per_seq,), "int32")),
        "masked_lm_weights": ArraySpec((phase.max_predictions_per_seq,), "float32"),
        "next_sentence_labels": ArraySpec(instances, "int32"),
        **starts,
    }
