"""Pretraining that starts from a model: its parameters, its shape, its vocabulary, and what is refused."""

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import normalizers, pre_tokenizers

from bert_jax.cli.flags.pretrain import parse
from bert_jax.cli.main import main
from bert_jax.formats.open_model import open_model
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.pretraining.init_from import (
    check_vocabulary,
    describe_new_rows,
    describe_start,
    open_initial,
)
from bert_jax.pretraining.initial_shape import take_shape
from bert_jax.training.checkpoints import load_params
from bert_jax.workdir.record import read_record
from data_pipeline.config import Phase
from data_pipeline.corpus.store import describe
from data_pipeline.errors import UserError
from experiments import EXPERIMENTS
from tests.bert_jax.formats.tensorflow_here import use_tensorflow_here
from tests.tiny_run import (
    FLAGS,
    ONE_STEP,
    WORDS,
    arguments,
    assert_close,
    deterministic_rows,
    further,
    write_corpus,
)


@pytest.fixture(scope="module")
def model(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work directory of a run that another one starts from."""
    workdir = tmp_path_factory.mktemp("init") / "first"
    assert main(arguments(workdir, corpus, "--num-train-steps", "30")) == 0
    return workdir


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus whose vocabulary has more tokens after the model's 20."""
    directory = tmp_path_factory.mktemp("longer") / "corpus"
    return write_corpus(directory, more_words=["river", "lake", "delta", "ford"])


def with_rows(model: Path, rows: int) -> PretrainedModel:
    """The model with `rows` word embeddings in its configuration."""
    opened = open_model(model)
    return dataclasses.replace(opened, config=dataclasses.replace(opened.config, vocab_size=rows))


@pytest.fixture(scope="module")
def google(model: Path) -> Iterator[Path]:
    """The same model in a format that does not say which GELU it was trained with."""
    directory = model.parent / "google"
    with pytest.MonkeyPatch.context() as patch:
        use_tensorflow_here(patch)
        assert main(["convert", "--model", str(model), "--format", "tf1", "--output", str(directory)]) == 0
        config = json.loads((directory / "bert_config.json").read_text())
        del config["bert_jax"]
        (directory / "bert_config.json").write_text(json.dumps(config))
        yield directory


def test_a_gelu_that_the_directory_does_not_say_is_named(
    google: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", "--model", str(google), "--output", str(tmp_path / "hf")]) == 0
    assert "note: google does not say which GELU it was trained with; gelu_tanh is" in capsys.readouterr().err
    said = describe_start(open_model(google), ("encoder", "generator", "replaced_token"))
    assert (
        "it lacks generator, replaced token, drawn from the seed; its GELU is assumed to be gelu_tanh" in said
    )


@pytest.mark.parametrize("gelu", ["gelu_tanh", pytest.param("gelu_exact", marks=pytest.mark.slow)])
def test_the_gelu_is_taken_from_the_flag(
    gelu: str, corpus: Path, google: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(further(tmp_path / "w", corpus, google, "--model.activation", gelu, *ONE_STEP)) == 0
    assert "assumed" not in capsys.readouterr().out
    assert read_record(tmp_path / "w").experiment.model.activation == gelu


def test_a_flag_may_say_another_gelu_than_is_assumed(corpus: Path, google: Path) -> None:
    given = parse(further(Path("w"), corpus, google, "--model.activation", "gelu_exact")[1:])
    args, opened = open_initial(given)
    assert opened is not None
    assert opened.config.activation == args.experiment.model.activation == "gelu_exact"
    args, _ = open_initial(parse(further(Path("w"), corpus, google)[1:]))
    assert args.experiment.model.activation == "gelu_tanh"


@pytest.mark.parametrize("kind", ["run", "export"])
def test_parameters_and_shape_are_the_models(
    kind: str, corpus: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = model
    if kind == "export":
        source = tmp_path / "exported"
        assert main(["export", "--workdir", str(model), "--output", str(source)]) == 0
    flags = ("--model.initializer-range", "0.2", "--seed", "5", *ONE_STEP)
    assert main(further(tmp_path / "w", corpus, source, *flags)) == 0
    name = {"run": "first", "export": "exported"}[kind]
    assert f"starting from {name}\n" in capsys.readouterr().out
    assert_close(load_params(tmp_path / "w")[1], load_params(model)[1])
    record = read_record(tmp_path / "w")
    assert record.experiment.model.num_layers == FLAGS["--model.num-layers"]
    assert record.experiment.model.initializer_range == 0.2
    assert (record.init_from, record.init_fingerprint) == (name, open_model(model).fingerprint())
    assert open_model(tmp_path / "w").facts["started from"] == name


def test_what_it_starts_with_is_evaluated_once(corpus: Path, model: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "w"
    assert main(further(workdir, corpus, model, *ONE_STEP)) == 0
    assert main(["evaluate", "--workdir", str(model)]) == 0
    first, *others = (row for row in deterministic_rows(workdir) if row["split"] == "heldout")
    (expected,) = json.loads((model / "evaluation-30.json").read_text())
    assert (first["step"], [row["step"] for row in others]) == (0, [1])
    assert first["mlm_loss"] == pytest.approx(expected["mlm_loss"], rel=1e-5)
    # A start that finds no checkpoint begins again at step 0, and logs the same first row once.
    shutil.rmtree(workdir / "checkpoints")
    assert main(further(workdir, corpus, model, *ONE_STEP)) == 0
    assert deterministic_rows(workdir).count(first) == 1
    # Another model that begins there has rows of its own alone.
    shutil.rmtree(workdir / "checkpoints")
    other = tmp_path / "other"
    assert main(arguments(other, corpus, *ONE_STEP)) == 0
    assert main(further(workdir, corpus, other, *ONE_STEP)) == 0
    begun, *_ = (row for row in deterministic_rows(workdir) if row["split"] == "heldout")
    assert begun["step"] == 0
    assert begun["mlm_loss"] > first["mlm_loss"]
    assert deterministic_rows(workdir).count(first) == 0


@pytest.mark.slow
def test_heads_that_the_model_lacks_are_drawn_and_said(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--objective", "mlm", "--data.pairing", "contiguous")
    assert main(arguments(tmp_path / "mlm", corpus, *flags, "--num-train-steps", "20")) == 0
    assert main(further(tmp_path / "w", corpus, tmp_path / "mlm", *ONE_STEP)) == 0
    said = capsys.readouterr().out
    assert "starting from mlm; it lacks next sentence, pooler, drawn from the seed\n" in said
    before, after = load_params(tmp_path / "mlm")[1], load_params(tmp_path / "w")[1]
    for part in ("encoder", "language_model"):
        assert_close(after[part], before[part])
    assert after["pooler"]["dense"]["kernel"].std() > 0.01


def test_heads_that_the_objective_lacks_are_said(model: Path) -> None:
    said = describe_start(open_model(model), ("encoder", "language_model"))
    assert said == "starting from first; left out: next sentence, pooler"


def test_going_on_needs_no_model_or_the_same(
    corpus: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workdir, begun = tmp_path / "w", read_record(model)

    def line(steps: int, *flags: str, model: Path | None, workdir: Path = workdir) -> list[str]:
        words = further(workdir, corpus, model or tmp_path, "--num-train-steps", str(steps), *flags)
        place = words.index("--init-from")
        return words if model else words[:place] + words[place + 2 :]

    assert main(line(20, model=model)) == 0
    assert main(line(25, model=workdir)) == 2
    assert re.search(r"--init-from first \(\w+\) -> w \(\w+\); undo", capsys.readouterr().err)
    assert main(line(25, "--model.num-layers", "3", model=None)) == 2
    assert "first, has another shape: model.num_layers is 3, not 1; leave" in capsys.readouterr().err
    assert main(line(25, model=model)) == 0
    said = capsys.readouterr().out
    assert "resuming from step 20 of 25" in said
    assert "starting from" not in said
    # The experiment has other sizes; the run keeps those of its record, and so does a branch of it.
    assert main(line(30, model=None)) == 0
    assert "resuming from step 25 of 30" in capsys.readouterr().out
    branch = tmp_path / "branch"
    for steps, flags in ((35, ["--branch-from", str(workdir)]), (40, [])):
        assert main(line(steps, *flags, model=None, workdir=branch)) == 0
        record = read_record(branch)
        assert record.experiment.model == begun.experiment.model
        assert (record.init_from, record.branched_from.run) == ("first", "w")
    assert "model." not in capsys.readouterr().out
    shutil.rmtree(workdir / "checkpoints")
    assert main(line(30, model=None)) == 2
    assert "run that starts from first and has no checkpoint; give --init-from" in capsys.readouterr().err


@pytest.mark.slow
def test_a_vocabulary_may_go_on_after_the_models(
    longer: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workdir = tmp_path / "w"
    assert main(further(workdir, longer, model, *ONE_STEP)) == 0
    line = "rows drawn from the seed for 4 new tokens, 'river', 'lake', 'delta', ...\n"
    assert f"model.vocab_size 20 -> 24: {line}" in capsys.readouterr().out
    assert read_record(workdir).experiment.model.vocab_size == 24
    before, after = load_params(model)[1], load_params(workdir)[1]
    table = after["encoder"]["embeddings"]["word_embeddings"].pop("embedding")
    bias = after["language_model"].pop("bias")
    assert_close(table[:20], before["encoder"]["embeddings"]["word_embeddings"].pop("embedding"))
    assert_close(bias[:20], before["language_model"].pop("bias"))
    assert_close(after, before)
    assert table.shape == (24, 16)
    assert (table[20:].std(axis=1) > 0.01).all()
    assert len(bias) == 24

    assert main(further(workdir, longer, model, *ONE_STEP, "--num-train-steps", "2")) == 0
    said = capsys.readouterr().out
    assert "resuming from step 1 of 2" in said
    assert "new token" not in said
    assert open_model(workdir).tokenizer.token_to_id("ford") == 23


@pytest.mark.parametrize(
    ("rows", "flag", "expected"), [(20, None, 24), (30, None, 30), (20, 28, 28), (24, 24, 24)]
)
def test_the_vocabulary_size_holds_model_and_corpus(
    rows: int, flag: int | None, expected: int, longer: Path, model: Path
) -> None:
    named = EXPERIMENTS["quickstart_bert"]
    vocabulary_size = describe(str(longer)).vocabulary_size
    assert vocabulary_size is not None
    data = dataclasses.replace(named.data, phases=(Phase(16, 4),))
    wanted = dataclasses.replace(named.model, vocab_size=flag or named.model.vocab_size)
    experiment = dataclasses.replace(named, data=data, model=wanted)
    given = {"model.vocab_size"} if flag else ()
    shaped = take_shape(experiment, given, with_rows(model, rows), vocabulary_size)
    assert shaped.model.vocab_size == expected
    fewer = dataclasses.replace(experiment, model=dataclasses.replace(wanted, vocab_size=19))
    with pytest.raises(UserError, match=r"model\.vocab_size is 19, not 24; leave"):
        take_shape(fewer, {"model.vocab_size"}, with_rows(model, 24), vocabulary_size)


@pytest.mark.parametrize("flag", ["--model.num-layers", "--model.num_layers"])
@pytest.mark.parametrize("joined", [True, False])
def test_a_flag_of_the_experiments_own_value_counts(
    flag: str, joined: bool, corpus: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = EXPERIMENTS["quickstart_bert"].model.num_layers
    words = [f"{flag}={layers}"] if joined else [flag, str(layers)]
    assert main(further(tmp_path / "w", corpus, model, *words)) == 2
    assert f"another shape: model.num_layers is {layers}, not 1; leave" in capsys.readouterr().err


def test_rows_to_spare_are_the_models(longer: Path, model: Path, corpus: Path) -> None:
    spare = "2 new tokens, 'river', 'lake', taken from rows that the model has to spare"
    drawn = "model.vocab_size 22 -> 24: rows drawn from the seed for 2 new tokens, 'delta', 'ford'"
    assert describe_new_rows(with_rows(model, 22), 24, describe(str(longer)).vocabulary) == [spare, drawn]
    assert describe_new_rows(with_rows(model, 20), 24, describe(str(corpus)).vocabulary) == [
        "model.vocab_size 20 -> 24: rows drawn from the seed"
    ]
    assert describe_new_rows(open_model(model), 20, describe(str(corpus)).vocabulary) == []


def test_tokens_that_the_corpus_lacks_are_noted(
    corpus: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_vocabulary(open_model(model), describe(str(corpus)))
    assert capsys.readouterr().out == ""
    opened = open_model(model)
    opened.tokenizer.add_tokens(["corona", "virus"])
    check_vocabulary(opened, describe(str(corpus)))
    (note,) = capsys.readouterr().out.splitlines()
    assert "lacks 2 tokens of first, 'corona', 'virus'; the run's tokenizer will not have them" in note


NO_CORPUS = "no corpus fits first of --init-from: `bert-jax prepare` cannot follow its tokenizer:"


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("normalizer", normalizers.BertNormalizer(lowercase=True), None),
        (
            "normalizer",
            normalizers.BertNormalizer(lowercase=False),
            "corpus was cut by other rules than those of first of --init-from: its normalizer "
            "BertNormalizer has lowercase true, not false; prepare the text with --vocab",
        ),
        ("normalizer", normalizers.NFKC(), f"{NO_CORPUS} its normalizer is NFKC, not BertNormalizer$"),
        (
            "normalizer",
            normalizers.BertNormalizer(strip_accents=False),
            f"{NO_CORPUS} its normalizer BertNormalizer has strip_accents false, not true$",
        ),
        (
            "pre_tokenizer",
            pre_tokenizers.WhitespaceSplit(),
            f"{NO_CORPUS} its pre-tokenizer is WhitespaceSplit, not BertPreTokenizer$",
        ),
    ],
)
def test_a_tokenizer_that_is_more_than_a_vocabulary_must_cut_alike(
    part: str,
    value: object,
    message: str | None,
    corpus: Path,
    model: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened = dataclasses.replace(open_model(model), vocabulary=None)
    setattr(opened.tokenizer, part, value)
    if message is None:
        check_vocabulary(opened, describe(str(corpus)))
        assert capsys.readouterr().out == ""
        return
    with pytest.raises(UserError, match=message):
        check_vocabulary(opened, describe(str(corpus)))


def test_what_does_not_fit_is_one_line(
    corpus: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = write_corpus(tmp_path / "again", more_words=["cat"])
    other = write_corpus(tmp_path / "other", words=WORDS[::-1], more_words=["river"])
    cased = write_corpus(tmp_path / "cased")
    settings = cased / "tokenizer" / "settings.json"
    settings.write_text(settings.read_text().replace("uncased", "cased"))
    for line, message in (
        (further(tmp_path / "w", again, model), "its id 20, 'cat', is id 9 in the model; prepare the"),
        (further(tmp_path / "w", other, model), "its id 5, 'house', is 'the' in the model; prepare the"),
        (
            further(tmp_path / "w", cased, model),
            "its normalizer BertNormalizer has lowercase false, not true; prepare",
        ),
        (
            further(tmp_path / "w", corpus, model, "--model.num-layers", "5", "--model.hidden-size", "32"),
            "another shape: model.num_layers is 5, not 1; model.hidden_size is 32, not 16; leave",
        ),
        (
            further(tmp_path / "w", corpus, model, "--model.hidden-size", "30"),
            "valid: 1, 2, 3, 5, 6, 10, 15, 30; with --init-from leave --model.hidden-size out",
        ),
        (
            further(tmp_path / "w", corpus, tmp_path / "nowhere"),
            "nowhere is not a directory; name that of a model",
        ),
        (
            ["pretrain", "quickstart_bert", "--workdir", str(tmp_path / "w"), "--init-from", str(model)],
            "needs a corpus that was made with the model's vocabulary",
        ),
    ):
        assert main(line) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
        assert not (tmp_path / "w" / "config.json").exists()
