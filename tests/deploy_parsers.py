"""Reads the files of deploy/ with SkyPilot's parser and Kubernetes' schema of a Job.

    pip install skypilot kubernetes-validate && python tests/deploy_parsers.py

SkyPilot's jobs are also run as it runs them, with stand-ins for what needs the network.

Not a test of pytest: SkyPilot's requirements and those of this package exclude each other.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import kubernetes_validate
import sky
import yaml
from sky.skylet import log_lib

DEPLOY = Path(__file__).parents[1] / "deploy"
STAND_INS = {
    "git": 'if [ "$1" = clone ]; then mkdir -p "${@: -1}"; fi',
    "python3": 'mkdir -p ~/.uv/bin && printf "#!/bin/bash\\nmkdir -p venv/bin && cp ~/tools/pip venv/bin/" >'
    " ~/.uv/bin/uv && chmod +x ~/.uv/bin/uv",
    "pip": 'cp ~/tools/bert-jax "$(dirname "$0")"',
    "bert-jax": 'echo "started: $*"',
    # What is in the bucket is not there.
    "cp": '[ "$1" = -r ] || exec /bin/cp "$@"',
    "ls": '[[ "$1" = /bucket/* ]] || exec /bin/ls "$@"',
}


def main() -> None:
    """Raises what a parser raises, or where a job does not start the run."""
    for name in ("skypilot_gpu", "skypilot_tpu"):
        task = sky.Task.from_yaml(str(DEPLOY / f"{name}.yaml"))
        print(f"{name}: {task.num_nodes} x {', '.join(map(str, task.resources))}")
        with tempfile.TemporaryDirectory() as home:
            print(run_job(task, Path(home)))
    jobset = yaml.safe_load((DEPLOY / "gke.yaml").read_text(encoding="utf-8"))
    for job in jobset["spec"]["replicatedJobs"]:
        whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}}
        kubernetes_validate.validate({**whole, "spec": job["template"]["spec"]}, "1.32", strict=True)
        print(f"gke: job {job['name']} follows the schema")


def run_job(task: sky.Task, home: Path) -> str:
    """The last line of a job that is set up and run in a home directory, as SkyPilot does on a host."""
    (home / "sky_workdir").mkdir()
    (home / "tools").mkdir()
    for name, body in STAND_INS.items():
        (home / "tools" / name).write_text(f"#!/bin/bash\n{body}\n")
        (home / "tools" / name).chmod(0o755)
    cluster = {"SKYPILOT_NODE_IPS": "10.0.0.1", "SKYPILOT_NUM_NODES": "1", "SKYPILOT_NODE_RANK": "0"}
    path = f"{home / 'tools'}:{os.environ['PATH']}"
    environment = {**task.envs, **cluster, "HOME": str(home), "PATH": path}
    said = ""
    for commands in (task.setup, task.run):
        script = log_lib.make_task_bash_script(commands)
        done = subprocess.run(
            ["bash", "-c", script], env=environment, capture_output=True, text=True, cwd=home
        )
        assert done.returncode == 0, done.stderr
        said = done.stdout
    assert said.startswith("started: pretrain base --workdir /bucket/runs/mine"), said
    return said.strip()


if __name__ == "__main__":
    main()
