"""`bert-jax pretrain EXPERIMENT --workdir DIR`: trains, or resumes where an earlier run stopped."""

import dataclasses
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from bert_jax.cli.flags import given_flags, list_names, parse_flags, take_name
from bert_jax.config import Experiment, check_positive
from bert_jax.training.failures import (
    out_of_memory_as_user_error,
    storage_errors_as_unfinished,
    takeover_checked_on_failure,
)
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.errors import UserError

if TYPE_CHECKING:
    from bert_jax.formats.pretrained import PretrainedModel
    from bert_jax.training.loop import Evaluation, TrainingData
    from bert_jax.training.program import Program
    from bert_jax.training.speed import StartClock
    from bert_jax.training.step_trace import StepTrace
    from bert_jax.training.train_step import TrainState
    from bert_jax.workdir.record import RunRecord

_HELP = """\
usage: bert-jax pretrain EXPERIMENT --workdir DIR [FLAGS]

Train a named experiment. Run the same command again to resume where it stopped.

  bert-jax pretrain quickstart --workdir runs/quickstart
  bert-jax pretrain base --workdir runs/base --data.corpus corpora/wiki

Any setting of the experiment can be changed by a flag, for example
--model.num-layers 6. `bert-jax pretrain EXPERIMENT --help` lists the flags
with the values that the experiment gives them.

Ctrl-C and SIGTERM save a checkpoint and end with status 75: run the same
command again to resume. A second Ctrl-C ends at once.

On a TPU slice, or a cluster, run the same command with --distributed on every
host.

experiments (`bert-jax experiments` shows their sizes):
"""


