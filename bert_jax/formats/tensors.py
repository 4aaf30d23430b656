"""Converts parameters between our tree and another format's named tensors, with one table for both ways.

A table pairs the path of each array with its name in the other format; `{}` stands for the layer's
number. The other formats join the heads' axes: a kernel is a matrix, a bias a vector.
"""

import collections
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors import SafetensorError
from safetensors.numpy import save_file

from bert_jax.model_config import ModelConfig
from data_pipeline.errors import UserError

Tensors = Mapping[str, np.ndarray]
ArrayPath = tuple[str, ...]
Layout = Literal["in_out", "out_in"]
"""Order of a kernel's axes: [in, out] in flax and TensorFlow, [out, in] in torch."""

Rows = tuple[tuple[str, str], ...]
"""Paths in our tree, joined by "/", and names in the other format.

`{}` stands for the layer's number, `{>0}` too where the first layer has no such array. A name that ends in
`[i/n]` is the i-th of n blocks of rows, of equal size, in one tensor.
"""

Parts = Mapping[str, Mapping[Any, Rows]]
"""Setting of the encoder -> the choices that a format has -> the rows of their parameters."""

_SHOWN = 3
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""How safetensors ends a message on a failure of the system."""
_BLOCK = re.compile(r"(.+)\[(\d+)/(\d+)\]")


def save_tensors(tensors: Tensors, file: Path, metadata: dict[str, str] | None = None) -> None:
    """Writes a safetensors file. Raises OSError if that fails."""
    try:
        save_file(dict(tensors), file, metadata=metadata)
    except SafetensorError as error:
        number = _OS_ERROR.search(str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(file)) from None


class Entry(NamedTuple):
    """One array: its path in our tree, and its name and layout in the other format."""

    path: ArrayPath
    name: str
    layout: Layout


def expand(table: Rows, num_layers: int) -> list[tuple[ArrayPath, str]]:
    """The pairs of a table, with a pair for each layer where it has `{}`; paths are split at "/"."""
    pairs = []
    for ours, theirs in table:
        first, last = ("{>0}" in ours, num_layers) if "{" in ours else (0, 1)
        for i in range(first, last):
            path, name = (text.replace("{>0}", "{}").format(i) for text in (ours, theirs))
            pairs.append((tuple(path.split("/")), name))
    return pairs


def missing_parts(parts: Parts, model: ModelConfig) -> list[str]:
    """The settings of an encoder that name a part which a format lacks."""
    return [setting for setting, choices in parts.items() if getattr(model, setting) not in choices]


def describe_missing(parts: Parts, model: ModelConfig) -> str:
    """The first part that a format lacks, and which it has instead, for messages; empty if it lacks none."""
    missing = missing_parts(parts, model)
    if not missing:
        return ""
    return f"{missing[0]} {getattr(model, missing[0])}, only {', '.join(map(str, parts[missing[0]]))}"


def rows_of_parts(
    parts: Parts, model: ModelConfig, project: str, family: str = "BERT"
) -> list[tuple[str, str]]:
    """The rows of the parts that an encoder is made of.

    Args:
      parts: of the format.
      model: of the encoder.
      project: whose format it is, for the message.
      family: the project's name for such models, for the message.

    Raises:
      UserError: the format has no such part.
    """
    if missing := describe_missing(parts, model):
        raise UserError(
            f"{project} has no {family} with {missing}; `bert-jax convert --format npz` writes it"
        )
    return [row for setting, choices in parts.items() for row in choices[getattr(model, setting)]]


def to_tensors(params: Mapping[str, Any], entries: Sequence[Entry]) -> dict[str, np.ndarray]:
    """The arrays of `params` under the names and in the layout of another format.

    A part, such as a head, is left out if `params` lacks it entirely, or if no entry names any of it.

    Raises:
      UserError: a part has an array that no entry names, or lacks one that an entry names, so that the
        other project would compute something else.
    """
    arrays = flatten_dict(params)
    parts, named = {entry.path[0] for entry in entries}, {entry.path for entry in entries}
    for path in arrays:
        if path[0] in parts and path not in named:
            raise UserError(f"the format has no place for {'/'.join(path)}, which the model has learned")
    present = {path[0] for path in arrays}
    tensors: dict[str, np.ndarray] = {}
    for entry in (entry for entry in entries if entry.path[0] in present):
        if entry.path not in arrays:
            raise UserError(f"the model has no {'/'.join(entry.path)}, which the format asks for")
        array = np.asarray(arrays[entry.path]).reshape(_joined_shape(entry.path, arrays))
        tensor = np.ascontiguousarray(array.T if entry.layout == "out_in" else array)
        if not np.array_equal(tensors.setdefault(entry.name, tensor), tensor):
            raise UserError(f"the format has one {entry.name} for two different arrays of the model")
    return _join_blocks(tensors)


def from_tensors(
    tensors: Tensors, entries: Sequence[Entry], params: Mapping[str, Any], encoder_prefix: str, source: Path
) -> dict[str, Any]:
    """The inverse of `to_tensors`: nested float32 arrays.

    The encoder must be complete. A head must be either complete or absent.

    Args:
      tensors: arrays by name; those that no entry names are ignored unless they belong to the encoder.
      entries: from a format's table.
      params: the shapes of our arrays, nested as `PretrainedModel.params`.
      encoder_prefix: prefix of the names of the encoder's tensors.
      source: named in the error.

    Raises:
      UserError: tensors are missing, have another shape, are not of floats or have no place in this
        architecture; it names the first few and counts the rest. Or a value is NaN or infinite.
    """
    shapes = flatten_dict(params)
    tensors = _split_blocks(tensors, entries, source)
    parts = {"encoder"} | _parts_in(tensors, entries)
    arrays, faults = {}, []
    for entry in entries:
        if entry.path[0] not in parts:
            continue
        shape = _joined_shape(entry.path, shapes)
        expected = shape[::-1] if entry.layout == "out_in" else shape
        if entry.name not in tensors:
            faults.append(f"{entry.name} is missing")
        elif tensors[entry.name].shape != expected:
            faults.append(f"{entry.name} is {list(tensors[entry.name].shape)} instead of {list(expected)}")
        elif not jax.dtypes.issubdtype(tensors[entry.name].dtype, np.floating):
            faults.append(f"{entry.name} is {tensors[entry.name].dtype} instead of float")
        else:
            tensor = tensors[entry.name].astype(np.float32)
            array = tensor.T if entry.layout == "out_in" else tensor
            arrays[entry.path] = np.ascontiguousarray(array.reshape(shapes[entry.path].shape))
    strangers = set(tensors) - {entry.name for entry in entries}
    faults += [f"{name} has no place in it" for name in sorted(strangers) if name.startswith(encoder_prefix)]
    if faults:
        more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise UserError(
            f"{source} holds another model than its configuration describes: "
            f"{'; '.join(faults[:_SHOWN])}{more}"
        )
    for entry in entries:
        if entry.path in arrays and not np.isfinite(arrays[entry.path]).all():
            raise UserError(f"{source}: {entry.name} holds NaN or infinity; weights must be finite")
    return unflatten_dict(arrays)


def _parts_in(tensors: Tensors, entries: Sequence[Entry]) -> set[str]:
    """The parts of which all tensors are there, or one that no other part has."""
    names: dict[str, set[str]] = {}
    for entry in entries:
        names.setdefault(entry.path[0], set()).add(entry.name)
    uses = collections.Counter(name for of_part in names.values() for name in of_part)
    return {
        part
        for part, of_part in names.items()
        if of_part <= tensors.keys() or any(uses[name] == 1 for name in of_part & tensors.keys())
    }


def left_out(tensors: Tensors, entries: Sequence[Entry]) -> tuple[str, ...]:
    """Names of the tensors that no entry names, mostly those of other heads."""
    return tuple(sorted(set(tensors) - {_BLOCK.sub(r"\1", entry.name) for entry in entries}))


def _split_blocks(tensors: Tensors, entries: Sequence[Entry], source: Path) -> dict[str, np.ndarray]:
    """The tensors with each block of rows that has an entry as one of its own.

    Raises UserError, which names `source`, if the rows of a tensor do not make up equal blocks.
    """
    split = dict(tensors)
    for name in (entry.name for entry in entries):
        if (block := _BLOCK.fullmatch(name)) and block[1] in tensors:
            whole, count = tensors[block[1]], int(block[3])
            if not whole.ndim or len(whole) % count:
                raise UserError(
                    f"{source} holds {block[1]} of the shape {list(whole.shape)}; its rows must be {count} "
                    "blocks of equal size"
                )
            size = len(whole) // count
            split[name] = whole[size * int(block[2]) :][:size]
            split.pop(block[1], None)
    return split


def _join_blocks(tensors: Tensors) -> dict[str, np.ndarray]:
    """The inverse of `_split_blocks`."""
    joined: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():  # blocks come in order
        block = _BLOCK.fullmatch(name)
        whole = block[1] if block else name
        joined[whole] = np.concatenate([joined[whole], tensor]) if whole in joined else tensor
    return joined


def _joined_shape(path: ArrayPath, arrays: Mapping[ArrayPath, Any]) -> tuple[int, ...]:
    """Shape of an array with the heads' axes joined; a kernel is [in, out]."""
    shape = arrays[path].shape
    if path[-1] == "kernel":
        # Attention's output layer alone has the heads among its inputs.
        num_inputs = 2 if path[-3:-1] == ("attention", "output") else 1
        return (math.prod(shape[:num_inputs]), math.prod(shape[num_inputs:]))
    return (math.prod(shape),) if path[-1] == "bias" else shape
