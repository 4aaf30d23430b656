"""Beam: the direct runner makes the same corpus as this machine's processes, byte for byte."""

import gzip
import html
import json
import pickle
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zstandard

from bert_jax.cli.flags.prepare import parse
from bert_jax.cli.main import main
from data_pipeline.corpus.tokenizer import load_vocabulary
from data_pipeline.corpus.vocabulary_file import TOKENIZER_DIRECTORY
from data_pipeline.errors import Unfinished, UserError
from data_pipeline.preparing import shard_texts
from data_pipeline.preparing.inputs import Inputs, Source
from data_pipeline.preparing.local_runner import LocalRunner
from data_pipeline.preparing.partial import partial_directory
from data_pipeline.preparing.prepare import PrepareSettings, Runner, prepare
from data_pipeline.preparing.shard_texts import ShardJob
from data_pipeline.preparing.summary import warnings_about
from tests.data_pipeline.preparing.small_text import WORDS
from tests.data_pipeline.tiny_tfds import store, text_features

ROOT = Path(__file__).parents[3]

ONE_WORKER = LocalRunner(1)

needs_beam = pytest.mark.beam


def direct(*options: str) -> Runner:
    from data_pipeline.preparing.beam_runner import BeamRunner

    return BeamRunner("direct", options)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Makes every input file a partition of its own."""
    monkeypatch.setattr("data_pipeline.preparing.partitions.PARTITION_BYTES", 1)


@pytest.fixture
def small_shards(monkeypatch):
    """Makes many small shards. Only code in this process sees the change; LocalRunner's workers need not."""
    monkeypatch.setattr(shard_texts, "SHARD_TEXT_BYTES", 1500)


@pytest.fixture
def vocabulary(vocabulary):
    """Its file, as settings name it."""
    return str(vocabulary)


def write_files(directory: Path, form: str) -> Path:
    """Seven files, one of them without a document, with unknown words and documents that repeat."""
    draw = np.random.default_rng(5)
    directory.mkdir()
    for number in range(7):
        documents = [
            [" ".join(draw.choice([*WORDS, "zebra"], draw.integers(1, 12))) + "." for _ in range(sentences)]
            for sentences in draw.integers(1, 6, 40 if number != 3 else 0)
        ]
        content = encode([*documents, *documents[:10]], form).encode()
        (directory / f"part-{number}.{form}").write_bytes(content)
    for number, suffix, compress in ((1, "gz", gzip.compress), (4, "zst", zstandard.compress)):
        path = directory / f"part-{number}.{form}"
        path.with_name(f"{path.name}.{suffix}").write_bytes(compress(path.read_bytes()))
        path.unlink()
    return directory


def encode(documents: list[list[str]], form: str) -> str:
    if form == "jsonl":
        return "".join(json.dumps({"text": "\n".join(document)}) + "\n" for document in documents)
    if form == "wikiextractor":
        bodies = (html.escape("\n".join(document)) for document in documents)
        return '<doc id="0" title="none">\n</doc>\n' + "".join(
            f'<doc id="1" title="the">\nthe\n{body}\n</doc>\n' for body in bodies
        )
    return "\n\n".join("\n".join(document) for document in documents) + "\n"


def contents(corpus: Path) -> dict[str, object]:
    """Every file's bytes; of the manifest everything but the command."""
    files = (path for path in corpus.rglob("*") if path.is_file())
    found: dict[str, object] = {str(path.relative_to(corpus)): path.read_bytes() for path in files}
    return {**found, "manifest.json": {**json.loads(str(found["manifest.json"], "utf-8")), "command": ""}}


def assert_same_corpus(settings: PrepareSettings, directory: Path, runner: Runner) -> dict:
    prepare(settings, directory / "local", runner=ONE_WORKER)
    manifest = prepare(settings, directory / "beam", runner=runner)
    assert contents(directory / "beam") == contents(directory / "local")
    assert not list(directory.glob("*.partial"))
    return manifest