@dataclasses.dataclass(frozen=True)
class Pretrain:
    """Train a named experiment; the flags change its settings.

    Run the same command again to resume where it stopped. Ctrl-C and SIGTERM save a checkpoint and
    end with status 75. NaN or infinity ends the run with status 1; the last good checkpoint stays.
    """

    name: tyro.conf.Suppress[str]
    workdir: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder of the run: checkpoints, metrics.jsonl, TensorBoard curves, config.json."""
    experiment: Annotated[Experiment, tyro.conf.arg(name="")]
    init_from: Annotated[Path | None, tyro.conf.arg(metavar="MODEL")] = None
    """Start with a model's parameters instead of random ones. MODEL is the
    work directory of a run, an export, a Hugging Face BERT or
    google-research/bert's. The experiment takes the model's shape. The
    corpus must have the model's vocabulary, to which tokens may be
    appended: their rows are drawn from the seed."""
    branch_from: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Continue from the newest checkpoint of the run in DIR, with its
    optimizer moments and step, but with other settings. The sizes of the
    model and the optimizer must be the same."""
    branch_step: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Step of the checkpoint to branch from, instead of the newest."""
    profile: Annotated[int | None, tyro.conf.arg(metavar="STEPS")] = None
    """Number of steps to record with jax's profiler, beginning with the
    third step after the start."""
    distributed: tyro.conf.FlagCreatePairsOff[bool] = False
    """This process is one of several that form one run, all started with
    the same command. jax finds the others on Cloud TPU, SLURM, Kubernetes
    and Open MPI; elsewhere set JAX_COORDINATOR_ADDRESS (host:port of
    process 0), JAX_NUM_PROCESSES and JAX_PROCESS_ID. The work directory
    must be the same folder for all."""

    given: tyro.conf.Suppress[frozenset[str]] = frozenset()
    """Names of the fields that flags set, even to their default values."""

    def __post_init__(self) -> None:
        if self.profile is not None:
            check_positive("--profile", self.profile)
        if self.branch_from is not None and self.init_from is not None:
            raise UserError("give --branch-from or --init-from, not both")
        if self.branch_step is not None and self.branch_from is None:
            raise UserError("--branch-step goes with --branch-from only")


def parse(argv: Sequence[str]) -> Pretrain:
    """Reads the command line; the experiment's name comes first and gives the defaults.

    Raises:
      UserError: unknown experiment, unknown flag, impossible value.
    """
    from experiments import EXPERIMENTS, SUMMARIES

    page = _HELP + list_names(SUMMARIES)
    usage = "bert-jax pretrain EXPERIMENT --workdir DIR; `bert-jax experiments` lists them"
    name = take_name(argv, EXPERIMENTS, what="experiment", usage=usage, page=page)
    default = Pretrain(name=name, workdir=tyro.MISSING_NONPROP, experiment=EXPERIMENTS[name])
    args = parse_flags(Pretrain, argv[1:], command=f"bert-jax pretrain {name}", default=default)
    return dataclasses.replace(args, given=given_flags(argv))


def run(args: Pretrain) -> int:
    """Trains. Returns 0, or 75 if the run was interrupted and saved, or 1 if it met NaN.

    For the other exit statuses of a distributed process see `bert_jax.parallel.processes`.
    """
    if not args.experiment.data.corpus:
        raise UserError(
            "no corpus: pass --data.corpus DIR; `bert-jax prepare` makes one from text, and "
            "`bert-jax pretrain quickstart` needs none"
        )
    from bert_jax.cli.errors import report
    from bert_jax.parallel import processes
    from bert_jax.training.speed import StartClock
    from bert_jax.workdir import folder as workdir

    clock = StartClock(_say)

    def run_here() -> int:
        model, shaped = processes.together(lambda: _open_initial(args))
        _check_same_command(shaped)
        # Only process 0 looks: over NFS, one that looks before the folder is made would miss it for a while.
        processes.by_first(lambda: _check_folder(args))
        with processes.held_by_first(workdir.lock(args.workdir)):
            token = processes.by_first(lambda: workdir.mark(args.workdir))
            processes.together(lambda: workdir.check_mark(args.workdir, token))
            return _train(shaped, model, clock)

    return processes.run_together(run_here, report) if args.distributed else run_here()


def _check_folder(args: Pretrain) -> None:
    from bert_jax.workdir import folder as workdir

    if args.experiment.data.corpus != INSTALLED_DOCUMENTATION:
        workdir.check_apart(args.workdir, args.experiment.data.corpus)
    workdir.check_free(args.workdir)


def _open_initial(args: Pretrain) -> "tuple[PretrainedModel | None, Pretrain]":
    """The model of --init-from, if any, and the arguments with its shape."""
    if args.init_from is None:
        return None, args
    from bert_jax.cli.init_from import open_initial

    model, experiment = open_initial(args.init_from, args.experiment, args.given)
    return model, dataclasses.replace(args, experiment=experiment)


def _train(args: Pretrain, model: "PretrainedModel | None", clock: "StartClock") -> int:
    from bert_jax import exit_status
    from bert_jax.cli import showcase
    from bert_jax.config_text import from_json
    from bert_jax.parallel import processes
    from bert_jax.parallel.compilation_cache import keep_compiled
    from bert_jax.parallel.interrupt import listen
    from bert_jax.pretraining.later_phases import compile_later_phases
    from bert_jax.training.checkpoints import saved_steps
    from bert_jax.training.loop import Ending, TrainingRun
    from bert_jax.training.nonfinite import NonFiniteError
    from bert_jax.training.retention import Kept
    from bert_jax.workdir import record

    keep_compiled(args.workdir)
    corpus, program, data, evaluation = processes.together(lambda: _prepare(args, model))
    begun = processes.by_first(lambda: _last_start(args.workdir))
    check_start = functools.partial(record.check_last_start, args.workdir, begun["start"])
    with processes.listen() if args.distributed else listen() as interrupt:
        try:
            with (
                out_of_memory_as_user_error("--global-batch-size"),
                takeover_checked_on_failure(check_start),
                storage_errors_as_unfinished(),
            ):
                done = max(saved_steps(args.workdir), default=0)
                clock.compiled(compile_later_phases(program, args.experiment, done, _say))
                training = TrainingRun(
                    program=program,
                    data=data,
                    workdir=args.workdir,
                    say=_say,
                    evaluation=evaluation,
                    start=functools.partial(_start, args, program, model, corpus) if model else None,
                    evaluate_start=model is not None,
                    clock=clock,
                    trace=_trace(args),
                    before_save=lambda: processes.by_first(check_start),
                    kept=from_json(Kept, begun["kept"]),
                )
                ending = training.train(interrupt)
        except NonFiniteError as error:
            print(f"bert-jax: error: {error}; {_advice_after_nan(args.workdir)}", file=sys.stderr)
            return exit_status.FAILED
        if ending is Ending.INTERRUPTED:
            _say(f"{interrupt.signal_name}: saved; run the same command again to resume")
            return exit_status.SAVED
    processes.by_first(lambda: showcase.show(args.workdir, args.experiment, corpus))
    return 0


def _advice_after_nan(folder: Path) -> str:
    from bert_jax.training.checkpoints import saved_steps

    rate = "a lower --optimizer.learning-rate"
    if saved_steps(folder):
        return f"in another --workdir try --branch-from {folder} with {rate} or another --seed"
    return f"in another --workdir try {rate} or more --optimizer.warmup-steps"


def _last_start(folder: Path) -> dict[str, Any]:
    """This start and the checkpoints to keep, as recorded in `config.json`, as JSON values."""
    from bert_jax.workdir.record import read_record

    record = read_record(folder)
    return {"start": record.starts[-1], "kept": dataclasses.asdict(record.kept)}


def _trace(args: Pretrain) -> "StepTrace | None":
    """The profiler recording that --profile asks for, in process 0 only; None otherwise."""
    from bert_jax.parallel import processes
    from bert_jax.training.metric_log import TENSORBOARD_FOLDER
    from bert_jax.training.step_trace import StepTrace

    if args.profile is None or not processes.is_first():
        return None
    return StepTrace(args.workdir / TENSORBOARD_FOLDER, args.profile, _say)


def _start(args: Pretrain, program: "Program", model: "PretrainedModel", corpus: str) -> "TrainState":
    """The state at step 0 of a run that starts from a model."""
    from bert_jax.cli.init_from import describe_new_rows, describe_start
    from bert_jax.training.warm_start import ROWS_OF_TOKENS, start_from

    for line in (describe_start(model), *describe_new_rows(model, args.experiment.model.vocab_size, corpus)):
        _say(line)
    return start_from(program, model.params, ROWS_OF_TOKENS)


def _prepare(
    args: Pretrain, model: "PretrainedModel | None"
) -> "tuple[str, Program, TrainingData, Evaluation | None]":
    """Checks and returns the corpus's path, the program, its batches and its evaluation.

    The evaluation is None if the corpus has no held-out documents.

    Raises:
      UserError: the settings are impossible, or do not fit the corpus or the work directory.
    """
    from bert_jax.cli import run_data
    from bert_jax.pretraining.task import PretrainingTask
    from bert_jax.training.program import make_program

    corpus = _corpus(args)
    run_data.note_few_slots(args.experiment, _say)
    program = make_program(PretrainingTask(args.experiment.model), args.experiment)
    _begin_or_go_on(args, corpus, model)
    data = run_data.make_data(program, args.experiment, corpus)
    heldout = run_data.heldout_batches(program, args.experiment, corpus)
    run_data.check_batches(args.experiment, data, heldout)
    if heldout is None:
        _say(f"note: {corpus} has no held-out documents, so there is no evaluation")
        return corpus, program, data, None
    return corpus, program, data, run_data.make_evaluation(program, args.experiment, heldout)


def _corpus(args: Pretrain) -> str:
    """The corpus's path. The corpus of the installed documentation is made in the work directory."""
    if args.experiment.data.corpus != INSTALLED_DOCUMENTATION:
        return args.experiment.data.corpus
    from bert_jax.cli import prepare
    from bert_jax.workdir.folder import CORPUS_FOLDER
    from data_pipeline.corpus import MANIFEST_FILE

    corpus = args.workdir / CORPUS_FOLDER
    if not (corpus / MANIFEST_FILE).exists():
        if args.distributed:
            raise UserError(
                f"--distributed makes no corpus: run `bert-jax prepare {INSTALLED_DOCUMENTATION}` on one "
                f"machine and pass its folder as --data.corpus"
            )
        print("making a corpus of the installed packages' documentation", flush=True)
        status = prepare.run(
            prepare.Prepare(
                inputs=(INSTALLED_DOCUMENTATION,),
                output=str(corpus),
                train_vocab="wordpiece",
                vocab_size=args.experiment.model.vocab_size,
                holdout=0.05,
                overwrite=True,  # an interrupted start with other packages may have left a part
            )
        )
        if status:
            sys.exit(status)  # prepare has printed the reason
    return str(corpus)


