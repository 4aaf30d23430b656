"""How `bert-jax finetune` recognises a data set: fingerprints cover the development set and its labels."""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.downstream import TASKS
from bert_jax.downstream.choice import ChoiceSettings
from bert_jax.downstream.outputs import write_lines
from bert_jax.downstream.tagging import TaggingSettings
from bert_jax.downstream.text_classification import TableSettings
from bert_jax.finetuning.record import read_record, write_record
from bert_jax.objective import ObjectiveName
from data_pipeline.errors import UserError
from data_pipeline.tasks.rows import Rows
from tests.bert_jax.small_run import make_run
from tests.data_pipeline.tasks.files import squad_json
from tests.data_pipeline.tasks.small_tokenizer import read_model_tokenizer


def squad(*answers: str) -> str:
    context = "a b c d"
    found = [{"text": answer, "answer_start": context.index(answer)} for answer in answers]
    return squad_json(context, [{"id": "q", "question": "e", "answers": found}])


TEXTS = "text\tlabel\na\tx\nb\ty\n"
PAIRS = "sentence1\tsentence2\tgold_label\na\tb\tneutral\nb\tc\tentailment\n"
JUDGED = "query_id\tquery\tcandidate\trelevance\n1\ta\tb\t1\n1\ta\tc\t0\n"
ENTITIES = '"text": "a b", "head": {"start": 0, "stop": 1}, "tail": {"start": 2, "stop": 3}'
RELATION = f'{{{ENTITIES}, "label": "%s"}}\n'
CHOICE = '{"context": "a", "choices": ["b", "c"], "label": %d}\n'

# Task -> (files, and a changed content for one of them with the same texts).
CASES: dict[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "classify": ({"train.tsv": TEXTS, "dev.tsv": TEXTS}, {"dev.tsv": TEXTS.replace("b\ty", "b\tx")}),
    "mnli": (
        {f"{part}.tsv": PAIRS for part in ("train", "dev_matched", "dev_mismatched")},
        {"dev_mismatched.tsv": PAIRS.replace("neutral", "entailment")},
    ),
    "squad": (
        {"train-v1.1.json": squad("b"), "dev-v1.1.json": squad("b", "c")},
        {"dev-v1.1.json": squad("b", "d")},
    ),
    "ner": (
        {"train.txt": "a O\nb B-X\n", "dev.txt": "a O\nb B-X\n"},
        {"dev.txt": "a O\nb O\n"},
    ),
    "swag": (
        {f"{part}.jsonl": CHOICE % 0 for part in ("train", "dev")},
        {"dev.jsonl": CHOICE % 1},
    ),
    "relation": (
        {f"{part}.jsonl": RELATION % "x" + RELATION % "y" for part in ("train", "dev")},
        {"dev.jsonl": RELATION % "y" + RELATION % "y"},
    ),
    "rank": (
        {"train.tsv": "query\tpositive\na\tb\n", "dev.tsv": JUDGED},
        {"dev.tsv": JUDGED.replace("c\t0", "c\t2")},
    ),
}


@pytest.mark.parametrize("task", CASES)
def test_a_development_set_is_known_by_what_it_is_scored_by(tmp_path: Path, task: str) -> None:
    files, changed = CASES[task]
    tokenizer = read_model_tokenizer(tmp_path / "tokenizer", "$", "#")

    def fingerprints(folder: Path, content: Mapping[str, str]) -> tuple[str, str]:
        folder.mkdir()
        for name, text in content.items():
            (folder / name).write_text(text)
        settings: Any = TASKS[task].settings
        data = settings.load(task, str(folder), tokenizer)
        return data.train.fingerprint(), data.dev_fingerprint

    train, dev = fingerprints(tmp_path / "a", files)
    assert fingerprints(tmp_path / "b", files) == (train, dev)
    same_train, other_dev = fingerprints(tmp_path / "c", {**files, **changed})
    assert same_train == train
    assert other_dev != dev


def test_predictions_are_whole_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_lines(tmp_path / "predictions-dev.jsonl", [{"label": "x"}, {"label": "\ud83d"}])
    assert list(tmp_path.iterdir()) == []


def make_command(folder: Path, objective: ObjectiveName = "mlm_nsp") -> list[str]:
    """Writes a model and tables, and gives the command that fine-tunes into `out`."""
    make_run(folder / "model", objective)
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text(TEXTS)
    paths = [f"--model={folder / 'model'}", f"--data={folder}", f"--output={folder / 'out'}"]
    return ["finetune", "classify", *paths, "--max-seq-length=16", "--epochs=1"]


