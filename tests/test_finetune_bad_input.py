"""What `bert-jax finetune` refuses: one line that names the place, exit 2, and no output directory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bert_jax.cli.main import main
from tests.bert_jax.small_run import make_run
from tests.data_pipeline.tasks.files import squad_json, write_all

TEXTS = "text\tlabel\nthe cat\ta\nthe dog\tb\n"
NUMBERS = "text\tlabel\nthe cat\t1.5\n"
TAGS = "the O\ncat B-X\n"


def squad(start: int, context: str = "the cat sat", **question: Any) -> str:
    """A SQuAD file with one question, whose answer is given as starting at `start`."""
    answers = [{"text": "sat", "answer_start": start}]
    return squad_json(context, [{"id": "q1", "question": "the?", "answers": answers, **question}])


CASES: dict[str, tuple[str, Mapping[str, str], str]] = {
    "a table without names": (
        "classify",
        {"train.tsv": TEXTS.partition("\n")[2], "dev.tsv": TEXTS},
        "(a table without a line of names takes numbers of columns, from 0)",
    ),
    "a row of a TSV without all columns": (
        "classify",
        {"train.tsv": TEXTS + "the mat\n", "dev.tsv": TEXTS},
        "train.tsv, line 4 has 1 columns; the first line names 2",
    ),
    "a row of a CSV without all columns": (
        "classify",
        {"train.csv": "text,label\ncat,a\ndog\n", "dev.tsv": TEXTS},
        "train.csv, line 3 has 1 columns; the first line names 2",
    ),
    "a row of GLUE without all columns": (
        "cola",
        {"train.tsv": "x\t1\t\n", "dev.tsv": "x\t1\t\tthe cat\n"},
        "train.tsv, line 1 does not have 4 columns",
    ),
    "an empty text": (
        "classify",
        {"train.tsv": TEXTS, "dev.tsv": "text\tlabel\n \ta\n"},
        "dev.tsv, line 2: text is empty",
    ),
    "a number that is none": (
        "regress",
        {"train.tsv": NUMBERS + "the dog\tx\n", "dev.tsv": NUMBERS},
        "train.tsv, line 3 has the label 'x'; regression needs a number",
    ),
    "a number that is not finite": (
        "regress",
        {"train.tsv": NUMBERS + "the dog\tnan\n", "dev.tsv": NUMBERS},
        "train.tsv, line 3 has the label 'nan'; regression needs a number",
    ),
    "tags of another scheme": (
        "ner",
        {"train.txt": "the O\ncat I-X\n", "dev.txt": TAGS},
        "train.txt:2: I-X can't follow O in iob2; give --scheme iob1 or --scheme iobes",
    ),
    "what is no tag": (
        "ner",
        {"train.txt": TAGS, "dev.txt": "the O\ncat PER\n"},
        "dev.txt:2: 'PER' is not a tag of iob2",
    ),
    "a tag that only test has": (
        "ner",
        {"train.txt": TAGS, "dev.txt": TAGS, "test.txt": "the O\n\nthe O\ncat B-Y\n"},
        "test.txt:4: no word of training or dev has the type Y; their types are X",
    ),
    "an answer that is not at its offset": (
        "squad",
        {"train-v1.1.json": squad(1), "dev-v1.1.json": squad(8)},
        "1 of 1 answers, the first of question q1, are not at their answer_start",
    ),
    "JSON that is not SQuAD": (
        "squad",
        {"train-v1.1.json": '{"a": 1}', "dev-v1.1.json": squad(8)},
        "train-v1.1.json has no 'data' that is a list",
    ),
    "a file that is not JSON": (
        "squad",
        {"train-v1.1.json": "{", "dev-v1.1.json": squad(8)},
        "train-v1.1.json is not JSON in UTF-8",
    ),
    "a question of dev without answer": (
        "squad",
        {"train-v1.1.json": squad(8), "dev-v1.1.json": squad(8, answers=[])},
        "question q1 of",
    ),
    "an empty passage": (
        "squad",
        {"train-v1.1.json": squad(8, context=" "), "dev-v1.1.json": squad(8)},
        "the context of question q1 of",
    ),
    "a choice that there is not": (
        "swag",
        {"train.jsonl": '{"context": "a", "choices": ["b", "c"], "label": 5}\n', "dev.jsonl": "{}"},
        "train.jsonl, line 1 has the label 5; it must be from 0 to 1",
    ),
    "a choice of dev without label": (
        "swag",
        {
            "train.tsv": "o\tthe cat\tsat\tsaw\twas\ton\t0\n",
            "dev.tsv": "o\tthe cat\tsat\tsaw\twas\ton\n",
        },
        "dev.tsv, line 1 has no label; only texts to predict go without",
    ),
    "a negative that the first example has not": (
        "rank",
        {
            "train.jsonl": '{"query": "a", "positive": "b"}\n'
            '{"query": "a", "positive": "b", "negative": "c"}\n',
            "dev.tsv": "query_id\tquery\tcandidate\trelevance\n1\ta\tb\t1\n",
        },
        "train.jsonl, line 2 has negative, the first line has none; give all lines one or none",
    ),
    "a training set alone": (
        "classify",
        {"train.tsv": TEXTS},
        "validation; to use a fold of the training file as dev set, rename train.tsv to all.tsv",
    ),
    "words that are their own tags": (
        "tag",
        {"train.txt": "the\ncat\n", "dev.txt": "the\n"},
        "train.txt:1: column 0 is both --word-column and --tag-column; name two columns",
    ),
    "candidates of dev that nobody has judged": (
        "rank",
        {"train.tsv": "query\tpositive\na\tb\n", "dev.tsv": "query_id\tquery\tcandidate\n1\ta\tb\n"},
        "dev.tsv has no column relevance",
    ),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model has 24 positions."""
    directory = tmp_path_factory.mktemp("run") / "model"
    make_run(directory, num_layers=1)
    return directory


