"""Opens a model by its directory, whatever format it is in."""

import dataclasses
from pathlib import Path

from bert_jax.formats import finetuned, google_tf1, huggingface, npz, run
from bert_jax.formats.huggingface_added_tokens import added_contents
from bert_jax.formats.huggingface_tokenizer import TOKENIZER_FILE, read_tokenizer
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.model_config import Activation
from bert_jax.workdir.directory import find_vocabulary
from bert_jax.workdir.grid import find_trial
from bert_jax.workdir.pretraining_identity import read_pretraining
from bert_jax.workdir.record import read_record
from data_pipeline.corpus.tokenizer_json import as_vocabulary, find_fault
from data_pipeline.corpus.vocabulary_file import (
    FILES,
    SPECIAL_TOKENS,
    TOKENIZER_DIRECTORY,
    Vocabulary,
    holds_vocabulary,
    read_vocabulary,
)
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
    """Reads the vocabulary from a directory that `open_model` takes, whose weights may be missing, or from a
    corpus or its tokenizer directory.

    Raises:
      UserError: the tokenizer is missing or damaged, or a vocabulary and a casing do not define how it cuts
        text.
    """
    if run.recognises(directory):
        return find_vocabulary(directory, read_record(directory))
    for inside in (directory, directory / TOKENIZER_DIRECTORY):
        if holds_vocabulary(inside):
            return read_vocabulary(inside)
    if google_tf1.recognises(directory) and not huggingface.recognises(directory):
        return google_tf1.read_vocabulary(directory)
    place = find_trial(directory)
    tokenizer, vocabulary = read_tokenizer(place)
    if vocabulary is not None:
        return vocabulary
    if fault := find_fault(tokenizer):
        raise UserError(f"the tokenizer of {directory} cannot be followed: {fault}")
    if added := added_contents(tokenizer) - {*SPECIAL_TOKENS}:
        file = next(file for name in (TOKENIZER_FILE, FILES["wordpiece"]) if (file := place / name).is_file())
        raise UserError(
            f"the tokenizer of {directory} has tokens that were added to its pieces, such as {min(added)!r}; "
            f"to leave them out, give --vocab {file}"
        )
    return as_vocabulary(tokenizer)  # it differs in what it puts around a text, which no corpus holds
