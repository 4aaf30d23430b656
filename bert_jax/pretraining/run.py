"""What `bert-jax pretrain` does, once its flags are read: checks, records and trains.

All processes of a run pass through the same functions. `processes.run_on_all` makes them fail together, and
`broadcast_from_first` says what process 0 does alone.
"""

import dataclasses
import functools
import sys
from collections.abc import Callable
from pathlib import Path

from bert_jax import exit_status
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.parallel import processes
from bert_jax.parallel.compilation_cache import keep_compiled
from bert_jax.parallel.interrupt import Interrupt
from bert_jax.pretraining import data as run_data
from bert_jax.pretraining import init_from
from bert_jax.pretraining.arguments import Pretrain
from bert_jax.pretraining.begin import begin_or_resume, check_same_command, check_workdir, make_record
from bert_jax.pretraining.corpus import check_vocabulary_size, find_corpus
from bert_jax.pretraining.later_phases import compile_later_phases
from bert_jax.training.checkpoints import saved_steps
from bert_jax.training.failures import (
    out_of_memory_as_user_error,
    storage_errors_as_unfinished,
    takeover_checked_on_failure,
)
from bert_jax.training.loop import Ending, Evaluation, TrainingData, train
from bert_jax.training.nonfinite import NonFiniteError
from bert_jax.training.program import Program, make_program
from bert_jax.training.speed import StartClock
from bert_jax.training.train_step import TrainState
from bert_jax.training.warm_start import ROWS_OF_TOKENS, start_from
from bert_jax.workdir import directory as workdir
from bert_jax.workdir import record
from bert_jax.workdir.record import RunRecord


def pretrain(args: Pretrain) -> int:
    """Trains in a work directory; returns 0, or 75 if the run was interrupted and saved, or 1 if it met NaN.

    All processes of a run call this.
    """
    model, args = processes.run_on_all(lambda: _open_initial(args))
    check_same_command(args)
    # Only process 0 looks: over NFS, one that looks before the directory is made would miss it for a while.
    processes.broadcast_from_first(lambda: check_workdir(args))
    with processes.held_on_first(workdir.lock(args.workdir)):
        token = processes.broadcast_from_first(lambda: workdir.mark(args.workdir))
        processes.run_on_all(lambda: workdir.check_mark(args.workdir, token))
        return _pretrain_in_workdir(args, model)


def _pretrain_in_workdir(args: Pretrain, model: PretrainedModel | None) -> int:
    """Checks, records and trains, in a work directory that no other run uses meanwhile."""
    clock = StartClock(_say, args.began)
    keep_compiled(args.workdir)
    corpus = processes.run_on_all(lambda: find_corpus(args))
    run_data.note_few_slots(args.experiment, _say)
    task = PretrainingTask(args.experiment.objective, args.experiment.model)
    program = processes.run_on_all(lambda: make_program(task, args.experiment))
    now = processes.run_on_all(lambda: _check_corpus(args, corpus, model))
    data, evaluation = processes.run_on_all(lambda: _open_data(program, args.experiment, corpus))
    begun = processes.run_on_all(lambda: begin_or_resume(args, corpus, now, _say))
    check_start = functools.partial(record.check_last_start, args.workdir, begun.start)
    training = functools.partial(
        train,
        program,
        data,
        args.workdir,
        say=_say,
        evaluation=evaluation,
        start=functools.partial(_initial_state, args, program, model, corpus) if model else None,
        evaluate_start=model is not None,
        clock=clock,
        profile_steps=args.profile or 0,
        before_save=lambda: processes.broadcast_from_first(check_start),
        kept=begun.kept,
    )
    return _train(training, args, program, clock, check_start)


def _open_initial(args: Pretrain) -> tuple[PretrainedModel | None, Pretrain]:
    """The model of --init-from, if any, and the arguments with its shape."""
    if args.init_from is None:
        return None, args
    model, experiment = init_from.open_initial(args.init_from, args.experiment, args.given)
    return model, dataclasses.replace(args, experiment=experiment)


def _check_corpus(args: Pretrain, corpus: str, model: PretrainedModel | None) -> RunRecord:
    """Checks that the corpus is whole and fits the model; returns the run's record."""
    if model is not None:
        init_from.check_vocabulary(model, corpus, _say)
    check_vocabulary_size(args.experiment, corpus, _say)
    return make_record(args, corpus, model)


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


def _initial_state(args: Pretrain, program: Program, model: PretrainedModel, corpus: str) -> TrainState:
    """The state at step 0 of a run that starts from a model."""
    new_rows = init_from.describe_new_rows(model, args.experiment.model.vocab_size, corpus)
    for line in (init_from.describe_start(model), *new_rows):
        _say(line)
    return start_from(program, model.params, ROWS_OF_TOKENS)


def _train(
    training: Callable[[Interrupt], Ending],
    args: Pretrain,
    program: Program,
    clock: StartClock,
    check_start: Callable[[], None],
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
                done = max(saved_steps(args.workdir), default=0)
                clock.compiled(compile_later_phases(program, args.experiment, done, _say))
                ending = training(interrupt)
        except NonFiniteError as error:
            print(f"bert-jax: error: {error}; {_advice_after_nan(args.workdir)}", file=sys.stderr)
            return exit_status.FAILED
        if ending is Ending.INTERRUPTED:
            _say(f"{interrupt.signal_name}: saved; run the same command again to resume")
            return exit_status.SAVED
    return 0


def _advice_after_nan(directory: Path) -> str:
    rate = "a lower --optimizer.learning-rate"
    if saved_steps(directory):
        return f"in another --workdir try --branch-from {directory} with {rate} or another --seed"
    return f"in another --workdir try {rate} or more --optimizer.warmup-steps"


def _say(line: str) -> None:
    print(line, flush=True)
