"""`bert-jax compile EXPERIMENT --topology v5e:4x4`: what a step costs on a TPU slice, without the slice."""

from __future__ import annotations

import dataclasses
import math
import sys
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax import exit_status
from bert_jax.cli.flags import list_names, parse_flags, take_name
from bert_jax.config import Experiment
from data_pipeline.atomic import write_json
from data_pipeline.errors import UserError

if typing.TYPE_CHECKING:
    from rich.table import Table

    from bert_jax.tpu_compiler.report import Report
    from bert_jax.tpu_compiler.topology import Slice

_HELP = """\
usage: bert-jax compile EXPERIMENT --topology CHIP:SHAPE [FLAGS]

Compile the training step of a named experiment for a TPU slice, with the real
TPU compiler but without the slice, and show what it says: memory of a chip,
arithmetic, estimated cycles, exchanges between chips. Takes minutes.

  pip install -c constraints.txt -e '.[tpu]'
  bert-jax compile base --topology v5e:4x4
  bert-jax compile large --topology v5p:2x2x2 --phase 1 --largest-batch

chips: v4, v5e, v5p, v6e. Any setting of the experiment can be changed by a
flag; `bert-jax compile EXPERIMENT --help` lists them.

experiments (`bert-jax experiments` shows their sizes):
"""
_MIB = 2**20
# Batches per chip to try are multiples of eight rows, since a chip lays out arrays in tiles of eight; with
# fewer rows a part of each tile is wasted.
_BATCH_UNITS = (8, 4, 2, 1)


@dataclasses.dataclass(frozen=True)
class Compile:
    """Compile an experiment's training step for a TPU slice and show what the compiler says.

    Cycles are the sum of the compiler's estimates. Operations that it has no estimate for are left out and
    listed: exchanges between chips, most of which overlap with the arithmetic, and random bits.
    """

    name: tyro.conf.Suppress[str]
    topology: Annotated[str, tyro.conf.arg(metavar="CHIP:SHAPE")]
    """Chip and shape of the slice, such as v5e:4x4 or v5p:2x2x4."""
    experiment: Annotated[Experiment, tyro.conf.arg(name="")]
    phase: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Phase of the experiment to compile; 0 is the first."""
    batch_per_chip: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Sequences per chip; replaces --global-batch-size."""
    largest_batch: tyro.conf.FlagCreatePairsOff[bool] = False
    """Find the largest batch that fits: a multiple of 8 sequences per chip, or else 4, 2 or 1."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the report to this JSON file."""

    def __post_init__(self) -> None:
        if self.largest_batch and self.batch_per_chip is not None:
            raise UserError("--largest-batch finds --batch-per-chip; give one of the two")


def parse(argv: Sequence[str]) -> Compile:
    """Reads the command line; the experiment's name comes first and gives the defaults.

    Raises:
      UserError: unknown experiment, unknown flag, impossible value.
    """
    from experiments import EXPERIMENTS, SUMMARIES

    page = _HELP + list_names(SUMMARIES)
    usage = "bert-jax compile EXPERIMENT --topology CHIP:SHAPE; `bert-jax experiments` lists them"
    name = take_name(argv, EXPERIMENTS, what="experiment", usage=usage, page=page)
    default = Compile(name, tyro.MISSING_NONPROP, EXPERIMENTS[name])
    return parse_flags(Compile, argv[1:], command=f"bert-jax compile {name}", default=default)


def run(args: Compile) -> int:
    """Compiles and prints the report. Returns 0, or 1 if the step does not fit a chip.

    Raises:
      UserError: no such topology or phase, libtpu is missing, the batch does not divide over the chips, the
        report cannot be written.
    """
    phases = args.experiment.data.phases
    if not 0 <= args.phase < len(phases):
        raise UserError(f"no phase {args.phase}; {args.name} has {len(phases)}, counted from 0")
    if args.json is not None:
        _check_json(args.json)
    from bert_jax.tpu_compiler.topology import open_slice

    where = open_slice(args.topology)
    report = _search(args, where) if args.largest_batch else _try(args, where, args.batch_per_chip)
    if report is None:
        return exit_status.FAILED
    _print(args, where, report)
    if args.json is not None:
        _write_json(args, report)
    return 0


