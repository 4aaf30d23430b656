"""`bert-jax pretrain --init-from MODEL`: what a run takes over from a model, and what must fit it."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bert_jax.config import MODEL_SHAPE, Experiment, ModelConfig
from bert_jax.pretrained import Pretrained
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.errors import UserError


def open_initial(directory: Path, experiment: Experiment, named: Experiment) -> tuple[Pretrained, Experiment]:
    """Reads the model that a run starts from, and gives the experiment its shape.

    Args:
      directory: what `bert_jax.open_model` takes.
      experiment: as the flags make it.
      named: as it is without flags.

    Raises:
      UserError: the folder is not a model, or one that the experiment cannot go on with.
    """
    from bert_jax.open_model import open_model

    if experiment.data.corpus == INSTALLED_DOCUMENTATION:
        raise UserError(
            "--init-from needs a corpus that was made with the model's vocabulary: pass --data.corpus DIR"
        )
    model = open_model(directory)
    wanted = experiment.model.activation
    if model.has_assumed_activation and wanted != named.model.activation:
        model = model.with_activation(wanted)
    return model, take_shape(experiment, named, model)


def take_shape(experiment: Experiment, named: Experiment, model: Pretrained) -> Experiment:
    """The experiment with the shape of a model that it starts from.

    Args:
      experiment: as the flags make it.
      named: as it is called on the command line, without flags.
      model: what it starts from.

    Raises:
      UserError: a flag asks for another shape than the model's, or a phase for longer sequences.
    """
    differing = [
        f"model.{name} is {wanted}, not {theirs}"
        for name, wanted, theirs in _shapes(experiment.model, model.config)
        if wanted not in (theirs, getattr(named.model, name))
    ]
    if differing:
        raise UserError(
            f"the model of --init-from, {model.name}, has another shape: {'; '.join(differing)}; "
            f"leave these flags out, and the run takes its shape"
        )
    shape = {name: theirs for name, _, theirs in _shapes(experiment.model, model.config)}
    return dataclasses.replace(experiment, model=dataclasses.replace(experiment.model, **shape))


def check_vocabulary(model: Pretrained, corpus: str, say: Callable[[str], None]) -> None:
    """Compares the corpus's vocabulary with the model's.

    Raises:
      UserError: some id of the corpus is another token to the model, or there is no corpus.
    """
    from bert_jax.formats.huggingface_tokenizer import make_tokenizer
    from data_pipeline.store import is_prepared
    from data_pipeline.vocabulary_file import TOKENIZER_FOLDER, read_vocabulary

    if not is_prepared(corpus):
        say(f"note: {corpus} does not tell its vocabulary; it must be that of {model.name}")
        return
    ours, theirs = read_vocabulary(Path(corpus) / TOKENIZER_FOLDER), model.vocabulary
    tokens = make_tokenizer(ours).get_vocab()
    expected = model.tokenizer.get_vocab()
    differing = [(index, token) for token, index in tokens.items() if expected.get(token) != index]
    if differing:
        index, token = min(differing)
        difference = f"its id {index}, {token!r}, is {model.tokenizer.id_to_token(index)!r} in the model"
    elif theirs is not None and theirs.casing != ours.casing:
        difference = f"it is {ours.casing}, the model {theirs.casing}"
    else:
        return
    file, casing = (theirs.file_name, theirs.casing) if theirs else (ours.file_name, "cased or uncased")
    raise UserError(
        f"{corpus} has another vocabulary than {model.name} of --init-from: {difference}; prepare the text "
        f"with the model's own (--vocab {file} of its folder, --casing {casing})"
    )


def describe_start(model: Pretrained) -> str:
    """The line that says what a run begins with, and what it draws."""
    drawn = [head.replace("_", " ") for head in model.missing]
    lacking = f"; it lacks {', '.join(drawn)}, drawn from the seed" if drawn else ""
    assumed = (
        f"; its GELU is assumed to be {model.config.activation}, see --model.activation"
        if model.has_assumed_activation
        else ""
    )
    return f"starting from {model.name}{lacking}{assumed}"


def _shapes(ours: ModelConfig, theirs: ModelConfig) -> list[tuple[str, Any, Any]]:
    # Dropout, the objective and the arithmetic are the run's own.
    return [(name, getattr(ours, name), getattr(theirs, name)) for name in MODEL_SHAPE]
