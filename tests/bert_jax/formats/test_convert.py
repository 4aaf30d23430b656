"""Conversions of runs: whole or absent, the same numbers after reading back, the same ids."""

import itertools
import json
import unicodedata
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from bert_jax.cli.main import main
from bert_jax.formats.convert import convert
from bert_jax.formats.huggingface_tokenizer import make_tokenizer
from bert_jax.formats.open_model import open_model, open_vocabulary
from bert_jax.formats.pretrained import HEADS
from bert_jax.names import ModelFormat
from bert_jax.training.checkpoints import load_params
from data_pipeline.corpus.vocabulary_file import Casing, Vocabulary, read_vocabulary
from data_pipeline.errors import UserError
from data_pipeline.preparing.vocabulary import train_sentencepiece
from tests.bert_jax.encoders import ENCODERS
from tests.bert_jax.formats.tensorflow_here import use_tensorflow_here
from tests.bert_jax.small_finetuned import make_trial
from tests.bert_jax.small_run import TEXTS, WORDS, make_run
from tests.full_disk import files_no_larger_than

FILES = {
    "README.md",
    "config.json",
    "model.safetensors",
    "pretraining.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
}
# Settings of `make_run`'s model under transformers' names.
SETTINGS = {
    "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.3,
    "layer_norm_eps": 1e-3,
    "initializer_range": 0.05,
}


@pytest.mark.parametrize("output_format", ["hf", "tf1", "npz"])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    output_format: ModelFormat, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "run")
    output = tmp_path / "deep" / "model"
    with files_no_larger_than(10_000):
        line = ["convert", "--model", str(tmp_path / "run"), "--output", str(output)]
        assert main([*line, "--format", output_format]) == 69
    (said,) = capsys.readouterr().err.splitlines()
    assert said == f"bert-jax: error: {output}: File too large; make room and run the same command again"
    assert not output.parent.exists()


@pytest.mark.parametrize("casing", ["cased", "uncased"])
@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece", "byte_bpe"])
def test_an_export_is_whole_and_tokenises_as_the_run_did(tmp_path: Path, kind: str, casing: str) -> None:
    experiment, tokenizer = make_run(tmp_path / "run", kind=kind, casing=casing)
    output = tmp_path / "deep" / "model"
    convert(tmp_path / "run", output)
    vocabulary = read_vocabulary(tmp_path / "run" / "tokenizer").file_name
    assert {path.name for path in output.iterdir()} == {*FILES, vocabulary}
    assert [path.name for path in output.parent.iterdir()] == ["model"]
    exported = Tokenizer.from_file(str(output / "tokenizer.json"))
    for text in TEXTS:
        ids = exported.encode(text).ids
        assert ids == [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id], text
    assert tokenizer.mask_id in exported.encode("the [MASK] sat").ids
    read = open_model(output)
    assert read.config == experiment.model
    settings = json.loads((output / "config.json").read_text(encoding="utf-8"))
    assert {name: settings[name] for name in SETTINGS} == SETTINGS
    assert (read.vocabulary.kind, read.vocabulary.casing) == (kind, casing)
    assert read.vocabulary.content == (tmp_path / "run" / "tokenizer" / vocabulary).read_bytes()
    assert open_vocabulary(tmp_path / "run") == open_vocabulary(output) == read.vocabulary
    card = (output / "README.md").read_text(encoding="utf-8")
    assert "| steps | 10 of 10 |" in card
    written = load_file(output / "model.safetensors").values()
    assert f"| parameters | {sum(array.size for array in written):,} |" in card
    assert "| held-out MLM accuracy | 25.0% |" in card


