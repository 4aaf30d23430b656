"""What `bert-jax study` does, once its flags are read: data, plan, workers, report."""

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax import exit_status
from bert_jax.objectives.experiment import Experiment
from bert_jax.parallel.chips import find_chips
from bert_jax.pretraining.data import note_unusual
from bert_jax.studies.arguments import RunStudy
from bert_jax.studies.budget import check_steps, keep_steps, read_steps, seconds_of_steps, steps_in
from bert_jax.studies.changes import given_settings
from bert_jax.studies.check_data import Loaded, check_data
from bert_jax.studies.cost import Speed, compiled_speed, costs, measured_speed
from bert_jax.studies.csv_files import CSV_FILE
from bert_jax.studies.data import make_data, makes_data, name_data
from bert_jax.studies.directory import (
    check_directory,
    check_settings,
    claim,
    forget_failures,
    forget_what_others_retry,
    identity_of_inputs,
    pull_ended,
    read_ended,
    read_initial,
    read_study,
    record_inputs_and_seeds,
    write_progress,
)
from bert_jax.studies.initial_model import open_initial
from bert_jax.studies.places import Place, find_places, place_of_worker
from bert_jax.studies.plan import Plan, make_plan, only_arms
from bert_jax.studies.report import MARKDOWN_FILE, PAGE_FILE, write_report
from bert_jax.studies.results import collect
from bert_jax.studies.reuse import copy_reusable, find_reusable
from bert_jax.studies.show import show_plan, show_results, show_status
from bert_jax.studies.worker import work
from bert_jax.studies.workers import run_workers
from bert_jax.study import Finetuned, MinimalPairs, Scale
from bert_jax.tpu.topology import open_slice
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.corpus.store import Description, describe
from data_pipeline.directories import check_writable
from data_pipeline.errors import UserError, may_pass
from data_pipeline.stand_in import bucket_of
from data_pipeline.tfds import is_tfds

_PAUSE = 50
"""Time between two reports of a worker, as a multiple of what the last one took."""


def run_study(args: RunStudy) -> int:
    """Does what is left of a study. Returns 0, or 75 if interrupted, 69 if a disk failed, 1 if a job failed.

    Raises:
      UserError: the data cannot be used, the directory is another study's, or settings are impossible.
    """
    identity = {"study": args.study.name, "scale": args.scale, "budget_hours": args.budget_hours}
    pull_ended(args.output)
    if args.status or args.report:
        if not args.output.is_dir():
            raise UserError(f"there is no directory {args.output}; name that of a study")
        check_directory(args.output, identity)
        args = dataclasses.replace(args, initial=read_initial(args.output))
        if args.report and not read_study(args.output):
            raise UserError(f"{args.output} holds no study yet, of which a report could be written")
        plan = _plan(args)
        check_settings(args.output, plan)
        return _show_status(args, plan) if args.status else _report(args, plan)
    scale = _scale(args)
    measures = args.study.at(scale).measures
    needs_tasks = any(isinstance(m, Finetuned | MinimalPairs) and not is_tfds(m.data) for m in measures)
    corpus, tasks = name_data(args.output, scale, args.corpus, args.tasks, needs_tasks)
    if place := place_of_worker():
        return _work(_with_initial(args, corpus), identity, corpus, tasks, place)
    if args.reuse and (bucket := bucket_of(args.output)):
        raise UserError(
            f"--reuse copies runs on this machine, and --output {bucket} is a bucket; leave --reuse out"
        )
    check_writable(args.output, "--output")
    check_directory(args.output, identity)
    # libtpu must be opened before jax looks for devices.
    speed = measured_speed if args.topology is None else compiled_speed(open_slice(args.topology))
    args = _with_initial(args, corpus)
    if makes_data(args.output, corpus, tasks):
        _plan(args)  # refuses impossible settings before anything is made
        claim(args.output, {"study": args.study.name, "scale": args.scale})
        make_data(args.output, corpus, tasks, args.experiment.model.vocab_size)
    described = describe(corpus)
    check_directory(args.output, identity_of_inputs(described.fingerprint, args.initial))
    plan = _plan(args, described)
    loaded = check_data(plan, args.output, described, tasks, retry=args.retry)
    note_unusual(plan.experiments)
    rounds = find_places(plan, args.workers, distributed=args.distributed)
    if args.plan:
        return _show_plan(args, plan, described, loaded, rounds, speed)
    _check_devices(args, plan)
    return _run(args, identity, plan, described, rounds)


