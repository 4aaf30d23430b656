"""Pretraining that starts from models of other families: what works, and what is refused."""

import random
from pathlib import Path

import pytest

from bert_jax.cli.main import main
from bert_jax.formats import huggingface
from bert_jax.formats.open_model import open_model
from bert_jax.objectives import OBJECTIVES
from bert_jax.training.checkpoints import load_params
from tests.bert_jax.formats.family_directories import TEXTS, small_model
from tests.tiny_run import assert_close

STARTS = (
    # model_type, parts of the model, objective of the model and of the run, what the run says that it draws
    ("bert", ("encoder", "language_model"), "mlm", "rtd", "generator, replaced token"),
    ("roberta", ("encoder", "language_model"), "mlm", "mlm", None),
    ("distilbert", ("encoder", "language_model"), "mlm", "mlm_nsp", "next sentence, pooler"),
    ("megatron-bert", ("encoder", "language_model"), "mlm", "ltr", None),
    ("electra", ("encoder", "replaced_token"), None, "rtd", "generator"),
    ("electra", ("encoder", "language_model"), "mlm", "rtd", "generator, replaced token"),
    ("albert", ("encoder", "language_model", "pooler", "next_sentence"), "mlm_sop", "mlm_sop", None),
    ("modernbert", ("encoder", "language_model"), "mlm", "mlm", None),
)
SLOW = [pytest.param(*start, marks=() if start[0] == "roberta" else pytest.mark.slow) for start in STARTS]


def make_directory(model_type: str, parts: tuple[str, ...], objective: str | None, directory: Path) -> Path:
    """A small model of a family."""
    directory.mkdir()
    trained = OBJECTIVES[objective]() if objective else None
    huggingface.write(directory, small_model(model_type, trained, parts))
    return directory


def prepare(model: Path, directory: Path) -> list[str]:
    """The command that makes a corpus of the model's vocabulary."""
    directory.mkdir()
    texts = directory / "texts.txt"
    draw = random.Random(0)
    texts.write_text("\n\n".join("\n".join(draw.choices(TEXTS, k=12)) for _ in range(40)))
    flags = ("--format", "sentences", "--holdout", "0.1", "--workers", "1")
    return [
        *("prepare", str(texts), *flags, "--vocab", str(model), "--output", str(directory / "corpus")),
    ]


def start(model: Path, corpus: Path, workdir: Path, objective: str, *flags: str) -> list[str]:
    """The command of a run of one step, whose learning rate is too small to change anything."""
    return [
        *("pretrain", "quickstart_bert", "--workdir", str(workdir), "--data.corpus", str(corpus)),
        *("--init-from", str(model), "--objective", objective, "--num-train-steps", "1"),
        *("--data.phases.0.max-seq-length", "32", "--data.phases.0.max-predictions-per-seq", "4"),
        *("--global-batch-size", "4", "--eval-examples", "8", "--optimizer.warmup-steps", "5"),
        *("--optimizer.learning-rate", "1e-12", *flags),
    ]


@pytest.mark.parametrize(("model_type", "parts", "trained", "objective", "drawn"), SLOW)
def test_a_run_starts_with_the_parameters_of_a_family(
    model_type: str,
    parts: tuple[str, ...],
    trained: str | None,
    objective: str,
    drawn: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = make_directory(model_type, parts, trained, tmp_path / "model")
    assert main(prepare(directory, tmp_path / "text")) == 0
    workdir = tmp_path / "run"
    pairs = {"mlm_nsp": "next_sentence", "mlm_sop": "sentence_order"}.get(objective, "contiguous")
    capsys.readouterr()
    corpus = tmp_path / "text" / "corpus"
    assert main(start(directory, corpus, workdir, objective, f"--data.pairing={pairs}")) == 0
    lacks = f"; it lacks {drawn}, drawn from the seed" if drawn else ""
    left_out = "; left out: language model" if (trained, objective) == ("mlm", "rtd") else ""
    assert f"starting from model{lacks}{left_out}\n" in capsys.readouterr().out
    model, found = open_model(directory), load_params(workdir)[1]
    for part in {*parts} & found.keys():  # rtd has a language model in its generator alone
        assert_close(found[part], model.params[part])
    run = open_model(workdir)
    for name in ("num_layers", "positions", "type_vocab_size", "max_position_embeddings", "pooler"):
        assert getattr(run.config, name) == getattr(model.config, name)
    ids = model.tokenizer.encode(TEXTS[3]).ids
    if model_type in ("roberta", "modernbert"):  # a text of a corpus begins as if after a blank
        ids = model.tokenizer.encode(" " + TEXTS[3]).ids
    assert run.tokenizer.encode(TEXTS[3]).ids == ids


def test_a_tokenizer_that_no_corpus_has_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unigram = make_directory("xlm-roberta", ("encoder", "language_model"), "mlm", tmp_path / "unigram")
    assert main(prepare(unigram, tmp_path / "text")) == 2
    fault = "its model is Unigram, not WordPiece or byte-level BPE\n"
    assert f"the tokenizer of {unigram} cannot be followed: {fault}" in capsys.readouterr().err
    roberta = make_directory("roberta", ("encoder", "language_model"), "mlm", tmp_path / "roberta")
    assert main(prepare(roberta, tmp_path / "other")) == 0
    capsys.readouterr()
    flags = ("--data.pairing", "contiguous")
    assert main(start(unigram, tmp_path / "other/corpus", tmp_path / "run", "mlm", *flags)) == 2
    said = capsys.readouterr().err
    assert (
        f"no corpus fits unigram of --init-from: `bert-jax prepare` cannot follow its tokenizer: {fault}"
        in said
    )
    assert said.count("\n") == 1
    assert main(start(roberta, tmp_path / "other/corpus", tmp_path / "run", "mlm_nsp")) == 2
    said = capsys.readouterr().err
    assert "data.pairing next_sentence gives two segments, and model.type_vocab_size is 1; valid" in said
    assert not (tmp_path / "run" / "config.json").exists()
