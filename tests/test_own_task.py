"""A task with a head of its own is a module and a line of the table: all commands know it."""

import dataclasses
import functools
import json
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Tokenizer

from bert_jax.cli.main import main
from bert_jax.finetuning_config import FineTuningConfig
from bert_jax.task import Batch, Metric, Sums
from bert_jax.tasks import TASKS, Task
from bert_jax.tasks.finetuning.features import pooled_features
from bert_jax.tasks.finetuning.head import Head, example_inputs, real_rows
from bert_jax.tasks.finetuning.labelled_data import LabelledData, label_texts, predict_texts
from bert_jax.tasks.finetuning.predict_records import predict_records
from bert_jax.tasks.finetuning.task import AppliedModel, Prediction, TaskSettings
from data_pipeline.tasks.classify import read_table, text_example, text_rows
from data_pipeline.tasks.finetuning.encode import make_task_tokenizer
from data_pipeline.tasks.finetuning.flags import TaskFlags
from data_pipeline.tasks.finetuning.labels import label_targets
from data_pipeline.tasks.finetuning.records import read_records
from data_pipeline.tasks.finetuning.splits import require_split
from tests.bert_jax.small_run import make_run, trainable_params

ERROR = Metric("absolute_error", "error", better="lower")


class TwoLayers(nn.Module):
    """float32 [R, 1] from two layers on the pooled vector."""

    config: FineTuningConfig

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        x = pooled_features(self.config, batch, deterministic)
        return nn.Dense(1, name="second")(nn.tanh(nn.Dense(8, name="first")(x)))


class Counting(Head):
    """A number, by the absolute error."""

    kind: ClassVar[str] = "counting"

    @property
    def module(self) -> nn.Module:
        return TwoLayers(self.config)

    def example_batch(self) -> dict[str, jax.Array]:
        return example_inputs() | {"values": jnp.zeros((1,), jnp.float32)}

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        return {"loss": (jnp.abs(outputs[:, 0] - batch["values"].reshape(-1)) * real_rows(batch)).sum()}


def absolute_errors(targets: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    return np.abs(targets - predictions)


def absolute_error(targets: np.ndarray, predictions: np.ndarray) -> float:
    return float(absolute_errors(targets, predictions).mean())


@dataclasses.dataclass(frozen=True)
class Flags(TaskFlags):
    """A directory with train and dev."""

    max_seq_length: int = 16
    """Most tokens."""


@dataclasses.dataclass(frozen=True)
class Settings(Flags, TaskSettings):
    """Texts, and a number for each."""

    def load(self, task: str, data: str, tokenizer: Tokenizer) -> LabelledData:
        plain = make_task_tokenizer(tokenizer)
        examples = [read_table(require_split(data, s), ["text"], "n") for s in ("train", "dev")]
        train, dev = (text_rows(found, plain, 16, label_targets(found, ())) for found in examples)
        return LabelledData((), {ERROR: (absolute_error, absolute_errors)}, train, {"dev": dev}, {})

    def head(self, task: str, config: FineTuningConfig) -> Head:
        return Counting(config, (ERROR,))

    def predict_file(self, job: Prediction) -> int:
        read = functools.partial(read_records, job.input, ["text"])
        parse = functools.partial(text_example, columns=["text"])
        predict = functools.partial(label_texts, model=job.model, max_length=16)
        return predict_records(job, read, parse, predict)

    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[Any]:
        return predict_texts(examples, ["text"], text_example, model, 16)


@pytest.fixture
def own_task(monkeypatch: pytest.MonkeyPatch) -> None:
    for package, held in {"data_pipeline": Flags, "bert_jax": Settings}.items():
        module = types.ModuleType(f"{package}.tasks.counting")
        setattr(module, held.__name__, held)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(TASKS, "count", Task("counting", "how many words"))


@pytest.mark.usefixtures("own_task")
def test_it_is_trained_reported_and_applied(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_run(tmp_path / "model", make_params=trainable_params, num_layers=1)
    rows = "".join(f"{'the ' * n}\t{n}\n" for n in (1, 3, 5, 7))
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text(f"text\tn\n{rows}")
    paths = [f"--model={tmp_path / 'model'}", f"--data={tmp_path}", f"--output={tmp_path / 'out'}"]
    rates = ["--learning-rate", "1e-2", "1e-9", "--epochs=10", "--batch-size=4"]
    assert main(["finetune", "count", *paths, *rates]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    scores = {trial["learning_rate"]: trial["metrics"]["absolute_error"] for trial in results["trials"]}
    assert results["best"]["learning_rate"] == 1e-2
    assert scores[1e-2] < scores[1e-9]

    assert main(["report", str(tmp_path / "out")]) == 0
    assert f"{scores[1e-2]:.4f}" in capsys.readouterr().out
    target = tmp_path / "predicted.tsv"
    flags = [f"--model={tmp_path / 'out'}", f"--input={tmp_path / 'dev.tsv'}", f"--output={target}"]
    assert main(["predict", *flags]) == 0
    assert target.read_text().startswith("text\tn\tpredicted\n")
    assert main(["convert", f"--model={tmp_path / 'out'}", f"--output={tmp_path / 'exported'}"]) == 2
    assert "transformers has no class for model-count (counting" in capsys.readouterr().err
    further = [*paths[:2], f"--model={tmp_path / 'out'}", f"--output={tmp_path / 'further'}"]
    assert main(["finetune", "count", *further[1:], "--epochs=1", "--batch-size=4", "--keep-head"]) == 0
