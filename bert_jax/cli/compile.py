"""`bert-jax compile EXPERIMENT --topology v5e:4x4`: what a step costs on a TPU slice, without the slice."""

import collections
import dataclasses
import functools
import math
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bert_jax import exit_status
from bert_jax.cli.flags.compile import Compile
from bert_jax.tpu.hlo import Exchange
from bert_jax.tpu.largest_batch import largest_that_fits
from bert_jax.tpu.report import Report, TooLarge, compile_step, waiting_seconds
from bert_jax.tpu.topology import Slice, open_slice
from bert_jax.workdir.config_text import flatten
from data_pipeline.atomic import write_json
from data_pipeline.errors import UserError

_MIB = 2**20


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
    where = open_slice(args.topology)
    compile_batch = functools.partial(_try, args, where)
    if args.largest_batch:
        capacity, steps = where.chip.hbm_gib * 2**30, args.experiment.parallel.accumulation_steps
        report = largest_that_fits(compile_batch, capacity, steps)
    else:
        report = compile_batch(args.batch_per_chip)
    if report is None:
        return exit_status.FAILED
    _print(args, where, report)
    if args.json is not None:
        record = {"topology": args.topology, "experiment": flatten(args.experiment)}
        write_json(args.json, record | {"report": dataclasses.asdict(report)})
    return 0


def _try(args: Compile, where: Slice, batch_per_chip: int | None) -> Report | None:
    """Returns the report for one batch size; prints that it does not fit, and returns None, if so."""
    phase, devices = args.experiment.data.phases[args.phase], len(where.devices)
    rows = args.experiment.largest_batch(phase) if batch_per_chip is None else batch_per_chip * devices
    batch = f"{rows / devices:g} sequences a {_device(where)}"
    _say(f"compiling {args.name} for {where.name}, {batch}; this takes a minute or more")
    try:
        return compile_step(args.experiment.with_batches_of(rows), phase, where)
    except TooLarge as error:
        _say(f"{batch} do not fit: {error}")
        return None


def _device(where: Slice) -> str:
    """What has its own share of the batch: a chip, or one of the two devices of TPU7x's chips."""
    return "chip" if where.chip.devices == 1 else "device"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print(args: Compile, where: Slice, report: Report) -> None:
    console = Console(highlight=False)
    device, chips = _device(where), f"{math.prod(where.sides)} chips"
    if device != "chip":
        chips += f" of {where.chip.devices} devices"
    console.print(
        f"{args.name} on {where.name}: {chips}, {report.batch:g} x {report.length} a {device}, "
        f"compiled in {report.compile_seconds:.0f} s"
    )
    console.print(_costs_table(where, report, device))
    if report.costs.exchanges:
        console.print(_exchange_table(where, report))
    if report.costs.unpriced:
        counts = collections.Counter[str]()
        for operations in report.costs.unpriced:
            counts[operations.kind] += operations.count
        listed = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        console.print(f"not in the estimate: {listed}")


def _costs_table(where: Slice, report: Report, device: str) -> Table:
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
        "of these in kernels": f"{report.costs.kernel_cycles / 1e6:.1f} M",
        "computing": f"{report.computing_seconds * 1e3:.2f} ms at {where.chip.clock_hz / 1e9:g} GHz",
        "exchanging": f"{report.exchanging_seconds * 1e3:.2f} ms at {where.bandwidth / 1e9:g} GB/s",
        "estimated time": f"{report.seconds * 1e3:.2f} ms",
        "fraction of peak": f"{report.fraction_of_peak:.1%} of {where.chip.peak_flops / 1e12:.0f} TFLOP/s",
    }
    table = _table(f"a {device}, a step", "")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _exchange_table(where: Slice, report: Report) -> Table:
    alike: dict[tuple[str, int], list[Exchange]] = collections.defaultdict(list)
    for exchange in report.costs.exchanges:
        alike[exchange.kind, exchange.result_bytes].append(exchange)
    table = _table("exchange", "times", "MiB each", "ms waiting in all")
    for (kind, size), exchanges in alike.items():
        count = sum(exchange.count for exchange in exchanges)
        waiting = sum(waiting_seconds(exchange, where) for exchange in exchanges)
        table.add_row(kind, str(count), f"{size / _MIB:,.3f}", f"{waiting * 1e3:.2f}")
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _check_json(file: Path) -> None:
    """Raises UserError if the report cannot be written to `file`, before compiling takes minutes."""
    if not file.parent.is_dir():
        raise UserError(f"--json {file}: {file.parent} is not a directory")
    if file.is_dir():
        raise UserError(f"--json {file} is a directory; name a file in it")
