"""A run that begins from a model, or began from one: takes over its shape; checks that the corpus fits it."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from bert_jax.formats.huggingface_tokenizer import make_tokenizer
from bert_jax.formats.open_model import open_model
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.model_config import ModelConfig
from bert_jax.pretraining.arguments import Pretrain
from bert_jax.pretraining.initial_shape import OF_ROTARY, InitialModel, take_shape
from bert_jax.training.checkpoints import saved_steps
from bert_jax.workdir.config_text import differences
from bert_jax.workdir.record import read_record
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.corpus.special_tokens import special_tokens
from data_pipeline.corpus.store import Description, describe
from data_pipeline.corpus.tokenizer_json import find_fault
from data_pipeline.corpus.tokenizer_rules import find_difference
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS, Vocabulary
from data_pipeline.errors import UserError

# Most tokens that a message lists.
_SHOWN = 3


def recorded_initial(args: Pretrain) -> InitialModel | None:
    """The model that the run to resume, or else to branch from, began from, in the shape that it has there.

    None if it began from none, or if there is no such run.

    Raises:
      UserError: the record of the run cannot be read.
    """
    for workdir in (args.workdir, args.branch_from):
        if workdir is not None and saved_steps(workdir):
            record = read_record(workdir)
            model = InitialModel(record.init_from, record.init_fingerprint, record.experiment.model)
            return model if record.init_from else None
    return None


def open_initial(args: Pretrain) -> tuple[Pretrain, PretrainedModel | None]:
    """Reads the model of --init-from, gives the experiment its shape, and checks that the corpus fits it.

    Args:
      args: `initial` is `recorded_initial`, whose shape the experiment takes without --init-from.

    Returns:
      The flags with the model's shape, and the model of --init-from, if it is given.

    Raises:
      UserError: the directory is not a model, or the experiment cannot start from this model.
    """
    if args.init_from is None and args.initial is None:
        return args, None
    experiment = args.experiment
    if experiment.data.corpus == INSTALLED_DOCUMENTATION:
        raise UserError(
            "--init-from needs a corpus that was made with the model's vocabulary: pass --data.corpus DIR"
        )
    corpus, initial, model = describe(experiment.data.corpus), args.initial, None
    if args.init_from is not None:
        model = open_model(args.init_from)
        if model.has_assumed_activation and "model.activation" in args.given:
            model = model.with_activation(experiment.model.activation)
        initial = InitialModel(model.name, model.fingerprint(), model.config)
    assert initial is not None
    experiment = take_shape(experiment, args.given, initial, corpus.vocabulary_size or 0)
    if model is not None:
        check_vocabulary(model, corpus)
    return dataclasses.replace(args, experiment=experiment, initial=initial), model


def check_vocabulary(model: PretrainedModel, corpus: Description) -> None:
    """Checks that the corpus's vocabulary is the model's, possibly with tokens appended.

    Raises:
      UserError: a token has another id in the model, an id another token, or the corpus was cut by other
        rules than the model's tokenizer has.
    """
    if corpus.vocabulary is None:
        print(
            f"note: {corpus.path} does not tell its vocabulary; it must be that of {model.name}", flush=True
        )
        return
    tokenizer = make_tokenizer(corpus.vocabulary)
    tokens, expected = tokenizer.get_vocab(), _vocabulary_of(model)
    theirs = make_tokenizer(model.vocabulary) if model.vocabulary else model.tokenizer
    if difference := _first_difference(tokens, expected):
        raise _unfit(corpus, "has another vocabulary than", model, difference)
    # The casing of TFRecords is a guess.
    if corpus.is_prepared and (rule := find_difference(tokenizer, theirs)):
        raise _unfit(corpus, "was cut by other rules than those of", model, rule)
    if lacking := sorted(expected.keys() - tokens.keys(), key=expected.__getitem__):
        print(
            f"note: {corpus.path} lacks {_count(lacking)} of {model.name}, {_show(lacking)}; the run's "
            f"tokenizer will not have them",
            flush=True,
        )


def describe_start(model: PretrainedModel, parts: Collection[str]) -> str:
    """One line that names the model that a run starts from, what is drawn from the seed, what is left out.

    Args:
      parts: top-level names of the parameters that the run trains.
    """
    drawn = [part.replace("_", " ") for part in parts if part not in model.params]
    lacking = f"; it lacks {', '.join(drawn)}, drawn from the seed" if drawn else ""
    # A pooler of kind transform is in the language model head, too (`with_shared_pooler`).
    used = {*parts, "pooler"} if model.config.pooler == "transform" else {*parts}
    unused = [part.replace("_", " ") for part in model.params if part not in used]
    left_out = f"; left out: {', '.join(unused)}" if unused else ""
    assumed = (
        f"; its GELU is assumed to be {model.config.activation}, see --model.activation"
        if model.has_assumed_activation
        else ""
    )
    return f"starting from {model.name}{lacking}{assumed}{left_out}"


def describe_positions(model: PretrainedModel, config: ModelConfig) -> list[str]:
    """Lines that say which settings of positions are not the model's, and where new embeddings come from."""
    names = ("max_position_embeddings", *OF_ROTARY)
    before, now = ({f"model.{name}": getattr(of, name) for name in names} for of in (model.config, config))
    lines = differences(before, now, ())
    if config.positions == "learnt" and lines:
        lines[0] += f": the model's {model.config.max_position_embeddings} position embeddings repeated"
    return lines


