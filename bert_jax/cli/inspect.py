"""`bert-jax inspect CORPUS`: batches of a prepared corpus, in statistics and examples."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.config import check_seed
from data_pipeline.errors import UserError
from data_pipeline.names import Split

if typing.TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from bert_jax.config import Experiment
    from data_pipeline.batches import CorpusSource, Drawn
    from data_pipeline.config import DataConfig, Phase
    from data_pipeline.corpus import Corpus
    from data_pipeline.statistics import Statistics

_NOT_OF_A_STEP = (
    "split",
    "max_seq_length",
    "max_predictions_per_seq",
    "max_instances_per_row",
    "sequences",
    "seed",
)


@dataclasses.dataclass(frozen=True)
class Inspect:
    """Check a prepared corpus and show what training on it sees.

    Compares what the settings of an experiment promise with what its first batches hold, and shows
    a few examples, in which a token to predict appears as [was→now]. Can also show the batch of any
    step of a run.
    """

    corpus: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CORPUS")]
    """Folder made by `bert-jax prepare`, or the work directory of a run, for its corpus and settings."""
    experiment: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Experiment whose data settings are used, by default `base`; `bert-jax experiments` lists them."""
    step: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Show only the batch of the run's step N; the first step is 0."""
    split: Split = "train"
    """Training documents, or held-out ones."""
    max_seq_length: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Show this sequence length alone, instead of the experiment's phases."""
    max_predictions_per_seq: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Slots for predictions at that length; by default as many as the masking rate asks for."""
    max_instances_per_row: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Most sequences packed into one row; 1 disables packing. By default as in the experiment."""
    sequences: Annotated[int, tyro.conf.arg(metavar="N")] = 10_000
    """Rows to draw for the statistics."""
    examples: Annotated[int, tyro.conf.arg(metavar="N")] = 3
    """Rows to show, of the first phase or of the step."""
    seed: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Seed of the batches; by default that of the experiment or the run."""

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_seed("--seed", self.seed)
        for name, value in (("--sequences", self.sequences), ("--examples", self.examples)):
            if value < 0:
                raise UserError(f"{name} is {value}; it must be at least 0")
        if self.step is not None:
            self._check_of_a_step()

    def _check_of_a_step(self) -> None:
        given = (name for name in _NOT_OF_A_STEP if getattr(self, name) != getattr(Inspect, name))
        if flags := ", ".join(f"--{name.replace('_', '-')}" for name in given):
            raise UserError(f"--step shows what the run was given; leave {flags} out")


def run(args: Inspect) -> None:
    """Verifies the checksums, then prints a table and examples for each phase.

    Raises:
      UserError: a damaged or missing corpus, an unknown experiment, an impossible length, no such step.
    """
    from rich.console import Console

    from data_pipeline.batches import make_corpus_source
    from data_pipeline.statistics import measure

    experiment, directory = _find_experiment(args)
    console = Console(highlight=False)
    if args.step is not None:
        _show_step(console, experiment, directory, args.step, args.examples)
        return
    data, seed = _data_settings(args, experiment.data), experiment.seed
    corpus = _open_verified(directory, args.split)
    console.print(
        f"{directory}, {args.split}: {corpus.num_documents:,} documents, "
        f"{corpus.num_sentences:,} sentences, {corpus.num_tokens:,} tokens, "
        f"vocabulary of {corpus.tokenizer.vocab_size:,}; checksums match"
    )
    for stream, phase in enumerate(data.phases):
        source = make_corpus_source(corpus, data, phase)
        console.print()
        console.rule(f"length {phase.max_seq_length}: {len(source):,} instances", align="left")
        statistics = measure(source, seed, stream, args.sequences)
        _print_statistics(console, statistics, phase)
        if source.instances_per_row > 1:
            console.print(
                f"sequences in a row: mean {statistics.examples / statistics.rows:.2f}, "
                f"at most {statistics.most_in_a_row}, of {source.instances_per_row} that it may hold"
            )
    _print_examples(console, make_corpus_source(corpus, data, data.phases[0]), seed, 0, 0, args.examples)


def _find_experiment(args: Inspect) -> tuple[Experiment, str]:
    """Returns the experiment to take settings from, and the folder of the corpus."""
    from bert_jax.cli.flags import check_name
    from bert_jax.workdir.folder import corpus_of
    from bert_jax.workdir.record import CONFIG_FILE, read_record
    from experiments import EXPERIMENTS

    workdir = Path(args.corpus)
    if not (workdir / CONFIG_FILE).exists():
        if args.step is not None:
            raise UserError(f"--step is of a run, and {args.corpus} is not the work directory of one")
        check_name(args.experiment or "base", EXPERIMENTS, "experiment")
        experiment, directory = EXPERIMENTS[args.experiment or "base"], args.corpus
    elif args.experiment is not None:
        raise UserError(f"{args.corpus} is a run and has its own settings; leave --experiment out")
    else:
        experiment = read_record(workdir).experiment
        directory = corpus_of(workdir, experiment.data.corpus)
    seed = experiment.seed if args.seed is None else args.seed
    return dataclasses.replace(experiment, seed=seed), directory


def _show_step(console: Console, experiment: Experiment, directory: str, step: int, examples: int) -> None:
    """Prints the first rows of a step's batch."""
    from data_pipeline.batches import make_corpus_source
    from data_pipeline.corpus import open_corpus

    size, data, steps = experiment.global_batch_size, experiment.data, experiment.num_train_steps
    if not 0 <= step < steps:
        raise UserError(f"--step is {step}; the steps of the run are 0 to {steps - 1}")
    stream, phase, start, _ = next(s for s in data.stretches(steps) if step < s.stop)
    count = min(examples, size)
    source = make_corpus_source(open_corpus(directory, "train"), data, phase)
    console.print(f"step {step}, length {phase.max_seq_length}: {count} of {size} rows")
    _print_examples(console, source, experiment.seed, stream, (step - start) * size, count)


