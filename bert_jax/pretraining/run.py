"""What `bert-jax pretrain` does, once its flags are read: checks, records and trains.

All processes of a run pass through the same functions. `processes.run_on_all` makes them fail together, and
`broadcast_from_first` says what process 0 does alone.
"""

import dataclasses
import functools
import sys
import time
from pathlib import Path
from typing import TypeAlias

import jax
import numpy as np

from bert_jax import exit_status
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.parallel import processes
from bert_jax.parallel.interrupt import Interrupted
from bert_jax.pretraining import init_from
from bert_jax.pretraining.arguments import Pretrain
from bert_jax.pretraining.begin import (
    begin_or_resume,
    check_same_command,
    check_same_input,
    check_workdir,
    make_record,
)
from bert_jax.pretraining.data import (
    check_exclusions,
    check_vocabulary_size,
    find_corpus,
    make_data,
    note_unusual,
)
from bert_jax.pretraining.evaluation import make_evaluation
from bert_jax.pretraining.initial_shape import InitialModel
from bert_jax.training.checkpoints import saved_steps
from bert_jax.training.failures import (
    out_of_memory_as_user_error,
    storage_errors_as_unfinished,
)
from bert_jax.training.loop import Evaluation, TrainingData, train
from bert_jax.training.nonfinite import NonFiniteError
from bert_jax.training.program import Program, make_program
from bert_jax.training.train_step import TrainState
from bert_jax.training.warm_start import ROWS_OF_TOKENS, start_from, with_repeated_positions
from bert_jax.workdir import directory, record
from bert_jax.workdir.config_text import from_json, to_json
from bert_jax.workdir.record import RunRecord
from data_pipeline import stand_in
from data_pipeline.corpus.store import Description, verify

_Program: TypeAlias = Program[PretrainingTask, Experiment]


def pretrain(args: Pretrain) -> int:
    """Trains in a work directory; returns 0, or 75 if the run was interrupted and saved, or 1 if it met NaN.

    All processes of a run call this.
    """
    workdir = args.workdir
    # Only process 0 looks: over NFS, one that looks before the directory is made would miss it for a while.
    processes.broadcast_from_first(lambda: check_workdir(workdir, args.experiment.data.corpus))
    recorded = processes.broadcast_from_first(lambda: to_json(init_from.recorded_initial(args)))
    if recorded is not None:
        args = dataclasses.replace(args, initial=from_json(InitialModel, recorded))
    args, model = processes.run_on_all(lambda: init_from.open_initial(args))
    check_same_command(args.name, workdir, args.experiment)
    with processes.held_on_first(directory.lock(workdir)):
        token = processes.broadcast_from_first(lambda: directory.mark(workdir))
        processes.run_on_all(lambda: _join(workdir, token))
        return _pretrain_in_workdir(args, model)


def _join(workdir: Path, token: str) -> None:
    """Checks that this process works in the directory that process 0 has marked, and sees the same in it."""
    directory.check_mark(workdir, token)
    if not processes.is_first():  # which did so when it locked the directory
        stand_in.pull_changes(workdir)


def _pretrain_in_workdir(args: Pretrain, model: PretrainedModel | None) -> int:
    """Checks, records and trains, in a work directory that no other run uses meanwhile."""
    workdir, experiment = args.workdir, args.experiment
    directory.keep_compiled(workdir)
    corpus, program, now = processes.run_on_all(lambda: _open_corpus(args))
    check_same_input(now)
    data, evaluation = processes.run_on_all(lambda: _open_batches(program, corpus))
    start, kept = begin_or_resume(workdir, now, corpus, args.branch_from, args.branch_step)
    parameters, kind = experiment.objective.num_parameters(experiment.model), jax.devices()[0].device_kind
    print(
        f"{parameters / 1e6:.1f} M parameters, {jax.device_count()} x {kind}; compiling the step", flush=True
    )
    check_start = functools.partial(record.check_last_start, workdir, start)
    make_state = functools.partial(_initial_state, program, corpus, model) if model else None

    def before_save() -> None:
        check_start()
        stand_in.push(workdir)  # a checkpoint in a bucket has the rows of its steps there

    with processes.listen() as interrupt:
        try:
            with (
                out_of_memory_as_user_error("--global-batch-size"),
                storage_errors_as_unfinished(workdir, check_start),
            ):
                # Process 0 looks: a branch's checkpoint, which it has just made, others may not see yet.
                done = processes.broadcast_from_first(lambda: max(saved_steps(workdir), default=0))
                seconds_compiled = compile_later_phases(program, done)
                train(
                    program,
                    data,
                    workdir,
                    interrupt,
                    evaluation=evaluation,
                    start=make_state,
                    evaluate_start=model is not None,
                    began=args.began,
                    seconds_compiled=seconds_compiled,
                    profile_steps=args.profile or 0,
                    before_save=functools.partial(processes.broadcast_from_first, before_save),
                    kept=kept,
                )
        except NonFiniteError as error:
            print(f"bert-jax: error: {error}; {_advice_after_nan(workdir)}", file=sys.stderr)
            return exit_status.FAILED
        except Interrupted:
            print(f"{interrupt.signal_name}: saved; run the same command again to resume", flush=True)
            return exit_status.SAVED
    return 0


