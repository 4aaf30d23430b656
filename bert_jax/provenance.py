"""Where a run happened: versions, git state, devices and the command, for `config.json`."""

import importlib.metadata
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

_PACKAGES = ("bert-jax", "flax", "jax", "jaxlib", "numpy", "optax", "orbax-checkpoint")


def describe() -> dict[str, Any]:
    """A JSON object that tells this process apart from others that ran the same command."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "git": _git_state(Path(__file__).parent),
        "platform": platform.platform(),
        "devices": [device.device_kind for device in jax.devices()],
    }


def _git_state(folder: Path) -> dict[str, Any] | None:
    """The commit that the code was read from, or None where it is not in a git repository."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "changed_files": (_git(folder, "status", "--porcelain") or "").splitlines()}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.rstrip() if done.returncode == 0 else None
