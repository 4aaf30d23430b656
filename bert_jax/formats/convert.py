"""Writes a pretrained model in another format; the directory appears whole or not at all."""

from pathlib import Path

from bert_jax.formats import google_tf1, huggingface, npz
from bert_jax.formats.open_model import open_model
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.model_config import Activation
from bert_jax.names import ModelFormat, ModelPart
from bert_jax.workdir.pretraining_identity import write_pretraining
from data_pipeline.atomic import atomically
from data_pipeline.directories import check_new_file, directory_of
from data_pipeline.errors import UserError

_WRITERS = {"hf": huggingface.write, "tf1": google_tf1.write, "npz": npz.write}


def convert(
    directory: Path,
    output: Path,
    output_format: ModelFormat = "hf",
    step: int | None = None,
    activation: Activation | None = None,
    part: ModelPart = "model",
) -> PretrainedModel:
    """Reads a model as `open_model` does and writes it as a directory of another format.

    Args:
      directory: directory of the model.
      output: directory to make.
      output_format: hf for Hugging Face transformers, tf1 for google-research/bert, npz for numpy.
      step: checkpoint of a work directory; None takes the newest.
      activation: the one to use instead of that which the directory names, or if it names none.
      part: the model, or the generator that was trained beside it.

    Returns:
      The model that was written.

    Raises:
      UserError: `output` exists or cannot be made; `directory` is not a model, or its tokenizer is that of
        another; the format cannot hold the model; it has no generator.
    """
    check_new_file(output)
    model = open_model(directory, step, activation)
    if part == "generator":
        model = model.generator()
    if tokens := model.tokens_without_embedding:
        raise UserError(
            f"the tokenizer of {directory} has tokens beyond the model's {model.config.vocab_size} word "
            f"embeddings, such as {tokens[0]!r}: it is that of another model"
        )
    with directory_of(output), atomically(output) as partial:
        partial.mkdir()
        _WRITERS[output_format](partial, model)
        if model.pretraining is not None:
            write_pretraining(partial, model.pretraining)
    return model
