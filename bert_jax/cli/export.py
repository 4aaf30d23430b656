"""`bert-jax export --workdir DIR --output DIR`: a trained model for Hugging Face transformers."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro


@dataclasses.dataclass(frozen=True)
class Export:
    """Write a checkpoint of a run as a folder that Hugging Face transformers loads.

    The folder has config.json, model.safetensors, the tokenizer's files and a model card.
    """

    workdir: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder of the run."""
    output: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder to make; it must not exist."""
    step: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Step of the checkpoint; the newest by default."""


def run(args: Export) -> None:
    """Exports and says how to load the result."""
    from bert_jax.export import export_run
    from bert_jax.workdir import read_record

    output = export_run(args.workdir, args.output, args.step)
    objective = read_record(args.workdir).experiment.model.objective
    loader = "BertLMHeadModel" if objective == "ltr" else "BertForPreTraining"
    print(f"wrote {output}; load it with transformers.{loader}.from_pretrained({str(output)!r})")
    if objective != "ltr":
        print(f'try it:  bert-jax fill-mask --model {output} "Text with a [MASK]."')
