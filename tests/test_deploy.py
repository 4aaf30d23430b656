"""The files of deploy/ start a run with valid flags, and start it again after the statuses that allow it.

`.ci/run` reads them with the tools' own parsers, too (`tests/deploy_parsers.py`).
"""

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bert_jax.cli.flags.pretrain import parse
from bert_jax.exit_status import BAD_INPUT, FAILED, MAY_PASS, SAVED

ABORTED = 128 + signal.SIGABRT  # by jax, when another process is lost
DEPLOY = Path(__file__).parents[1] / "deploy"


def read(name: str) -> dict[str, Any]:
    """One of the files of deploy/."""
    return yaml.safe_load((DEPLOY / f"{name}.yaml").read_text(encoding="utf-8"))


def script_of(value: dict[str, Any]) -> str:
    """The shell commands that start the run."""
    return value["run"] if "run" in value else gke_container(value)["args"][0]


def gke_job(value: dict[str, Any]) -> dict[str, Any]:
    """The only job of a JobSet."""
    (job,) = value["spec"]["replicatedJobs"]
    return job["template"]["spec"]


def gke_container(value: dict[str, Any]) -> dict[str, Any]:
    """Its only container."""
    (container,) = gke_job(value)["template"]["spec"]["containers"]
    return container


@pytest.mark.parametrize("name", ["gke", "skypilot_gpu", "skypilot_tpu"])
def test_the_command_is_accepted(name: str) -> None:
    script = script_of(read(name))
    # The shell is replaced, so that SIGTERM reaches the run.
    (command,) = re.findall(r"exec \S*bert-jax pretrain (.*)", script.replace("\\\n", ""))
    args = parse(shlex.split(command))
    assert args.distributed
    assert args.experiment.data.corpus


@pytest.mark.parametrize("name", ["skypilot_gpu", "skypilot_tpu"])
def test_skypilot_runs_again_what_may_pass(name: str) -> None:
    assert read(name)["resources"]["job_recovery"]["recover_on_exit_codes"] == [MAY_PASS, SAVED, ABORTED]


@pytest.mark.parametrize("name", ["gke", "skypilot_gpu", "skypilot_tpu"])
@pytest.mark.parametrize("failing", ["git", "pip", "cp"])
def test_what_may_pass_before_the_run_begins_is_tried_again(name: str, failing: str, tmp_path: Path) -> None:
    value = read(name)
    script = value["setup"] if "setup" in value else script_of(value)
    # Every command succeeds but one; what is in the bucket is there.
    tools = ("git", "pip", "cp", "ls", "python3", "uv", "bert-jax")
    stand_ins = "".join(f"{tool}() {{ return {int(tool == failing)}; }}\n" for tool in tools)
    for program in ("~/.uv/bin/uv", "venv/bin/pip"):
        script = script.replace(program, program.rpartition("/")[2])
    (tmp_path / "bert-jax").mkdir()
    (tmp_path / "corpus").mkdir()
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "COMMIT": "main"}
    environment |= {"REPOSITORY": "me/fork", "CORPUS": str(tmp_path / "corpus"), "WORKDIR": "run"}
    done = subprocess.run(["bash", "-euc", stand_ins + script], env=environment, cwd=tmp_path, check=False)
    assert done.returncode == MAY_PASS


def test_jobset_does_not_run_again_what_would_fail_again() -> None:
    jobset = read("gke")
    job = gke_job(jobset)
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == [FAILED, BAD_INPUT]
    assert rule["onExitCodes"]["containerName"] == gke_container(jobset)["name"]
    (reaction,) = jobset["spec"]["failurePolicy"]["rules"]
    assert (rule["action"], reaction["action"]) == ("FailJob", "FailJobSet")
    assert job["backoffLimit"] == 0, "all hosts start again together, never one alone"


def test_machines_of_skypilot_know_their_place(tmp_path: Path) -> None:
    task = read("skypilot_gpu")
    program = tmp_path / "bert-jax" / "venv" / "bin" / "bert-jax"
    program.parent.mkdir(parents=True)
    program.write_text(
        '#!/bin/bash\necho "$JAX_COORDINATOR_ADDRESS $JAX_NUM_PROCESSES $JAX_PROCESS_ID"\n', encoding="utf-8"
    )
    program.chmod(0o755)
    given = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1"}
    environment = {**task["envs"], "HOME": str(tmp_path), "PATH": os.environ["PATH"], **given}
    shown = subprocess.check_output(["bash", "-c", task["run"]], env=environment, text=True)
    assert shown == "10.0.0.1:8476 2 1\n"