def _data_settings(args: Inspect, data: DataConfig) -> DataConfig:
    from data_pipeline.config import Phase

    if args.max_instances_per_row is not None:
        data = dataclasses.replace(data, max_instances_per_row=args.max_instances_per_row)
    slots = args.max_predictions_per_seq
    if args.max_seq_length is None:
        if slots is not None:
            raise UserError("--max-predictions-per-seq goes with --max-seq-length only")
        return data
    if slots is None:
        slots = round(args.max_seq_length * data.masking.rate)
    return dataclasses.replace(data, phases=(Phase(args.max_seq_length, slots),))


def _open_verified(directory: str, split: Split) -> Corpus:
    from data_pipeline.corpus import open_corpus

    corpus = open_corpus(directory, split)
    corpus.verify()
    return corpus


def _print_examples(
    console: Console, source: CorpusSource, seed: int, stream: int, first: int, count: int
) -> None:
    import numpy as np

    from data_pipeline.statistics import draw_examples

    if not count:
        return
    drawn = draw_examples(source, seed, stream, first, count)
    for instance in np.lexsort((drawn.places.starts, drawn.places.rows)):
        console.print()
        console.print(_example(drawn, instance, source))


def _print_statistics(console: Console, statistics: Statistics, phase: Phase) -> None:
    from rich.table import Table

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


def _example(drawn: Drawn, instance: int, source: CorpusSource) -> Text:
    """One sequence in readable form: its label, then the text of each segment."""
    from rich.text import Text

    second, end = int(drawn.sequences.second_starts[instance]), int(drawn.sequences.ends[instance])
    pieces = _pieces(drawn, instance, source)
    segments = {"A": pieces[1 : second - 1], "B": pieces[second : end - 1]}
    relation = "B comes from another document" if drawn.sequences.labels[instance] else "B follows A"
    if second == end:
        segments, relation = {"text": pieces[1 : end - 1]}, "one segment"
    row, number = int(drawn.places.rows[instance]) + 1, int(drawn.places.numbers[instance])
    name = f"example {row}, sequence {number + 1}" if source.instances_per_row > 1 else f"example {row}"
    text = Text.assemble((f"{name}, {end} tokens: {relation}", "bold"))
    for name, segment in segments.items():
        text.append(f"\n{name} ", style="bold cyan")
        for number, piece in enumerate(segment):
            text.append_text(piece[1:] if number == 0 and piece.plain.startswith(" ") else piece)
    return text


def _pieces(drawn: Drawn, instance: int, source: CorpusSource) -> list[Text]:
    """Each token as text, after a space if the text has one there, and marked if it is to be predicted."""
    from rich.text import Text

    from data_pipeline.vocabulary_file import SPECIAL_TOKENS

    tokenizer, batch, row = source.corpus.tokenizer, drawn.batch, drawn.places.rows[instance]
    start, end = int(drawn.places.starts[instance]), int(drawn.sequences.ends[instance])
    was = drawn.sequences.input_ids[instance, :end].tolist()
    now = batch["input_ids"][row, start : start + end].tolist()
    predicted = set(batch["masked_lm_positions"][row][batch["masked_lm_weights"][row] > 0].tolist())
    pieces = []
    for position, (before, after) in enumerate(zip(was, now, strict=True), start):
        token = tokenizer.id_to_token(before)
        space = " " if token in SPECIAL_TOKENS or tokenizer.follows_space(token) else ""
        piece = token.removeprefix("##").replace("▁", "")
        if position in predicted:
            mark = f"[{piece}→{'MASK' if after == tokenizer.mask_id else tokenizer.id_to_token(after)}]"
            pieces.append(Text(space).append(mark, style="bold magenta"))
        else:
            pieces.append(Text(space + piece))
    return pieces
