"""The records of published studies belong to what the studies are today, so that they can be continued."""

import tarfile
from pathlib import Path

import pytest

from bert_jax.studies.directory import read_ended, read_study, record_inputs_and_seeds
from bert_jax.studies.plan import make_plan
from bert_jax.workdir.record import read_record
from experiments import STUDIES

RESULTS = Path(__file__).parents[3] / "docs" / "results"


@pytest.mark.parametrize(
    "name",
    ["best_small", "departures", "moments", "pretraining_seeds", "table5", "table6", "table7", "table8"],
)
def test_a_published_study_can_be_continued(name: str, tmp_path: Path) -> None:
    with tarfile.open(RESULTS / f"{name}_small.tar.xz") as records:
        records.extractall(tmp_path, filter="data")
    study = STUDIES[name]
    scale = study.scales["small"]
    first = read_record(
        tmp_path / study.at(scale).base / f"seed-{scale.first_seed}" / "pretraining"
    ).experiment
    corpus = {"data.corpus": first.data.corpus, "model.vocab_size": first.model.vocab_size}
    plan = make_plan(study, "small", scale, corpus)
    record_inputs_and_seeds(tmp_path, plan, read_study(tmp_path)["corpus"], first.model.vocab_size)
    assert [job.path for job in plan.jobs if not read_ended(tmp_path / job.path)] == []
