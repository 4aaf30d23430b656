"""`bert-jax export --workdir DIR --output DIR`: a pretrained model for Hugging Face transformers."""

import dataclasses
from pathlib import Path

from data_pipeline.errors import UserError


@dataclasses.dataclass(frozen=True)
class Export:
    """Write a run's model for Hugging Face transformers: config.json, model.safetensors, tokenizer.

    `bert-jax convert` does the same with models of every kind, and has other formats.
    """

    workdir: Path
    """Folder of the run."""
    output: Path
    """Folder to make; it must not exist."""
    step: int | None = None
    """Step of the checkpoint; the newest by default."""


def run(args: Export) -> None:
    """Writes the model, and prints how to load it.

    Raises:
      UserError: no run, no such checkpoint, or the output exists.
    """
    from bert_jax.cli import convert
    from bert_jax.formats import run as runs
    from bert_jax.inference.model_source import ModelSource

    if not runs.recognises(args.workdir):
        raise UserError(f"{args.workdir} is not the work directory of a run; convert takes other models")
    convert.run(convert.Convert(ModelSource(args.workdir, args.step), args.output))