def _check_devices(args: RunStudy, plan: Plan) -> None:
    """Raises UserError if a pretraining that is left cannot be done on the devices of this machine."""
    if args.distributed:
        return  # the other machines' devices count too
    jobs = ((arm, job) for (arm, _), job in plan.runs.items())
    left = {arm: plan.experiments[arm] for arm, job in jobs if read_ended(args.output / job.path) is None}
    dataclasses.replace(plan, experiments=left).check_devices(len(find_chips().environments))


def _show_plan(
    args: RunStudy,
    plan: Plan,
    corpus: Description,
    loaded: Mapping[tuple[str, str], Loaded],
    rounds: Sequence[Sequence[Place]],
    speed: Speed,
) -> int:
    """Prints the jobs and what they cost; returns 0."""
    if args.topology is None:
        rounds[0][0].enter()
    if args.budget_hours is not None:
        seconds = seconds_of_steps(_without_steps(args, plan), speed)
        plan = _plan(args, corpus, steps_in(args.budget_hours, seconds))
    check_settings(args.output, plan, ", or name another --output")
    reusable = find_reusable(plan, args.output, args.reuse, corpus.fingerprint)
    where = args.topology or len(rounds[0])
    show_plan(plan, args.output, costs(plan, loaded, speed), reusable, where, args.retry)
    return 0


def _run(
    args: RunStudy,
    identity: Mapping[str, Any],
    plan: Plan,
    corpus: Description,
    rounds: Sequence[Sequence[Place]],
) -> int:
    """Starts the workers, and reports when they are done; returns what `run_study` does."""
    if _without_steps(args, plan):
        if status := run_workers(args.argv, (rounds[0][:1],)):
            return status
        plan = _plan(args, corpus)
    reusable = find_reusable(plan, args.output, args.reuse, corpus.fingerprint)
    claim(args.output, identity)
    forget_what_others_retry(args.output, plan)
    record_inputs_and_seeds(args.output, plan, corpus.fingerprint, corpus.vocabulary_size)
    if args.retry:
        forget_failures(args.output, plan)
    copy_reusable(args.output, reusable)
    write_progress(args.output, plan, args.argv)
    status = run_workers(args.argv, rounds)
    if status == exit_status.SAVED:
        print("interrupted and saved; run the same command again to go on", file=sys.stderr)
    if status:
        return status
    pull_ended(args.output)
    plan = _plan(args, corpus)  # other machines may have added seeds
    write_progress(args.output, plan, args.argv)
    return _report(args, plan)


def _show_status(args: RunStudy, plan: Plan) -> int:
    """Prints how far the study is; returns 0 if all is done, 75 if something is left, 1 if jobs failed."""
    if not read_study(args.output):
        print(f"{args.output} holds no study yet")
    counts = show_status(plan, args.output)
    if counts["left"] or counts["under way"]:
        return exit_status.SAVED
    return exit_status.FAILED if counts["failed"] else 0


def _work(args: RunStudy, identity: Mapping[str, Any], corpus: str, tasks: str, place: Place) -> int:
    """The work of a process that `run_workers` started: it measures the arms' steps if they are not known
    yet, and does jobs otherwise."""
    plan = _plan(args, describe(corpus))
    place.enter()
    if args.budget_hours is not None and (new := _without_steps(args, plan)):
        keep_steps(new, args.output, identity, args.budget_hours)
        return 0
    after_job = _reporter(plan, args.output, args.argv)
    return work(
        plan,
        args.output,
        tasks,
        place,
        after_job,
        init_from=args.init_from,
        leaves=args.leave_when_idle,
    )


