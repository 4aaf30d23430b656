"""Several chips, for which CPU devices stand in: trials and measures dealt out, with the bytes of one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bert_jax.parallel import chips
from bert_jax.training.checkpoints import load_params
from tests.bert_jax.small_run import make_run, trainable_params
from tests.pod import Pod
from tests.tiny_run import command, environment
from tests.tiny_study import outcomes, study, write_data

CHIPS = 3


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_data(tmp_path_factory.mktemp("data"))


def with_chips(count: int) -> dict[str, str]:
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"
    return {**environment(), "XLA_FLAGS": flags}


def bert_jax(*args: str, chips: int) -> str:
    done = subprocess.run(command(*args), env=with_chips(chips), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_process_sees_one_chip(tmp_path: Path) -> None:
    (tmp_path / "jax.py").touch()  # a file of the user, which is not the package
    ask = (
        "import os; from bert_jax.parallel.chips import find_chips; found = find_chips(); "
        "os.environ.update(found.environments[1]); "
        "import jax; print(found.platform, len(found.environments), jax.device_count())"
    )
    said = subprocess.check_output(
        [sys.executable, "-P", "-c", ask], env=with_chips(CHIPS), text=True, cwd=tmp_path
    )
    assert said.split() == ["cpu", str(CHIPS), "1"]


def test_a_second_platform_does_not_hide_the_chips(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Path("/dev/accel0"), Path("/dev/accel1")]
    monkeypatch.setattr(chips.Path, "glob", lambda place, _: iter(found if place == Path("/dev") else []))
    monkeypatch.setattr(chips.importlib.util, "find_spec", lambda name: name)
    chips_by_platforms = {}
    for platforms in ("tpu", "tpu,cpu", "cpu"):
        monkeypatch.setenv("JAX_PLATFORMS", platforms)
        chips_by_platforms[platforms] = len(chips.find_chips.__wrapped__().environments)
    assert chips_by_platforms == {"tpu": 2, "tpu,cpu": 2, "cpu": 1}


@pytest.mark.slow
def test_trials_dealt_out_to_chips_leave_the_bytes_of_one_chip(tmp_path: Path) -> None:
    make_run(tmp_path / "model", make_params=trainable_params, num_layers=1)
    (tmp_path / "data").mkdir()
    for split, count in (("train", 64), ("dev", 24)):
        things = np.random.default_rng(count).choice(["cat", "dog", "mat"], count)
        lines = [f"the {thing} is here\t{thing}" for thing in things]
        (tmp_path / "data" / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    flags = [f"--model={tmp_path / 'model'}", f"--data={tmp_path / 'data'}", "--max-seq-length=24"]
    grid = ["--batch-size=8", "--epochs=2", "--seeds=2", "--learning-rate", "3e-3", "1e-3"]

    def finetune(output: Path, chips: int) -> str:
        return bert_jax("finetune", "classify", *flags, *grid, f"--output={output}", chips=chips)

    alone, dealt = tmp_path / "alone", tmp_path / "dealt"
    said = finetune(alone, 1)
    assert said.count(" of 4: ") == 4
    said = finetune(dealt, CHIPS)
    by_others = [(dealt / f"chip-{number}.log").read_text() for number in range(1, CHIPS)]
    assert sum(text.count(" of 4: ") for text in (said, *by_others)) == 4, "each trial is trained once"
    assert any(" of 4: " in text for text in by_others)
    compared = [*alone.glob("trials/*/result.json"), *alone.glob("trials/*/items.npz")]
    assert len(compared) == 8
    for path in (alone / "results.json", *compared):
        assert (dealt / path.relative_to(alone)).read_bytes() == path.read_bytes(), path
    for ours, theirs in zip(params_of(dealt), params_of(alone), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def params_of(grid: Path) -> list[np.ndarray]:
    from jax import tree  # not before the other test's processes, which begin without a device

    return tree.leaves(load_params(grid / "best")[1])


@pytest.mark.slow
def test_a_study_measures_on_each_chip_and_pretrains_on_all(data: list[str], tmp_path: Path) -> None:
    one_after_the_other, dealt = tmp_path / "one", tmp_path / "dealt"
    bert_jax(*study(data, one_after_the_other, "--scale", "three_jobs", "--workers", "1"), chips=4)
    bert_jax(*study(data, dealt, "--scale", "three_jobs"), chips=4)
    assert outcomes(dealt) == outcomes(one_after_the_other)
    assert (dealt / "results.csv").read_bytes() == (one_after_the_other / "results.csv").read_bytes()
    assert devices_of(dealt) == {"pretraining": "4 x cpu", "classify": "1 x cpu"}


def devices_of(study: Path) -> dict[str, str]:
    """Kind of job -> the devices that it ran on."""
    return {path.parent.name: json.loads(path.read_text())["devices"] for path in study.rglob("job.json")}


@pytest.mark.slow
def test_the_hosts_of_a_slice_pretrain_together_and_measure_apart(data: list[str], tmp_path: Path) -> None:
    output = tmp_path / "study"
    line = command(*study(data, output, "--scale", "three_jobs", "--distributed"))
    with Pod([line] * 2, tmp_path / "log", environment()) as pod:
        assert pod.wait() == [0, 0], pod.said(0) + pod.said(1)
        said = pod.said(0) + pod.said(1)
    done = [line.split(":")[0] for line in said.splitlines() if ": done, " in line]
    assert sorted(done) == sorted(outcomes(output))
    assert len(done) == 1 + 2
    assert devices_of(output) == {"pretraining": "4 x cpu", "classify": "1 x cpu"}
