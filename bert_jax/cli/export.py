"""`bert-jax export --workdir DIR --output DIR`: a pretrained model for Hugging Face transformers."""

from bert_jax.cli import convert
from bert_jax.cli.flags.export import Export
from bert_jax.formats import run as runs
from bert_jax.formats.model_source import ModelSource
from data_pipeline.errors import UserError


def run(args: Export) -> None:
    """Writes the model, and prints how to load it.

    Raises:
      UserError: no run, no such checkpoint, or the output exists.
    """
    if not runs.recognises(args.workdir):
        raise UserError(f"{args.workdir} is not the work directory of a run; convert takes other models")
    convert.run(convert.Convert(ModelSource(args.workdir, args.step), args.output, part=args.part))
