"""What `bert-jax study` does, once its flags are read: data, plan, workers, report."""

import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bert_jax import exit_status
from bert_jax.objectives.experiment import Experiment
from bert_jax.studies.arguments import RunStudy
from bert_jax.studies.collect import collect
from bert_jax.studies.cost import costs
from bert_jax.studies.data import check_data, make_data, makes_data, name_data
from bert_jax.studies.directory import (
    check_directory,
    check_unchanged,
    claim,
    forget_failures,
    read_ended,
    write_progress,
)
from bert_jax.studies.places import find_places, place_of_worker
from bert_jax.studies.plan import Plan, make_plan
from bert_jax.studies.report import write_report
from bert_jax.studies.reuse import copy_reusable, find_reusable
from bert_jax.studies.show import show_plan, show_status
from bert_jax.studies.study import Changes, Scale
from bert_jax.studies.worker import work
from bert_jax.studies.workers import run_workers
from data_pipeline.corpus.store import Description, describe

_PAUSE = 50
"""Time between two reports of a worker, as a multiple of what the last one took."""


def run_study(args: RunStudy) -> int:
    """Does what is left of a study. Returns 0, or 75 if interrupted, 69 if a disk failed, 1 if a job failed.

    Raises:
      UserError: the data cannot be used, the directory is another study's, or settings are impossible.
    """
    scale = args.study.scales[args.scale]
    if args.seeds is not None:
        scale = dataclasses.replace(scale, seeds=args.seeds)
    corpus, tasks = name_data(args.output, scale, args.corpus, args.tasks)
    if place := place_of_worker():
        place.enter()
        plan = _plan(args, scale, describe(corpus))
        after_job = _reporter(plan, args.output, args.argv)
        return work(plan, args.output, tasks, place, after_job, leaves=args.leave_when_idle)
    name = args.study.name
    check_directory(args.output, name, args.scale)
    if makes_data(args.output, corpus, tasks):
        claim(args.output, name, args.scale)
        make_data(args.output, corpus, tasks, scale.changes.get("model.vocab_size", 30522))
    described = describe(corpus)
    plan = _plan(args, scale, described)
    if args.status:
        show_status(plan, args.output)
        return _status(plan, args.output)
    if args.retry:
        forget_failures(args.output, plan)
    reusable = find_reusable(plan, args.output, args.reuse, described.fingerprint)
    loaded = check_data(plan, args.output, described, tasks)
    rounds = find_places(plan, args.workers, distributed=args.distributed)
    if args.plan:
        rounds[0][0].enter()
        show_plan(plan, args.output, costs(plan, loaded), reusable, len(rounds[0]))
        return 0
    claim(args.output, name, args.scale)
    check_unchanged(args.output, plan, described.fingerprint)
    copy_reusable(args.output, reusable)
    write_progress(args.output, plan, args.argv)
    status = run_workers(args.argv, rounds)
    if status == exit_status.SAVED:
        print("interrupted and saved; run the same command again to go on", file=sys.stderr)
    return _report(plan, args.output) if status == 0 else status


def _status(plan: Plan, directory: Path) -> int:
    """0 if all jobs are done, 1 if all have ended but some failed, 75 if there is something left to do."""
    ended = [read_ended(directory, job) for job in plan.jobs]
    if not all(ended):
        return exit_status.SAVED
    return exit_status.FAILED if any(job.error for job in ended if job) else 0


def _plan(args: RunStudy, scale: Scale, corpus: Description) -> Plan:
    """The plan on a corpus, whose vocabulary the models have, with what the flags change."""
    given = _given_settings(args.experiment, args.given)
    changes = {"data.corpus": corpus.path, "model.vocab_size": corpus.vocabulary_size, **given}
    return make_plan(args.study, args.scale, scale, changes, args.budget_flops)


def _given_settings(experiment: Experiment, given: frozenset[str]) -> Changes:
    """The settings of the experiment that flags set, by their dotted names; of a tuple's items the tuple."""
    settings: dict[str, Any] = {}
    for path in sorted(given):
        value: Any = experiment
        names: list[str] = []
        for name in path.split("."):
            if not hasattr(value, name):
                break
            value = getattr(value, name)
            names.append(name)
        if names:
            settings[".".join(names)] = value
    return settings


def _reporter(plan: Plan, directory: Path, argv: Sequence[str]) -> Callable[[], None]:
    """Writes progress and report, the latter not so often that it takes more than a few percent of time."""
    due = 0.0

    def report() -> None:
        nonlocal due
        write_progress(directory, plan, argv)
        began = time.monotonic()
        if began >= due:
            write_report(directory, collect(plan, directory))
            now = time.monotonic()
            due = now + _PAUSE * (now - began)

    return report


def _report(plan: Plan, directory: Path) -> int:
    results = collect(plan, directory)
    write_report(directory, results)
    print(f"report: {directory / 'report.md'}, {directory / 'report.html'}, {directory / 'results.csv'}")
    for path, error in results.failed.items():
        print(f"failed: {path}: {error}; --retry tries again", file=sys.stderr)
    return exit_status.FAILED if results.failed else 0
