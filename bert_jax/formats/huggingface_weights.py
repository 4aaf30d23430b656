"""Reads the weights of a Hugging Face model: one file, or several with an index; safetensors or torch's."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from data_pipeline.errors import UserError, bad_input
from data_pipeline.json_text import read_object

WEIGHTS_FILE = "model.safetensors"
_TORCH_FILE = "pytorch_model.bin"


def weight_files(directory: Path) -> list[Path]:
    """The files that hold the weights of a model, safetensors rather than torch's; empty if there are none.

    Raises UserError if an index of several files is damaged.
    """
    for name in (WEIGHTS_FILE, _TORCH_FILE):
        if (directory / name).is_file():
            return [directory / name]
        index = directory / f"{name}.index.json"
        if index.is_file():
            files = read_object(index).get("weight_map")
            if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
                raise UserError(f"{index} has no weight_map from tensors to the names of their files")
            return sorted({directory / file for file in files.values()})
    return []


def read_weights(directory: Path) -> dict[str, np.ndarray]:
    """The arrays of a model, by their names.

    Raises:
      UserError: there are no weights; a file is damaged, holds something else than real, dense arrays, or
        needs torch, which is not installed.
      Unfinished: the disk or the network failed.
    """
    files = weight_files(directory)
    if not files:
        looked = ", ".join(f"{name}, {name}.index.json" for name in (WEIGHTS_FILE, _TORCH_FILE))
        raise UserError(f"{directory} has no weights; looked for {looked}")
    tensors: dict[str, np.ndarray] = {}
    for file in files:
        tensors |= _load(file)
    return tensors


def _load(file: Path) -> dict[str, np.ndarray]:
    if file.suffix == ".bin":
        return _load_torch(file)
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise bad_input(error, file, f"{file} cannot be read: {error}") from None
    except (AttributeError, KeyError) as error:  # how the library tells that numpy lacks a dtype
        raise UserError(f"{file} has a dtype that numpy lacks ({error}); save the model in float32") from None


def _load_torch(file: Path) -> dict[str, np.ndarray]:
    try:
        import torch
    except ModuleNotFoundError:
        raise UserError(
            f"{file} is in torch's format and torch is not installed: pip install torch, "
            f"or save the model as {WEIGHTS_FILE}"
        ) from None
    try:
        tensors = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # of many types; torch's own words advise to run the code in the file
        raise bad_input(
            error,
            file,
            f"{file} cannot be read: it was truncated, or is not what torch.save(model.state_dict(), FILE) "
            f"writes; save the model again, best as {WEIGHTS_FILE}",
        ) from None
    if not isinstance(tensors, Mapping):
        raise UserError(f"{file} holds a {type(tensors).__name__}; it must be a model's state_dict")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise UserError(
                f"{file} holds {name!r}, which is no tensor; it must be a model's state_dict alone, as "
                f"torch.save(model.state_dict(), FILE) writes it"
            )
        odd = tensor.is_meta or tensor.is_complex() or tensor.is_quantized or tensor.is_nested
        if odd or tensor.layout is not torch.strided:
            raise UserError(
                f"{file}: {name} is sparse, nested, quantized, complex or without values; "
                f"it must be a dense tensor of real numbers"
            )
    return {
        name: (tensor.float() if tensor.is_floating_point() else tensor).detach().numpy()
        for name, tensor in tensors.items()
    }
