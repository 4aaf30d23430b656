"""A run that begins from a model, or began from one: takes over its shape; checks that the corpus fits it."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence

from tokenizers import Tokenizer

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
      UserError: a token has another id in the model, an id another token, or the corpus was made with other
        rules of casing or splitting.
    """
    ours, theirs = corpus.vocabulary, model.vocabulary
    if ours is None:
        print(
            f"note: {corpus.path} does not tell its vocabulary; it must be that of {model.name}", flush=True
        )
        return
    tokenizer = make_tokenizer(ours)
    tokens, expected = tokenizer.get_vocab(), _vocabulary_of(model)
    difference = _first_difference(tokens, expected)
    if difference is None and corpus.is_prepared:  # the casing of TFRecords is a guess
        if theirs is None:
            _check_normalizer(model, tokenizer, corpus.path)
        elif theirs.casing != ours.casing:
            difference = f"it is {ours.casing}, the model {theirs.casing}"
    if difference is not None:
        raise UserError(
            f"{corpus.path} has another vocabulary than {model.name} of --init-from: {difference}; "
            f"{_way_to_prepare(model)}"
        )
    if lacking := sorted(expected.keys() - tokens.keys(), key=expected.__getitem__):
        print(
            f"note: {corpus.path} lacks {_count(lacking)} of {model.name}, {_show(lacking)}; the run's "
            f"tokenizer will not have them",
            flush=True,
        )


def describe_start(model: PretrainedModel, parts: Iterable[str]) -> str:
    """One line that names the model that a run starts from, and what is drawn from the seed.

    Args:
      parts: top-level names of the parameters that the run trains.
    """
    drawn = [part.replace("_", " ") for part in parts if part not in model.params]
    lacking = f"; it lacks {', '.join(drawn)}, drawn from the seed" if drawn else ""
    assumed = (
        f"; its GELU is assumed to be {model.config.activation}, see --model.activation"
        if model.has_assumed_activation
        else ""
    )
    return f"starting from {model.name}{lacking}{assumed}"


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


def _way_to_prepare(model: PretrainedModel) -> str:
    """How to make a corpus of a model's vocabulary, for messages."""
    kind = json.loads(model.tokenizer.to_str())["model"]["type"]
    if model.vocabulary is None and kind != "WordPiece":
        return f"`bert-jax prepare` cannot follow the model's, of kind {kind}, so no corpus fits it"
    file, casing = ("vocab.txt", "cased or uncased")
    if model.vocabulary is not None:
        file, casing = model.vocabulary.file_name, model.vocabulary.casing
    return (
        f"prepare the text with the model's own (--vocab with its {file}, --casing {casing}), to which "
        "tokens may be appended"
    )


def _check_normalizer(model: PretrainedModel, ours: Tokenizer, corpus: str) -> None:
    """Raises UserError if case, accents or Chinese are handled otherwise in the corpus than by the model.

    Used if the model's tokenizer is more than a vocabulary and a casing.
    """
    wanted, found = _rules(model.tokenizer), _rules(ours)
    if wanted is None or found is None or wanted == found:
        return
    differing = [
        f"{name} is {str(found[name]).lower()}, not {str(value).lower()}"
        for name, value in wanted.items()
        if value != found[name]
    ]
    uncased = wanted["lowercase"]
    if wanted["strip_accents"] == uncased and wanted["handle_chinese_chars"]:
        way = f"prepare it with --casing {'uncased' if uncased else 'cased'}"
    else:
        way = "`bert-jax prepare` cannot follow the model's, so no corpus fits it"
    raise UserError(
        f"the text of {corpus} was cut by other rules than those of {model.name} of --init-from: "
        f"{', '.join(differing)}; {way}"
    )


def _rules(tokenizer: Tokenizer) -> dict[str, bool] | None:
    """The rules of a tokenizer's BertNormalizer; None if its normalizer is another one."""
    rules = json.loads(tokenizer.to_str())["normalizer"] or {}
    if rules.get("type") != "BertNormalizer":
        return None
    lowers = rules["lowercase"]
    accents = lowers if rules["strip_accents"] is None else rules["strip_accents"]
    return {
        "lowercase": lowers,
        "strip_accents": accents,
        "handle_chinese_chars": rules["handle_chinese_chars"],
    }


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
