"""`bert-jax inspect CORPUS`: batches of a prepared corpus, in statistics and examples."""

import dataclasses
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bert_jax.cli.experiment_argument import find_experiment
from bert_jax.cli.flags.inspect import Inspect
from bert_jax.objectives.experiment import Experiment
from bert_jax.pretraining.example_text import example_text
from bert_jax.pretraining.preparation import describe_left_out
from bert_jax.workdir.directory import recorded_corpus
from bert_jax.workdir.record import CONFIG_FILE, read_record
from data_pipeline.config import DataConfig, Phase, split_corpora
from data_pipeline.corpus.documents import Corpus, open_corpus
from data_pipeline.corpus.store import open_store
from data_pipeline.errors import UserError
from data_pipeline.pretraining.batches import make_source
from data_pipeline.pretraining.corpus_source import CorpusSource, make_corpus_source
from data_pipeline.pretraining.mixture import MixedSource
from data_pipeline.pretraining.statistics import Statistics, measure, place_rows


def run(args: Inspect) -> None:
    """Verifies the checksums, then prints a table and examples for each phase.

    Raises:
      UserError: a damaged or missing corpus, an unknown experiment, an impossible length, no such step.
    """
    experiment, directory = _find_experiment(args)
    console = Console(highlight=False)
    if args.step is not None:
        _show_step(console, experiment, directory, args.step, args.examples)
        return
    data = _data_settings(args, experiment.data)
    for name in split_corpora(directory):
        corpus = open_corpus(name, args.split)
        corpus.verify()
        _show_corpus(console, corpus, data, experiment.seed, args)


def _show_corpus(console: Console, corpus: Corpus, data: DataConfig, seed: int, args: Inspect) -> None:
    console.print(
        f"{escape(str(corpus.directory))}, {args.split}: {corpus.num_documents:,} documents, "
        f"{corpus.num_sentences:,} sentences, {corpus.num_tokens:,} tokens, "
        f"vocabulary of {corpus.tokenizer.vocab_size:,}; checksums match"
    )
    for line in describe_left_out(corpus.manifest):
        console.print(line)
    before = 0.0  # fraction of the run
    for stream, phase in enumerate(data.phases):
        source = make_corpus_source(corpus, data, phase)
        console.print()
        console.rule(f"length {phase.max_seq_length}: {len(source):,} instances", align="left")
        # Held-out documents are masked as at the end of a run.
        progress = before if args.split == "train" else 1.0
        statistics = measure(source, seed, stream, args.sequences, progress)
        _print_statistics(console, statistics, phase)
        if source.instances_per_row > 1:
            console.print(
                f"sequences in a row: mean {statistics.examples / statistics.rows:.2f}, "
                f"at most {statistics.most_in_a_row}, of {source.instances_per_row} that it may hold"
            )
        before += phase.fraction
    first, progress = make_corpus_source(corpus, data, data.phases[0]), float(args.split == "heldout")
    _print_examples(console, first, seed, 0, 0, args.examples, progress)


def _find_experiment(args: Inspect) -> tuple[Experiment, str]:
    """Returns the experiment to take settings from, and the directory of the corpus."""
    workdir = Path(args.corpus)
    if not (workdir / CONFIG_FILE).exists():
        if args.step is not None:
            raise UserError(f"--step goes with the work directory of a run, which {args.corpus} is not")
        _, experiment = find_experiment(args.experiment or "base")
        directory = args.corpus
    elif args.experiment is not None:
        raise UserError(f"{args.corpus} is a run and has its own settings; leave --experiment out")
    else:
        record = read_record(workdir)
        experiment, origin = record.experiment, record.branched_from
        if args.step is not None and args.step < origin.step:
            raise UserError(
                f"--step is {args.step}, and {workdir} branched from {origin}; inspect that run, or give a "
                f"step from {origin.step} on"
            )
        directory = recorded_corpus(workdir, experiment.data.corpus)
    seed = experiment.seed if args.seed is None else args.seed
    return dataclasses.replace(experiment, seed=seed), directory