def describe_new_rows(model: PretrainedModel, num_rows: int, vocabulary: Vocabulary | None) -> list[str]:
    """Lines that say which tokens of the corpus are new to the model, and where their rows come from.

    Args:
      vocabulary: that of a corpus that passes `check_vocabulary`.
    """
    theirs, known = model.config.vocab_size, _vocabulary_of(model)
    ids = make_tokenizer(vocabulary).get_vocab() if vocabulary else {}
    new = sorted(ids.keys() - known.keys(), key=ids.__getitem__)
    spare, drawn = [t for t in new if ids[t] < theirs], [t for t in new if ids[t] >= theirs]
    lines = []
    if spare:
        lines.append(f"{_count(spare, 'new ')}, {_show(spare)}, taken from rows that the model has to spare")
    if num_rows > theirs:
        whose = f" for {_count(drawn, 'new ')}, {_show(drawn)}" if drawn else ""
        lines.append(f"model.vocab_size {theirs} -> {num_rows}: rows drawn from the seed{whose}")
    return lines


def _vocabulary_of(model: PretrainedModel) -> dict[str, int]:
    """The model's tokens and their ids, the special ones under BERT's names, which they have in a corpus."""
    names = dict(zip(special_tokens(model.tokenizer).names, SPECIAL_TOKENS, strict=True))
    return {names.get(token, token): index for token, index in model.tokenizer.get_vocab().items()}


def _unfit(corpus: Description, what: str, model: PretrainedModel, difference: str) -> UserError:
    """The error that a corpus does not fit a model, or that none does."""
    if model.vocabulary is None and (fault := find_fault(model.tokenizer)):
        return UserError(
            f"no corpus fits {model.name} of --init-from: `bert-jax prepare` cannot follow its tokenizer: "
            f"{fault}"
        )
    return UserError(
        f"{corpus.path} {what} {model.name} of --init-from: {difference}; prepare the text with --vocab and "
        "the model's directory; tokens may be appended to its vocabulary"
    )


def _first_difference(tokens: Mapping[str, int], expected: Mapping[str, int]) -> str | None:
    """Describes the first id whose token, or token whose id, differs in the model; None if none does."""
    names = {index: token for token, index in expected.items()}
    for token, index in sorted(tokens.items(), key=lambda item: item[1]):
        if names.get(index, token) != token:
            return f"its id {index}, {token!r}, is {names[index]!r} in the model"
        if expected.get(token, index) != index:
            # For example, a word was appended that the vocabulary has already: its trained row would be lost.
            return f"its id {index}, {token!r}, is id {expected[token]} in the model"
    return None


def _count(tokens: Sequence[str], kind: str = "") -> str:
    return f"{len(tokens)} {kind}token{'s' if len(tokens) > 1 else ''}"


def _show(tokens: Sequence[str]) -> str:
    shown = ", ".join(map(repr, tokens[:_SHOWN]))
    return f"{shown}, ..." if len(tokens) > _SHOWN else shown
