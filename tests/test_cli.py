"""The command line: a user's mistake gives one line on stderr that says what is valid."""

import contextlib
import dataclasses
import io
import json
import os
import re
import subprocess
from pathlib import Path

import jax.numpy as jnp
import pytest
import tyro

from bert_jax import __version__
from bert_jax.cli.main import COMMANDS, main
from bert_jax.formats.open_model import open_model
from bert_jax.tasks import TASKS
from bert_jax.training.failures import out_of_memory_as_user_error
from bert_jax.training.metric_log import MetricLog
from bert_jax.workdir.directory import lock
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS
from data_pipeline.errors import UserError
from experiments import EXPERIMENTS
from tests.bert_jax.small_run import make_run
from tests.conftest import Refused
from tests.damage import flip_a_bit
from tests.data_pipeline.small_records import write_records
from tests.tiny_run import arguments, command, ended, environment, write_corpus

WRONG = {
    "unknown command": (["pretran"], ["'pretran'", "pretrain"]),
    "unknown experiment": (["pretrain", "no_nps"], ["'no_nps'", "no_nsp"]),
    "no experiment": (["pretrain", "--workdir", "w"], ["bert-jax pretrain EXPERIMENT"]),
    "no work directory": (["pretrain", "base"], ["missing --workdir DIR"]),
    "unknown flag": (
        ["pretrain", "base", "--workdir", "w", "--model.num-layer", "6"],
        ["--model.num-layer;", "--model.num-layers"],
    ),
    "a required flag that is misspelt": (
        ["pretrain", "base", "--wrokdir", "w"],
        ["unknown flag --wrokdir; nearest: --workdir"],
    ),
    "the other form of a flag, and none that is required": (
        ["finetune", "classify", "--no-grid"],
        ["missing --", "--model", "--output"],
    ),
    "wrong type": (
        ["pretrain", "base", "--workdir", "w", "--model.num-layers", "six"],
        ["error: --model.num-layers: invalid value 'six'; expected --model.num-layers INT"],
    ),
    "a value of neither type": (
        ["pretrain", "base", "--workdir", "w", "--optimizer.decay-start", "soon"],
        ["error: --optimizer.decay-start: invalid value 'soon'; expected", "{step_0,warmup_end}|INT"],
    ),
    "a decay within the warm-up": (
        ["pretrain", "base", "--workdir", "w", "--optimizer.decay-start", "5000"],
        ["optimizer.decay_start is 5000; it must be 0, or at least optimizer.warmup_steps (10000)"],
    ),
    "a generator that cannot be": (
        [
            *("pretrain", "electra_small", "--workdir", "w", "--model.positions", "rotary"),
            *("--model.hidden-size", "100", "--model.num-heads", "2"),
        ],
        ["objective.generator_size 0.25: model.positions rotary needs heads of an even width"],
    ),
    "initials of a flag": (
        ["pretrain", "base", "--workdir", "w", "--lr", "1e-3"],
        ["unknown flag --lr; nearest: ", "--optimizer.learning-rate"],
    ),
    "a word of a flag": (
        ["pretrain", "base", "--workdir", "w", "--steps", "10"],
        ["unknown flag --steps; nearest: --num-train-steps, --optimizer.warmup-steps"],
    ),
    "an objective by its file": (
        ["pretrain", "base", "--workdir", "w", "--objective", "./mine.py:Mine"],
        ["objective './mine.py:Mine' cannot be imported"],
    ),
    "an objective that its module lacks": (
        ["pretrain", "base", "--workdir", "w", "--objective", "bert_jax.objectives:Mine"],
        ["bert_jax.objectives has no objective 'Mine'; it has ", "MaskedLM"],
    ),
    "a decay after the end": (
        ["pretrain", "base", "--workdir", "w", "--optimizer.decay-start", "1000000"],
        ["optimizer.decay_start is 1000000", "num_train_steps (1000000)", "decay_power 0"],
    ),
    "wrong choice": (
        ["pretrain", "base", "--workdir", "w", "--model.dtype", "float16"],
        ["error: --model.dtype: invalid value 'float16'; valid: bfloat16, float32"],
    ),
    "flag without value": (["pretrain", "base", "--workdir"], ["Missing value for argument '--workdir'"]),
    "a value that is empty": (
        ["pretrain", "base", "--workdir", "w", "--data.corpus="],
        ["--data.corpus is empty"],
    ),
    "an unset variable": (["pretrain", "base", "--workdir", ""], ["--workdir is empty; give it a value"]),
    "an input that is empty": (["prepare", ""], ["an argument is empty"]),
    "stray argument": (["pretrain", "base", "large", "--workdir", "w"], ["'large'"]),
    "heads do not divide": (
        ["pretrain", "base", "--workdir", "w", "--model.num-heads", "5"],
        ["model.num_heads (5)", "768", "12"],
    ),
    "longer than the positions": (
        ["pretrain", "base", "--workdir", "w", "--data.phases.0.max-seq-length", "1024"],
        ["1024", "512"],
    ),
    "a phase that the experiment does not have": (
        ["pretrain", "base", "--workdir", "w", "--data.phases.2.max-seq-length", "64"],
        ["unknown flag --data.phases.2.max-seq-length", "--data.phases.1.max-seq-length"],
    ),
    "accumulation does not divide": (
        ["pretrain", "base", "--workdir", "w", "--parallel.accumulation-steps", "3"],
        ["accumulation_steps (3)", "256"],
    ),
    "more steps than can be counted": (
        ["pretrain", "base", "--workdir", "w", "--num-train-steps", "10000000000000000000000"],
        ["num_train_steps is 10000000000000000000000; it must be at most 2147483647"],
    ),
    "a size that no array has": (
        ["pretrain", "base", "--workdir", "w", "--model.vocab-size", "100000000000000000000"],
        ["model.vocab_size is 100000000000000000000; it must be at most 2147483647"],
    ),
    "a warm-up that never ends": (
        ["pretrain", "base", "--workdir", "w", "--optimizer.warmup-steps", "3000000000"],
        ["optimizer.warmup_steps is 3000000000; it must be at most 2147483647"],
    ),
    "steps as a float": (
        ["pretrain", "base", "--workdir", "w", "--num-train-steps", "1e22"],
        ["--num-train-steps: invalid value '1e22'; expected --num-train-steps INT"],
    ),
    "nothing to profile": (["pretrain", "base", "--workdir", "w", "--profile", "0"], ["--profile is 0"]),
    "impossible seed": (["pretrain", "base", "--workdir", "w", "--seed", "-1"], ["seed is -1"]),
    "nothing to predict": (
        ["pretrain", "base", "--workdir", "w", "--data.phases.1.max-predictions-per-seq", "0"],
        ["max_predictions_per_seq is 0", "length 512", "data.masking.rate 0.15"],
    ),
    "an infinite rate": (
        ["pretrain", "base", "--workdir", "w", "--optimizer.learning-rate", "inf"],
        ["optimizer.learning_rate is inf", "above 0 and finite"],
    ),
    "a decay that is no number": (
        ["pretrain", "base", "--workdir", "w", "--optimizer.weight-decay", "nan"],
        ["optimizer.weight_decay is nan", "at least 0"],
    ),
    "clipping to infinity": (
        ["pretrain", "base", "--workdir", "w", "--optimizer.clip-norm", "inf"],
        ["optimizer.clip_norm is inf", "or None"],
    ),
    "a share that is no number": (
        ["pretrain", "base", "--workdir", "w", "--data.masking.mask", "nan"],
        ["data.masking.mask", "nan", "add up to 1"],
    ),
    "everything dropped": (
        ["pretrain", "base", "--workdir", "w", "--model.dropout-rate", "0.999999"],
        ["model.dropout_rate is 0.999999", "below 0.9999"],
    ),
    "no corpus": (["pretrain", "base", "--workdir", "w"], ["--data.corpus"]),
    "two flags missing": (["convert"], ["missing --output PATH, --model DIR"]),
    "no corpus to inspect": (["inspect"], ["missing CORPUS"]),
    "impossible seed to inspect": (["inspect", "c", "--seed", "4294967296"], ["--seed is 4294967296"]),
    "examples below none": (["inspect", "c", "--examples", "-1"], ["--examples is -1"]),
    "rows below none": (["inspect", "c", "--sequences", "-1"], ["--sequences is -1"]),
    "two batches to compile": (
        ["compile", "base", "--topology", "v5e:2x2", "--largest-batch", "--batch-per-chip", "8"],
        ["--largest-batch", "--batch-per-chip"],
    ),
    "a report in a directory that is not there": (
        ["compile", "base", "--topology", "v5e:2x2", "--json", "missing/x.json"],
        ["--json missing/x.json", "missing is not a directory"],
    ),
    "a report that is a directory": (
        ["compile", "base", "--topology", "v5e:2x2", "--json", "."],
        ["--json . is a directory"],
    ),
    "unknown experiment to show": (["experiments", "bases"], ["'bases'", "base"]),
    "evaluate what is no run": (
        ["evaluate", "--workdir", "no-such-run"],
        ["no-such-run", "there is no directory no-such-run; name the work directory of a run"],
    ),
}