def _begin_or_go_on(args: Pretrain, corpus: str, model: "PretrainedModel | None") -> None:
    """Checks the corpus and what the work directory holds, and records this start.

    Raises:
      UserError: the work directory holds another run, or the corpus was altered or does not fit.
    """
    from bert_jax.cli import init_from, run_data
    from bert_jax.parallel import processes
    from bert_jax.workdir.record import RunRecord
    from data_pipeline import store

    if model is not None:
        init_from.check_vocabulary(model, corpus, _say)
    run_data.check_vocabulary_size(args.experiment, corpus, _say)
    record = RunRecord(
        args.name,
        args.experiment,
        corpus_fingerprint=store.fingerprint(corpus),
        init_from=model.name if model else "",
        init_fingerprint=model.fingerprint() if model else "",
    )
    processes.check_same(
        lambda: {
            "fingerprint of data.corpus": record.corpus_fingerprint,
            "fingerprint of --init-from": record.init_fingerprint,
        },
        "give all of them the same text, vocabulary and model",
    )
    store.verify(corpus)  # at every start: a run may be resumed on a machine that has its own copy
    processes.by_first(lambda: _write_start(args, corpus, record))


def _write_start(args: Pretrain, corpus: str, now: "RunRecord") -> None:
    """Records this start in the work directory. Raises UserError if another run's checkpoints are there."""
    from bert_jax.cli import run_data
    from bert_jax.training.checkpoints import saved_steps
    from bert_jax.training.retention import Kept
    from bert_jax.workdir import branch, record
    from bert_jax.workdir import folder as workdir
    from bert_jax.workdir.provenance import describe_code_changes, this_start

    folder, start, origin = args.workdir, this_start(), None
    earlier: tuple[dict[str, Any], ...] = ()
    kept = Kept.asked_for_by(now.experiment)
    if steps := saved_steps(folder):
        before = record.read_record(folder)
        record.check_same_run(folder, before, now, steps[-1])
        if args.branch_from is not None:
            branch.check_same_origin(folder, before.branched_from, args.branch_from, args.branch_step)
        now = dataclasses.replace(now, branched_from=before.branched_from)
        earlier = before.starts
        kept = record.checkpoints_to_keep(before, now.experiment)
        changes = record.describe_changes(before.experiment, now.experiment)
        changes += record.describe_kept(kept, now.experiment)
        for line in (*changes, *describe_code_changes(earlier[-1], start)):
            _say(line)
    else:
        if record.begun_on_other_corpus(folder, now):
            workdir.remove_tokenizer(folder)
        if args.branch_from is not None:
            origin = branch.find_origin(args.branch_from, args.branch_step, now)
            run_data.check_same_vocabulary(origin.workdir, origin.record, corpus)
            now = dataclasses.replace(now, branched_from=origin.point)
    # Written first, because this file marks the rest of the folder as a run's.
    record.write_record(folder, dataclasses.replace(now, starts=(*earlier, start), kept=kept))
    if not steps:
        workdir.copy_tokenizer(corpus, folder)
    if origin is not None:  # last, so that a start killed before this point is repeated in full
        _say("; ".join([f"branched from {origin.point}", *origin.differences(now)]))
        branch.copy_state(origin, folder)


def _check_same_command(args: Pretrain) -> None:
    """Raises UserError if the processes of the run were started with different settings or code."""
    from bert_jax.config_text import flatten
    from bert_jax.parallel import processes
    from bert_jax.workdir.provenance import code, this_start

    def identity() -> dict[str, Any]:
        settings = flatten(args.experiment)
        del settings["data.corpus"]  # the path may differ; the content is compared by fingerprint
        same = {"experiment": args.name, "--workdir": str(args.workdir)}
        return {**same, **settings, **code(this_start())}

    processes.check_same(identity, "start all with the same command, code and packages")


def _say(line: str) -> None:
    print(line, flush=True)
