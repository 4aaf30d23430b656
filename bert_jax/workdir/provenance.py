"""How and where a run was started, for `config.json`: versions, git state, devices and the command."""

import hashlib
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

from bert_jax.workdir.config_text import differences

_PACKAGES = (
    *("bert-jax", "flax", "jax", "jaxlib", "numpy", "optax", "orbax-checkpoint"),
    *("libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin"),  # the compilers, where there are such devices
)

_CODE = tuple(f":(top,glob){directory}/**/*.py" for directory in ("bert_jax", "data_pipeline", "experiments"))


def this_start() -> dict[str, Any]:
    """A description of this start of a run, as a JSON object: time, host, command, versions, devices."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "command": shlex.join(sys.argv),
        "python": platform.python_version(),
        "versions": installed_versions(_PACKAGES),
        "git": _git_state(Path(__file__).parent),
        "platform": platform.platform(),
        "devices": [device.device_kind for device in jax.devices()],
        "xla_flags": _xla_flags(),
    }


def code(start: Mapping[str, Any]) -> dict[str, str]:
    """The part of a start's description that identifies the code: package versions and git state."""
    git = start["git"] or {}
    names = {"git commit": "commit", "uncommitted changes": "changes"}
    return {**start["versions"], **{name: git[key] for name, key in names.items() if git.get(key)}}


def describe_code_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A one-line note if versions, git state, devices or XLA's flags have changed since a start, or none."""
    changes = differences(_compiled_from(before), _compiled_from(now), ())
    if not changes:
        return []
    return [f"note: {'; '.join(changes)}: the run goes on, but it may not be bit for bit the same"]


def _compiled_from(start: Mapping[str, Any]) -> dict[str, str]:
    flags, devices = start.get("xla_flags"), Counter(start["devices"])
    of_devices = {"devices": ", ".join(f"{count} x {kind}" for kind, count in devices.items())}
    return {**code(start), **of_devices, **({"XLA_FLAGS": flags} if flags else {})}


def _xla_flags() -> str:
    """XLA_FLAGS but for the number of CPU devices, which `devices` tells."""
    words = os.environ.get("XLA_FLAGS", "").split()
    return " ".join(w for w in words if not w.startswith("--xla_force_host_platform_device_count"))


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """The version of each package that is installed."""
    installed = {}
    for name in packages:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def _git_state(directory: Path) -> dict[str, Any] | None:
    """The commit of the code and what differs from it, or None if the code is not in a git repository."""
    if _git(directory, "ls-files", "--error-unmatch", "--", __file__) is None:
        return None  # installed, perhaps in an environment inside the repository of something else
    commit = _git(directory, "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = (_git(directory, "status", "--porcelain") or "").splitlines()
    return {"commit": commit, "changed_files": changed, "changes": _hash_changes(directory)}


def _hash_changes(directory: Path) -> str:
    """Hash of the code's uncommitted changes and new files; empty if there are none."""
    diff = _git(directory, "diff", "HEAD", "--", *_CODE) or ""
    new = (_git(directory, "ls-files", "--others", "--exclude-standard", "--", *_CODE) or "").splitlines()
    hashes = _git(directory, "hash-object", "--", *new) if new else ""
    if not diff and not new:
        return ""
    found = f"{diff}\n{new}\n{hashes}".encode("utf-8", "surrogateescape")
    return hashlib.sha256(found).hexdigest()[:12]


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        # Files may have any bytes in them, and names any letters, which git would quote.
        done = subprocess.run(
            ["git", "-c", "core.quotePath=false", *arguments],
            cwd=directory,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )
    except OSError:
        return None
    return done.stdout.rstrip() if done.returncode == 0 else None
