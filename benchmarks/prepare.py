"""Measures `bert-jax prepare`: megabytes of text a second, and memory for a large and for a small text.

    python benchmarks/prepare.py TEXT_DIRECTORY --vocab vocab.txt > prepare.json

The directory holds text in a format that `--format` names (WikiExtractor's is recognised). Its first
megabytes are prepared in turn with all of it, several times each; the medians are printed as JSON.
"""

import dataclasses
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated

import tyro

from data_pipeline.preparing.inputs import find_files


@dataclasses.dataclass(frozen=True)
class Flags:
    directory: Annotated[Path, tyro.conf.Positional]
    """Directory of text."""
    vocab: Path
    """A vocab.txt."""
    format: str = "auto"
    """As in `bert-jax prepare --format`."""
    workers: int = 2
    repeats: int = 3
    prefix_megabytes: float = 8.0
    """Size of the small text, taken from the first files."""


def main() -> None:
    flags = tyro.cli(Flags)
    runs: dict[str, list[dict[str, float]]] = {"prefix": [], "whole": []}
    with tempfile.TemporaryDirectory() as scratch:
        texts = {"prefix": _make_prefix(flags, Path(scratch, "text")), "whole": flags.directory}
        for repeat in range(flags.repeats):
            for name in list(texts)[:: -1 if repeat % 2 else 1]:
                runs[name].append(_measure(texts[name], Path(scratch, "corpus"), flags))
    medians = {
        name: {what: statistics.median(run[what] for run in measured) for what in measured[0]}
        for name, measured in runs.items()
    }
    result = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "cpu": platform.machine()},
        "workers": flags.workers,
        "repeats": flags.repeats,
        **medians,
        "memory_ratio": medians["whole"]["peak_pss_mb"] / medians["prefix"]["peak_pss_mb"],
        "runs": runs,
    }
    print(json.dumps(result, indent=2))


def _make_prefix(flags: Flags, directory: Path) -> Path:
    """Links to the first files, up to the wanted size."""
    directory.mkdir()
    size = 0.0
    for number, path in enumerate(find_files(str(flags.directory))):
        if size >= flags.prefix_megabytes * 1e6:
            break
        size += path.stat().st_size
        (directory / f"{number:05d}_{path.name}").symlink_to(path.resolve())
    return directory


def _measure(text: Path, output: Path, flags: Flags) -> dict[str, float]:
    """Prepares `text` once. Seconds are those of the whole command, start-up included."""
    command = [sys.executable, "-m", "bert_jax.cli.main", "prepare", str(text), "--output", str(output)]
    command += ["--vocab", str(flags.vocab), "--format", flags.format, "--workers", str(flags.workers)]
    begun, cpu_before = time.perf_counter(), _cpu_seconds()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    sampler = _PeakMemory(process.pid)
    sampler.start()
    status = process.wait()
    seconds = time.perf_counter() - begun
    sampler.join()
    if status:
        sys.exit(f"prepare ended with status {status}")
    megabytes = json.loads((output / "manifest.json").read_text())["text_bytes"] / 1e6
    shutil.rmtree(output)
    return {
        "text_mb": megabytes,
        "seconds": seconds,
        "mb_per_second": megabytes / seconds,
        "mb_per_cpu_second": megabytes / (_cpu_seconds() - cpu_before),
        "peak_pss_mb": sampler.total,
        "peak_process_pss_mb": sampler.largest,
    }


class _PeakMemory(threading.Thread):
    """Samples the memory of a process and its children (Linux); shared pages are divided among users."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self.total = 0.0
        self.largest = 0.0

    def run(self) -> None:
        while Path(f"/proc/{self._pid}/stat").exists():
            sizes = [_pss_mb(pid) for pid in (self._pid, *_children(self._pid))]
            self.total = max(self.total, sum(sizes))
            self.largest = max(self.largest, *sizes)
            time.sleep(0.05)


def _cpu_seconds() -> float:
    """CPU seconds of all ended child processes and of theirs; other load on the machine hardly matters."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for task in tasks for child in _read(task).split()]
    return found + [grandchild for child in found for grandchild in _children(child)]


def _pss_mb(pid: int) -> float:
    lines = _read(Path(f"/proc/{pid}/smaps_rollup")).splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _read(path: Path) -> str:
    """The text of a file; empty if the process has just ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