def _try(args: Compile, where: Slice, batch_per_chip: int | None) -> Report | None:
    """Returns the report for one batch size; prints that it does not fit, and returns None, if so."""
    from bert_jax.tpu_compiler.report import TooLarge, compile_step

    experiment = args.experiment
    if batch_per_chip is not None:
        rows = batch_per_chip * len(where.devices)
        experiment = dataclasses.replace(experiment, global_batch_size=rows)
    batch = experiment.global_batch_size / len(where.devices)
    _say(f"compiling {args.name} for {where.name}, {batch:g} sequences a chip")
    try:
        return compile_step(experiment, args.experiment.data.phases[args.phase], where)
    except TooLarge as error:
        _say(f"{batch:g} sequences a chip do not fit: {error}")
        return None


def _search(args: Compile, where: Slice) -> Report | None:
    from bert_jax.tpu_compiler.largest_batch import largest_batch

    reports: dict[int, Report] = {}

    def memory(batch_per_chip: int) -> int | None:
        report = _try(args, where, batch_per_chip)
        if report is None:
            return None
        reports[batch_per_chip] = report
        return report.memory.total

    steps = args.experiment.parallel.accumulation_steps
    unit, *smaller = dict.fromkeys(math.lcm(rows, steps) for rows in _BATCH_UNITS)
    return reports.get(largest_batch(memory, where.chip.hbm_gib * 2**30, unit, smaller))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print(args: Compile, where: Slice, report: Report) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(
        f"{args.name} on {where.name}: {report.chips} chips, {report.batch:g} x {report.length} a chip, "
        f"compiled in {report.compile_seconds:.0f} s"
    )
    console.print(_costs_table(where, report))
    console.print(_exchange_table(report))
    if report.costs.unpriced:
        counts: dict[str, int] = {}
        for operations in report.costs.unpriced:
            counts[operations.kind] = counts.get(operations.kind, 0) + operations.count
        listed = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        console.print(f"not in the estimate: {listed}")


def _costs_table(where: Slice, report: Report) -> Table:
    memory, cycles = report.memory, report.costs.cycles
    rows = {
        "arguments": f"{memory.arguments / _MIB:,.0f} MiB",
        "outputs": f"{memory.outputs / _MIB:,.0f} MiB",
        "temporaries": f"{memory.temporaries / _MIB:,.0f} MiB",
        "program": f"{memory.program / _MIB:,.0f} MiB",
        "all memory": f"{memory.total / _MIB:,.0f} MiB of {where.chip.hbm_gib * 1024:,}: fits",
        "FLOPs of the model": f"{report.model_flops:.3e}",
        "FLOPs compiled": f"{report.compiled_flops:.3e}",
        "estimated cycles": f"{cycles / 1e6:.1f} M",
        "of these attention": f"{report.costs.kernel_cycles / 1e6:.1f} M",
        "estimated time": f"{report.seconds * 1e3:.2f} ms at {where.chip.clock_hz / 1e9:g} GHz",
        "share of peak": f"{report.share_of_peak:.1%} of {where.chip.peak_flops / 1e12:.0f} TFLOP/s",
    }
    table = _table("a chip, a step", "")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _exchange_table(report: Report) -> Table:
    table = _table("exchange between chips", "times", "MiB each")
    for operations in report.costs.collectives:
        table.add_row(operations.kind, str(operations.count), f"{operations.result_bytes / _MIB:,.3f}")
    return table


def _table(first: str, *others: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _check_json(file: Path) -> None:
    """Raises UserError if the report cannot be written to `file`, before compiling takes minutes."""
    if not file.parent.is_dir():
        raise UserError(f"--json {file}: {file.parent} is not a folder")
    if file.is_dir():
        raise UserError(f"--json {file} is a folder; name a file in it")


def _write_json(args: Compile, report: Report) -> None:
    from bert_jax.config_text import flatten

    record = {
        "topology": args.topology,
        "experiment": flatten(args.experiment),
        "report": dataclasses.asdict(report),
    }
    assert args.json is not None
    write_json(args.json, record)
