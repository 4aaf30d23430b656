"""Every part that the settings of the encoder name has its row in each table that has to know of it."""

import dataclasses
import typing

import pytest

from bert_jax import config
from bert_jax.config import MODEL_PARTS, ModelConfig
from bert_jax.formats import google_tf1, huggingface
from bert_jax.model import positions, size
from data_pipeline.errors import UserError


@pytest.mark.parametrize(
    ("choices", "table"),
    [
        (config.Positions, positions.POSITIONS),
        (config.Positions, size._POSITION_ROWS),
        (config.FeedForward, size._FEED_FORWARD_KERNELS),
        (config.Normalization, size._NORMALIZATION_VECTORS),
    ],
)
def test_a_table_has_a_row_for_every_choice(choices: typing.Any, table: typing.Mapping) -> None:
    assert set(table) == set(typing.get_args(choices))


@pytest.mark.parametrize("entries", [huggingface.entries, google_tf1.entries])
@pytest.mark.parametrize("part", MODEL_PARTS)
def test_a_part_that_a_format_lacks_is_refused_by_name(entries: typing.Callable, part: str) -> None:
    with pytest.raises(UserError, match=f"has no BERT with {part} other, only .*; write --format npz"):
        entries(dataclasses.replace(ModelConfig(), **{part: "other"}))