def _open_corpus(args: Pretrain) -> tuple[Description, _Program, RunRecord]:
    """Returns the corpus, which fits the model; the compiled task; and the record of this start."""
    experiment = args.experiment
    note_unusual({args.name: experiment})
    # First, as it may reject the settings, and making a corpus takes minutes.
    program = make_program(PretrainingTask(experiment.objective, experiment.model), experiment)
    check_exclusions(program)
    corpus = find_corpus(args.workdir, experiment, args.distributed)
    check_vocabulary_size(corpus, experiment.model.vocab_size)
    return corpus, program, make_record(args.name, experiment, corpus, args.initial)


def _open_batches(program: _Program, corpus: Description) -> tuple[TrainingData, Evaluation | None]:
    """Returns the checked batches of a run, and its evaluation unless no documents are held out."""
    verify(corpus.path)  # at every start: a run may be resumed on a machine that has its own copy
    data = make_data(program, corpus)
    if corpus.has_heldout:
        return data, make_evaluation(program, corpus.path)
    print(f"note: {corpus.path} has no held-out documents, so there is no evaluation", flush=True)
    return data, None


def compile_later_phases(program: _Program, step: int) -> float:
    """Compiles the step for each shape of batch that is new after `step`; jax keeps it until it is needed.

    Larger batches take more memory, and the TPU compiler rejects a step that does not fit. Compiling early
    makes that happen at the start of the run, not days later when they come. Does nothing under pmap
    with several processes: there jax lowers a step only for arrays, not for shapes.

    Returns:
      How many seconds that took.
    """
    began = time.perf_counter()
    task, experiment = program.task, program.run
    if experiment.parallel.mode == "pmap" and processes.count() > 1:
        return 0.0
    known: list[dict[str, jax.ShapeDtypeStruct]] = []
    for stretch in experiment.stretches:
        if max(step, stretch.start) >= stretch.stop:
            continue
        rows = sum(stop - start for start, stop in program.rows.ranges(stretch.batch_size))
        shapes = task.abstract_batch(stretch.phase, rows, experiment.data.max_instances_per_row)
        if shapes not in known and step < stretch.start:
            length = stretch.phase.max_seq_length
            print(
                f"compiling the step for {stretch.batch_size} x {length}, from step {stretch.start} on",
                flush=True,
            )
            batch = {name: np.zeros(shape.shape, shape.dtype) for name, shape in shapes.items()}
            program.lower_train_step(program.put(batch)).compile()
        known.append(shapes)
    return time.perf_counter() - began


def _initial_state(program: _Program, corpus: Description, model: PretrainedModel) -> TrainState:
    """The state at step 0 of a run that starts from a model."""
    config = program.run.model
    for line in (
        init_from.describe_start(model, sorted(program.task.objective.trained_parts)),
        *init_from.describe_new_rows(model, config.vocab_size, corpus.vocabulary),
        *init_from.describe_positions(model, config),
    ):
        print(line, flush=True)
    params = with_repeated_positions(model.params, config.max_position_embeddings)
    return start_from(program, params, ROWS_OF_TOKENS)


def _advice_after_nan(workdir: Path) -> str:
    rate = "a lower --optimizer.learning-rate"
    if saved_steps(workdir):
        return (
            "the last good checkpoint is kept; in another --workdir try "
            f"--branch-from {stand_in.bucket_of(workdir) or workdir} with {rate} or another --seed"
        )
    return f"in another --workdir try {rate} or more --optimizer.warmup-steps"
