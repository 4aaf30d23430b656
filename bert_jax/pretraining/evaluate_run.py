"""A checkpoint of a run measured on held-out documents, at the sequence length of every phase."""

import dataclasses
from pathlib import Path
from typing import Any

import jax

from bert_jax.config import ParallelConfig
from bert_jax.objectives.task import PretrainingTask
from bert_jax.pretraining.data import check_same_vocabulary
from bert_jax.pretraining.evaluation import evaluate, heldout_batches
from bert_jax.training.checkpoints import load_params
from bert_jax.training.program import make_program
from bert_jax.workdir.directory import corpus_of, keep_compiled, recorded_corpus
from bert_jax.workdir.record import read_record
from data_pipeline.atomic import write_json
from data_pipeline.config import DataConfig, split_corpora
from data_pipeline.corpus.store import describe
from data_pipeline.errors import UserError, bad_input
from data_pipeline.json_text import load_json
from data_pipeline.stand_in import pull_files, push_files, with_urls

_ROWS_OF_A_DEVICE = 32


def evaluate_run(
    workdir: Path, step: int | None, corpus: str, examples: int | None
) -> tuple[list[dict[str, Any]], Path]:
    """Evaluates on all devices of this machine and adds the rows to WORKDIR/evaluation-STEP.json.

    Args:
      step: of the checkpoint; None for the newest.
      corpus: whose held-out documents are used; empty for that of the run.
      examples: most sequences for each phase; None for as many as in the run.

    Returns:
      A row of metrics for each phase, and the file.

    Raises:
      UserError: no run, no such checkpoint, a corpus of another vocabulary or without held-out documents.
    """
    record = read_record(workdir)
    experiment = dataclasses.replace(
        record.experiment,
        parallel=ParallelConfig(),
        eval_examples=record.experiment.eval_examples if examples is None else examples,
    ).with_batches_of(_ROWS_OF_A_DEVICE * jax.device_count())
    if corpus:
        experiment = dataclasses.replace(experiment, data=_with_corpus(experiment.data, corpus))
    find = corpus_of if corpus else recorded_corpus
    corpus = find(workdir, experiment.data.corpus)
    described = describe(corpus)
    check_same_vocabulary(described, workdir, record)
    if not described.has_heldout:
        raise UserError(f"{corpus} has no held-out documents; prepare it with --holdout above 0")
    step, params = load_params(workdir, step)
    file = workdir / f"evaluation-{step}.json"
    name = with_urls(corpus)
    _rows_of_others(file, name)  # a file that cannot be read is told now, not after minutes
    keep_compiled(workdir)
    program = make_program(PretrainingTask(experiment.objective, experiment.model), experiment)
    heldout = heldout_batches(program, corpus)
    on_devices = program.put_params(params)
    rows = [
        {"step": step, "split": "heldout", "max_seq_length": phase.max_seq_length, "corpus": name}
        | evaluate(program, on_devices, heldout(phase))
        for phase in experiment.data.phases
    ]
    # Read again: an evaluation on another corpus may have ended meanwhile, here or on another machine.
    pull_files(workdir, file.name)
    write_json(file, _rows_of_others(file, name) + rows)
    push_files(workdir, file.name)
    return rows, file


def _rows_of_others(file: Path, corpus: str) -> list[dict[str, Any]]:
    """The rows in an earlier evaluation's file for other corpora. Raises UserError if it cannot be read."""
    try:
        rows = load_json(file)
        return [row for row in rows if row["corpus"] != corpus]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise bad_input(error, file, f"{file} is no evaluation of a run; remove it") from None


def _with_corpus(data: DataConfig, corpus: str) -> DataConfig:
    """The settings with another corpus, or as many others as the run has."""
    others, own = len(split_corpora(corpus)), len(split_corpora(data.corpus))
    if others not in (1, own):
        valid = "one" if own == 1 else f"one or {own}"
        raise UserError(f"--data.corpus names {others} corpora, and the run has {own}; name {valid}")
    return dataclasses.replace(data, corpus=corpus, weights=data.weights if others > 1 else ())
