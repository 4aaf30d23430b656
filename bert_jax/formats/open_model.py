"""Opens a model by its directory, whatever format it is in."""

import dataclasses
from pathlib import Path

from bert_jax.formats import finetuned, google_tf1, huggingface, npz, run
from bert_jax.formats.huggingface_tokenizer import read_tokenizer
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.model_config import Activation
from bert_jax.workdir.directory import find_vocabulary
from bert_jax.workdir.grid import find_trial
from bert_jax.workdir.pretraining_identity import read_pretraining
from bert_jax.workdir.record import read_record
from data_pipeline.corpus.vocabulary_file import Vocabulary
from data_pipeline.errors import UserError


def open_model(
    directory: Path, step: int | None = None, activation: Activation | None = None
) -> PretrainedModel:
    """Reads a model from a directory in any supported format.

    Args:
      directory: the work directory of a run; what `bert-jax convert` or `bert-jax finetune` wrote; a
        Hugging Face model (`config.json` and weights); or a TensorFlow checkpoint of
        google-research/bert (`bert_config.json`, `vocab.txt`, `*.index`).
      step: checkpoint of a work directory; None takes the newest.
      activation: what to use instead of the one that the directory names, or if, like Google's,
        it names none.

    Raises:
      UserError: the directory is not a model, the architecture is another one, or a file is missing or
        damaged; `step` is given for a directory that is not a work directory.
    """
    if not directory.is_dir():
        hub = f"; one of Hugging Face's hub comes with `hf download {directory} --local-dir DIR`"
        may_be_there = len(directory.parts) == 1 or (
            len(directory.parts) == 2 and not directory.parent.is_dir()
        )
        raise UserError(f"{directory} is not a directory; name that of a model{hub if may_be_there else ''}")
    if run.recognises(directory):
        model = run.read(directory, step)
    elif step is not None:
        raise UserError(f"{directory} is not the work directory of a run; --step applies only to runs")
    else:
        model = _read(directory)
    if model.pretraining is None:
        model = dataclasses.replace(model, pretraining=read_pretraining(directory))
    return model if activation is None else model.with_activation(activation)


def _read(directory: Path) -> PretrainedModel:
    for form in (finetuned, npz, huggingface, google_tf1):  # in this order: others have a config.json too
        if form.recognises(directory):
            return form.read(directory)
    raise UserError(
        f"{directory} is not a model: it has neither config.json (a run, an export, a Hugging Face "
        f"model) nor bert_config.json (a checkpoint of google-research/bert)"
    )


def open_vocabulary(directory: Path) -> Vocabulary:
    """Reads the vocabulary from a directory that `open_model` takes; the weights may be missing.

    Raises:
      UserError: the tokenizer is missing or damaged, or a vocabulary and a casing do not define it.
    """
    if run.recognises(directory):
        return find_vocabulary(directory, read_record(directory))
    if google_tf1.recognises(directory) and not huggingface.recognises(directory):
        return google_tf1.read_vocabulary(directory)
    _, vocabulary = read_tokenizer(find_trial(directory))
    if vocabulary is None:
        raise UserError(
            f"the tokenizer of {directory} is neither BERT's WordPiece nor byte-level BPE alone: it has "
            f"other rules, or tokens that were added; give a vocab.txt, .model or tokenizer.json"
        )
    return vocabulary
