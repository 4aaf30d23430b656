"""`bert-jax study --init-from MODEL`: every pretraining goes on from a model."""

import json
import shutil
from pathlib import Path

import pytest

from bert_jax.cli.main import main
from bert_jax.training.checkpoints import load_params
from bert_jax.training.metric_log import heldout_rows
from bert_jax.workdir.record import read_record
from tests.tiny_run import WORDS, arguments, assert_close, write_corpus
from tests.tiny_study import FILE

_STUDY = """\
from copy_of_small_study import STUDY, TINY

from bert_jax.study import Arm, HeldoutLM, Scale, Study

CONTINUED = Study(
    name="continued",
    title="Arms that go on from a model",
    base="continued",
    arms={
        "continued": Arm(TINY),
        "scratch": Arm(TINY, from_scratch=True),
        "unchanged": Arm(
            TINY, {"num_train_steps": 1, "optimizer.learning_rate": 1e-30, "optimizer.warmup_steps": 0}
        ),
    },
    measures=(HeldoutLM("MLM", "mlm_accuracy"),),
    scales={"one": Scale(seeds=1)},
)
"""


@pytest.mark.slow
def test_the_arms_of_a_study_start_from_a_model_but_for_those_from_scratch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(FILE, tmp_path / "copy_of_small_study.py")
    (tmp_path / "continued_study.py").write_text(_STUDY)
    corpus, model, output = write_corpus(tmp_path / "corpus"), tmp_path / "model", tmp_path / "study"
    assert main(arguments(model, corpus, "--num-train-steps", "40", "--model.num-layers", "2")) == 0
    words = ["study", "continued", "--file", str(tmp_path / "continued_study.py"), "--output", str(output)]
    data = ["--corpus", str(corpus)]
    from_model = ["--init-from", str(model)]
    assert main([*words, *data, *from_model, "--workers", "1"]) == 0
    runs = {arm: output / arm / "seed-0" / "pretraining" for arm in ("continued", "scratch", "unchanged")}
    records = {arm: read_record(run) for arm, run in runs.items()}
    assert {arm: record.init_from for arm, record in records.items()} == {
        "continued": "model",
        "scratch": "",
        "unchanged": "model",
    }
    assert {record.experiment.model.num_layers for record in records.values()} == {2}
    params = load_params(model)[1]
    assert_close(load_params(runs["unchanged"])[1], params)
    first = heldout_rows(runs["continued"])[0]
    (unchanged,) = (row for row in heldout_rows(runs["unchanged"]) if row["step"] == 1)
    assert first["step"] == 0
    assert first["mlm_loss"] == pytest.approx(unchanged["mlm_loss"], rel=1e-6)
    report = (output / "report.md").read_text()
    assert "Pretraining starts with the parameters of `model`, but at random in scratch." in report
    assert "model.num_layers 1 -> 2" in report
    assert f"- initial model: `model, fingerprint {records['continued'].init_fingerprint}`" in report
    # The shape is kept with the study.
    shutil.rmtree(model)
    assert main([*words, "--status"]) == 0
    assert "6 of 6 done" in capfd.readouterr().out
    assert main([*words, *data]) == 2
    assert f"{output} was begun from another model, whose fingerprint is" in capfd.readouterr().err
    other = json.loads((runs["scratch"] / "config.json").read_text())
    assert other["init_fingerprint"] == ""
    assert main([*words, *data, "--init-from", str(runs["scratch"])]) == 2
    assert "was begun from another model" in capfd.readouterr().err


def test_models_that_no_arm_can_start_from_are_refused_before_anything_is_made(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    corpus, output = write_corpus(tmp_path / "corpus"), tmp_path / "study"
    tiny = ["study", "tiny", "--file", str(FILE), "--output", str(output), "--tasks", str(tmp_path)]
    assert main([*tiny, "--corpus", str(corpus), "--init-from", str(tmp_path / "none")]) == 2
    assert "none is not a directory; name that of a model" in capfd.readouterr().err
    model = tmp_path / "model"
    assert main(arguments(model, corpus, "--num-train-steps", "1")) == 0
    others = write_corpus(tmp_path / "others", words=WORDS[::-1])
    assert main([*tiny, "--corpus", str(others), "--init-from", str(model)]) == 2
    assert "has another vocabulary than model of --init-from" in capfd.readouterr().err
    assert main(["study", "smoke", "--output", str(output), "--init-from", str(model)]) == 2
    assert "--init-from needs a corpus that was made with the model's vocabulary" in capfd.readouterr().err
    assert not output.exists()
