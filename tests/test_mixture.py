"""A run on several corpora: recorded, resumed with the same ones alone, inspected and evaluated."""

import pytest

from bert_jax.cli.main import main
from bert_jax.training.checkpoints import saved_steps
from bert_jax.training.metric_log import read_rows
from bert_jax.workdir.record import read_record
from tests.tiny_run import arguments, write_corpus


def start(workdir, corpora, *flags: str) -> int:
    named = ",".join(map(str, corpora))
    return main(arguments(workdir, named, "--num-train-steps", "40", "--eval-every", "40", *flags))


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    directory = tmp_path_factory.mktemp("corpora")
    return [write_corpus(directory / name, seed=seed) for seed, name in enumerate("ab")]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory, corpora):
    workdir = tmp_path_factory.mktemp("runs") / "mixed"
    assert start(workdir, corpora, "--data.weights", "0.7", "0.3") == 0
    return workdir


def test_a_run_trains_on_several_corpora_and_evaluates(workdir, corpora, capsys):
    assert saved_steps(workdir)[-1] == 40
    data = read_record(workdir).experiment.data
    assert (data.corpus, data.weights) == (f"{corpora[0]},{corpora[1]}", (0.7, 0.3))
    (row,) = [row for row in read_rows(workdir / "metrics.jsonl") if row["split"] == "heldout"]
    assert row["examples"] == 16
    assert main(["evaluate", "--workdir", str(workdir)]) == 0
    assert main(["evaluate", "--workdir", str(workdir), "--data.corpus", str(corpora[1])]) == 0
    assert capsys.readouterr().out.count("mlm_accuracy") == 2
    both = f"{corpora[1]},{corpora[0]}"
    assert main(["evaluate", "--workdir", str(workdir), "--data.corpus", both]) == 0
    assert capsys.readouterr().out.count("mlm_accuracy") == 1
    assert main(["evaluate", "--workdir", str(workdir), "--data.corpus", f"{both},{corpora[0]}"]) == 2
    assert "names 3 corpora, and the run has 2; name one or 2" in capsys.readouterr().err
    assert main(["export", "--workdir", str(workdir), "--output", str(workdir.parent / "exported")]) == 0


def test_inspect_says_what_a_step_was_made_of(workdir, corpora, capsys):
    assert main(["inspect", str(workdir), "--step", "30", "--examples", "8"]) == 0
    out = capsys.readouterr().out
    rows = [
        int(line.split(": ")[1].split(" rows")[0])
        for line in out.replace("\n", " ").split("/corpora")
        if " rows, after " in line
    ]
    assert sum(rows) == 8, out
    assert out.count("tokens: ") == 8
    assert main(["inspect", str(workdir), "--sequences", "100", "--examples", "0"]) == 0
    assert capsys.readouterr().out.count("checksums match") == 2


@pytest.mark.parametrize(
    ("order", "weights", "message"),
    [
        ("ab", ("0.6", "0.4"), "data.weights.0 0.7 -> 0.6; data.weights.1 0.3 -> 0.4"),
        ("ba", ("0.7", "0.3"), "the text or the vocabulary of data.corpus changed"),
        ("a", (), "data.weights.0 0.7 -> unset"),
    ],
)
def test_it_resumes_with_the_same_corpora_and_weights_alone(
    workdir, corpora, capsys, order, weights, message
):
    named = [corpora["ab".index(name)] for name in order]
    flags = ["--data.weights", *weights] if weights else []
    assert start(workdir, named, *flags) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_corpora_may_move(workdir, corpora, tmp_path, capsys):
    moved = [tmp_path / corpus.name for corpus in corpora]
    for corpus, link in zip(corpora, moved, strict=True):
        link.symlink_to(corpus)
    assert start(workdir, moved, "--data.weights", "0.7", "0.3") == 0
    assert start(moved[1], moved, "--data.weights", "0.7", "0.3") == 2
    assert "is the directory of data.corpus" in " ".join(capsys.readouterr().err.split())
