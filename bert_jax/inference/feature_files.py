"""Writes the hidden states of a file's texts to another file, for training feature-based models.

The paper's Table 7 trains a small model on such vectors, taken from a BERT that is not fine-tuned.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bert_jax.inference.bert import Bert, Encoded, Text
from bert_jax.names import Pooling
from data_pipeline.atomic import atomically
from data_pipeline.directories import check_new_file
from data_pipeline.errors import UserError

Part = tuple[list[list[str]], dict[str, list[np.ndarray]]]
"""Tokens of some texts, and for each layer their vectors: [D] each, or [T, D] with pooling none."""


def write_features(
    model: Bert, source: Path, layers: Sequence[int], pooling: Pooling, output: Path
) -> Counter[str]:
    """Writes the hidden states of some layers for each line of a text file.

    A `.parquet` file is written as the texts are read. It has a row for each text: `tokens`, and
    for each layer `layer_N`, a vector, or with pooling none a list with a vector for each token.

    A `.npz` file is collected in memory. `layer_N` is float32 [texts, D]. With pooling none it is
    float32 [tokens of all texts, D], with `tokens` and `offsets` beside it: the rows of text i are
    `offsets[i]` to `offsets[i + 1]` - 1.

    Args:
      model: the model to apply.
      source: UTF-8 file with one text per line; a tab separates the segments A and B.
      layers: 0 for the embedding output, i for layer i, -1 for the last layer.
      pooling: none; mean over a text's tokens, including [CLS] and [SEP]; cls, the vector of [CLS].
      output: file to make, in an existing directory; one that `check_output` accepts.

    Returns:
      Numbers of `texts`, and of those `cut` to the model's positions.

    Raises:
      UserError: a layer does not exist; `source` is empty or has a line that is not a text.
    """
    counts: Counter[str] = Counter()
    with atomically(output) as partial, source.open("rb") as texts, partial.open("wb") as file:
        parts = model.encode_parts(_read_texts(texts, source), ("hidden_states",), layers)
        _WRITERS[output.suffix](file, _pooled(parts, layers, pooling, counts), pooling)
    return counts


def check_output(output: Path) -> None:
    """Raises UserError if `write_features` cannot write there: it exists, or has another suffix."""
    check_new_file(output)
    if output.suffix not in _WRITERS:
        raise UserError(f"{output} must end in {' or '.join(_WRITERS)}, which decides the format")


def _pooled(
    parts: Iterator[Encoded], layers: Sequence[int], pooling: Pooling, counts: Counter[str]
) -> Iterator[Part]:
    for part in parts:
        counts.update(texts=len(part.tokens), cut=part.cut)
        states = part.hidden_states or []
        vectors = {f"layer_{n}": [_pool(text[i], pooling) for text in states] for i, n in enumerate(layers)}
        yield part.tokens, vectors


def _pool(x_TD: np.ndarray, pooling: Pooling) -> np.ndarray:
    if pooling == "none":
        return x_TD
    return x_TD.mean(axis=0) if pooling == "mean" else x_TD[0]


def _read_texts(lines: Iterable[bytes], source: Path) -> Iterator[Text]:
    empty = True
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8").removeprefix("\ufeff" if number == 1 else "")
        except UnicodeDecodeError:
            raise UserError(f"line {number} of {source} is not UTF-8") from None
        parts = text.rstrip("\r\n").split("\t")
        if len(parts) > 2:
            raise UserError(f"line {number} of {source} has {len(parts) - 1} tabs; one separates A from B")
        yield parts[0] if len(parts) == 1 else (parts[0], parts[1])
        empty = False
    if empty:
        raise UserError(f"{source} is empty; it must hold one text per line")


def _write_npz(file: BinaryIO, parts: Iterator[Part], pooling: Pooling) -> None:
    texts: list[list[str]] = []
    layers: dict[str, list[np.ndarray]] = defaultdict(list)
    for tokens, vectors in parts:
        texts += tokens
        for name, rows in vectors.items():
            layers[name] += rows
    join = np.concatenate if pooling == "none" else np.stack
    arrays = {name: join(rows) for name, rows in layers.items()}
    if pooling == "none":
        arrays["tokens"] = np.array([token for tokens in texts for token in tokens])
        arrays["offsets"] = np.cumsum([0, *map(len, texts)])
    np.savez(file, allow_pickle=False, **arrays)


def _write_parquet(file: BinaryIO, parts: Iterator[Part], pooling: Pooling) -> None:
    with contextlib.ExitStack() as stack:
        writer = None
        for tokens, vectors in parts:
            columns = {name: _column(rows, pooling) for name, rows in vectors.items()}
            table = pa.table({"tokens": tokens, **columns})
            writer = writer or stack.enter_context(pq.ParquetWriter(file, table.schema))
            writer.write_table(table)


def _column(rows: list[np.ndarray], pooling: Pooling) -> Any:
    """An Arrow column of vectors [D], or with pooling none of lists of such vectors."""
    flat = np.concatenate(rows, axis=None)
    vectors = pa.FixedSizeListArray.from_arrays(flat, rows[0].shape[-1])
    if pooling != "none":
        return vectors
    return pa.ListArray.from_arrays(np.cumsum([0, *map(len, rows)], dtype=np.int32), vectors)


_WRITERS = {".npz": _write_npz, ".parquet": _write_parquet}