def test_a_grid_does_not_grow_on_another_development_set(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    command = make_command(tmp_path)
    assert main(command) == 0
    (tmp_path / "dev.tsv").write_text(TEXTS.replace("b\ty", "b\tx"))
    assert main([*command, "--learning-rate=1e-3"]) == 2
    assert "other settings or data: development data " in capsys.readouterr().err
    cell = tmp_path / "out" / "best"
    write_record(cell, dataclasses.replace(read_record(cell), dev_fingerprint=""))
    assert main(command) == 0


def test_a_grid_grows_in_a_layout_that_its_cells_could_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    command = make_command(tmp_path, "mlm")
    assert main([*command, "--batch-size=4"]) == 0
    assert "note: model lacks a pooler; like the head, it is drawn from each" in capsys.readouterr().out
    (tmp_path / "test.tsv").write_text(TEXTS)
    assert main([*command, "--batch-size=6", "--parallel.accumulation-steps=3"]) == 0
    best = (tmp_path / "out" / "best").resolve()
    assert best.name == "lr3e-05-batch4-epochs1-seed0"
    assert (best / "predictions-test.jsonl").exists()


def test_relations_are_refused_to_a_left_to_right_model(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    command = make_command(tmp_path, "ltr")
    typed = RELATION.replace("},", ', "type": "A"},')
    for name in ("train", "dev"):
        (tmp_path / f"{name}.jsonl").write_text(typed % "x" + typed % "y")
    assert main(["finetune", "relation", *command[2:], "--entities=types"]) == 2
    assert "a left-to-right --model has seen nothing of them" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_words_and_tags_are_both_named_or_neither(tmp_path: Path) -> None:
    tokenizer = read_model_tokenizer(tmp_path / "tokenizer")
    for name in ("train", "dev"):
        (tmp_path / f"{name}.txt").write_text("token ner\na O\nb B-X\n")
    with pytest.raises(UserError, match="--tag-column ner is a name and --word-column 0 a number; name both"):
        TaggingSettings(tag_column="ner").load("ner", str(tmp_path), tokenizer)
    with pytest.raises(UserError, match="--tag-column ² is a name and"):  # a digit, but no number
        TaggingSettings(tag_column="²").load("ner", str(tmp_path), tokenizer)
    named = TaggingSettings(word_column="token", tag_column="ner")
    assert named.load("ner", str(tmp_path), tokenizer).labels == ("O", "B-X", "I-X")


SWAG = """\
,video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label
0,anetv_x,1,A cat sits. It,A cat sits.,It,gold,"sleeps, then eats.",flies.,sings.,reads.,0
1,lsmdc_y,2,A dog runs. She,A dog runs.,She,gen,flies.,barks.,sings.,reads.,1
"""


def test_swag_is_read_from_its_own_files(tmp_path: Path) -> None:
    tokenizer = read_model_tokenizer(tmp_path / "tokenizer")
    for name in ("train", "val"):
        (tmp_path / f"{name}.csv").write_text(SWAG)
    for name in ("train_full", "val_full"):
        (tmp_path / f"{name}.csv").write_text(",video-id,fold-ind,startphrase,gold-ending\n")
    no_label = (line.rpartition(",")[0] + "\n" for line in SWAG.splitlines())
    (tmp_path / "test.csv").write_text("".join(no_label))
    data = ChoiceSettings().load("swag", str(tmp_path), tokenizer)
    assert {name: len(rows) for name, rows in data.evaluated.items()} == {"dev": 2, "test": 2}
    assert data.evaluated["dev"].targets["labels"].tolist() == [0, 1]


def test_semevals_test_set_is_said_to_choose(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    tokenizer = read_model_tokenizer(tmp_path / "tokenizer", "$", "#")
    lines = '1\t"a <e1>b</e1> <e2>c</e2>"\n{}\n\n'
    relations = lines.format("Cause-Effect(e1,e2)") + lines.format("Other")
    for name in ("TRAIN_FILE.TXT", "TEST_FILE_FULL.TXT"):
        (tmp_path / name).write_text(relations)
    (tmp_path / "TEST_FILE.txt").write_text(lines.format(""))
    settings: Any = TASKS["relation"].settings
    assert settings.load("relation", str(tmp_path), tokenizer).evaluated.keys() == {"dev", "test"}
    assert capsys.readouterr().out.startswith("TEST_FILE_FULL.TXT serves as dev: ")


def test_answers_that_are_left_out_are_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    tokenizer = read_model_tokenizer(tmp_path / "tokenizer")
    content = json.loads(squad("b"))
    (question,) = content["data"][0]["paragraphs"][0]["qas"]
    answers = [{"text": "b", "answer_start": 6}]
    wrong = [{**question, "id": f"wrong{number}", "answers": answers} for number in range(7)]
    right = [{**question, "id": str(number)} for number in range(800)]
    content["data"][0]["paragraphs"][0]["qas"] = wrong + right
    (tmp_path / "train-v1.1.json").write_text(json.dumps(content))
    (tmp_path / "dev-v1.1.json").write_text(squad("b"))
    settings: Any = TASKS["squad"].settings
    settings.load("squad", str(tmp_path), tokenizer)
    said = capsys.readouterr().out
    assert "left out 7 questions whose answer is not where the file says or has no piece of the" in said
    assert "first wrong0, wrong1, " in said
    assert "wrong5" not in said


@pytest.mark.parametrize("task", ["classify", "squad", "ner", "swag", "relation", "rank"])
@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_a_development_set_may_have_another_usual_name(tmp_path: Path, task: str, name: str) -> None:
    files, _ = CASES[task]
    for file, content in files.items():
        (tmp_path / file.replace("dev", name)).write_text(content)
    tokenizer = read_model_tokenizer(tmp_path / "tokenizer", "$", "#")
    settings: Any = TASKS[task].settings
    assert "dev" in settings.load(task, str(tmp_path), tokenizer).evaluated
    (file,) = tmp_path.glob(f"{name}*")
    other = file.with_name(file.name.replace(name, "dev"))
    other.write_text(file.read_text())
    with pytest.raises(UserError, match=rf"has dev\S+ and {name}\S+; keep one of them"):
        settings.load(task, str(tmp_path), tokenizer)
    for found in (file, other):
        found.unlink()
    with pytest.raises(UserError, match="no file of the dev set; looked for dev, val, valid, validation"):
        settings.load(task, str(tmp_path), tokenizer)


@pytest.mark.parametrize(("task", "other"), [("squad2", "v1.1"), ("squad", "v2.0")])
def test_the_other_version_of_squad_is_not_taken_for_the_tasks(tmp_path: Path, task: str, other: str) -> None:
    tokenizer = read_model_tokenizer(tmp_path / "tokenizer")
    settings: Any = TASKS[task].settings
    for part in ("train", "dev"):
        (tmp_path / f"{part}-{other}.json").write_text(squad("b"))
    with pytest.raises(UserError, match=rf"train-{other}\.json is of SQuAD {other[1:]}, which is the task"):
        settings.load(task, str(tmp_path), tokenizer)
    for part in ("train", "dev"):
        (tmp_path / f"{part}_mine.json").write_text(squad("c"))
    data = settings.load(task, str(tmp_path), tokenizer)
    assert [answer.text for one in data._dev.examples for answer in one.answers] == ["c"]


def test_folds_are_of_a_data_set_of_one_file(tmp_path: Path) -> None:
    tokenizer = read_model_tokenizer(tmp_path / "tokenizer")
    for name in ("train", "dev"):
        (tmp_path / f"{name}.jsonl").write_text(CHOICE % 0)
    for settings in (ChoiceSettings(dev_fold=1), ChoiceSettings(folds=2)):
        with pytest.raises(
            UserError, match=r"--folds and --dev-fold go with one file for all; .* a training"
        ):
            settings.load("swag", str(tmp_path), tokenizer)
    for name in ("train", "dev"):
        (tmp_path / f"{name}.jsonl").unlink()
    examples = [CHOICE.replace('"a"', f'"{context}"') % 0 for context in "abcdefgh"]
    (tmp_path / "all.jsonl").write_text("".join(examples))
    (tmp_path / "test.jsonl").write_text(examples[0] * 3)
    data = ChoiceSettings(folds=2).load("swag", str(tmp_path), tokenizer)
    assert {name: len(rows) for name, rows in data.evaluated.items() if name != "dev"} == {"test": 3}


def test_a_table_of_one_file_is_parted_by_its_texts(tmp_path: Path) -> None:
    tokenizer = read_model_tokenizer(tmp_path / "tokenizer")
    texts = [" ".join(words) for words in itertools.product("abc", repeat=3)]
    lines = [f"{text},{label}\n" for text in texts for label in "01"]
    (tmp_path / "all.csv").write_text("".join(["text,label\n", *lines]))
    sizes = []
    for fold in range(3):
        data = TableSettings(folds=3, dev_fold=fold).load("classify", str(tmp_path), tokenizer)
        train, dev = data.train, data.evaluated["dev"]
        assert not texts_of(train) & texts_of(dev)
        assert len(train) + len(dev) == len(lines)
        sizes.append(len(dev))
    assert sum(sizes) == len(lines)


def texts_of(rows: Rows) -> set[bytes]:
    return {ids.tobytes() for ids in rows.tokens["input_ids"]}


def test_one_example_that_is_always_the_same_is_not_named(tmp_path: Path) -> None:
    tokenizer = read_model_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "train.jsonl").write_text(CHOICE % 0)
    for count, degenerate in ((1, None), (2, "the choice is always number 0")):
        (tmp_path / "dev.jsonl").write_text(CHOICE % 0 * count)
        data = ChoiceSettings().load("swag", str(tmp_path), tokenizer)

        def apply(rows: Rows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            yield np.arange(len(rows)), np.tile(np.float32([1, 0]), (len(rows), 1))

        assert data.finish(apply, tmp_path).degenerate == degenerate


def test_a_file_that_cannot_be_written_while_training_is_no_wrong_input(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    command, output = make_command(tmp_path), tmp_path / "out"
    for file in ("cells/lr3e-05-batch32-epochs1-seed0/metrics.jsonl", "results.json"):
        (output / file).mkdir(parents=True)
        assert main(command) == 69
        assert "Is a directory while training; run the same command again" in capsys.readouterr().err
        (output / file).rmdir()