@pytest.mark.parametrize("casing", ["cased", "uncased"])
def test_decomposed_text_gets_the_tokens_of_sentencepiece(casing: Casing) -> None:
    composed = "café naïve Ångström Việt ǖ が ぱ 한국어 ½ ﬁ ℃"
    tokenizer = train_sentencepiece([f"{composed} {WORDS}"] * 20, 150, casing)
    vocabulary = Vocabulary("sentencepiece", casing, tokenizer.content)
    exported = make_tokenizer(vocabulary)
    decomposed = unicodedata.normalize("NFD", composed)
    assert decomposed != composed
    for text in (composed, decomposed, *composed.split(), *decomposed.split(), *TEXTS):
        assert exported.encode(text, add_special_tokens=False).ids == tokenizer.encode(text), text


def test_export_is_the_conversion_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_run(tmp_path / "run")
    convert(tmp_path / "run", tmp_path / "converted")
    flags = ["--workdir", str(tmp_path / "run")]
    assert main(["export", *flags, "--output", str(tmp_path / "exported")]) == 0
    for file in (tmp_path / "converted").iterdir():
        assert (tmp_path / "exported" / file.name).read_bytes() == file.read_bytes()
    assert main(["export", *flags, "--output", str(tmp_path / "other"), "--step", "7"]) == 2
    assert (
        main(["export", "--workdir", str(tmp_path / "converted"), "--output", str(tmp_path / "other")]) == 2
    )
    assert "converted is not the work directory of a run; convert takes other" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_a_fine_tuned_model_keeps_its_vocabulary_and_says_what_it_loses(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    make_trial(tmp_path / "run", "classification", "classify", ("no", "yes"))
    paths = {name: tmp_path / name for name in ("hf", "npz")}
    for name, path in paths.items():
        assert main(["convert", f"--model={tmp_path / 'run'}", f"--output={path}", f"--format={name}"]) == 0
    for path in paths.values():
        made = path / "vocab.txt"
        assert made.read_text() == (tmp_path / "run" / "tokenizer" / "vocab.txt").read_text()
        assert json.loads((path / "tokenizer_config.json").read_text())["do_lower_case"] is True
        assert open_vocabulary(path) == open_vocabulary(tmp_path / "run")
    said = capsys.readouterr().out
    assert said.count("note: the head of classify is left out; ") == 1


@pytest.mark.parametrize(
    ("output_format", "objective"),
    [*itertools.product(("hf", "npz"), ("mlm_nsp", "mlm", "ltr")), ("npz", "rtl"), ("npz", "ltr_rtl")],
)
def test_every_format_gives_the_run_back(tmp_path: Path, output_format: ModelFormat, objective: str) -> None:
    """Parameters, settings and which heads were trained; google-research/bert's format is tested apart."""
    experiment, _ = make_run(tmp_path / "run", objective=objective)
    convert(tmp_path / "run", tmp_path / "model", output_format, step=10)
    read = open_model(tmp_path / "model")
    assert read.pretraining == open_model(tmp_path / "run").pretraining
    assert (read.pretraining.seed, read.pretraining.step) == (experiment.seed, 10)
    _, params = load_params(tmp_path / "run")
    untrained = tuple(head for head in HEADS if head not in experiment.objective.trained_parts)
    assert read.missing == untrained
    assert read.config == experiment.model
    trained = {part: arrays for part, arrays in params.items() if part not in untrained}
    jax.tree.map(np.testing.assert_array_equal, read.params, trained)


@pytest.mark.parametrize(("objective", "attention"), [("rtl", "anticausal"), ("ltr_rtl", "joined")])
def test_no_other_format_has_a_model_that_reads_right_to_left(
    tmp_path: Path, objective: str, attention: str
) -> None:
    make_run(tmp_path / "run", objective=objective)
    refused: dict[ModelFormat, str] = {
        "hf": f"no class for run, trained by objective {objective};",
        "tf1": f"no {attention} attention; write --format npz",
    }
    for output_format, said in refused.items():
        with pytest.raises(UserError, match=said):
            convert(tmp_path / "run", tmp_path / output_format, output_format)
        assert not (tmp_path / output_format).exists()


@pytest.mark.parametrize("encoder", [name for name in ENCODERS if name != "bert"])
def test_npz_holds_every_encoder_and_the_others_leave_nothing(tmp_path: Path, encoder: str) -> None:
    experiment, _ = make_run(tmp_path / "run", encoder=encoder)
    convert(tmp_path / "run", tmp_path / "npz", "npz")
    read = open_model(tmp_path / "npz")
    assert read.config == experiment.model
    jax.tree.map(np.testing.assert_array_equal, read.params, load_params(tmp_path / "run")[1])
    with np.load(tmp_path / "npz" / "model.npz") as file:
        joined = [file[f"encoder/layer_0/attention/{name}/kernel"].shape for name in ("query", "output")]
    assert joined == [(16, 16), (16, 16)]
    for other in ("tf1",) if encoder == "albert" else ("hf", "tf1"):  # transformers has an ALBERT
        with pytest.raises(UserError, match=r"has no (\w+ with|class among) .*; `bert-jax convert"):
            convert(tmp_path / "run", tmp_path / other / "model", other)
        assert not (tmp_path / other).exists()


def test_the_flavour_of_gelu_can_be_told(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    assert convert(tmp_path / "run", tmp_path / "hf").config.activation == "gelu_tanh"
    convert(tmp_path / "hf", tmp_path / "npz", "npz", activation="gelu_exact")
    assert open_model(tmp_path / "npz").config.activation == "gelu_exact"


def test_an_existing_output_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(UserError, match="model exists; name another one"):
        convert(tmp_path / "run", tmp_path / "model")


@pytest.mark.parametrize(
    "command", ["convert", "features --input=a", "minimal-pairs --data=a", "predict --input=a"]
)
def test_a_url_is_not_made_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), "--model=m", "--output=hf://me/model"]) == 2
    assert capsys.readouterr().err.startswith("bert-jax: error: --output hf://me/model is not a directory; ")
    assert not list(tmp_path.iterdir())


