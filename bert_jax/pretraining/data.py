"""The data of a run: its batches for the training loop, and checks that a corpus fits an experiment."""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.pretraining.evaluation import evaluate
from bert_jax.training.accounting import flops_left
from bert_jax.training.loop import Evaluation, HostBatches, TrainingData
from bert_jax.training.program import Program
from bert_jax.training.train_step import Params
from data_pipeline.config import Phase
from data_pipeline.corpus.store import fingerprint, has_heldout
from data_pipeline.errors import UserError
from data_pipeline.pretraining.batches import evaluation_batches, training_batches

HeldoutBatches: TypeAlias = Callable[[Phase], HostBatches]
"""Phase -> the held-out batches at its sequence length, always the same."""

# A phase is noted if its slots are fewer than this fraction of what the masking rate asks for.
_FEW_SLOTS = 0.95


def make_data(program: Program, experiment: Experiment, corpus: str) -> TrainingData:
    """Returns the training batches of an experiment, of which each process makes only the rows that it holds.

    Raises:
      UserError: there is no corpus at `corpus`.
    """
    task = _task_of(program)
    training = functools.partial(
        training_batches,
        corpus,
        experiment.data,
        seed=experiment.seed,
        global_batch_size=experiment.global_batch_size,
        num_train_steps=experiment.num_train_steps,
        rows=program.rows.ranges(experiment.global_batch_size),
    )
    identity = {"seed": experiment.seed, "corpus": corpus, "fingerprint": fingerprint(corpus)}
    return TrainingData(
        training=lambda step: map(task.select, training(first_step=step)),
        identity=identity,
        work_left=functools.partial(flops_left, experiment),
    )


def heldout_batches(program: Program, experiment: Experiment, corpus: str) -> HeldoutBatches | None:
    """Returns the held-out batches of an experiment, of which each process makes only the rows that it holds.

    None if no documents are held out.
    """
    if not has_heldout(corpus):
        return None
    task = _task_of(program)
    batch_size = experiment.global_batch_size // experiment.parallel.accumulation_steps
    batches = functools.partial(
        evaluation_batches,
        corpus,
        experiment.data,
        batch_size=batch_size,
        examples=experiment.eval_examples,
        rows=program.rows.ranges(batch_size),
    )
    return lambda phase: map(task.select, batches(phase))


def _task_of(program: Program) -> PretrainingTask:
    assert isinstance(program.task, PretrainingTask)
    return program.task


def make_evaluation(program: Program, experiment: Experiment, heldout: HeldoutBatches) -> Evaluation:
    """Returns the evaluation on held-out documents, at the sequence length of the step's phase."""
    stretches = experiment.data.stretches(experiment.num_train_steps)

    def evaluation(params: Params, step: int) -> dict[str, Any]:
        phase = next(s.phase for s in stretches if step <= s.stop)
        metrics = evaluate(program, params, heldout(phase))
        return {"max_seq_length": phase.max_seq_length, **metrics}

    return evaluation


def note_few_slots(experiment: Experiment, say: Callable[[str], None]) -> None:
    """Notes the phases with clearly fewer slots than the masking rate asks for in a full sequence."""
    rate = experiment.data.masking.rate
    for number, phase in enumerate(experiment.data.phases):
        wanted, slots = round(rate * phase.max_seq_length), phase.max_predictions_per_seq
        if slots < _FEW_SLOTS * wanted:
            say(
                f"note: of {phase.max_seq_length} tokens at most {slots} are predicted, "
                f"{slots / phase.max_seq_length:.1%} rather than {rate:.0%}; "
                f"--data.phases.{number}.max-predictions-per-seq {wanted} has room for all"
            )


def check_batches(experiment: Experiment, data: TrainingData, heldout: HeldoutBatches | None) -> None:
    """Opens the data of every phase, so that problems show before training, not after days.

    Raises:
      UserError: a phase has no training or no held-out batch, or the first batch has too high a token id.
    """
    first, rows = next(data.training(0)), experiment.model.vocab_size
    highest = max(int(first[key].max(initial=0)) for key in ("input_ids", "masked_lm_ids") if key in first)
    if highest >= rows:
        raise UserError(
            f"{data.identity['corpus']} holds the token id {highest}, but model.vocab_size is {rows}; "
            f"pass --model.vocab-size with the size of the vocabulary that it was made with"
        )
    if heldout is not None:
        for phase in experiment.data.phases:
            heldout(phase)
