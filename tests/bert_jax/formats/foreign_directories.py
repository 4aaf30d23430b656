"""Model directories as other projects write them, with the golden weights that transformers computed with."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS
from tests.golden.make_model_golden import GOLDEN, SIZES

PIECES = [*SPECIAL_TOKENS, *(chr(ord("a") + i) for i in range(26)), *(f"##{i}" for i in range(30))]
"""A vocabulary with one piece for each word embedding of the stored model."""


def stored_weights() -> dict[str, np.ndarray]:
    """The parameters of a `BertForPreTraining` of two layers, by transformers' names."""
    with np.load(GOLDEN) as file:
        return {
            name.removeprefix("weights/"): file[name] for name in file.files if name.startswith("weights/")
        }


def write_huggingface(directory: Path, tensors: Mapping[str, np.ndarray], **changes: Any) -> Path:
    """Writes a directory as they were in 2019, with vocab.txt as tokenizer; `changes` go to config.json."""
    directory.mkdir(parents=True)
    save_file(dict(tensors), directory / "model.safetensors", metadata={"format": "pt"})
    config = {"model_type": "bert", **SIZES, "hidden_act": "gelu", "layer_norm_eps": 1e-12, **changes}
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (directory / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return directory


def google_tensors() -> dict[str, np.ndarray]:
    """The stored weights by google-research/bert's names, as its `modeling.py` builds them."""
    return dict(_google(name, array) for name, array in stored_weights().items())


def _google(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    name = name.replace("layer.", "layer_").replace(".", "/")
    if "LayerNorm" in name:
        return name.replace("weight", "gamma").replace("bias", "beta"), array
    if name.endswith("_embeddings/weight"):
        return name.removesuffix("/weight"), array
    if name.startswith("cls/seq_relationship"):
        return name.replace("weight", "output_weights").replace("bias", "output_bias"), array
    if name == "cls/predictions/bias":
        return "cls/predictions/output_bias", array
    return name.replace("weight", "kernel"), array.T if name.endswith("weight") else array
