"""GLUE: each task's files in the form in which GLUE publishes them, TFDS's form, and the server's zip."""

import pytest
import tensorflow_datasets as tfds

from data_pipeline.errors import Unfinished, UserError
from data_pipeline.tasks.finetuning.labels import label_ids, label_values
from data_pipeline.tasks.glue.files import open_glue, read_glue
from data_pipeline.tasks.glue.submission import (
    join_submissions,
    placeholders,
    submission_text,
    write_submission,
)
from data_pipeline.tasks.glue.tasks import GLUE_TASKS
from tests.data_pipeline.tasks.files import write
from tests.data_pipeline.tiny_tfds import cola_features, store

_STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
_MNLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
    "sentence2_parse\tsentence1\tsentence2"
)

# Task, split, file, content, and what should be read: text, pair, label.
PUBLISHED = [
    (
        "cola",
        "train",
        "CoLA/train.tsv",
        'gj04\t1\t\tThe "book.\nks08\t0\t*\tBook the.',
        ('The "book.', None, "1"),
    ),
    ("cola", "test", "CoLA/test.tsv", "index\tsentence\n0\tA book.\n", ("A book.", None, None)),
    ("sst2", "dev", "SST-2/dev.tsv", "sentence\tlabel\nfine film \t1\n", ("fine film ", None, "1")),
    ("sst2", "test", "SST-2/test.tsv", "index\tsentence\n0\tfine film\n", ("fine film", None, None)),
    (
        "mrpc",
        "train",
        "MRPC/train.tsv",
        '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t70\t71\tOne " said.\tTwo said.\r\n',
        ('One " said.', "Two said.", "1"),
    ),
    (
        "mrpc",
        "test",
        "MRPC/test.tsv",
        "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\tOne.\tTwo.\n",
        ("One.", "Two.", None),
    ),
    (
        "stsb",
        "dev",
        "STS-B/dev.tsv",
        f"{_STSB}\tscore\n0\tg\tf\ty\t1\tn\tn\tA plane.\tA bird.\t4.750\n",
        ("A plane.", "A bird.", "4.750"),
    ),
    ("stsb", "test", "STS-B/test.tsv", f"{_STSB}\n0\tg\tf\ty\t1\tn\tn\tA.\tB.\n", ("A.", "B.", None)),
    (
        "qqp",
        "train",
        "QQP/train.tsv",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n7\t1\t2\tWhy?\t\t0\n",
        ("Why?", "", "0"),
    ),
    ("qqp", "test", "QQP/test.tsv", "id\tquestion1\tquestion2\n0\tWhy?\tHow?\n", ("Why?", "How?", None)),
    (
        "mnli",
        "train",
        "MNLI/train.tsv",
        f"{_MNLI}\tlabel1\tgold_label\n0\t1\t1n\tg\tp\tp\tp\tp\tIt rains.\tIt is wet.\tneutral\tentailment\n",
        ("It rains.", "It is wet.", "entailment"),
    ),
    (
        "mnli",
        "dev_mismatched",
        "MNLI/dev_mismatched.tsv",
        f"{_MNLI}\tlabel1\tlabel2\tgold_label\n0\t1\t1n\tg\tp\tp\tp\tp\tA.\tB.\tneutral\tneutral\tcontradiction\n",
        ("A.", "B.", "contradiction"),
    ),
    (
        "mnli",
        "test",
        "MNLI/test_matched.tsv",
        f"{_MNLI}\n0\t1\t1n\tg\tp\tp\tp\tp\tA.\tB.\n",
        ("A.", "B.", None),
    ),
    (
        "qnli",
        "dev",
        "QNLI/dev.tsv",
        'index\tquestion\tsentence\tlabel\n0\tWhen?\tIn "1990.\tnot_entailment\n',
        ("When?", 'In "1990.', "not_entailment"),
    ),
    (
        "rte",
        "train",
        "RTE/train.tsv",
        "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tentailment\n",
        ("A.", "B.", "entailment"),
    ),
    ("wnli", "dev", "WNLI/dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t1\n", ("A.", "B.", "1")),
    (
        "ax",
        "test",
        "diagnostic/diagnostic.tsv",
        "index\tsentence1\tsentence2\n0\tA.\tB.\n",
        ("A.", "B.", None),
    ),
]