def test_what_googles_code_computes_otherwise_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "run")
    use_tensorflow_here(monkeypatch)
    line = ["convert", "--model", str(tmp_path / "run"), "--format", "tf1", "--output"]
    assert main([*line, str(tmp_path / "tf1")]) == 0
    (note,) = [said for said in capsys.readouterr().out.splitlines() if said.startswith("note")]
    assert note == (
        "note: google-research/bert computes a LayerNorm epsilon of 1e-12; this model has a LayerNorm "
        "epsilon of 0.001"
    )


def test_a_failed_export_leaves_nothing(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    lines = (tmp_path / "run" / "tokenizer" / "vocab.txt").read_text(encoding="utf-8")
    more = lines + "".join(f"word{i}\n" for i in range(8))
    (tmp_path / "run" / "tokenizer" / "vocab.txt").write_text(more, encoding="utf-8")
    with pytest.raises(UserError, match="not the one that the run was trained with"):
        convert(tmp_path / "run", tmp_path / "out" / "model")
    assert not (tmp_path / "out").exists()


def test_bad_input_is_one_line_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "run")
    empty = tmp_path / "empty"
    empty.mkdir()
    for flags, message in (
        (["--model", str(empty)], "has neither config.json"),
        (["--model", str(empty / "no")], "is not a directory"),
        (["--model", str(empty), "--step", "7"], "is not the work directory of a run"),
        (["--model", str(tmp_path / "run"), "--step", "7"], "has no checkpoint of step 7; there are [10]"),
        (["--model", str(tmp_path / "run"), "--stepp", "7"], "nearest: --step"),
    ):
        assert main(["convert", *flags, "--output", str(tmp_path / "model")]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    (tmp_path / "run" / "tokenizer").rename(tmp_path / "elsewhere")
    assert main(["convert", "--model", str(tmp_path / "run"), "--output", str(tmp_path / "model")]) == 2
    assert "no tokenizer of this run" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()
