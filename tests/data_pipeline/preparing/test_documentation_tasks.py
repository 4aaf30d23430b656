"""Tasks of the installed documentation: what is in them, and that splits share no document."""

import itertools
from collections import Counter
from pathlib import Path

import pytest

from data_pipeline.errors import UserError
from data_pipeline.preparing import documentation_tasks
from data_pipeline.preparing.documentation_tasks import write_tasks
from data_pipeline.tasks.classify import read_table

PACKAGES = [f"package{i}" for i in range(12)]
DOCUMENTS = [
    (package, [f'Sentence "{i}" of document {number} of {package}.' for i in range(8)])
    for number in range(40)
    for package in PACKAGES[: 12 if number < 4 else 10]
]


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(documentation_tasks, "documents_of_packages", lambda: DOCUMENTS)
    write_tasks(tmp_path / "tasks")
    return tmp_path / "tasks"


def rows(file: Path) -> list[list[str]]:
    header, *lines = file.read_text().splitlines()
    assert header.startswith("text\t")
    return [line.split("\t") for line in lines]


def test_the_largest_packages_are_told_apart_and_each_is_as_frequent(tasks: Path) -> None:
    for split in ("train", "dev"):
        counts = Counter(label for _, label in rows(tasks / "package" / f"{split}.tsv"))
        assert sorted(counts) == sorted(PACKAGES[:10])
        assert len(set(counts.values())) == 1


def test_neighbours_follow_each_other_and_others_are_of_another_document(tasks: Path) -> None:
    following = {pair for _, sentences in DOCUMENTS for pair in itertools.pairwise(sentences)}
    document_of = {sentence: number for number, (_, s) in enumerate(DOCUMENTS) for sentence in s}
    for split in ("train", "dev"):
        found = rows(tasks / "neighbours" / f"{split}.tsv")
        labels = Counter(label for *_, label in found)
        assert labels["yes"] == labels["no"] > 50
        for first, second, label in found:
            if label == "yes":
                assert (first, second) in following
            else:
                assert document_of[first] != document_of[second]


def test_no_document_is_in_both_splits(tasks: Path) -> None:
    for task in ("package", "neighbours"):
        train, dev = (
            {
                " ".join(text.split()[3:])
                for *texts, _ in rows(tasks / task / f"{split}.tsv")
                for text in texts
            }
            for split in ("train", "dev")
        )
        assert not train & dev


def test_the_same_documents_give_the_same_files(tasks: Path) -> None:
    write_tasks(tasks.parent / "again")
    for file in tasks.rglob("*.tsv"):
        assert file.read_bytes() == (tasks.parent / "again" / file.relative_to(tasks)).read_bytes()


def test_finetune_reads_them(tasks: Path) -> None:
    assert len(read_table(tasks / "package" / "dev.tsv", ["text"], "label")) == len(
        rows(tasks / "package" / "dev.tsv")
    )


def test_too_little_documentation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documentation_tasks, "documents_of_packages", lambda: DOCUMENTS[:3])
    with pytest.raises(UserError, match="too little documentation"):
        write_tasks(tmp_path / "tasks")
    assert not list(tmp_path.iterdir())