@pytest.mark.parametrize(("name", "split", "file", "content", "expected"), PUBLISHED)
def test_published_files_are_read(tmp_path, name, split, file, content, expected):
    path = write(tmp_path / file, content)
    task = GLUE_TASKS[name]
    examples, broken = read_glue(str(tmp_path), task, split)
    example = examples[0]
    assert (example.text, example.pair, example.label) == expected
    assert (examples, broken) == read_glue(str(path.parent), task, split)
    assert len(examples) == len(content.splitlines()) - (content[:4] != "gj04")
    if example.label is not None:
        numbers = label_ids(examples, task.labels) if task.labels else label_values(examples)
        assert len(numbers) == len(examples)


def test_files_in_another_encoding_are_read(tmp_path):
    content = "sentence\tlabel\nA naïve film.\t1\n"
    file = write(tmp_path / "train.tsv", "")
    file.write_text(content, encoding="latin-1")
    (example,), _ = read_glue(str(tmp_path), GLUE_TASKS["sst2"], "train", "latin-1")
    assert example.text == "A naïve film."
    with pytest.raises(UserError, match="is not UTF-8"):
        read_glue(str(tmp_path), GLUE_TASKS["sst2"], "train")
    for name in ("users.tsv", "users.csv"):
        users = tmp_path / name
        users.write_text("sentence\nA naïve film.\n", encoding="latin-1")
        (record,) = open_glue(users, GLUE_TASKS["sst2"], encoding="latin-1").read()
        assert record.fields["sentence"] == "A naïve film."


