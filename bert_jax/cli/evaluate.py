"""`bert-jax evaluate --workdir DIR`: a checkpoint's metrics on held-out documents."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.config import ParallelConfig
from data_pipeline.atomic import write_json
from data_pipeline.errors import UserError, bad_input

_ROWS_OF_A_DEVICE = 32


@dataclasses.dataclass(frozen=True)
class EvaluationData:
    """Data to evaluate on."""

    corpus: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Corpus whose held-out documents are used; by default that of the run."""


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Measure a checkpoint of a run on held-out documents, always with the same pairs and masks.

    Prints the metrics for each phase of the run and writes them to WORKDIR/evaluation-STEP.json, which
    keeps those of other corpora. Beside each accuracy is that of always guessing the most frequent label
    (`guess`). Uses all devices of this machine, however many the run had.
    """

    workdir: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder of the run."""
    step: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Step of the checkpoint; the newest by default."""
    data: EvaluationData = EvaluationData()
    eval_examples: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Most sequences to evaluate on, for each phase; by default as in the run."""


def run(args: Evaluate) -> None:
    """Evaluates at every phase's sequence length.

    Raises:
      UserError: no run, no such checkpoint, a corpus of another vocabulary.
    """
    import jax

    from bert_jax.cli import run_data
    from bert_jax.parallel.compilation_cache import keep_compiled
    from bert_jax.pretraining.evaluation import evaluate
    from bert_jax.pretraining.task import PretrainingTask
    from bert_jax.training.checkpoints import load_params
    from bert_jax.training.program import make_program
    from bert_jax.workdir.folder import corpus_of
    from bert_jax.workdir.record import read_record

    record = read_record(args.workdir)
    experiment = dataclasses.replace(
        record.experiment,
        parallel=ParallelConfig(),
        global_batch_size=_ROWS_OF_A_DEVICE * jax.device_count(),
    )
    if args.eval_examples is not None:
        experiment = dataclasses.replace(experiment, eval_examples=args.eval_examples)
    corpus = args.data.corpus or corpus_of(args.workdir, experiment.data.corpus)
    run_data.check_same_vocabulary(args.workdir, record, corpus)
    step, params = load_params(args.workdir, args.step)
    file = args.workdir / f"evaluation-{step}.json"
    earlier = _rows_of_others(file, corpus)
    keep_compiled(args.workdir)
    program = make_program(PretrainingTask(experiment.model), experiment)
    heldout = run_data.heldout_batches(program, experiment, corpus)
    if heldout is None:
        raise UserError(f"{corpus} has no held-out documents; prepare it with --holdout above 0")
    on_devices = program.put_params(params)
    rows = [
        {"step": step, "split": "heldout", "max_seq_length": phase.max_seq_length, "corpus": corpus}
        | evaluate(program, on_devices, heldout(phase))
        for phase in experiment.data.phases
    ]
    _print(rows)
    write_json(file, earlier + rows)
    print(f"wrote {file}")


def _rows_of_others(file: Path, corpus: str) -> list[dict]:
    """The rows in an earlier evaluation's file for other corpora. Raises UserError if it cannot be read."""
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        return [row for row in rows if row["corpus"] != corpus]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise bad_input(error, file, f"{file} is no evaluation of a run; remove it") from None


def _print(rows: list[dict]) -> None:
    for row in rows:
        figures = {name: value for name, value in row.items() if isinstance(value, float)}
        print(f"step {row['step']}, length {row['max_seq_length']}:")
        for name, value in figures.items():
            print(f"  {name:<{max(map(len, figures))}}  {value:.4g}")