@needs_beam
@pytest.mark.parametrize("form", ["sentences", "text", "wikiextractor", "jsonl"])
def test_the_corpus_is_the_same_byte_for_byte(tmp_path, vocabulary, small_shards, form):
    source = Source((str(write_files(tmp_path / "in", form)),), format=form)
    settings = PrepareSettings(source, vocab=vocabulary, holdout=0.3)
    manifest = assert_same_corpus(settings, tmp_path, direct())
    if form != "text":  # where a file is a document
        assert len(manifest["splits"]["train"]["shards"]) > 10
        assert len(manifest["splits"]["heldout"]["shards"]) > 3
        assert len(warnings_about(manifest["statistics"])) == 4


@needs_beam
def test_a_vocabulary_is_learned_alike(tmp_path, small_shards):
    source = Source((str(write_files(tmp_path / "in", "jsonl")),))
    settings = PrepareSettings(source, train_vocab="wordpiece", vocab_size=120)
    assert_same_corpus(settings, tmp_path, direct())


@needs_beam
@pytest.mark.parametrize("duplicates", ["exact", "near"])
def test_the_same_duplicates_are_left_out(tmp_path, vocabulary, small_shards, duplicates):
    source = Source((str(write_files(tmp_path / "in", "jsonl")),))
    settings = PrepareSettings(source, vocab=vocabulary, duplicates=duplicates)
    manifest = assert_same_corpus(settings, tmp_path, direct())
    assert manifest["left_out_duplicates"]["exact"] >= 60


@needs_beam
def test_the_same_documents_are_filtered(tmp_path, vocabulary, small_shards):
    source = Source((str(write_files(tmp_path / "in", "jsonl")),))
    settings = PrepareSettings(source, vocab=vocabulary, max_tokens_per_character=0.3)
    manifest = assert_same_corpus(settings, tmp_path, direct())
    assert 50 < manifest["filtered_documents"] < 250


@needs_beam
def test_tfds_gives_the_same_corpus(tmp_path, vocabulary, small_shards):
    texts = [{"text": f"the cat sat {i}"} for i in range(300)]
    store(tmp_path / "tfds", "tiny_text", text_features(), {"train": texts})
    source = Source(("tfds:tiny_text",), tfds_data_dir=str(tmp_path / "tfds"))
    assert_same_corpus(PrepareSettings(source, vocab=vocabulary), tmp_path, direct())


@needs_beam
def test_workers_in_other_processes_make_the_same_corpus(tmp_path, vocabulary):
    source = Source((str(write_files(tmp_path / "in", "sentences")),), format="sentences")
    settings = PrepareSettings(source, vocab=vocabulary, holdout=0.3)
    runner = direct("--direct_running_mode", "multi_processing", "--direct_num_workers", "2")
    assert_same_corpus(settings, tmp_path, runner)


@needs_beam
def test_the_command_reports_and_prints_no_warning_of_beams(tmp_path, vocabulary):
    directory = write_files(tmp_path / "in", "jsonl")
    flags = [str(directory), "--output", str(tmp_path / "made"), "--vocab", vocabulary, "--runner", "direct"]
    command = [sys.executable, "-m", "bert_jax.cli.main", "prepare", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"train +\d+ ", done.stdout)


@needs_beam
def test_workers_in_another_directory_find_the_inputs(tmp_path, vocabulary, monkeypatch):
    write_files(tmp_path / "in", "sentences")
    monkeypatch.chdir(tmp_path)

    def leave_when_workers_start(name: str, done: int, total: int | None) -> None:
        if name == "tokenising (direct)":
            monkeypatch.chdir("/")

    settings = PrepareSettings(Source(("in",), format="sentences"), vocab=vocabulary)
    output = tmp_path / "made"
    assert prepare(settings, output, runner=direct(), on_progress=leave_when_workers_start)


@needs_beam
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, vocabulary, small_shards):
    directory = write_files(tmp_path / "in", "sentences")
    for name in ("part-2", "part-5"):
        with (directory / f"{name}.sentences").open("ab") as file:
            file.write(b"the \xff\n")
    source = Source((str(directory),), format="sentences")
    with pytest.raises(UserError, match=r"part-2\.sentences is not UTF-8 at byte \d+; convert it"):
        prepare(PrepareSettings(source, vocab=vocabulary), tmp_path / "made", runner=direct())
    assert not list(tmp_path.glob("made*"))


