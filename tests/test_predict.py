"""`bert-jax predict` of every task: its output has the form of its input. Models are untrained."""

import csv
import dataclasses
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

import bert_jax
from bert_jax.cli.main import main
from bert_jax.config import ParallelConfig
from bert_jax.tasks import choice, ranking, squad, tagging
from bert_jax.tasks.finetuning import outputs, predict_records, predictor
from bert_jax.tasks.finetuning.head import IMPOSSIBLE
from bert_jax.tasks.finetuning.labelled_data import describe
from bert_jax.workdir.finetuning import read_record, write_record
from bert_jax.workdir.grid import write_trials
from data_pipeline.atomic import write_json
from data_pipeline.tasks.finetuning.records import Place, Record
from data_pipeline.tasks.glue.submission import submission_text, write_submission
from data_pipeline.tasks.ranking import read_candidates
from data_pipeline.tasks.tagging.columns import Sentence
from tests.bert_jax.small_finetuned import make_trial
from tests.data_pipeline.tasks.files import json_lines
from tests.data_pipeline.tasks.small_rows import make_rows

LONG = "the cat sat on the mat and saw the dog here . Paris is a city of cafe on the mat, naive cat"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two examples at a time, so that every file has several parts."""
    for module, name in (
        (predict_records, "RECORDS_AT_ONCE"),
        (ranking, "_CANDIDATES_AT_ONCE"),
        (squad, "_QUESTIONS_AT_ONCE"),
        (tagging, "_SENTENCES_AT_ONCE"),
    ):
        monkeypatch.setattr(module, name, 2)


def predict(directory: Path, content: str, suffix: str) -> str:
    """What `bert-jax predict` writes for a file."""
    file, output = directory / f"new{suffix}", directory / f"predicted{suffix}"
    file.write_text(content, encoding="utf-8", newline="")
    output.unlink(missing_ok=True)
    assert main(["predict", f"--model={directory}", f"--input={file}", f"--output={output}"]) == 0
    return output.read_bytes().decode()


def refuse(directory: Path, content: str, suffix: str, *flags: str) -> None:
    """Asserts that `bert-jax predict` refuses a file, and writes nothing."""
    file, output = directory / f"bad{suffix}", directory / f"bad-predicted{suffix}"
    file.write_text(content)
    assert main(["predict", f"--model={directory}", f"--input={file}", f"--output={output}", *flags]) == 2
    assert not output.exists()


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_questions_that_are_cut_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    settings = {"max_seq_length": 20, "max_query_length": 3, "doc_stride": 5}
    make_trial(tmp_path, "spans", "squad", settings=settings)
    questions = [{"question": question, "context": "the dog"} for question in ("the cat", "the cat sat on")]
    predict(tmp_path, json_lines(questions), ".jsonl")
    assert "warning: 1 text was cut to 3 tokens" in capsys.readouterr().out


def test_answers_have_their_place_in_the_passage(tmp_path: Path) -> None:
    settings = {"max_seq_length": 20, "max_query_length": 6, "doc_stride": 5}
    threshold = -0.003  # between the null odds of the passages, which are all below 0
    make_trial(tmp_path, "spans", "squad2", settings=settings, learnt={"null_threshold": threshold})
    contexts = ["  Cafés — the CITY, naïve!", LONG, "北京 is\u00a0here 😀 the dog"]
    questions = [
        [{"id": f"{i}{j}", "question": "the cat?"} for j in range(i + 1)] for i in range(len(contexts))
    ]
    paragraphs = [{"context": c, "qas": q} for c, q in zip(contexts, questions, strict=True)]
    content = {"version": "x", "data": [{"title": "t", "paragraphs": paragraphs}]}
    found = json.loads(predict(tmp_path, json.dumps(content), ".json"))
    lines = json_lines(
        {**question, "context": context}
        for context, group in zip(contexts, questions, strict=True)
        for question in group
    )
    in_order = iter(objects(predict(tmp_path, lines, ".jsonl")))
    are_null = set()
    for paragraph in found["data"][0]["paragraphs"]:
        for question in paragraph["qas"]:
            prediction = question.pop("prediction")
            assert prediction == next(in_order)["prediction"]
            for one in (prediction, *prediction["n_best"]):
                place = slice(one["start"], one["end"])
                assert one["text"] == (paragraph["context"][place] if one["text"] else "")
            assert any(one["text"] for one in prediction["n_best"])
            assert sum(one["probability"] for one in prediction["n_best"]) == pytest.approx(1, abs=1e-4)
            is_null = prediction["null_odds"] > threshold
            are_null.add(is_null)
            assert (prediction["text"] == "") is is_null
            assert (prediction["start"] is None) is is_null
    assert are_null == {True, False}
    assert found == content


def test_candidates_come_back_in_order_without_being_judged(tmp_path: Path) -> None:
    make_trial(tmp_path, "in_batch_ranking", "rank", settings={"max_seq_length": 16})
    candidates = {"cat": ["dog", "the cat", "Paris is a city"], "city": ["mat"], "mat": ["a mat", "dog"]}
    lines = [{"query": query, "candidates": texts, "id": query} for query, texts in candidates.items()]
    found = objects(predict(tmp_path, json_lines(lines), ".jsonl"))
    ranked = {line["id"]: line["prediction"]["ranked"] for line in found}
    for query, texts in candidates.items():
        assert sorted(one["candidate"] for one in ranked[query]) == sorted(texts)
        scores = [one["score"] for one in ranked[query]]
        assert scores == sorted(scores, reverse=True)
        assert all(one.keys() == {"candidate", "score"} for one in ranked[query])

    names = "note\tquery_id\tquery\tcandidate\n"
    rows = [f"{t[0]}\t{q}\t{q}\t{t}\n" for q, texts in candidates.items() for t in texts]
    head, *table = predict(tmp_path, names + "".join(rows), ".tsv").splitlines()
    assert head == "note\tquery_id\tquery\tcandidate\trank\tscore"
    expected = [
        [one["candidate"][0], query, query, one["candidate"], str(rank), str(one["score"])]
        for query, of_query in ranked.items()
        for rank, one in enumerate(of_query, 1)
    ]
    assert [row.split("\t") for row in table] == expected


def test_choices_come_back_in_the_form_of_their_data_set(tmp_path: Path) -> None:
    make_trial(tmp_path, "choice", "swag", settings={"max_seq_length": 16})
    lines = [{"context": "the cat", "choices": ["sat", "saw", "was", "on"][: 2 + i % 3]} for i in range(5)]
    found = objects(predict(tmp_path, json_lines(lines), ".jsonl"))
    predictions = [line.pop("prediction") for line in found]
    assert found == lines
    for prediction, given in zip(predictions, lines, strict=True):
        assert len(prediction["probabilities"]) == len(given["choices"])
        assert prediction["probabilities"][prediction["label"]] == max(prediction["probabilities"])

    codah = "".join(f"o\tthe cat\tsat\tsaw\twas\t{word}\t0\n" for word in ("on", "dog", "is"))
    rows = [row.split("\t") for row in predict(tmp_path, codah, ".tsv").splitlines()]
    assert ["\t".join(row[:7]) for row in rows] == codah.splitlines()
    same = predictions[2]
    assert rows[0][7:] == [str(same["label"]), *map(str, same["probabilities"])]

    unlabelled = "".join(line.rpartition("\t")[0] + "\n" for line in codah.splitlines())
    wrong = codah.replace("\t0\n", "\t?\n")
    for without in (unlabelled, wrong):
        lines = predict(tmp_path, without, ".tsv").splitlines()
        assert [line.split("\t")[-5:] for line in lines] == [row[7:] for row in rows]


def test_glues_own_files_come_back(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for name in ("cola", "qqp", "mrpc"):
        make_trial(tmp_path / name, "classification", name, ("0", "1"), settings={"max_seq_length": 16})
    cola = 'gj04\t1\t\tThe "cat.\nks08\t0\t*\tthe dog\nks08\t0\t*\tthe mat\n'
    rows = [line.split("\t") for line in predict(tmp_path / "cola", cola, ".tsv").splitlines()]
    assert ["\t".join(row[:4]) + "\n" for row in rows] == cola.splitlines(keepends=True)
    assert {len(row) for row in rows} == {4 + 3}
    assert rows[0][4] in ("0", "1")

    for foreign in ("id\ttext\tnote\tby\n1\tthe cat\tx\ty\n", "1\tthe cat\tx\n"):
        refuse(tmp_path / "cola", foreign, ".tsv")
        assert "bad.tsv has no column sentence; it has" in capsys.readouterr().err

    names = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    whole = "7\t1\t2\tthe cat\t\t0\n" + "8\t1\t2\tcat\tdog\t1\n" * 1000
    qqp = names + whole.replace("\t1\n8", "\t1\nbroken\n8", 1)
    capsys.readouterr()
    lines = predict(tmp_path / "qqp", qqp, ".tsv").splitlines()
    assert ["\t".join(line.split("\t")[:6]) for line in lines] == (names + whole).splitlines()
    said = capsys.readouterr().out
    assert "warning: left out are lines without all columns: 1, first " in said
    assert "new.tsv, line 4\n" in said
    assert "1,001 examples: " in said
    refuse(tmp_path / "qqp", names + "broken\n" + whole[:100], ".tsv")
    assert "bad.tsv, line 2 does not have 6 columns; lines with" in capsys.readouterr().err

    pair = {"sentence1": "the cat", "sentence2": "a cat"}
    of_tfds = predict(tmp_path / "mrpc", json.dumps(pair) + "\n", ".jsonl")
    of_file = predict(tmp_path / "mrpc", "#1 String,#2 String\nthe cat,a cat\n", ".csv")
    of_table = next(csv.DictReader(io.StringIO(of_file)))
    assert objects(of_tfds)[0]["prediction"]["label"] == of_table["predicted"]


def test_a_model_is_applied_by_the_devices_at_hand_however_it_was_trained(tmp_path: Path) -> None:
    settings = {"text_column": "text", "label_column": "label", "max_seq_length": 16}
    config, _ = make_trial(tmp_path, "classification", "classify", ("no", "yes"), settings=settings)
    spread = dataclasses.replace(config, parallel=ParallelConfig(fsdp=4, accumulation_steps=4))
    write_record(tmp_path, dataclasses.replace(read_record(tmp_path), config=spread))
    assert len(predict(tmp_path, "text\nthe cat\n", ".tsv").splitlines()) == 2


def test_the_record_of_another_version_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_trial(tmp_path, "classification", "classify", ("no", "yes"))
    fields = json.loads((tmp_path / "config.json").read_text())
    del fields["labels"]
    write_json(tmp_path / "config.json", fields)
    refuse(tmp_path, "text\nthe cat\n", ".tsv")
    assert "or is of another version of bert-jax: no labels" in capsys.readouterr().err


def test_a_pretrained_model_is_no_fine_tuned_one(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_json(tmp_path / "config.json", {"hidden_size": 16, "architectures": ["BertForPreTraining"]})
    refuse(tmp_path, "text\nthe cat\n", ".tsv")
    assert "is no fine-tuned model, which `bert-jax finetune` makes; a pretrained" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"task": "sentiment"}, " cannot be applied: unknown task 'sentiment'; valid: cola, "),
        ({"settings": {"temperature": 1}}, " was fine-tuned by another version of bert-jax: "),
    ],
)
def test_a_task_of_another_version_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture, changed: dict[str, object], message: str
) -> None:
    make_trial(tmp_path, "classification", "classify", ("no", "yes"))
    fields = json.loads((tmp_path / "config.json").read_text())
    write_json(tmp_path / "config.json", {**fields, **changed})
    refuse(tmp_path, "text\nthe cat\n", ".tsv")
    assert f"{tmp_path}{message}" in capsys.readouterr().err


def test_labels_of_relations_are_not_looked_at(tmp_path: Path) -> None:
    make_trial(tmp_path, "relation", "relation", ("a(e1,e2)", "Other"), settings={"max_seq_length": 20})
    example = {
        "text": "the cat",
        "head": {"start": 0, "stop": 3},
        "tail": {"start": 4, "stop": 7},
        "label": "",
    }
    [found] = objects(predict(tmp_path, json.dumps(example), ".ndjson"))
    assert found["label"] == ""
    assert "prediction" in found


def test_relations_come_back_in_both_forms(tmp_path: Path) -> None:
    labels = ("Cause-Effect(e1,e2)", "Other")
    make_trial(tmp_path, "relation", "relation", labels, settings={"max_seq_length": 20})
    sentences = [
        f'{number}\t"The <e1>{word}</e1> sat on the <e2>mat</e2>."'
        for number, word in enumerate(("cat", "dog", "city"))
    ]
    found = predict(tmp_path, "\n\n".join(sentences) + "\n", ".txt").split("\n\n")
    assert found.pop() == ""
    entities = {"head": {"start": 4, "stop": 7}, "tail": {"start": 19, "stop": 22}}
    lines = [{"text": f"The {word} sat on the mat.", **entities} for word in ("cat", "dog")]
    as_json = objects(predict(tmp_path, json_lines(lines), ".jsonl"))
    for sentence, text in zip(sentences, found, strict=True):
        assert text.splitlines()[0] == sentence
    for text, line in zip(found, as_json, strict=False):
        assert text.splitlines()[1] == line["prediction"]["label"]
        shares = line["prediction"]["probabilities"]
        assert float(text.splitlines()[2].removeprefix("Comment: probability ")) == max(shares.values())


def test_a_file_in_another_encoding_stays_in_it(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    settings = {"max_seq_length": 16, "encoding": "latin-1"}
    make_trial(tmp_path / "model", "classification", "classify", ("été", "—"), settings=settings)

    def predict_latin(name: str, content: bytes) -> int:
        (tmp_path / name).write_bytes(content)
        paths = [f"--input={tmp_path / name}", f"--output={tmp_path / f'predicted-{name}'}"]
        return main(["predict", f"--model={tmp_path / 'model'}", *paths, "--encoding=latin-1"])

    assert predict_latin("a.jsonl", b'{"text": "caf\xe9 \\u2014 cat"}\n') == 0
    text = (tmp_path / "predicted-a.jsonl").read_text("latin-1")
    assert json.loads(text)["text"] == "café — cat"
    assert predict_latin("a.tsv", "text\ncafé\n".encode("latin-1")) == 2
    message = "iso8859-1 cannot write '—' of a prediction; convert the file to UTF-8"
    assert message in capsys.readouterr().err
    assert not (tmp_path / "predicted-a.tsv").exists()
    found = predict(tmp_path / "model", "text\nMünch\n", ".tsv")
    assert found.splitlines()[1].startswith("Münch\t"), "files are in UTF-8 if nothing else is said"


def test_an_unknown_encoding_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_trial(tmp_path, "classification", "classify", ("a", "b"), settings={"max_seq_length": 16})
    refuse(tmp_path, '{"text": "cat"}\n', ".jsonl", "--encoding=nonsense")
    assert "encoding 'nonsense' is unknown; utf-8 and latin-1 are usual" in capsys.readouterr().err


def test_words_come_back_with_tags(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_trial(tmp_path, "tagging", "tag", ("O", "B-X", "I-X"), settings={"max_seq_length": 12})
    words = "the cat\n\n-DOCSTART- -X-\n\nsat on\nthe mat\n\nParis x\n\ncafés y\n" + "dog z\n" * 30
    found = predict(tmp_path, words, ".txt").splitlines()
    assert [line.rpartition(" ")[0] for line in found] == words.splitlines()
    assert {line.rpartition(" ")[2] for line in found} <= {"", "O", "B-X", "I-X"}
    assert "4 examples: " in capsys.readouterr().out
    for suffix, content in ((".csv", "word\nthe\n"), (".jsonl", '{"word": "the"}\n')):
        refuse(tmp_path, content, suffix)
        assert f"bad{suffix} is not a column file; give one word per line" in capsys.readouterr().err


def test_a_bad_row_far_down_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_trial(tmp_path / "a", "tagging", "tag", ("O", "B-X", "I-X"), settings={"max_seq_length": 12})
    make_trial(tmp_path / "b", "regression", "regress", settings={"max_seq_length": 12})
    texts = {
        "a": ("x.txt", "a b\n\n" * 9 + "a\n", "x.txt:19 has 1 columns"),
        "b": ("x.tsv", "text\tn\n" + "cat\t1\n" * 9 + " \t1\n", "line 11: text is empty"),
    }
    for model, (name, content, message) in texts.items():
        (tmp_path / name).write_text(content)
        before = sorted(tmp_path.iterdir())
        for output in ("o", "new/directory/o"):
            paths = [f"--model={tmp_path / model}", f"--input={tmp_path / name}"]
            assert main(["predict", *paths, f"--output={tmp_path / output}"]) == 2
            assert message in capsys.readouterr().err
            assert sorted(tmp_path.iterdir()) == before


ENTITIES = '"head": {"start": 0, "stop": 3}, "tail": {"start": 4, "stop": 7}'

# A task, its kind of head, its labels, the suffix of a file, good lines, a bad one, and what is said of it.
FAR_DOWN: list[tuple[str, str, tuple[str, ...], str, str, str, str]] = [
    ("classify", "classification", ("a", "b"), ".csv", "text\n" + "cat\n" * 9, '" "\n', "11: text is empty"),
    (
        "classify",
        "classification",
        ("a", "b"),
        ".jsonl",
        '{"text": "cat"}\n' * 9,
        '{"text": "cat", "prediction": 1}\n',
        "has prediction, which predict adds",
    ),
    ("cola", "classification", ("0", "1"), ".tsv", "x\t1\t\tcat\n" * 9, "x\t1\t\t \n", "10 has no text"),
    (
        "swag",
        "choice",
        (),
        ".jsonl",
        '{"context": "cat", "choices": ["a", "b"]}\n' * 9,
        '{"context": "cat", "choices": ["a"]}\n',
        "10: choices must be a list of 2",
    ),
    (
        "relation",
        "relation",
        ("x", "y"),
        ".jsonl",
        f'{{"text": "the cat", {ENTITIES}}}\n' * 9,
        f'{{"text": "cat", {ENTITIES}}}\n',
        "line 10",
    ),
    (
        "relation",
        "relation",
        ("x", "y"),
        ".txt",
        '1\t"the <e1>cat</e1> <e2>sat</e2>"\n\n' * 9,
        '1\t"the cat"\n',
        "line 19",
    ),
    (
        "squad",
        "spans",
        (),
        ".jsonl",
        '{"question": "the?", "context": "cat"}\n' * 9,
        '{"question": "", "context": "cat"}\n',
        "10: question is empty",
    ),
    (
        "rank",
        "in_batch_ranking",
        (),
        ".jsonl",
        '{"query": "cat", "candidates": ["a"]}\n' * 9,
        '{"query": "cat", "candidates": []}\n',
        "10: candidates must be a list",
    ),
    (
        "tag",
        "tagging",
        ("O", "B-X"),
        ".txt",
        "-DOCSTART- b\n\n" + "a b\n\n" * 9,
        "a\n",
        ".txt:21 has 1 columns",
    ),
]


@pytest.mark.parametrize(("task", "kind", "labels", "suffix", "good", "bad", "message"), FAR_DOWN)
def test_a_bad_row_far_down_is_known_before_anything_is_predicted(
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    kind: str,
    labels: tuple[str, ...],
    suffix: str,
    good: str,
    bad: str,
    message: str,
) -> None:
    settings = {"max_seq_length": 20} | ({"max_query_length": 6, "doc_stride": 5} if task == "squad" else {})
    make_trial(tmp_path, kind, task, labels, settings=settings)
    parts: list[object] = []
    whole = predictor.predict
    monkeypatch.setattr(predictor, "predict", lambda *given: parts.append(given) or whole(*given))
    predict(tmp_path, good, suffix)
    assert len(parts) >= 5
    parts.clear()
    refuse(tmp_path, good + bad, suffix)
    assert message in capsys.readouterr().err
    assert not parts


def check_unusable(model: Path, message: str, capsys: pytest.CaptureFixture) -> None:
    """Neither `predict` nor `convert` takes the model, and both say why."""
    (model / "x.csv").write_text("text\ncat\n")
    flags = [f"--input={model / 'x.csv'}", f"--output={model / 'y.csv'}"]
    for command in (["predict", *flags], ["convert", f"--output={model / 'z'}"]):
        assert main([*command, f"--model={model}"]) == 2
        assert message in capsys.readouterr().err


def test_a_trial_without_checkpoint_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_trial(tmp_path, "classification", "classify", ("no", "yes"))
    shutil.rmtree(tmp_path / "checkpoints")
    check_unusable(tmp_path, "has no checkpoint; of the finished trials only the best one", capsys)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("result.json", None, "is not finished; run its `bert-jax finetune` again"),
        ("result.json", '{"diverged": "NaN"}', "diverged: NaN; train with a lower"),
        ("tokenizer.json", "{", "tokenizer.json cannot be read"),
        ("tokenizer.json", None, "has no tokenizer; looked for tokenizer.json"),
    ],
)
def test_a_trial_that_is_not_whole_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture, file: str, content: str | None, message: str
) -> None:
    make_trial(tmp_path, "classification", "classify", ("no", "yes"), settings={"max_seq_length": 12})
    (tmp_path / file).unlink() if content is None else (tmp_path / file).write_text(content)
    check_unusable(tmp_path, message, capsys)


def test_a_grid_without_a_finished_trial_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "trials" / "lr1").mkdir(parents=True)
    message = f"{tmp_path} is not finished; run its `bert-jax finetune` again, which resumes it"
    check_unusable(tmp_path, message, capsys)


def test_a_grid_that_is_not_finished_is_used_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    grid = tmp_path / "grid"
    (grid / "trials" / "b").mkdir(parents=True)
    (grid / "trials" / "c").mkdir()  # begun by an earlier command, which was given up
    write_trials(grid, ["a", "b"])
    make_trial(grid / "trials" / "a", "classification", "cola", ("0", "1"), settings={"max_seq_length": 12})
    (grid / "best").symlink_to(Path("trials") / "a", target_is_directory=True)
    write_submission(grid / "best" / "submission.zip", {"CoLA.tsv": submission_text(["0"] * 1063)})
    (tmp_path / "x.csv").write_text("sentence\ncat\n")
    command = ["predict", f"--model={grid}", f"--input={tmp_path / 'x.csv'}"]
    uses: list[Callable[[int], object]] = [
        lambda i: main([*command, f"--output={tmp_path / f'{i}.csv'}"]),
        lambda i: main(["convert", f"--model={grid}", f"--output={tmp_path / f'{i}'}"]),
        lambda i: main(["submission", f"--runs={grid}", f"--output={tmp_path / f'{i}.zip'}"]),
        lambda i: bert_jax.load_model(grid),
        lambda i: bert_jax.load_finetuned(grid),
    ]
    for number, use in enumerate(uses):
        used = use(number)
        assert not isinstance(used, int) or used == 0
        said = capsys.readouterr().err
        assert said.startswith(f"warning: the grid of {grid} is not finished: 1 of 2 trials done")
        assert said.count("warning") == 1
    (grid / "trials" / "b" / "result.json").write_text("{}")
    for number, use in enumerate(uses, len(uses)):
        used = use(number)
        assert not isinstance(used, int) or used == 0
        assert "not finished" not in capsys.readouterr().err


def test_half_a_character_beside_the_text_comes_back(tmp_path: Path) -> None:
    make_trial(tmp_path / "a", "regression", "regress", settings={"max_seq_length": 12})
    lines = [{"text": "the café", "user": user} for user in ("é", "a\ud83d")]
    text = predict(tmp_path / "a", json_lines(lines), ".jsonl")
    assert text.startswith('{"text": "the café", "user": "é", ')
    assert [{name: line[name] for name in ("text", "user")} for line in objects(text)] == lines
    settings = {"max_seq_length": 20, "max_query_length": 6, "doc_stride": 5}
    make_trial(tmp_path / "b", "spans", "squad", settings=settings)
    paragraph = {"context": LONG, "qas": [{"id": "1", "question": "the cat?"}]}
    content = {"data": [{"title": "a\ud83d", "paragraphs": [paragraph]}]}
    assert json.loads(predict(tmp_path / "b", json.dumps(content), ".json"))["data"][0]["title"] == "a\ud83d"


def test_trials_of_a_table_come_back_whole(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_trial(tmp_path, "regression", "regress", settings={"max_seq_length": 12})
    table = 'text,note\n"the\rcat","a\nb"\ncat,c\n'
    found = list(csv.DictReader(io.StringIO(predict(tmp_path, table, ".csv"), newline="")))
    assert [(row["text"], row["note"]) for row in found] == [("the\rcat", "a\nb"), ("cat", "c")]
    for suffix, content, column in (
        (".csv", "text,predicted\ncat,5\n", "predicted"),
        (".jsonl", '{"text": "cat", "prediction": 5}\n', "prediction"),
    ):
        refuse(tmp_path, content, suffix)
        assert f"has {column}, which predict adds; rename it" in capsys.readouterr().err


def test_a_label_that_no_tsv_can_hold_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    settings = {"max_seq_length": 12}
    make_trial(tmp_path, "classification", "classify", ("a\tb", "c"), settings=settings)
    refuse(tmp_path, "text\ncat\n", ".tsv")
    assert "a\\tb' has a tab or a line feed, which no .tsv can hold" in capsys.readouterr().err
    assert "probability_a\tb" in predict(tmp_path, "text\ncat\n", ".csv")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_table_with_a_byte_order_mark_comes_back_with_it(encoding: str, tmp_path: Path) -> None:
    settings = {"max_seq_length": 12, "encoding": encoding}
    make_trial(tmp_path, "regression", "regress", settings=settings)
    for mark in ("", "\ufeff"):
        found = predict(tmp_path, f"{mark}text,note\ncafé,1\ncat,2\ndog,3\n", ".csv")
        assert found.startswith(f"{mark}text,note,predicted\ncafé,1,")
        assert found.count("\ufeff") == len(mark)


def test_lines_end_as_in_the_input(tmp_path: Path) -> None:
    make_trial(tmp_path / "a", "regression", "regress", settings={"max_seq_length": 12})
    found = predict(tmp_path / "a", 'text,note\r\ncat,"a\r\nb\nc"\r\n"dog",d\r\n', ".csv")
    assert found.startswith('text,note,predicted\r\ncat,"a\r\nb\nc",')
    assert found.count("\n") == found.count("\r\n") + 1 == 5
    for suffix, content in ((".tsv", "text\r\ncat\r\ndog\r\n"), (".jsonl", '{"text": "cat"}\r\n' * 2)):
        found = predict(tmp_path / "a", content, suffix)
        assert found.count("\r") == found.count("\r\n") == found.count("\n") == content.count("\n")
    make_trial(tmp_path / "b", "relation", "relation", ("x", "y"), settings={"max_seq_length": 20})
    found = predict(tmp_path / "b", '1\t"the <e1>cat</e1> <e2>sat</e2>"\r\n', ".txt")
    assert found.count("\r\n") == found.count("\n") == 4


def test_words_of_a_file_are_held_no_longer_than_their_context_needs() -> None:
    sentences = [Sentence((str(number),), (), document=1) for number in range(5)]
    for context, sizes in (("sentence", [2, 2, 1]), ("document", [5])):
        parts = tagging.Settings(context=context).parts(iter(sentences))  # type: ignore[arg-type]
        assert [len(part) for part in parts] == sizes


def test_records_are_held_by_the_number_of_their_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict_records, "RECORDS_AT_ONCE", 4096)
    sizes = [predict_records.records_at_once(labels) for labels in (0, 3, 64, 1000, 10**9)]
    assert sizes == [4096, 4096, 4096, 262, 64]
    # An evaluation set's outputs are written line by line too, without holding all of them.
    assert isinstance(describe(("a", "b"), np.zeros((3, 2), np.float32)), Iterator)
    assert isinstance(choice.describe(np.zeros((3, 2), np.float32)), Iterator)


def test_the_choice_with_the_highest_score_is_predicted_however_close_the_next_is() -> None:
    close = np.array([0.05, np.nextafter(np.float32(0.05), np.float32(1)), IMPOSSIBLE], np.float32)
    (found,) = choice.describe(close[np.newaxis])
    assert found == {"label": 1, "probabilities": [0.5, 0.5]}


def test_choices_of_batches_with_fewer_are_widened() -> None:
    rows = make_rows([5, 5, 5, 5, 5, 0], width=3)
    parts = [(np.array([0]), np.ones((1, 3), np.float32)), (np.array([1]), np.zeros((1, 2), np.float32))]
    assert outputs.outputs_of(rows, lambda _: iter(parts)).tolist() == [[1, 1, 1], [0, 0, IMPOSSIBLE]]


def test_queries_are_held_by_the_number_of_their_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "_CANDIDATES_AT_ONCE", 4)
    counts = (1, 2, 2, 9, 1, 1)
    fields = [{"query": "a", "candidates": ["b"] * count} for count in counts]
    groups = ([Record(Place("x", line), one)] for line, one in enumerate(fields))
    queries = ((group, read_candidates(group)) for group in groups)
    sizes = [[len(query.candidates) for _, query in part] for part in ranking.parts_of(queries)]
    assert sizes == [[1, 2], [2], [9], [1, 1]]


def test_a_token_without_word_embedding_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_trial(tmp_path, "classification", "classify", ("no", "yes"), settings={"max_seq_length": 12})
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.add_tokens(["zebra"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    refuse(tmp_path, "text\ncat\ndog\na zebra\n", ".csv")
    assert "word embeddings, none for the token 'zebra' with id" in capsys.readouterr().err

    (tmp_path / "data").mkdir()
    for name, text in (("train", "the cat"), ("dev", "a zebra")):
        (tmp_path / "data" / f"{name}.csv").write_text(f"text,label\n{text},a\nthe dog,b\n")
    flags = ["--max-seq-length=12", f"--data={tmp_path / 'data'}", f"--output={tmp_path / 'output'}"]
    assert main(["finetune", "classify", f"--model={tmp_path}", *flags]) == 2
    assert "word embeddings, none for the token 'zebra' with id" in capsys.readouterr().err
    assert not (tmp_path / "output").exists()


def test_a_batch_that_memory_cannot_hold_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_trial(tmp_path, "classification", "classify", ("no", "yes"), settings={"max_seq_length": 12})
    refuse(tmp_path, "text\ncat\n", ".csv", f"--batch-size={2**31 - 1}")
    error = capsys.readouterr().err
    assert "too little memory" in error
    assert error.endswith("; make --batch-size smaller\n")
    assert error.count("\n") == 1


def test_an_output_that_promises_another_form_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    make_trial(tmp_path, "classification", "classify", ("no", "yes"))
    (tmp_path / "x.csv").write_text("text\ncat\n")
    paths = [f"--input={tmp_path / 'x.csv'}", f"--output={tmp_path / 'y.jsonl'}"]
    assert main(["predict", f"--model={tmp_path}", *paths]) == 2
    assert "y.jsonl would be in the form of " in capsys.readouterr().err


def test_what_is_cut_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_trial(tmp_path, "classification", "classify", ("no", "yes"), settings={"max_seq_length": 12})
    rows = list(csv.DictReader(predict(tmp_path, f'text\n"{LONG}"\n', ".csv").splitlines()))
    assert float(rows[0]["probability_no"]) + float(rows[0]["probability_yes"]) == pytest.approx(1, abs=1e-5)
    said = capsys.readouterr().out
    assert "1 example: " in said
    assert "warning: 1 text was cut to 12 tokens" in said
