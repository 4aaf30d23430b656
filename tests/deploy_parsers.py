"""Reads the files of deploy/ with SkyPilot's parser and Kubernetes' schema of a Job.

    pip install skypilot kubernetes-validate && python tests/deploy_parsers.py

Not a test of pytest: SkyPilot's requirements and those of this package exclude each other.
"""

from pathlib import Path

import kubernetes_validate
import sky
import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"


def main() -> None:
    """Raises what a parser raises."""
    for name in ("skypilot_gpu", "skypilot_tpu"):
        task = sky.Task.from_yaml(str(DEPLOY / f"{name}.yaml"))
        print(f"{name}: {task.num_nodes} x {', '.join(map(str, task.resources))}")
    jobset = yaml.safe_load((DEPLOY / "gke.yaml").read_text(encoding="utf-8"))
    for job in jobset["spec"]["replicatedJobs"]:
        whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}}
        kubernetes_validate.validate({**whole, "spec": job["template"]["spec"]}, "1.32", strict=True)
        print(f"gke: job {job['name']} follows the schema")


if __name__ == "__main__":
    main()