@needs_beam
@pytest.mark.parametrize("next_runner", [direct, lambda: ONE_WORKER], ids=["direct", "local"])
def test_a_pipeline_that_fails_leaves_no_corpus_and_any_runner_goes_on(
    tmp_path, vocabulary, small_shards, monkeypatch, next_runner
):
    source = Source((str(write_files(tmp_path / "in", "sentences")),), format="sentences")
    settings = PrepareSettings(source, vocab=vocabulary, holdout=0.3)
    output, tokenize = tmp_path / "beam", shard_texts.tokenize_document
    left = 100

    def fail_later(*args):
        nonlocal left
        left -= 1
        if left < 0:
            raise RuntimeError("the machine is gone")
        return tokenize(*args)

    with monkeypatch.context() as patch:
        patch.setattr(shard_texts, "tokenize_document", fail_later)
        with pytest.raises(Unfinished, match=r"failed on direct \(.*the machine is gone.*\); run the same"):
            prepare(settings, output, runner=direct())
    assert not output.exists()
    made = {path.name: path.stat().st_mtime_ns for path in partial_directory(output).glob("*.arrow")}
    assert len(made) > 2
    assert_same_corpus(settings, tmp_path, next_runner())
    assert {name: (output / name).stat().st_mtime_ns for name in made} == made, "it made a shard twice"


@needs_beam
def test_ctrl_c_inside_a_step_is_ctrl_c(tmp_path, vocabulary, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(shard_texts, "tokenize_document", interrupt)
    source = Source((str(write_files(tmp_path / "in", "sentences")),), format="sentences")
    with pytest.raises(KeyboardInterrupt):
        prepare(PrepareSettings(source, vocab=vocabulary), tmp_path / "made", runner=direct())
    assert [path.name for path in tmp_path.glob("made*")] == ["made.partial"]


@needs_beam
def test_a_pipeline_that_is_cancelled_leaves_no_corpus(tmp_path, vocabulary, monkeypatch):
    """When cancelled, some runners end without an error."""
    monkeypatch.setattr("data_pipeline.preparing.beam_runner._save_totals", lambda totals, scratch: None)
    source = Source((str(write_files(tmp_path / "in", "sentences")),), format="sentences")
    with pytest.raises(Unfinished, match="the pipeline ended without a result"):
        prepare(PrepareSettings(source, vocab=vocabulary), tmp_path / "made", runner=direct())
    assert [path.name for path in tmp_path.glob("made*")] == ["made.partial"]


@needs_beam
def test_workers_with_other_versions_are_refused_and_the_directory_stays(tmp_path, vocabulary, monkeypatch):
    from data_pipeline.preparing import beam_runner

    source = Source((str(write_files(tmp_path / "in", "sentences")),), format="sentences")
    versions = beam_runner.library_versions()
    answers = iter([{**versions, "tokenizers": "0.1"}])  # here first, then on the workers
    monkeypatch.setattr(beam_runner, "library_versions", lambda: next(answers, versions))
    with pytest.raises(Unfinished, match=r"a worker has tokenizers .* and this machine 0\.1; .* to resume"):
        prepare(PrepareSettings(source, vocab=vocabulary), tmp_path / "made", runner=direct())
    assert [path.name for path in tmp_path.glob("made*")] == ["made.partial"]


@needs_beam
def test_inputs_that_a_worker_does_not_see_leave_what_is_finished(tmp_path, vocabulary, small_shards):
    directory = write_files(tmp_path / "in", "sentences")
    settings = PrepareSettings(Source((str(directory),), format="sentences"), vocab=vocabulary, holdout=0.3)
    output = tmp_path / "beam"

    def unmount_when_workers_start(name: str, done: int, total: int | None) -> None:
        if name == "tokenising (direct)":
            directory.rename(tmp_path / "unmounted")

    with pytest.raises(Unfinished, match=r"part-0\.sentences: No such file .* on a worker; .* to resume"):
        prepare(settings, output, runner=direct(), on_progress=unmount_when_workers_start)
    assert partial_directory(output).exists()
    (tmp_path / "unmounted").rename(directory)
    assert_same_corpus(settings, tmp_path, direct())


@needs_beam
def test_a_shard_that_one_worker_saw_is_not_written_by_another_that_does_not(tmp_path, vocabulary):
    """With a stale network cache one worker sees a finished shard, so that its documents are not sent, and
    another worker does not see it."""
    from data_pipeline.preparing.beam_runner import Plan, _Finish

    plan = Plan(ShardJob(tmp_path, Inputs(Source(()), ()), 0, "en"), (), {})
    plan.scratch.mkdir()
    (plan.scratch / "plan").write_bytes(pickle.dumps(plan))
    load_vocabulary(Path(vocabulary), "uncased").save(tmp_path / TOKENIZER_DIRECTORY)
    finish = _Finish(plan.scratch)
    finish.setup()
    shard = tmp_path / "train-00000.arrow"
    seen, unseen = (
        [(0, None, 100), (1, ["the cat sat"], 11)],
        [(0, ["a dog sat"], 9), (1, ["the cat sat"], 11)],
    )

    with pytest.raises(FileNotFoundError, match=r"does not see the shard .*train-00000"):
        list(finish.process((("train", 0), seen)))
    assert not shard.exists()
    (made,) = finish.process((("train", 0), unseen))
    before = shard.read_bytes()
    (again,) = finish.process((("train", 0), seen))
    assert made.splits()["train"]["documents"] == 2
    assert (again.rows, again.text_bytes) == (made.rows, 111)
    assert shard.read_bytes() == before


@needs_beam
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["direct", "--", "--direct_num_workers", "x"],
            "--runner direct does not take .*: argument",
        ),
        (["direct", "--", "--runner=FlinkRunner"], "--runner is given twice"),
        (["dataflow", "--", "--project", "mine"], "--runner dataflow does not take .*region"),
    ],
)
def test_options_that_beam_refuses_are_one_line(tmp_path, vocabulary, capsys, options, message):
    output = tmp_path / "made"
    flags = ["text.txt", "--output", str(output), "--vocab", vocabulary, "--runner", *options]
    assert main(["prepare", *flags]) == 2
    assert_one_line(capsys.readouterr().err, message)
    assert not list(tmp_path.glob("made*"))