def _show_step(console: Console, experiment: Experiment, directory: str, step: int, examples: int) -> None:
    """Prints the first rows of a step's batch."""
    steps = experiment.num_train_steps
    if not 0 <= step < steps:
        raise UserError(f"--step is {step}; the steps of the run are 0 to {steps - 1}")
    stretch = next(s for s in experiment.stretches if step < s.stop)
    phase, count = stretch.phase, min(examples, stretch.batch_size)
    source = _training_source(directory, experiment.data, phase)
    console.print(f"step {step}, length {phase.max_seq_length}: {count} of {stretch.batch_size} rows")
    first = stretch.rows_before(step)
    if isinstance(source, MixedSource):
        _print_mixture(console, source, experiment.seed, stretch.number, first, stretch.batch_size)
    _print_examples(console, source, experiment.seed, stretch.number, first, count, step / steps)


def _training_source(directory: str, data: DataConfig, phase: Phase) -> CorpusSource | MixedSource:
    source = make_source(open_store(directory, "train", data.weights), data, phase)
    if not isinstance(source, CorpusSource | MixedSource):
        raise UserError(
            f"{directory} holds TFRecords, whose pairs and masks are fixed; inspect shows batches "
            "of the corpora that `bert-jax prepare` makes"
        )
    return source


def _print_mixture(
    console: Console, source: MixedSource, seed: int, stream: int, first: int, size: int
) -> None:
    """Prints of how many rows of each corpus a step is made, and how often the phase has read it before."""
    before, after = (source.rows_before(seed, stream, position) for position in (first, first + size))
    for part, done, rows in zip(source.sources, before, after - before, strict=True):
        console.print(
            f"{escape(str(part.corpus.directory))}: {rows} rows, after {done / len(part):.2f} epochs"
        )


def _data_settings(args: Inspect, data: DataConfig) -> DataConfig:
    if args.max_instances_per_row is not None:
        data = dataclasses.replace(data, max_instances_per_row=args.max_instances_per_row)
    slots = args.max_predictions_per_seq
    if args.max_seq_length is None:
        if slots is not None:
            raise UserError("--max-predictions-per-seq goes with --max-seq-length only")
        return data
    if slots is None:
        slots = round(args.max_seq_length * data.masking.highest_rate)
    return dataclasses.replace(data, phases=(Phase(args.max_seq_length, slots),))


def _print_examples(
    console: Console,
    source: CorpusSource | MixedSource,
    seed: int,
    stream: int,
    first: int,
    count: int,
    progress: float,
) -> None:
    if not count:
        return
    for part in source.parts(*place_rows(source, seed, stream, first, count), progress):
        if isinstance(source, MixedSource):
            console.print()
            console.rule(f"of {escape(str(part.source.corpus.directory))}", align="left")
        places = part.drawn.places
        for instance in np.lexsort((places.starts, places.rows)):
            console.print()
            console.print(example_text(part.drawn, instance, part.source))


def _print_statistics(console: Console, statistics: Statistics, phase: Phase) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(f"of {statistics.examples:,} sequences", no_wrap=True)
    for heading in ("expected", "observed", "may be off by"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column()
    for check in statistics.checks:
        flag = "" if check.is_within else "[bold red]OUTSIDE[/]"
        numbers = (f"{value:.2%}" for value in (check.expected, check.observed, check.tolerance))
        table.add_row(check.name, *numbers, flag)
    console.print(table)
    smallest, *quartiles, largest = statistics.lengths
    console.print(
        f"tokens in a sequence: mean {statistics.mean_length:.1f}, from {smallest} to {largest}, "
        f"quartiles {', '.join(map(str, quartiles))}; padding {statistics.padding:.1%}"
    )
    for warning in statistics.warnings(phase):
        console.print(f"[yellow]warning:[/] {warning}")