def _scale(args: RunStudy) -> Scale:
    """The scale with as many seeds as the flags say, or else as the study has had before."""
    scale = args.study.scales[args.scale]
    return dataclasses.replace(scale, seeds=args.seeds or read_study(args.output).get("seeds") or scale.seeds)


def _with_initial(args: RunStudy, corpus: str) -> RunStudy:
    """The flags with the model of --init-from."""
    if args.init_from is None:
        return args
    if not args.corpus and _scale(args).corpus == INSTALLED_DOCUMENTATION:
        raise UserError(
            "--init-from needs a corpus that was made with the model's vocabulary: pass --corpus DIR"
        )
    initial = read_initial(args.output) if place_of_worker() else None
    if initial is None:
        activation = args.experiment.model.activation if "model.activation" in args.given else None
        initial = open_initial(args.init_from, describe(corpus), activation)
    return dataclasses.replace(args, initial=initial)


def _without_steps(args: RunStudy, plan: Plan) -> dict[str, Experiment]:
    """The arms whose steps follow from --budget-hours and have not been measured."""
    if args.budget_hours is None:
        return {}
    known = read_steps(args.output)
    return {arm: experiment for arm, experiment in plan.experiments.items() if arm not in known}


def _plan(args: RunStudy, corpus: Description | None = None, steps: Mapping[str, int] | None = None) -> Plan:
    """The plan on a corpus, whose vocabulary the models have, with what the flags change.

    Args:
      args: the flags.
      corpus: None to plan without it, with the size of vocabulary that the directory tells.
      steps: of arms of which the directory has none.
    """
    changes = given_settings(args.experiment, args.given)
    if corpus is not None:
        changes = {"data.corpus": corpus.path, "model.vocab_size": corpus.vocabulary_size, **changes}
    elif size := read_study(args.output).get("vocabulary_size"):
        changes = {"model.vocab_size": size, **changes}
    kept = {} if args.budget_hours is None else read_steps(args.output)
    of_arms = {**(steps or {}), **{arm: found.num_train_steps for arm, found in kept.items()}}
    whole = make_plan(args.study, args.scale, _scale(args), changes, args.budget_flops, of_arms, args.initial)
    plan = only_arms(whole, args.arms)
    if corpus is not None:
        check_steps(kept, plan, args.output)
    return plan


def _reporter(plan: Plan, directory: Path, argv: Sequence[str]) -> Callable[[], None]:
    """Writes progress and report, the latter not so often that it takes more than a few percent of time.

    A damaged file keeps a report from being written, but no job from being done.
    """
    due = 0.0

    def report() -> None:
        nonlocal due
        write_progress(directory, plan, argv)
        began = time.monotonic()
        if began >= due:
            pull_ended(directory)
            try:
                write_report(directory, collect(plan, directory))
            except UserError as error:
                if may_pass(error):
                    raise
                print(f"no report: {error}", file=sys.stderr, flush=True)
            now = time.monotonic()
            due = now + _PAUSE * (now - began)

    return report


def _report(args: RunStudy, plan: Plan) -> int:
    """Writes the report, shows its table, and names what failed; returns 1 if something did.

    With --leave-when-idle, failed jobs do not count while others are left: the machine that ends last reports
    them.
    """
    directory = args.output
    results = collect(plan, directory)
    show_results(write_report(directory, results))
    print(f"report: {', '.join(str(directory / name) for name in (MARKDOWN_FILE, PAGE_FILE, CSV_FILE))}")
    for path, error in results.failed.items():
        print(f"failed: {path}: {error}; --retry tries again", file=sys.stderr)
    is_left = results.num_done + len(results.failed) < len(plan.jobs)
    return exit_status.FAILED if results.failed and not (args.leave_when_idle and is_left) else 0