@needs_beam
def test_documented_options_are_beams_own():
    from apache_beam.options.pipeline_options import PipelineOptions

    commands = list(documented_commands())
    assert len(commands) > 4
    for command in commands:
        args = parse(command[2:])
        options = PipelineOptions(args.runner_options)
        assert set(options.get_all_options(retain_unknown_options=True)) == set(options.get_all_options())


def documented_commands() -> Iterator[list[str]]:
    """The commands of the documentation that name a runner."""
    text = (ROOT / "docs" / "preparing.md").read_text(encoding="utf-8")
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        lines = block.replace("\\\n", " ").splitlines()
        yield from (shlex.split(line) for line in lines if "--runner" in line)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--runner", "dirct"], "--runner: invalid value 'dirct'; valid: .*direct"),
        (["--", "--direct_num_workers", "2"], "--direct_num_workers is after --.* need --runner NAME"),
        (["--runner", "direct", "--workers", "2"], "--workers is for this machine alone"),
    ],
)
def test_flags_that_cannot_be_meant_are_one_line(capsys, options, message):
    assert main(["prepare", "text.txt", "--output", "made", "--vocab", "vocab.txt", *options]) == 2
    assert_one_line(capsys.readouterr().err, message)


def test_without_beam_a_line_says_what_to_install(monkeypatch, capsys):
    for name in ("data_pipeline.preparing.beam", "data_pipeline.preparing.beam_runner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    flags = ["text.txt", "--output", "made", "--vocab", "vocab.txt", "--runner", "direct"]
    assert main(["prepare", *flags]) == 2
    assert_one_line(
        capsys.readouterr().err,
        r"apache_beam is not installed: pip install -c constraints.txt -e '\.\[beam\]'",
    )


def assert_one_line(errors: str, message: str) -> None:
    assert re.fullmatch(rf"bert-jax: error: .*{message}.*\n", errors), errors
