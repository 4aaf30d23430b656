"""The files of deploy/ start a run with valid flags, and start it again after the statuses that allow it.

`.ci/run` reads them with the tools' own parsers, too (`tests/deploy_parsers.py`).
"""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from bert_jax.cli.flags.pretrain import parse
from bert_jax.exit_status import BAD_INPUT, FAILED, MAY_PASS, SAVED

DEPLOY = Path(__file__).parents[1] / "deploy"


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
    script = script_of(yaml.safe_load((DEPLOY / f"{name}.yaml").read_text(encoding="utf-8")))
    # The shell is replaced, so that SIGTERM reaches the run.
    (command,) = re.findall(r"exec \S*bert-jax pretrain (.*)", script.replace("\\\n", ""))
    args = parse(shlex.split(command))
    assert args.distributed
    assert args.experiment.data.corpus


@pytest.mark.parametrize("name", ["skypilot_gpu", "skypilot_tpu"])
def test_skypilot_runs_again_what_may_pass(name: str) -> None:
    task = yaml.safe_load((DEPLOY / f"{name}.yaml").read_text(encoding="utf-8"))
    assert task["resources"]["job_recovery"]["recover_on_exit_codes"] == [MAY_PASS, SAVED]


def test_jobset_does_not_run_again_what_would_fail_again() -> None:
    jobset = yaml.safe_load((DEPLOY / "gke.yaml").read_text(encoding="utf-8"))
    job = gke_job(jobset)
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == [FAILED, BAD_INPUT]
    assert rule["onExitCodes"]["containerName"] == gke_container(jobset)["name"]
    (reaction,) = jobset["spec"]["failurePolicy"]["rules"]
    assert (rule["action"], reaction["action"]) == ("FailJob", "FailJobSet")
    assert job["backoffLimit"] == 0, "all hosts start again together, never one alone"