@dataclasses.dataclass
class Flags:
    count: int
    """How many."""


@pytest.mark.parametrize(
    ("argv", "wrong"),
    [
        ([], ["  Missing from bert-jax:", "      --count INT"]),
        (["--count", "x"], ["  Error parsing --count: invalid literal for int() with base 10: 'x'"]),
    ],
    ids=["missing", "wrong"],
)
def test_the_screens_of_tyro_have_the_form_that_is_read(argv: list[str], wrong: list[str]) -> None:
    screen = io.StringIO()
    with (
        contextlib.suppress(SystemExit),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(screen),
    ):
        tyro.cli(Flags, args=argv, prog="bert-jax")
    parts = re.split(r"^ *-{10,} *$", screen.getvalue(), flags=re.MULTILINE)
    lines = [line.rstrip() for line in parts[1].splitlines() if line.strip()]
    assert lines[: len(wrong)] == wrong, "mend bert_jax/cli/parsing.py"


@pytest.mark.parametrize(("argv", "named"), WRONG.values(), ids=WRONG)
def test_wrong_command_lines(
    argv: list[str],
    named: list[str],
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused(argv)
    assert [name for name in named if name not in line] == [], line
    assert not list(tmp_path.iterdir()), "a wrong command line left something behind"


def test_corpus_that_is_not_there(tmp_path: Path, refused: Refused) -> None:
    line = refused(arguments(tmp_path / "new" / "w", tmp_path / "nowhere"))
    assert f"{tmp_path / 'nowhere'} is not a corpus; give a directory made by" in line
    assert not (tmp_path / "new").exists(), "a refused run left something behind"


def test_a_work_directory_that_links_to_itself(corpus: Path, tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert f"{tmp_path / 'loop'} is a file" in refused(arguments(tmp_path / "loop", corpus))


@pytest.mark.parametrize(
    "flags", [["convert", "--model"], ["prepare", "--vocab-size", "100"]], ids=["convert", "prepare"]
)
def test_an_output_that_links_to_itself(flags: list[str], tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    output = ["--output", str(tmp_path / "loop")]
    (tmp_path / "text.txt").write_text("A sentence of text. And another one.")
    if flags[0] == "convert":
        make_run(tmp_path / "run", "mlm")
        argv = [*flags, str(tmp_path / "run")]
    else:
        argv = [*flags, str(tmp_path / "text.txt"), "--format", "text", "--train-vocab", "wordpiece"]
    assert f"{tmp_path / 'loop'} is a link that leads back to itself" in refused([*argv, *output])


def test_vocabulary_larger_than_the_model(corpus: Path, tmp_path: Path, refused: Refused) -> None:
    line = refused(arguments(tmp_path / "w", corpus, "--model.vocab-size", "19"))
    assert not (tmp_path / "w").exists(), "a refused run left something behind"
    assert "--model.vocab-size 20" in line


def test_altered_shard_is_named(tmp_path: Path, refused: Refused) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    shard = corpus / "train-00000.arrow"
    flip_a_bit(shard)
    assert str(shard) in refused(arguments(tmp_path / "w", corpus))


@pytest.mark.parametrize("name", ["corpus", "link"])
def test_a_corpus_that_is_the_work_directory(name: str, tmp_path: Path, refused: Refused) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    (tmp_path / "link").symlink_to(corpus)
    before = {path: path.read_bytes() for path in corpus.rglob("*") if path.is_file()}
    line = refused(arguments(tmp_path / name, corpus))
    assert f"--workdir {tmp_path / name} is the directory of data.corpus; name another" in line
    assert {path: path.read_bytes() for path in corpus.rglob("*") if path.is_file()} == before


def test_a_mesh_that_the_devices_cannot_form_is_refused_before_a_corpus_is_made(
    tmp_path: Path, refused: Refused
) -> None:
    line = refused(["pretrain", "quickstart", "--workdir", str(tmp_path / "w"), "--parallel.fsdp", "16"])
    assert "parallel.fsdp x parallel.tensor is 16, which does not divide" in line
    assert not (tmp_path / "w").exists()


def test_the_directory_of_a_model_stays_as_it_is(corpus: Path, tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 16}')
    assert f"{tmp_path} is not the work directory of a run: its c" in refused(arguments(tmp_path, corpus))
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_an_output_that_cannot_be_made(
    corpus: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "file").touch()
    (directory := tmp_path / "directory").mkdir()
    make_run(tmp_path / "run")
    monkeypatch.setattr(os, "access", lambda path, mode: path != directory)  # root may do everything
    cases = ((file / "x", f"made: {file} is a file"), (directory / "x", f"used: {directory} may not be"))
    for place, reason in cases:
        output = ("--output", str(place))
        for what, line in (
            ("work directory", arguments(place, corpus)),
            ("--output", ["export", "--workdir", str(tmp_path / "run"), *output]),
            ("--output", ["study", "smoke", "--scale", "smoke", *output]),
            ("--output", ["finetune", "mrpc", "--model", str(tmp_path), "--data", str(tmp_path), *output]),
        ):
            assert f"{what} {place} cannot be {reason}" in refused(line)


def test_work_directory_in_use(corpus: Path, tmp_path: Path, refused: Refused) -> None:
    with lock(tmp_path / "w"):
        assert "in use by another process" in refused(arguments(tmp_path / "w", corpus))


def test_a_disk_that_fails_is_not_bad_input(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write_to_full_disk(log: MetricLog, row: object) -> None:
        Path("/dev/full").write_text(f"{row}")

    monkeypatch.setattr(MetricLog, "write", write_to_full_disk)
    assert main(arguments(tmp_path / "w", corpus, "--num-train-steps", "1")) == 69
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert f"{tmp_path}/w: No space left on device; make room and run the same command again" in line


@pytest.mark.slow
def test_a_full_disk_is_two_lines(corpus: Path, tmp_path: Path) -> None:
    line = command(
        *arguments(tmp_path / "w", corpus, "--model.hidden-size", "128", "--num-train-steps", "40")
    )
    run = ended(["bash", "-c", 'ulimit -f 300; exec "$@"', "bash", *line], JAX_ENABLE_COMPILATION_CACHE="0")
    assert run.returncode == 69
    assert "checkpoint of step 20" in run.stdout
    (said,) = run.stderr.splitlines()
    assert "saving the checkpoint of step 40 in" in said


@pytest.mark.parametrize("file", ["corpus/manifest.json", "corpus/tokenizer/settings.json", "w/config.json"])
def test_a_disk_that_fails_at_the_start_is_not_bad_input(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = arguments(tmp_path / "w", write_corpus(tmp_path / "corpus"), "--num-train-steps", "1")
    if file == "w/config.json":
        assert main(argv) == 0
    assert (tmp_path / file).exists()
    (tmp_path / file).unlink()
    (tmp_path / file).symlink_to("/proc/self/mem")  # reading it is an Input/output error
    assert main(argv) == 69
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert "Input/output error; run the same command again" in line
    assert str((tmp_path / file).parent) in line


def test_going_on_with_other_code_is_said(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = arguments(tmp_path / "w", corpus, "--num-train-steps", "1")
    config = tmp_path / "w" / "config.json"
    for _ in range(2):
        assert main(argv) == 0
        assert "bit for bit" not in capsys.readouterr().out
    record = json.loads(config.read_text())
    start = record["starts"][-1]
    start["versions"]["jax"] = "0.1"
    start["git"] = {"commit": "abc", "changed_files": []}
    config.write_text(json.dumps(record))
    assert main(argv) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "bit for bit" in line]
    assert re.fullmatch("note: jax 0.1 -> .*; git commit abc -> .*: the run goes on, but it may not .*", line)
    assert len(json.loads(config.read_text())["starts"]) == 3


@pytest.mark.parametrize("columns", ["60", "200"])
def test_help_is_the_same_on_a_wide_terminal(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    usual = help_of(["pretrain", "base", "--help"], capsys)
    monkeypatch.setenv("COLUMNS", columns)
    assert help_of(["pretrain", "base", "--help"], capsys) == usual
    assert os.environ["COLUMNS"] == columns


def test_every_command_explains_itself_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [["finetune", name, "--help"] for name in TASKS]
    for argv in (
        ["--help"],
        ["pretrain", "base", "--help"],
        *tasks,
        *([name, "--help"] for name in COMMANDS),
    ):
        lines = help_of(argv, capsys)
        assert len(lines) > 5, argv
        assert [line for line in lines if len(line) > 80 or line != line.rstrip()] == [], argv


def test_help_breaks_lines_where_a_reader_expects_it(capsys: pytest.CaptureFixture[str]) -> None:
    lines = help_of(["predict", "--help"], capsys)
    assert lines[:2] == [
        "usage: bert-jax predict [-h] --model PATH --input PATH --output PATH",
        "  [--batch-size INT] [--encoding STR]",
    ]
    # In the docstring a line ends before the quotation mark; tyro would keep that line break.
    assert 'gains a field "prediction", candidates are ranked.' in lines
    lines = help_of(["prepare", "--help"], capsys)
    assert " " * 28 + "documents. lines: one document per line. text: a" in lines
    assert "  bert-jax prepare text/ --format text --train-vocab wordpiece \\" in lines


def help_of(argv: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of a help text."""
    with contextlib.suppress(SystemExit):
        main(argv)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("command", ["pretrain", "compile"])
def test_help_says_what_each_experiment_is(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    listed = [line.split(maxsplit=1) for line in help_of([command, "--help"], capsys)[-len(EXPERIMENTS) :]]
    assert [name for name, _ in listed] == list(EXPERIMENTS)
    assert ["base", "BERT-BASE as published"] in listed


def test_an_experiment_is_shown_with_what_the_paper_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiments", "no_nsp"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "objective = 'mlm'" in shown
    assert "published table5 QNLI = 84.9" in shown
    assert main(["experiments", "ltr_no_nsp"]) == 0
    # Of the two arms that are pretrained so, the one without a BiLSTM.
    assert "published table5 SQuAD F1 = 77.8" in capsys.readouterr().out.splitlines()


def test_an_alias_is_shown_as_what_it_means(capsys: pytest.CaptureFixture[str]) -> None:
    shown = [(main(["experiments", name]), capsys.readouterr().out) for name in ("size_12_768_12", "base")]
    assert shown[0] == shown[1]


def test_experiments_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiments"]) == 0
    table = capsys.readouterr().out
    assert all(name in table for name in EXPERIMENTS)
    assert main(["experiments", "roberta_base"]) == 0
    assert "optimizer.beta2 = 0.98" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"bert-jax {__version__}"


def test_a_directory_of_tfrecords_is_trained_on(
    tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    write_records(tmp_path / "a.tfrecord", range(13))
    write_records(tmp_path / "heldout.tfrecord", range(100, 108))
    flags = ["--data.phases.0.max-predictions-per-seq", "3", "--num-train-steps", "1"]
    line = refused(arguments(tmp_path / "w", tmp_path, *flags))
    assert "holds the token id" in line
    assert "--model.vocab-size" in line
    capsys.readouterr()
    assert main(arguments(tmp_path / "w", tmp_path, *flags, "--model.vocab-size", "70000")) == 0
    (note,) = [line for line in capsys.readouterr().out.splitlines() if "vocabulary" in line]
    assert f"put the vocab.txt that the TFRecords were made with into {tmp_path}" in note


@pytest.mark.parametrize("added", ["before", "later"])
def test_a_run_on_tfrecords_with_a_vocabulary_is_exported_and_gone_on_from(
    added: str, tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    records, first = tmp_path / "records", tmp_path / "first"
    records.mkdir()
    write_records(records / "a.tfrecord", range(13))
    pieces = [*SPECIAL_TOKENS, "a", "B"]
    flags = ["--data.phases.0.max-predictions-per-seq", "3", "--num-train-steps", "1"]
    flags += ["--model.vocab-size", "70000"]
    export = ["export", "--workdir", str(first), "--output", str(tmp_path / "out")]
    if added == "before":
        (records / "vocab.txt").write_text("\r\n".join(pieces))
    assert main(arguments(first, f"{records}/*", *flags)) == 0
    if added == "later":
        said = f"no tokenizer of this run in {first}"
        assert said in (line := refused(export))
        assert line.endswith(f"put the vocab.txt that they were made with into {records}")
        (records / "vocab.txt").write_text("\n".join(pieces) + "\n")
    assert main(export) == 0
    assert (tmp_path / "out" / "vocab.txt").read_text().split() == pieces
    assert open_model(tmp_path / "out").vocabulary.casing == "cased"
    second = arguments(tmp_path / "second", records, *flags, "--init-from", str(first))
    assert main(second) == 0
    assert "does not tell" not in capsys.readouterr().out
    assert open_model(tmp_path / "second").tokenizer.get_vocab() == {p: i for i, p in enumerate(pieces)}
    (records / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "B", "a"]) + "\n")
    other = arguments(tmp_path / "third", records, *flags, "--init-from", str(tmp_path / "second"))
    assert "its id 5, 'B', is 'a' in the model" in refused(other)
    (records / "vocab.txt").write_text("a\n")
    assert "vocab.txt has no [PAD], [UNK]" in refused(arguments(tmp_path / "w", records, *flags))


@pytest.mark.parametrize("name", ["tokenizer", "metrics.jsonl", "tensorboard", "checkpoints"])
def test_a_directory_that_is_not_a_run_is_refused_and_unchanged(
    name: str, corpus: Path, tmp_path: Path, refused: Refused
) -> None:
    workdir = tmp_path / "w"
    (workdir / name).mkdir(parents=True)
    (workdir / name / "events.mine").touch()
    line = refused(arguments(workdir, corpus, "--num-train-steps", "1"))
    assert f"w holds {name} but no config.json, so it is not that of a run; name another directory" in line
    assert [str(path.relative_to(workdir)) for path in workdir.rglob("*")] == [name, f"{name}/events.mine"]


def test_fine_tuned_models_are_left_alone(corpus: Path, tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "w" / "trials").mkdir(parents=True)
    assert "w holds fine-tuned models; name" in refused(arguments(tmp_path / "w", corpus))
    assert [path.name for path in (tmp_path / "w").iterdir()] == ["trials"]


def test_a_start_that_ends_before_the_tokenizer_is_there_begins_again(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            "bert_jax.workdir.directory.copy_tokenizer", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        assert main(arguments(tmp_path, corpus, "--num-train-steps", "1")) != 0
    assert main(arguments(tmp_path, corpus, "--num-train-steps", "1")) == 0
    assert (tmp_path / "tokenizer" / "vocab.txt").exists()


def test_memory_that_runs_out_is_named() -> None:
    with (
        pytest.raises(
            UserError,
            match=r"too little memory .*--parallel\.remat layers, .*accumulation-steps, .* --batch-size",
        ),
        out_of_memory_as_user_error("--batch-size"),
    ):
        jnp.zeros((1 << 20, 1 << 26)).block_until_ready()  # 256 TB


@pytest.mark.parametrize("words", [["--help"], ["compile", "--help"], ["inspect", "CORPUS"]])
def test_output_that_nobody_reads_is_no_success(words: list[str], corpus: Path) -> None:
    words = [str(corpus) if word == "CORPUS" else word for word in words]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing) as output:
        done = subprocess.run(
            command(*words), env=environment(), stdout=output, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "")


def test_a_vocabulary_too_small_for_the_documentation_is_named_by_its_setting(
    tmp_path: Path, refused: Refused
) -> None:
    line = refused(["pretrain", "quickstart", "--workdir", str(tmp_path / "w"), "--model.vocab-size", "50"])
    assert "model.vocab_size is 50; the vocabulary of this corpus has at least 100 entries" in line
