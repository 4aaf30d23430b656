"""`bert-jax finetune` on TensorFlow datasets: the same metrics and predictions as on their files."""

import json
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from bert_jax.cli.main import main
from bert_jax.tasks import glue
from tests.bert_jax.small_run import make_run
from tests.data_pipeline.tasks.files import json_lines, write_all
from tests.data_pipeline.tasks.small_tokenizer import read_model_tokenizer
from tests.data_pipeline.tiny_tfds import (
    cola_features,
    conll_features,
    mnli_features,
    squad_features,
    store,
    table_features,
)

TEXTS = [
    {"text": "the cat", "label": "b"},
    {"text": "a dog", "label": "a"},
    {"text": "the mat", "label": "b"},
]
SENTENCES = [
    {"tokens": ["Paris", "is"], "pos": ["B", "A"], "chunks": ["A", "A"], "ner": ["B-X", "O"]},
    {"tokens": ["cat"], "pos": ["B"], "chunks": ["B"], "ner": ["O"]},
]
JUDGEMENT = {"sentence": "the cat", "label": 0, "idx": 0}
PAIR = {"premise": "the cat", "hypothesis": "a cat", "label": 0, "idx": 0}
ANSWERS = {"text": ["cat"], "answer_start": [4]}
QUESTION = {"id": "1", "question": "who?", "context": "the cat", "answers": ANSWERS, "is_impossible": False}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tfds")
    make_run(directory / "model", num_layers=1)
    store(
        directory,
        "tiny_table",
        table_features(["a", "b"]),
        dict.fromkeys(("train", "validation", "test"), TEXTS),
    )
    latin = {"train": TEXTS, "validation": [TEXTS[0], {"text": b"caf\xe9", "label": "a"}]}
    store(directory, "latin_table", table_features(["a", "b"]), latin)
    latin_judgements = {"train": [JUDGEMENT], "validation": [{**JUDGEMENT, "sentence": b"caf\xe9", "idx": 7}]}
    store(directory, "latin_cola", cola_features(), latin_judgements)
    untagged = [{**sentence, "ner": [-1] * len(sentence["ner"])} for sentence in SENTENCES]
    parts = {"train": SENTENCES, "validation": SENTENCES, "test": untagged}
    store(directory, "untagged_conll", conll_features(["O", "B-X"]), parts)
    store(directory, "tiny_conll", conll_features(["O", "B-X"]), dict.fromkeys(("train", "dev"), SENTENCES))
    store_published(directory)
    tfds.core.add_data_dir(str(directory))
    return directory


def store_published(directory: Path) -> None:
    """Data sets of several configurations, under their published names and versions."""
    both = ("train", "validation")
    store(directory, "glue", cola_features(), dict.fromkeys(both, (JUDGEMENT,)), "cola", "2.0.0")
    matched = {"validation": [PAIR]}
    store(directory, "glue", mnli_features(), matched, "mnli_matched", "2.0.0")
    store(directory, "tiny_pairs", mnli_features(), matched)
    splits = ("train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched")
    store(directory, "tiny_mnli", mnli_features(), dict.fromkeys(splits, (PAIR,)))
    store(directory, "tiny_ax", mnli_features(), {"test": (PAIR,)})
    store(directory, "squad", squad_features(), dict.fromkeys(both, (QUESTION,)), "v1.1", "3.0.0")


def finetune(directory: Path, task: str, data: str, output: str) -> int:
    flags = ["--max-seq-length=16", "--epochs=1", f"--output={directory / output}"]
    return main(["finetune", task, f"--model={directory / 'model'}", f"--data={data}", *flags])


def write_files(directory: Path) -> Path:
    """The same examples as files."""
    files = directory / "files"
    words = [zip(*(s[name] for name in ("tokens", "pos", "chunks", "ner")), strict=True) for s in SENTENCES]
    columns = "".join("".join("\t".join(line) + "\n" for line in sentence) + "\n" for sentence in words)
    write_all(files, dict.fromkeys(("train.jsonl", "dev.jsonl", "test.jsonl"), json_lines(TEXTS)))
    write_all(files, dict.fromkeys(("train.conll", "dev.conll"), columns))
    return files


