"""The plan, the state and the results of a study as tables on the terminal."""

import collections
import datetime
import itertools
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bert_jax.parallel.leases import Leases, Owner
from bert_jax.studies.cost import Cost
from bert_jax.studies.directory import LEASES_DIRECTORY, read_ended
from bert_jax.studies.plan import Job, MeasuringJob, Plan, PretrainingJob
from bert_jax.training.metric_log import METRICS_FILE, read_rows
from bert_jax.training.progress import duration
from bert_jax.workdir.grid import trials_done
from data_pipeline.stand_in import pull


def show_plan(
    plan: Plan,
    directory: Path,
    costs: Mapping[PurePosixPath, Cost],
    reusable: Mapping[PurePosixPath, Path],
    where: int | str,
    retry: bool,
) -> None:
    """Prints every job with what it costs, and the sum of those that are left.

    Args:
      reusable: where another study has done a job.
      where: how many workers will work side by side on this machine, or the name of a TPU slice.
      retry: whether failed jobs will be tried again.
    """
    table = _table("job", "steps", "FLOPs", "time", "disk", "state")
    owners = _owners(plan, directory)
    left, longest, disk = 0.0, 0.0, 0
    seconds: dict[PurePosixPath, float] = {}
    for parent, jobs in _by_run(plan):
        table.add_row(str(parent))
        for job in jobs:
            cost, (kind, state) = costs[job.path], _state(job, directory, owners.get(job.path))
            if job.path in reusable:
                state = f"done in {reusable[job.path]}"
            elif kind != "done" and (kind != "failed" or retry):
                left, disk = left + cost.flops, disk + cost.disk
                seconds[job.path] = cost.seconds
                # A measure waits for its model.
                before = seconds.get(job.model.path, 0.0) if isinstance(job, MeasuringJob) else 0.0
                longest = max(longest, before + cost.seconds)
            table.add_row(f"  {job.path.name}", *_columns(job, cost), escape(state))
    console = Console(highlight=False)
    console.print(table)
    time = _time(sum(seconds.values()), longest, where)
    console.print(
        f"left: {left:.2g} FLOPs, about {time}, and {_size(disk)}; minimal pairs, held-out text, starts and "
        "compiling are not counted"
    )


def _by_run(plan: Plan) -> Iterator[tuple[PurePosixPath, Iterator[Job]]]:
    """The directory of each arm and seed, and its jobs."""
    return itertools.groupby(plan.jobs, key=lambda job: job.path.parent)


def _columns(job: Job, cost: Cost) -> tuple[str, ...]:
    """Steps, FLOPs, time and disk, of which a measure may have none."""
    return (
        f"{job.experiment.num_train_steps:,}" if isinstance(job, PretrainingJob) else "",
        f"{cost.flops:.2g}" if cost.flops else "",
        duration(cost.seconds) if cost.flops else "",
        _size(cost.disk) if cost.disk else "",
    )


def _time(seconds: float, at_least: float, where: int | str) -> str:
    """Of jobs that take so many seconds in all, some of which can only be done one after another."""
    if isinstance(where, str):
        return f"{duration(seconds)} on {where} by the TPU compiler's estimate"
    workers = "1 worker" if where == 1 else f"{where} workers side by side"
    return f"{duration(max(seconds / where, at_least))} with {workers} on this machine"


def show_status(plan: Plan, directory: Path) -> Mapping[str, int]:
    """Prints how far each job is; returns how many are "done", "failed", "under way" and "left"."""
    table = _table("job", "state")
    owners = _owners(plan, directory)
    # What runs here is up to date; of what runs elsewhere a bucket has rows.
    elsewhere = {
        f"{path}/{METRICS_FILE}"
        for path, owner in owners.items()
        if owner is None or owner.host != platform.node()
    }
    pull(directory, elsewhere.intersection)
    states = {job.path: _state(job, directory, owners.get(job.path)) for job in plan.jobs}
    for parent, jobs in _by_run(plan):
        table.add_row(str(parent))
        for job in jobs:
            kind, text = states[job.path]
            table.add_row(f"  {job.path.name}", escape(text or kind))
    console = Console(highlight=False)
    console.print(table)
    counts = collections.Counter(kind for kind, _ in states.values())
    others = [f"{counts[kind]} {kind}" for kind in ("under way", "failed", "left") if counts[kind]]
    console.print(", ".join([f"{counts['done']} of {len(states)} done", *others]))
    return counts


def show_results(view: Mapping[str, Any]) -> None:
    """Prints the mean of each arm and column with its deviation over seeds, and what is wrong with them.

    Args:
      view: returned by `write_report`.
    """
    table = _table("arm", *map(escape, view["columns"]))
    for arm, cells in view["rows"]:
        table.add_row(escape(arm), *(cell.ours if cell else "" for cell in cells))
    console = Console(highlight=False)
    console.print(table)
    notes = [
        f"{arm}, seed {', '.join(map(str, seeds))}: pretraining ended hardly better than guessing"
        for arm, seeds in view["only_guessing"].items()
    ]
    notes += [f"{arm}, {', '.join(headings)}: {note}" for (arm, note), headings in view["notes"].items()]
    for note in notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)


def _owners(plan: Plan, directory: Path) -> dict[PurePosixPath, Owner | None]:
    """Who does each job that has not ended."""
    leases = Leases(directory / LEASES_DIRECTORY)
    return {job.path: leases.owner(job.path) for job in plan.jobs if not read_ended(directory / job.path)}


def _state(job: Job, directory: Path, owner: Owner | None) -> tuple[str, str]:
    """done, failed, under way or left; and what the table says of it, given who is at it, as far as known."""
    ended = read_ended(directory / job.path)
    if ended:
        return ("failed", f"failed: {ended.error}") if ended.error else ("done", "done")
    progress = _progress(job, directory, is_running=owner is not None)
    if owner is None:
        return "left", f"interrupted{progress}" if progress else ""
    return "under way", f"under way on {owner}{progress}"


def _progress(job: Job, directory: Path, is_running: bool) -> str:
    """How far a job is: the step of a pretraining, and if it runs when it will end; the trial of a grid.

    Empty before the first row, and for other measures.
    """
    if not isinstance(job, PretrainingJob):
        done, asked = trials_done(directory / job.path)
        return f", trial {min(done + 1, asked)} of {asked}" if asked else ""
    rows = [row for row in read_rows(directory / job.path / METRICS_FILE) if row["split"] == "train"]
    if not rows:
        return ""
    step, timing = rows[-1]["step"], rows[-1].get("timing", {})
    text = f", step {step:,} of {job.experiment.num_train_steps:,}"
    if is_running and timing.get("seconds_left") and "time" in timing:
        end = datetime.datetime.fromtimestamp(timing["time"] + timing["seconds_left"])
        day = "" if end.date() == datetime.date.today() else f"{end:%Y-%m-%d} "
        text += f", until {day}{end:%H:%M}"
    return text


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="left" if heading == "state" else "right", overflow="fold")
    return table


def _size(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