@pytest.mark.parametrize("case", CASES)
def test_it_is_one_line_and_nothing_is_written(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture, case: str
) -> None:
    task, files, message = CASES[case]
    data, output = tmp_path / "data", tmp_path / "out"
    write_all(data, files)
    more = {"squad": ["--max-query-length=5"], "tag": ["--scheme=none"]}
    flags = ["--max-seq-length=20", *more.get(task, [])]
    assert main(["finetune", task, f"--model={model}", f"--data={data}", f"--output={output}", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("bert-jax: error: ")
    assert error.count("\n") == 1
    assert not output.exists()


FLAGS: dict[str, tuple[list[str], str]] = {
    "no epoch": (["--epochs=0"], "epochs is 0; it must be above 0"),
    "epochs backwards": (["--epochs", "3", "-2"], "epochs is -2; it must be above 0"),
    "an empty batch": (["--batch-size=0"], "batch_size is 0; it must be at least 1"),
    "no learning": (["--learning-rate=0"], "learning_rate is 0; it must be above 0"),
    "a flag without values": (["--learning-rate"], "--learning-rate has no value; give one or more"),
    "a seed below 0": (["--first-seed=-1"], "--first-seed is -1; it must be at least 0"),
    "dropout of all": (["--dropout-rate=1"], "--dropout-rate is 1.0; it must be at least 0 and below 0.9999"),
    "dropout below 0": (["--attention-dropout-rate=-0.1"], "--attention-dropout-rate is -0.1; it must be"),
    "micro-batches of a later trial": (
        ["--batch-size", "6", "8", "--parallel.accumulation-steps=3"],
        "accumulation_steps (3) does not divide global_batch_size (8)",
    ),
    "a mesh of more devices than there are": (
        ["--batch-size=999", "--parallel.fsdp=333"],
        "parallel.fsdp x parallel.tensor is 333, which does not divide",
    ),
    "data that are no directory": (["--data=nowhere"], "nowhere is not a directory; --data takes"),
}


@pytest.mark.parametrize(
    ("task", "file"), [("classify", "train.tsv"), ("squad", "train-v1.1.json"), ("ner", "train.txt")]
)
def test_a_disk_that_fails_is_not_bad_input(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture, task: str, file: str
) -> None:
    (tmp_path / file).symlink_to("/proc/self/mem")  # reading it is an Input/output error
    for name in ("dev.tsv", "dev-v1.1.json", "dev.txt"):
        (tmp_path / name).touch()
    output = tmp_path / "out"
    paths = [f"--model={model}", f"--data={tmp_path}", f"--output={output}"]
    assert main(["finetune", task, *paths, "--max-seq-length=20"]) == 69
    assert f"{tmp_path / file}: Input/output error; run the same command again" in capsys.readouterr().err
    assert not output.exists()


def test_an_output_that_is_the_data_set(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "train.tsv").write_text(TEXTS)
    paths = [f"--model={model}", f"--data={tmp_path}", f"--output={tmp_path}"]
    assert main(["finetune", "classify", *paths]) == 2
    assert f"--output {tmp_path} is the directory of --data; name another one" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["train.tsv"]


@pytest.mark.parametrize("case", FLAGS)
def test_impossible_flags_are_known_before_anything_is_written(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture, case: str
) -> None:
    flags, message = FLAGS[case]
    write_all(tmp_path, dict.fromkeys(("train.tsv", "dev.tsv"), TEXTS))
    output = tmp_path / "out"
    paths = [f"--model={model}", f"--data={tmp_path}", f"--output={output}", "--max-seq-length=20"]
    assert main(["finetune", "classify", *paths, *flags]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert not output.exists()


def test_a_ranking_with_all_layers_frozen_has_nothing_to_train(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Its scores are the encoder's own, without parameters of a head."""
    judged = "query_id\tquery\tcandidate\trelevance\n1\ta\tb\t1\n1\ta\tc\t0\n"
    write_all(tmp_path, {"train.tsv": "query\tpositive\na\tb\n", "dev.tsv": judged})
    output = tmp_path / "out"
    paths = [f"--model={model}", f"--data={tmp_path}", f"--output={output}", "--max-seq-length=20"]
    assert main(["finetune", "rank", *paths, "--frozen-layers=1"]) == 2
    assert "--frozen-layers 1 leaves rank nothing to train; give fewer" in capsys.readouterr().err
    assert not output.exists()


def test_the_directory_of_a_model_is_no_place_for_another(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    write_all(tmp_path, dict.fromkeys(("train.tsv", "dev.tsv"), TEXTS))
    before = sorted(model.iterdir())
    paths = [f"--model={model}", f"--data={tmp_path}", f"--output={model}", "--max-seq-length=20"]
    assert main(["finetune", "classify", *paths]) == 2
    assert "holds a model or a run; name another --output" in capsys.readouterr().err
    assert sorted(model.iterdir()) == before
