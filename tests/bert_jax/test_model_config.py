"""Settings of the encoder that are impossible."""

import dataclasses
import json
from pathlib import Path

import pytest

from bert_jax.cli.main import main
from bert_jax.model_config import ModelConfig
from data_pipeline.errors import UserError
from tests.bert_jax.small_run import make_run


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": "rotray"}, "model.positions is 'rotray'; valid: learnt, rotary, sinusoidal, none"),
        ({"attention": None}, "model.attention is None; valid: bidirectional, causal, anticausal, joined"),
        ({"dtype": ["float32"]}, "model.dtype is ['float32']; valid: float32, bfloat16"),
        ({"layer_norm_epsilon": "1e-5"}, "model.layer_norm_epsilon is '1e-5'; it must be a number"),
        ({"layer_norm_epsilon": None}, "model.layer_norm_epsilon is None; it must be a number"),
        ({"initializer_range": "small"}, "model.initializer_range is 'small'; it must be a number"),
        ({"dropout_rate": True}, "model.dropout_rate is True; it must be a number"),
        ({"rotary_base": [1]}, "model.rotary_base is [1]; it must be a number"),
        ({"num_layers": "12"}, "model.num_layers is '12'; it must be a whole number"),
    ],
)
def test_an_impossible_value_is_named(changes: dict, message: str) -> None:
    for make in (lambda: ModelConfig(**changes), lambda: dataclasses.replace(ModelConfig(), **changes)):
        with pytest.raises(UserError) as caught:
            make()
        assert str(caught.value) == message


def test_an_impossible_value_in_the_record_of_a_run_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    make_run(tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    record = json.loads(file.read_text())
    record["experiment"]["model"]["positions"] = "rotray"
    file.write_text(json.dumps(record))
    assert main(["export", f"--workdir={tmp_path / 'run'}", f"--output={tmp_path / 'model'}"]) == 2
    said = capsys.readouterr().err
    assert "model.positions is 'rotray'; valid: learnt, rotary, sinusoidal, none" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "model").exists()
