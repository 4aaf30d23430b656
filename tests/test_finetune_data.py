"""How `bert-jax finetune` recognises a data set: fingerprints cover the development set and its labels."""

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.tasks import classify
from bert_jax.tasks.finetuning.outputs import write_lines
from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.rows import Rows
from tests.bert_jax.small_run import make_run
from tests.bert_jax.tasks.loaded import load
from tests.data_pipeline.tasks.files import squad_json, write_all


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

    def fingerprints(directory: Path, content: Mapping[str, str]) -> tuple[str, str]:
        data = load(directory, task, content)
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


def make_command(directory: Path, objective: str = "mlm_nsp") -> list[str]:
    """Writes a model and tables, and gives the command that fine-tunes into `out`."""
    make_run(directory / "model", objective, num_layers=1)
    write_all(directory, dict.fromkeys(("train.tsv", "dev.tsv"), TEXTS))
    paths = [f"--model={directory / 'model'}", f"--data={directory}", f"--output={directory / 'out'}"]
    return ["finetune", "classify", *paths, "--max-seq-length=16", "--epochs=1"]


def test_a_grid_does_not_grow_on_another_development_set(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    command = make_command(tmp_path)
    assert main(command) == 0
    (tmp_path / "dev.tsv").write_text(TEXTS.replace("b\ty", "b\tx"))
    assert main([*command, "--learning-rate=1e-3"]) == 2
    assert "other settings or data: development data " in capsys.readouterr().err


@pytest.mark.slow
def test_a_grid_grows_in_a_layout_that_its_trials_could_not_have(
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
    write_all(tmp_path, dict.fromkeys(("train.jsonl", "dev.jsonl"), typed % "x" + typed % "y"))
    assert main(["finetune", "relation", *command[2:], "--entities=types"]) == 2
    assert "a left-to-right --model has seen nothing of them" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_words_and_tags_are_both_named_or_neither(tmp_path: Path) -> None:
    files = dict.fromkeys(("train.txt", "dev.txt"), "token ner\na O\nb B-X\n")
    with pytest.raises(UserError, match="--tag-column ner is a name and --word-column 0 a number; name both"):
        load(tmp_path, "ner", files, tag_column="ner")
    with pytest.raises(UserError, match="--tag-column ² is a name and"):  # a digit, but no number
        load(tmp_path, "ner", tag_column="²")
    assert load(tmp_path, "ner", word_column="token", tag_column="ner").labels == ("O", "B-X", "I-X")


SWAG = """\
,video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label
0,anetv_x,1,A cat sits. It,A cat sits.,It,gold,"sleeps, then eats.",flies.,sings.,reads.,0
1,lsmdc_y,2,A dog runs. She,A dog runs.,She,gen,flies.,barks.,sings.,reads.,1
"""


def test_swag_is_read_from_its_own_files(tmp_path: Path) -> None:
    no_label = (line.rpartition(",")[0] + "\n" for line in SWAG.splitlines())
    files = {"train.csv": SWAG, "val.csv": SWAG, "test.csv": "".join(no_label)}
    full = ",video-id,fold-ind,startphrase,gold-ending\n"
    data = load(tmp_path, "swag", {**files, "train_full.csv": full, "val_full.csv": full})
    assert {name: len(rows) for name, rows in data.evaluated.items()} == {"dev": 2, "test": 2}
    assert data.evaluated["dev"].targets["labels"].tolist() == [0, 1]


@pytest.mark.parametrize("is_as_published", [False, True])
def test_semevals_test_set_is_said_to_choose(
    tmp_path: Path, capsys: pytest.CaptureFixture, is_as_published: bool
) -> None:
    lines = '1\t"a <e1>b</e1> <e2>c</e2>"\n{}\n\n'
    relations = lines.format("Cause-Effect(e1,e2)") + lines.format("Other")
    files = {
        "SemEval2010_task8_training/TRAIN_FILE.TXT": relations,
        "SemEval2010_task8_testing_keys/TEST_FILE_FULL.TXT": relations,
        "SemEval2010_task8_testing/TEST_FILE.txt": lines.format(""),
    }
    if not is_as_published:
        files = {name.rpartition("/")[2]: content for name, content in files.items()}
    assert load(tmp_path, "relation", files).evaluated.keys() == {"dev", "test"}
    assert capsys.readouterr().out.startswith("note: SemEval-2010 Task 8 has no dev set: TEST_FILE_FULL.TXT")


def test_answers_that_are_left_out_are_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    content = json.loads(squad("b"))
    (question,) = content["data"][0]["paragraphs"][0]["qas"]
    answers = [{"text": "b", "answer_start": 6}]
    wrong = [{**question, "id": f"wrong{number}", "answers": answers} for number in range(7)]
    right = [{**question, "id": str(number)} for number in range(800)]
    content["data"][0]["paragraphs"][0]["qas"] = wrong + right
    load(tmp_path, "squad", {"train-v1.1.json": json.dumps(content), "dev-v1.1.json": squad("b")})
    said = capsys.readouterr().out
    assert "note: left out are questions whose answer is not where the file says or has no piece of" in said
    assert "first wrong0, wrong1, " in said
    assert "wrong5" not in said


@pytest.mark.parametrize("task", ["classify", "squad", "ner", "swag", "relation", "rank"])
@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_a_development_set_may_have_another_usual_name(tmp_path: Path, task: str, name: str) -> None:
    files, _ = CASES[task]
    files = {file.replace("dev", name): content for file, content in files.items()}
    assert "dev" in load(tmp_path, task, files).evaluated
    (file,) = tmp_path.glob(f"{name}*")
    other = file.with_name(file.name.replace(name, "dev"))
    other.write_text(file.read_text())
    with pytest.raises(UserError, match=rf"has dev\S+ and {name}\S+; keep one of them"):
        load(tmp_path, task)
    for found in (file, other):
        found.unlink()
    with pytest.raises(UserError, match="no file of the dev set; looked for dev, val, valid, validation"):
        load(tmp_path, task)


@pytest.mark.parametrize(("task", "other"), [("squad2", "v1.1"), ("squad", "v2.0")])
def test_the_other_version_of_squad_is_not_taken_for_the_tasks(tmp_path: Path, task: str, other: str) -> None:
    files = dict.fromkeys((f"train-{other}.json", f"dev-{other}.json"), squad("b"))
    with pytest.raises(UserError, match=rf"train-{other}\.json is a file of SQuAD {other[1:]}, for the task"):
        load(tmp_path, task, files)
    data = load(tmp_path, task, dict.fromkeys(("train_mine.json", "dev_mine.json"), squad("c")))
    assert [answer.text for one in data._dev.examples for answer in one.answers] == ["c"]


def test_text_pair_and_label_are_columns_of_their_own() -> None:
    with pytest.raises(UserError, match="--text-column and --label-column both name label; give two"):
        classify.Settings(text_column="label")
    with pytest.raises(UserError, match="--text-column and --pair-column both name text; give two"):
        classify.Settings(pair_column="text")


def test_folds_are_of_a_data_set_of_one_file(tmp_path: Path) -> None:
    files = dict.fromkeys(("train.jsonl", "dev.jsonl"), CHOICE % 0)
    flags: dict[str, int]
    for flags in ({"dev_fold": 1}, {"folds": 2}):
        with pytest.raises(
            UserError, match=r"--folds and --dev-fold go with one file for all; .* a training"
        ):
            load(tmp_path / "two", "swag", files, **flags)
    examples = [CHOICE.replace('"a"', f'"{context}"') % 0 for context in "abcdefgh"]
    files = {"all.jsonl": "".join(examples), "test.jsonl": examples[0] * 3}
    data = load(tmp_path / "one", "swag", files, folds=2)
    assert {name: len(rows) for name, rows in data.evaluated.items() if name != "dev"} == {"test": 3}


def test_a_table_of_one_file_is_parted_by_its_texts(tmp_path: Path) -> None:
    texts = [" ".join(words) for words in itertools.product("abc", repeat=3)]
    lines = [f"{text},{label}\n" for text in texts for label in "01"]
    files = {"all.csv": "".join(["text,label\n", *lines]), "dev.csv": "text,label\na,0\n"}
    with pytest.raises(
        UserError, match=r"has all\.csv, a fold of which is the dev set, and dev\.csv; rename"
    ):
        load(tmp_path, "classify", files)
    (tmp_path / "dev.csv").unlink()
    sizes = []
    for fold in range(3):
        data = load(tmp_path, "classify", folds=3, dev_fold=fold)
        train, dev = data.train, data.evaluated["dev"]
        assert not texts_of(train) & texts_of(dev)
        assert len(train) + len(dev) == len(lines)
        sizes.append(len(dev))
    assert sum(sizes) == len(lines)


def test_words_to_which_no_column_can_be_added_are_refused_before_training(tmp_path: Path) -> None:
    dev = "word\ttag\tpredicted\na\tB-X\tO\nb\tO\tO\n"
    files = {"train.txt": "word\ttag\na\tB-X\nb\tO\n", "dev.txt": dev}
    with pytest.raises(UserError, match=r"dev\.txt has two columns named 'predicted'"):
        load(tmp_path, "ner", files, word_column="word", tag_column="tag")


@pytest.mark.parametrize(
    ("task", "files", "labels", "note"),
    [
        (
            "classify",
            {"train.tsv": "text\tlabel\na\tx\nb\tz\n", "dev.tsv": "text\tlabel\na\ty\nc\ty\n"},
            ("x", "y", "z"),
            "note: labels that dev has and training lacks: y (2 examples)",
        ),
        (
            "ner",
            {"train.txt": "a B-X\nb O\n", "dev.txt": "a B-Y\nb O\n"},
            ("O", "B-X", "I-X", "B-Y", "I-Y"),
            "note: tags of dev that no word of the training file has: B-Y, I-Y",
        ),
    ],
)
def test_labels_that_only_dev_has_are_learnt_to_be_wrong(
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    task: str,
    files: Mapping[str, str],
    labels: tuple[str, ...],
    note: str,
) -> None:
    assert load(tmp_path, task, files).labels == labels
    assert capsys.readouterr().out.splitlines() == [note]


def test_a_table_without_names_has_columns_by_number(tmp_path: Path) -> None:
    files = {"train.tsv": "x\ta b\ny\tc\n", "dev.csv": "x,b\n"}
    data = load(tmp_path, "classify", files, text_column="1", label_column="0")
    assert (data.labels, len(data.train), len(data.evaluated["dev"])) == (("x", "y"), 2, 1)


def test_a_table_may_be_in_latin_1(tmp_path: Path) -> None:
    table = "text\tlabel\nca fé\tx\nb\ty\n".encode("latin-1")
    with pytest.raises(UserError, match=r"train.tsv, line 2 is not UTF-8; convert it"):
        load(tmp_path, "classify", {"train.tsv": table, "dev.tsv": table})
    assert load(tmp_path, "classify", encoding="latin-1").labels == ("x", "y")


def test_a_split_may_be_a_directory_of_json(tmp_path: Path) -> None:
    line = '{"text": "a b", "label": "%s"}\n'
    files = {"train/b.json": line % "y", "train/a.json": line % "x", "dev.json": line % "x"}
    assert load(tmp_path, "classify", files).train.targets["labels"].tolist() == [0, 1]


def texts_of(rows: Rows) -> set[bytes]:
    return {ids.tobytes() for ids in rows.tokens["input_ids"]}


def test_one_example_that_is_always_the_same_is_not_named(tmp_path: Path) -> None:
    for count, degenerate in ((1, None), (2, "every choice has index 0, counted from 0")):
        files = {"train.jsonl": CHOICE % 0, "dev.jsonl": CHOICE % 0 * count}
        data = load(tmp_path, "swag", files)

        def apply(rows: Rows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            yield np.arange(len(rows)), np.tile(np.float32([1, 0]), (len(rows), 1))

        assert data.finish(apply, tmp_path).degenerate == degenerate


def test_a_file_that_cannot_be_written_while_training_is_no_wrong_input(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    command, output = make_command(tmp_path), tmp_path / "out"
    for file in ("trials/lr3e-05-batch32-epochs1-seed0/metrics.jsonl", "results.json"):
        (output / file).mkdir(parents=True)
        assert main(command) == 69
        assert "Is a directory; run the same command again" in capsys.readouterr().err
        (output / file).rmdir()