def test_few_broken_lines_are_told_and_many_refused(tmp_path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    good = "0\t1\t2\tWhy?\tHow?\t1\n" * 500
    file = write(tmp_path / "train.tsv", f"{header}{good}broken\n{good}")
    examples, broken = read_glue(str(tmp_path), GLUE_TASKS["qqp"], "train")
    assert [place.line for place in broken] == [502]
    assert len(examples) == 1000
    file.write_text(f"{header}broken\n{good}{good}again\n")
    with pytest.raises(UserError, match=r"line 2 does not have 6 columns; lines with another number: 2"):
        read_glue(str(tmp_path), GLUE_TASKS["qqp"], "train")


def test_a_test_set_has_no_broken_line(tmp_path):
    write(tmp_path / "test.tsv", "id\tquestion1\tquestion2\n" + "0\tWhy?\tHow?\n" * 5000 + "5000\tWhy?\n")
    with pytest.raises(UserError, match=r"line 5002 does not have 3 columns; lines with another number: 1"):
        read_glue(str(tmp_path), GLUE_TASKS["qqp"], "test")


@pytest.mark.parametrize(
    ("name", "split", "content", "message"),
    [
        ("rte", "dev", "index\tsentence1\tlabel\n", r"dev\.tsv has no column sentence2; it has index, sent"),
        ("rte", "dev", "", r"dev\.tsv is empty"),
        ("rte", "dev", "index\tsentence1\tsentence2\tlabel\n", r"dev\.tsv has no example"),
        (
            "rte",
            "dev",
            "index\tsentence1\tsentence2\tlabel\n0\t\t \tentailment\n",
            r"dev\.tsv, line 2 has no text",
        ),
        ("cola", "dev", b"a\t1\t\tfine\na\t1\t\t\xff\n", r"dev\.tsv, line 2 is not UTF-8"),
        ("cola", "dev_mismatched", "", "cola has no split dev_mismatched; it has train, dev, test"),
        ("ax", "train", "", "ax has no split train; it has test"),
        ("cola", "train", "", r"has neither CoLA/train\.tsv nor train\.tsv"),
    ],
)
def test_bad_files_are_one_line(tmp_path, name, split, content, message):
    write(tmp_path / "dev.tsv", content)
    with pytest.raises(UserError, match=message):
        read_glue(str(tmp_path), GLUE_TASKS[name], split)


def test_tfds_gives_glues_own_order_and_words(tmp_path):
    def rows(labels: list[int]) -> list[dict[str, object]]:
        return [{"sentence": f"text {i}", "label": labels[i], "idx": i} for i in (2, 0, 1)]

    parts = {"validation": rows([1, 0, 1]), "test": rows([-1, -1, -1])}
    store(tmp_path, "cola_like", cola_features(), parts)
    tfds.core.add_data_dir(str(tmp_path))
    for split, labels in (("dev", ["1", "0", "1"]), ("test", [None] * 3)):
        examples, _ = read_glue("tfds:cola_like", GLUE_TASKS["cola"], split)
        assert [example.text for example in examples] == ["text 0", "text 1", "text 2"]
        assert [example.label for example in examples] == labels
    with pytest.raises(UserError, match="tfds:cola_like has no column premise; it has"):
        read_glue("tfds:cola_like", GLUE_TASKS["mnli"], "dev")
    with pytest.raises(UserError, match=r"tfds:no_such_set is not available .*; give the directory"):
        read_glue("tfds:no_such_set", GLUE_TASKS["cola"], "dev")


def test_a_submission_has_a_file_for_every_test_set(tmp_path):
    texts = {
        "WNLI.tsv": submission_text(["1", "0"] * 73),
        "STS-B.tsv": submission_text([5.2, -0.1, 2.34567] + [1.0] * 1376),
    }
    for name, text in texts.items():
        write_submission(tmp_path / f"{name}.zip", {name: text})
    joined = join_submissions(tmp_path / f"{name}.zip" for name in texts)
    assert joined == texts
    assert joined["WNLI.tsv"].startswith("index\tprediction\n0\t1\n1\t0\n")
    assert joined["STS-B.tsv"].startswith("index\tprediction\n0\t5.000\n1\t0.000\n2\t2.346\n")
    filled = placeholders(joined)
    named = {name for task in GLUE_TASKS.values() for name in task.submissions.values()}
    assert len(named) == 11
    assert filled.keys() == named - texts.keys()
    assert filled["QNLI.tsv"].count("\n") == 5464
    assert filled["QNLI.tsv"].endswith("5462\tentailment\n")


def test_what_cannot_be_submitted_is_named(tmp_path):
    whole, short = tmp_path / "a.zip", tmp_path / "b.zip"
    write_submission(whole, {"WNLI.tsv": submission_text(["1"] * 146)})
    write_submission(short, {"RTE.tsv": submission_text(["entailment"])})
    with pytest.raises(UserError, match=r"RTE.tsv of .*b.zip has 1 predictions; GLUE's test set has 3000"):
        join_submissions([whole, short])
    with pytest.raises(UserError, match=r"a.zip has WNLI.tsv, which another one has"):
        join_submissions([whole, whole])
    with pytest.raises(UserError, match=r"there is no .*c.zip; finetune writes it"):
        join_submissions([tmp_path / "c.zip"])
    (tmp_path / "d.zip").write_text("x")
    with pytest.raises(UserError, match=r"d.zip is no zip of predictions"):
        join_submissions([tmp_path / "d.zip"])
    encrypted = bytearray(short.read_bytes())
    encrypted[6] |= 1  # the flag of the file's header, and that of the directory's
    encrypted[encrypted.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "encrypted.zip").write_bytes(encrypted)
    with pytest.raises(UserError, match=r"encrypted.zip is no zip of predictions"):
        join_submissions([tmp_path / "encrypted.zip"])
    (tmp_path / "e.zip").symlink_to("/proc/self/mem")
    with pytest.raises(Unfinished, match=r"e.zip: Input/output error; run the same command again"):
        join_submissions([tmp_path / "e.zip"])
