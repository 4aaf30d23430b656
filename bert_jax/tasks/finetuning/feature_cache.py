"""The features of a frozen encoder, computed once for a data set and kept on disk while a grid trains on it.

All trials of a grid, and all epochs, read them from there. A file is whole or absent; it is named by what it
depends on: the rows, the model's parameters and settings, and the layers.
"""

import contextlib
import functools
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model.encoder import make_encoder
from bert_jax.model_config import ModelConfig
from bert_jax.task import Batch
from bert_jax.tasks.finetuning.head import sequences_of
from data_pipeline.atomic import atomically
from data_pipeline.tasks.finetuning.batches import evaluation_batches, lengths_up_to
from data_pipeline.tasks.finetuning.rows import FEATURES, Rows

DIRECTORY = "features"
_TOKENS_IN_A_BATCH = 4096
# Of the free space, so that checkpoints and predictions find some too.
_MOST_OF_THE_DISK = 0.5


class FeatureCache:
    """The features of all rows that one model is asked for."""

    def __init__(
        self,
        directory: Path,
        encoder: Mapping[str, Any],
        fingerprint: str,
        config: ModelConfig,
        layers: tuple[int, ...],
        alone: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        """
        Args:
          directory: of the grid; it need not exist yet.
          encoder: parameters of the frozen encoder.
          fingerprint: of the model that it belongs to.
          config: its settings in this grid, such as the dtype.
          layers: those that the head sees.
          alone: keeps other processes of the grid out of a block, so that one computes them for all.
        """
        self.directory = directory / DIRECTORY
        self._encoder = encoder
        self._config = config
        self._layers = tuple(layer % (config.num_layers + 1) for layer in layers)
        self._identity = (fingerprint, self._layers, asdict(config))
        self._alone = alone
        self._known: dict[str, Rows] = {}

    def __call__(
        self, rows: Rows, layer: int | None = None, after_batch: Callable[[], None] = lambda: None
    ) -> Rows:
        """The rows with the features of every token, or as they are if the disk has no space for them.

        Args:
          rows: of one split.
          layer: the one of the layers, counted from 0, whose features they get; None: all of them.
          after_batch: called after each batch that is computed; what it raises ends that, without a file.
        """
        if not len(rows):
            return rows
        name = _inputs(rows).fingerprint(self._identity)[:32]
        if name not in self._known:
            with self._alone():
                self._known[name] = self._with_features(rows, self.directory / f"{name}.bin", after_batch)
        found = self._known[name]
        return found if layer is None else self._of_layer(found, layer)

    def _of_layer(self, rows: Rows, layer: int) -> Rows:
        if FEATURES not in rows.tokens:
            return rows
        place = self._layers.index(layer)
        features = [of_row[:, place : place + 1] for of_row in rows.tokens[FEATURES]]
        return replace(rows, tokens={**rows.tokens, FEATURES: features})

    def clear(self) -> None:
        """Removes what is on disk."""
        self._known.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _with_features(self, rows: Rows, file: Path, after_batch: Callable[[], None]) -> Rows:
        sizes = np.array([len(ids) for ids in rows.tokens["input_ids"]])
        dtype = np.dtype(jnp.dtype(self._config.dtype))
        shape = (int(sizes.sum()), len(self._layers), self._config.hidden_size)
        if not file.exists():
            size = math.prod(shape) * dtype.itemsize
            self.directory.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.directory).free
            if size > _MOST_OF_THE_DISK * free:
                print(
                    f"note: the encoder's features would take {size / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB "
                    "are free; every step computes them anew",
                    flush=True,
                )
                return rows
            print(
                f"computing the encoder's features of {len(rows):,} rows once, {size / 1e9:,.2f} GB",
                flush=True,
            )
            with atomically(file) as partial:
                self._compute(rows, sizes, np.memmap(partial, dtype, "w+", shape=shape), after_batch)
        ends = np.cumsum(sizes)
        features = np.memmap(file, dtype, "r", shape=shape)
        of_rows = [features[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        return replace(rows, tokens={**rows.tokens, FEATURES: of_rows})

    def _compute(
        self, rows: Rows, sizes: np.ndarray, features: np.ndarray, after_batch: Callable[[], None]
    ) -> None:
        """Fills `features` [tokens, L, D]."""
        encoder = jax.device_put(self._encoder)
        starts, width = np.cumsum(sizes) - sizes, rows.sequences_per_row
        longest = int(sizes.max())
        batch_size = max(_TOKENS_IN_A_BATCH // (width * longest), 1)
        for batch in evaluation_batches(_inputs(rows), batch_size, lengths_up_to(longest)):
            sequences, count = sequences_of(cast(Batch, batch))
            states = np.asarray(_forward(self._config, self._layers, encoder, sequences))
            for line, row in enumerate(np.repeat(batch["row"], count)):
                if row >= 0:
                    sequence = row * width + line % count
                    size = sizes[sequence]
                    features[starts[sequence] : starts[sequence] + size] = states[line, :size]
            after_batch()


def _inputs(rows: Rows) -> Rows:
    """The rows with what the encoder reads alone."""
    tokens = {name: rows.tokens[name] for name in ("input_ids", "segment_ids")}
    return replace(rows, tokens=tokens, targets={})


@functools.partial(jax.jit, static_argnums=(0, 1))
def _forward(
    config: ModelConfig, layers: tuple[int, ...], encoder: Mapping[str, Any], batch: Batch
) -> jax.Array:
    """Some layers of an encoder, [B, T, L, D] in `config.dtype`."""
    states: Any = make_encoder(config).apply(
        {"params": encoder}, batch, deterministic=True, method="hidden_states"
    )
    return jnp.stack([states[layer] for layer in layers], axis=2)
