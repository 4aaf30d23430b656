"""`bert-jax inspect CORPUS`: what batches of a prepared corpus look like, in numbers and in examples."""

from __future__ import annotations

import dataclasses
import typing
from typing import Annotated

import tyro

from bert_jax.config import check_seed
from data_pipeline.errors import UserError
from data_pipeline.names import Split

if typing.TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from data_pipeline.batches import CorpusSource, Drawn
    from data_pipeline.config import DataConfig, Phase
    from data_pipeline.corpus import Corpus
    from data_pipeline.statistics import Statistics


@dataclasses.dataclass(frozen=True)
class Inspect:
    """Check a prepared corpus and show what training on it sees.

    Compares what the settings of an experiment promise with what its first batches hold, and shows
    a few examples: a token to predict stands as [was→now].
    """

    corpus: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CORPUS")]
    """Folder made by `bert-jax prepare`."""
    experiment: Annotated[str, tyro.conf.arg(metavar="NAME")] = "base"
    """Experiment whose data settings are taken; `bert-jax experiments` lists them."""
    split: Split = "train"
    """Documents to train on, or those kept aside."""
    max_seq_length: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Look at this length alone, instead of the experiment's phases."""
    max_predictions_per_seq: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Slots for predictions at that length; without it, as many as the masking rate asks for."""
    max_instances_per_row: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Pack up to so many sequences in a row, instead of as the experiment does; 1 for no packing."""
    sequences: Annotated[int, tyro.conf.arg(metavar="N")] = 10_000
    """Rows to draw for the numbers."""
    examples: Annotated[int, tyro.conf.arg(metavar="N")] = 3
    """Rows of the first phase to show."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """As in the experiment."""

    def __post_init__(self) -> None:
        check_seed("--seed", self.seed)
        for name, value in (("--sequences", self.sequences), ("--examples", self.examples)):
            if value < 0:
                raise UserError(f"{name} is {value}; it must be at least 0")


def run(args: Inspect) -> None:
    """Verifies the checksums, then prints a table and examples for each phase.

    Raises:
      UserError: a damaged or missing corpus, an unknown experiment, an impossible length.
    """
    from rich.console import Console

    from data_pipeline.batches import make_corpus_source
    from data_pipeline.statistics import measure

    data = _data_settings(args)
    console = Console(highlight=False)
    corpus = _open_verified(args.corpus, args.split)
    console.print(
        f"{args.corpus}, {args.split}: {corpus.num_documents:,} documents, "
        f"{corpus.num_sentences:,} sentences, {corpus.num_tokens:,} tokens, "
        f"vocabulary of {corpus.tokenizer.vocab_size:,}; checksums match"
    )
    for stream, phase in enumerate(data.phases):
        source = make_corpus_source(corpus, data, phase)
        console.print()
        console.rule(f"length {phase.max_seq_length}: {len(source):,} instances", align="left")
        statistics = measure(source, args.seed, stream, args.sequences)
        _print_statistics(console, statistics, phase)
        if source.instances_per_row > 1:
            console.print(
                f"sequences in a row: mean {statistics.examples / statistics.rows:.2f}, "
                f"at most {statistics.most_in_a_row}, of {source.instances_per_row} that it may hold"
            )
    if args.examples:
        _print_examples(console, args, make_corpus_source(corpus, data, data.phases[0]))


def _data_settings(args: Inspect) -> DataConfig:
    from bert_jax.cli.flags import check_name
    from data_pipeline.config import Phase
    from experiments import EXPERIMENTS

    check_name(args.experiment, EXPERIMENTS, "experiment")
    data = EXPERIMENTS[args.experiment].data
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


def _print_examples(console: Console, args: Inspect, source: CorpusSource) -> None:
    import numpy as np

    from data_pipeline.statistics import draw_examples

    drawn = draw_examples(source, args.seed, 0, 0, args.examples)
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
    """One sequence readably: its label, then the text of each segment."""
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
    """Each token as text, after a space where the text has one, and marked if it is to be predicted."""
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
