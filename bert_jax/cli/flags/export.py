"""The flags of `bert-jax export`."""

import dataclasses
from pathlib import Path

from bert_jax.names import ModelPart


@dataclasses.dataclass(frozen=True)
class Export:
    """Write a run's model for Hugging Face transformers: config.json, model.safetensors, tokenizer.

    `bert-jax convert` does the same with models of every kind, and has other formats.
    """

    workdir: Path
    """Directory of the run."""
    output: Path
    """Directory to make; it must not exist."""
    step: int | None = None
    """Step of the checkpoint; the newest by default."""
    part: ModelPart = "model"
    """Of a run of replaced token detection: model is the discriminator,
    generator the masked language model that was trained beside it."""
