"""What `bert-jax pretrain` does, once its flags are read: checks, records, trains and shows.

All processes of a run pass through the same functions. `processes.together` and `by_first` make them
fail together, and say what process 0 does alone.
"""

import dataclasses
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bert_jax import exit_status
from bert_jax.cli import init_from, prepare, run_data, showcase
from bert_jax.cli.errors import report
from bert_jax.cli.pretrain import Pretrain
from bert_jax.config import Experiment
from bert_jax.config_text import flatten, from_json
from bert_jax.finetuning.grid_folder import CELLS_FOLDER
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.parallel import processes
from bert_jax.parallel.compilation_cache import keep_compiled
from bert_jax.pretraining.later_phases import compile_later_phases
from bert_jax.pretraining.task import PretrainingTask
from bert_jax.training.checkpoints import saved_steps
from bert_jax.training.failures import (
    out_of_memory_as_user_error,
    storage_errors_as_unfinished,
    takeover_checked_on_failure,
)
from bert_jax.training.loop import Ending, Evaluation, TrainingData, TrainingRun
from bert_jax.training.metric_log import TENSORBOARD_FOLDER
from bert_jax.training.nonfinite import NonFiniteError
from bert_jax.training.program import Program, make_program
from bert_jax.training.retention import Kept
from bert_jax.training.speed import StartClock
from bert_jax.training.step_trace import StepTrace
from bert_jax.training.train_step import TrainState
from bert_jax.training.warm_start import ROWS_OF_TOKENS, start_from
from bert_jax.workdir import branch, record
from bert_jax.workdir import folder as workdir
from bert_jax.workdir.provenance import code, describe_code_changes, this_start
from bert_jax.workdir.record import RunRecord
from data_pipeline import store
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.corpus import MANIFEST_FILE
from data_pipeline.errors import UserError


@dataclasses.dataclass(frozen=True)
class _Begun:
    """What `config.json` says of this start, in all processes."""

    start: dict[str, Any]
    """Its entry among the starts."""
    kept: Kept
    """The checkpoints that this start or an earlier one asked to keep."""


def run(args: Pretrain, clock: StartClock) -> int:
    """Trains, as one of several processes if the arguments say so. Returns the exit status."""
    if not args.distributed:
        return _run_here(args, clock)
    return processes.run_together(lambda: _run_here(args, clock), report)


def _run_here(args: Pretrain, clock: StartClock) -> int:
    model, args = processes.together(lambda: _open_initial(args))
    _check_same_command(args)
    # Only process 0 looks: over NFS, one that looks before the folder is made would miss it for a while.
    processes.by_first(lambda: _check_folder(args))
    with processes.held_by_first(workdir.lock(args.workdir)):
        token = processes.by_first(lambda: workdir.mark(args.workdir))
        processes.together(lambda: workdir.check_mark(args.workdir, token))
        return _run_in_folder(args, model, clock)


def _run_in_folder(args: Pretrain, model: PretrainedModel | None, clock: StartClock) -> int:
    """Prepares, trains and shows, in a work directory that no other run uses meanwhile."""
    keep_compiled(args.workdir)
    corpus = processes.together(lambda: _find_corpus(args))
    run_data.note_few_slots(args.experiment, _say)
    program = processes.together(
        lambda: make_program(PretrainingTask(args.experiment.model), args.experiment)
    )
    begun = processes.together(lambda: _begin_or_go_on(args, corpus, model))
    data, evaluation = processes.together(lambda: _open_data(program, args.experiment, corpus))
    check_start = functools.partial(record.check_last_start, args.workdir, begun.start)
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
        kept=begun.kept,
    )
    status = _train(training, args.experiment, clock, check_start)
    if status == 0:
        processes.by_first(lambda: showcase.show(args.workdir, args.experiment, corpus))
    return status


def _train(
    training: TrainingRun, experiment: Experiment, clock: StartClock, check_start: Callable[[], None]
) -> int:
    """Compiles and trains. Returns the exit status; says why if it is not 0.

    Raises:
      UserError: too little memory, or `check_start` says that another machine took the run over.
      Unfinished: a file cannot be written or read.
    """
    with processes.listen() as interrupt:
        try:
            with (
                out_of_memory_as_user_error("--global-batch-size"),
                takeover_checked_on_failure(check_start),
                storage_errors_as_unfinished(),
            ):
                done = max(saved_steps(training.workdir), default=0)
                clock.compiled(compile_later_phases(training.program, experiment, done, _say))
                ending = training.train(interrupt)
        except NonFiniteError as error:
            print(f"bert-jax: error: {error}; {_advice_after_nan(training.workdir)}", file=sys.stderr)
            return exit_status.FAILED
        if ending is Ending.INTERRUPTED:
            _say(f"{interrupt.signal_name}: saved; run the same command again to resume")
            return exit_status.SAVED
    return 0


def _check_same_command(args: Pretrain) -> None:
    """Raises UserError if the processes of the run were started with different settings or code."""

    def identity() -> dict[str, Any]:
        settings = flatten(args.experiment)
        del settings["data.corpus"]  # the path may differ; the content is compared by fingerprint
        same = {"experiment": args.name, "--workdir": str(args.workdir)}
        return {**same, **settings, **code(this_start())}

    processes.check_same(identity, "start all with the same command, code and packages")


def _open_initial(args: Pretrain) -> tuple[PretrainedModel | None, Pretrain]:
    """The model of --init-from, if any, and the arguments with its shape."""
    if args.init_from is None:
        return None, args
    model, experiment = init_from.open_initial(args.init_from, args.experiment, args.given)
    return model, dataclasses.replace(args, experiment=experiment)