@pytest.mark.slow
def test_the_outcome_is_that_of_the_files(directory: Path) -> None:
    files = write_files(directory)
    for task, name, kept in (
        ("classify", "tiny_table", ["predictions-dev.jsonl", "predictions-test.jsonl"]),
        ("ner", "tiny_conll", ["predictions-dev.txt", "report.json"]),
    ):
        assert finetune(directory, task, f"tfds:{name}", f"{task}-tfds") == 0
        assert finetune(directory, task, str(files), f"{task}-files") == 0
        for file in ("results.json", *(f"best/{file}" for file in kept)):
            ours, theirs = ((directory / f"{task}-{end}" / file).read_text() for end in ("tfds", "files"))
            assert ours == theirs, file


def test_a_test_set_without_tags_is_predicted(directory: Path) -> None:
    assert finetune(directory, "ner", "tfds:untagged_conll", "untagged") == 0
    metrics = json.loads((directory / "untagged" / "results.json").read_text())["best"]["metrics"]
    assert metrics.keys() == {"precision", "recall", "f1"}
    assert (directory / "untagged" / "best" / "predictions-test.txt").read_text().startswith("Paris\t")


@pytest.mark.usefixtures("directory")
def test_the_diagnostic_set_is_predicted_if_it_can_be_had(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = read_model_tokenizer(tmp_path / "tokenizer")
    sets = {"dev", "dev_mismatched", "test", "test_mismatched"}
    monkeypatch.setattr(glue, "_DIAGNOSTIC", "tfds:none")
    assert glue.Settings().load("mnli", "tfds:tiny_mnli", tokenizer).evaluated.keys() == sets
    assert capsys.readouterr().out.startswith(
        "the diagnostic set is not predicted: tfds:none is not available"
    )
    monkeypatch.setattr(glue, "_DIAGNOSTIC", "tfds:tiny_ax")
    found = glue.Settings().load("mnli", "tfds:tiny_mnli", tokenizer).evaluated
    assert found.keys() == sets | {"diagnostic"}


@pytest.mark.parametrize(
    ("task", "data", "message"),
    [
        ("swag", "tfds:tiny_table", "swag reads no TensorFlow datasets; --data takes a directory"),
        ("squad", "tfds:tiny_table", "tfds:tiny_table train has no column id"),
        ("ner", "tfds:tiny_table", "tfds:tiny_table train has no column tokens"),
        ("classify", "tfds:tiny_conll", "tfds:tiny_conll train has no column text"),
        ("sst2", "tfds:glue", "tfds:glue is glue/cola; for sst2 give tfds:glue/sst2"),
        ("rte", "tfds:glue/cola", "tfds:glue/cola is glue/cola; for rte give tfds:glue/rte"),
        ("mnli", "tfds:glue/mnli_matched", "is glue/mnli_matched; for mnli give tfds:glue/mnli"),
        ("cola", "tfds:tiny_conll", "tfds:tiny_conll has no column sentence"),
        ("mrpc", "tfds:tiny_table", "tfds:tiny_table has no column sentence1"),
        ("mnli", "tfds:tiny_pairs", "tfds:tiny_pairs has no split train or train_matched; it has validation"),
        ("squad2", "tfds:squad", "tfds:squad is squad/v1.1; for squad2 give tfds:squad/v2.0"),
        ("classify", "tfds:none", "tfds:none is not available"),
        ("classify", "tfds:latin_table", "tfds:latin_table validation, example 2 is not UTF-8"),
        ("cola", "tfds:latin_cola", "tfds:latin_cola dev, idx 7 is not UTF-8"),
    ],
)
def test_another_data_set_is_refused(
    directory: Path, capsys: pytest.CaptureFixture, task: str, data: str, message: str
) -> None:
    assert finetune(directory, task, data, "refused") == 2
    assert message in capsys.readouterr().err
    assert not (directory / "refused").exists()