def _check_folder(args: Pretrain) -> None:
    if args.experiment.data.corpus != INSTALLED_DOCUMENTATION:
        workdir.check_apart(args.workdir, args.experiment.data.corpus)
    workdir.check_free(args.workdir)
    if (args.workdir / CELLS_FOLDER).exists():
        raise UserError(f"--workdir {args.workdir} holds fine-tuned models; name another folder")


def _find_corpus(args: Pretrain) -> str:
    """The corpus's path. The corpus of the installed documentation is made in the work directory."""
    if args.experiment.data.corpus != INSTALLED_DOCUMENTATION:
        return args.experiment.data.corpus
    corpus = args.workdir / workdir.CORPUS_FOLDER
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


def _begin_or_go_on(args: Pretrain, corpus: str, model: PretrainedModel | None) -> _Begun:
    """Checks the corpus and what the work directory holds, and records this start.

    Raises:
      UserError: the work directory holds another run, or the corpus was altered or does not fit.
    """
    if model is not None:
        init_from.check_vocabulary(model, corpus, _say)
    run_data.check_vocabulary_size(args.experiment, corpus, _say)
    now = RunRecord(
        args.name,
        args.experiment,
        corpus_fingerprint=store.fingerprint(corpus),
        init_from=model.name if model else "",
        init_fingerprint=model.fingerprint() if model else "",
    )
    processes.check_same(
        lambda: {
            "fingerprint of data.corpus": now.corpus_fingerprint,
            "fingerprint of --init-from": now.init_fingerprint,
        },
        "give all of them the same text, vocabulary and model",
    )
    store.verify(corpus)  # at every start: a run may be resumed on a machine that has its own copy
    begun = processes.by_first(lambda: dataclasses.asdict(_record_start(args, corpus, now)))
    return from_json(_Begun, begun)


def _record_start(args: Pretrain, corpus: str, now: RunRecord) -> _Begun:
    """Records this start in the work directory. Raises UserError if another run's checkpoints are there."""
    now = dataclasses.replace(now, starts=(this_start(),), kept=Kept.asked_for_by(now.experiment))
    if steps := saved_steps(args.workdir):
        now = _go_on(args, now, steps[-1])
    else:
        _begin(args, corpus, now)
    return _Begun(now.starts[-1], now.kept)


def _begin(args: Pretrain, corpus: str, now: RunRecord) -> None:
    """Makes the work directory that of a run: its record, its tokenizer, the checkpoint it branches from."""
    folder, origin = args.workdir, None
    if record.begun_on_other_corpus(folder, now):
        workdir.remove_tokenizer(folder)
    if args.branch_from is not None:
        origin = branch.find_origin(args.branch_from, args.branch_step, now)
        run_data.check_same_vocabulary(origin.workdir, origin.record, corpus)
        now = dataclasses.replace(now, branched_from=origin.point)
    # Written first, because this file marks the rest of the folder as a run's.
    record.write_record(folder, now)
    workdir.copy_tokenizer(corpus, folder)
    if origin is not None:  # last, so that a start killed before this point is repeated in full
        _say("; ".join([f"branched from {origin.point}", *origin.differences(now)]))
        branch.copy_state(origin, folder)


def _go_on(args: Pretrain, now: RunRecord, step: int) -> RunRecord:
    """Adds this start to the record of the run that has saved `step`; says what changed since its last."""
    folder = args.workdir
    before = record.read_record(folder)
    record.check_same_run(folder, before, now, step)
    if args.branch_from is not None:
        branch.check_same_origin(folder, before.branched_from, args.branch_from, args.branch_step)
    kept = record.checkpoints_to_keep(before, now.experiment)
    for line in (
        *record.describe_changes(before.experiment, now.experiment),
        *record.describe_kept(kept, now.experiment),
        *describe_code_changes(before.starts[-1], now.starts[-1]),
    ):
        _say(line)
    starts = (*before.starts, *now.starts)
    now = dataclasses.replace(now, branched_from=before.branched_from, starts=starts, kept=kept)
    record.write_record(folder, now)
    return now


def _open_data(
    program: Program, experiment: Experiment, corpus: str
) -> tuple[TrainingData, Evaluation | None]:
    """Returns the checked batches of a run, and its evaluation unless no documents are held out."""
    data = run_data.make_data(program, experiment, corpus)
    heldout = run_data.heldout_batches(program, experiment, corpus)
    run_data.check_batches(experiment, data, heldout)
    if heldout is None:
        _say(f"note: {corpus} has no held-out documents, so there is no evaluation")
        return data, None
    return data, run_data.make_evaluation(program, experiment, heldout)


def _start(args: Pretrain, program: Program, model: PretrainedModel, corpus: str) -> TrainState:
    """The state at step 0 of a run that starts from a model."""
    new_rows = init_from.describe_new_rows(model, args.experiment.model.vocab_size, corpus)
    for line in (init_from.describe_start(model), *new_rows):
        _say(line)
    return start_from(program, model.params, ROWS_OF_TOKENS)


def _trace(args: Pretrain) -> StepTrace | None:
    """The profiler recording that --profile asks for, in process 0 only; None otherwise."""
    if args.profile is None or not processes.is_first():
        return None
    return StepTrace(args.workdir / TENSORBOARD_FOLDER, args.profile, _say)


def _advice_after_nan(folder: Path) -> str:
    rate = "a lower --optimizer.learning-rate"
    if saved_steps(folder):
        return f"in another --workdir try --branch-from {folder} with {rate} or another --seed"
    return f"in another --workdir try {rate} or more --optimizer.warmup-steps"


def _say(line: str) -> None:
    print(line, flush=True)
