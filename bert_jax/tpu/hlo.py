"""Reads what a compiled TPU program costs from its HLO text: the compiler's estimates and collectives.

The text is a list of computations, each a list of instructions in the order in which they run. The
compiler writes `estimated_cycles` beside the instructions for which it has an estimate.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
# How the compiler names the computation of a reduce-scatter that runs as one: an all-reduce and the slice of
# its result that the chip keeps.
_REDUCE_SCATTER = "all-reduce-scatter"
# Operations that may have no estimate. Others without one only move or rename data beside the work.
_UNPRICED = ("rng-bit-generator", "sort")

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = (.*?) ([a-z][\w-]*)\(%?([\w.-]*)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
# What the compiler writes in its place for what it moves to a SparseCore.
_NO_ESTIMATE = 2**63 - 1
# jax's loops count up from 0 while below a constant.
_LIMIT = re.compile(r"constant\((\d+)\)")
_CALLEE = re.compile(r"(?:calls|to_apply|condition|body|true_computation|false_computation)=%?([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
# The chips that exchange something, as the compiler writes them: axes of a mesh, a grid, or lists.
_MESH = re.compile(r"replica_groups=mesh\[([^\]]*)\] ?\{([^}]*)\}")
_GRID = re.compile(r"replica_groups=\[\d+,(\d+)\]")
_LISTS = re.compile(r"replica_groups=\{\{([\d,]+)\}")
_CHANNEL = re.compile(r"\bchannel_id=(\d+)")
_ARRAY = re.compile(r"\b([a-z]+)(\d+)?(?:e\d\w*)?\[([\d,]*)\]")
_KERNEL = 'custom_call_target="tpu_custom_call"'
_KERNEL_NAME = re.compile(r'(\w+)\)*/pallas_call"')
_OPERANDS = re.compile(r"operand_layout_constraints=\{((?:\{[^}]*\}|[^{}])*)\}")


@dataclasses.dataclass(frozen=True)
class Operations:
    """Instructions of one kind and result size; one inside a loop counts once for each iteration."""

    kind: str
    result_bytes: int
    """Bytes of one instruction's result on one chip."""
    count: int


@dataclasses.dataclass(frozen=True)
class Exchange:
    """Collectives of one kind and size; one inside a loop counts once for each iteration."""

    kind: str
    result_bytes: int
    """Bytes of one collective's result on one chip."""
    group: int | None
    """Number of chips that exchange; None: all."""
    hidden_cycles: int
    """Estimated cycles of what the chip computes while one collective is under way; 0 if it waits."""
    count: int

    def bytes_sent(self, chips: int) -> float:
        """Bytes that one chip of `chips` must send for one collective."""
        group = self.group or chips
        others = (group - 1) / group
        return (
            self.result_bytes
            * {
                "all-reduce": 2 * others,
                "all-gather": others,
                "reduce-scatter": group - 1,
                "all-to-all": others,
                "collective-permute": 1,
            }[self.kind]
        )


@dataclasses.dataclass(frozen=True)
class Costs:
    """What a program costs on one chip."""

    cycles: int
    """Estimated cycles of all instructions, one after the other, kernels included."""
    kernel_cycles: int
    """The part of `cycles` that kernels take."""
    exchanges: tuple[Exchange, ...]
    """Every exchange between chips, the largest first."""
    unpriced: tuple[Operations, ...]
    """Operations that do work and have no estimate, beside exchanges."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A Pallas kernel as a program calls it."""

    name: str
    operands: tuple[tuple[int, ...], ...]
    """Shapes of the operands on one chip."""
    results: tuple[tuple[int, ...], ...]
    """Likewise."""


@dataclasses.dataclass(frozen=True)
class _Instruction:
    name: str
    opcode: str
    operand: str
    """Name of the first operand; empty if there is none."""
    result_bytes: int
    cycles: int | None
    is_unpriced: bool
    """Whether it does work of which the compiler has no estimate."""
    kernel: Kernel | None
    callees: tuple[str, ...]
    limit: int | None
    """Value, if the instruction is an integer constant."""
    group: int | None
    """How many chips take part in a collective; None: all."""
    channel: str
    """What all instructions of one collective that is fused with others have in common; empty outside."""


@dataclasses.dataclass
class _Collective:
    """A collective between its first instruction and its last."""

    kind: str
    result_bytes: int
    group: int | None
    times: int
    begun: int
    """Cycles before it and of its first instruction; likewise its last in `ended`."""
    ended: int


_Counted = TypeVar("_Counted", Operations, Exchange)


def read_costs(text: str, price: Callable[[Kernel], int]) -> Costs:
    """Adds up the costs of a program.

    Args:
      text: `compiled.as_text()` of a program compiled for TPU.
      price: returns the cycles of a kernel, which the text does not say.

    Raises:
      ValueError: the text has no entry computation, or a loop of unknown length.
    """
    computations, entry = _parse(text)
    cycles = kernel_cycles = 0
    collectives: dict[str, _Collective] = {}
    unpriced: collections.Counter[tuple[str, int]] = collections.Counter()
    for instruction, times in _walk(computations, entry, 1):
        cycles += times * (instruction.cycles or 0)
        if instruction.kernel is not None:
            kernel_cycles += times * price(instruction.kernel)
        _add_collective(collectives, instruction, times, cycles + kernel_cycles)
        if instruction.is_unpriced and instruction.cycles is None:
            is_fusion = instruction.opcode == "fusion"
            kind = instruction.name.rstrip(".0123456789") if is_fusion else instruction.opcode
            unpriced[kind, instruction.result_bytes] += times
    counts: collections.Counter[tuple[str, int, int | None, int]] = collections.Counter()
    for one in collectives.values():
        counts[one.kind, one.result_bytes, one.group, (one.ended - one.begun) // one.times] += one.times
    exchanges = (Exchange(*what, count) for what, count in counts.items())
    operations = (Operations(*what, count) for what, count in unpriced.items())
    return Costs(cycles + kernel_cycles, kernel_cycles, _largest_first(exchanges), _largest_first(operations))


def _add_collective(found: dict[str, _Collective], instruction: _Instruction, times: int, now: int) -> None:
    """Adds an instruction to the collective of which it is a part, if it is of one.

    An asynchronous collective is a pair of instructions, `-start` and `-done`, of which the first names the
    chips and the second has the type of the result alone; or it is fused with a row of other instructions, in
    each of which it stands with the same channel.
    """
    kind = instruction.opcode.removesuffix("-done").removesuffix("-start")
    if kind not in COLLECTIVES:
        return
    ends = instruction.opcode.endswith("-done")
    key = instruction.operand if ends else instruction.channel or instruction.name
    if (same := found.get(key)) is None:
        same = _Collective(kind, instruction.result_bytes, instruction.group, times, now, now)
        # The second of a pair knows the first by its name.
        found[instruction.name if instruction.opcode.endswith("-start") else key] = same
    same.ended = now
    if ends:
        same.result_bytes = instruction.result_bytes


def _largest_first(operations: Iterable[_Counted]) -> tuple[_Counted, ...]:
    return tuple(sorted(operations, key=lambda o: o.count * o.result_bytes, reverse=True))


def _walk(
    computations: dict[str, list[_Instruction]], name: str, times: int
) -> Iterator[tuple[_Instruction, int]]:
    """Instructions and how often each runs. Those inside one with an estimate are part of it: 0 cycles."""
    for instruction in computations[name]:
        yield instruction, times
        turns = _turns(computations, instruction) if instruction.opcode == "while" else 1
        for callee in _run_by(computations, instruction):
            for inner, inner_times in _walk(computations, callee, times * turns):
                price = inner.cycles if instruction.cycles is None else 0
                yield dataclasses.replace(inner, cycles=price), inner_times


def _run_by(computations: dict[str, list[_Instruction]], caller: _Instruction) -> tuple[str, ...]:
    """The computations that an instruction calls; for a conditional, only its most expensive branch."""
    if caller.opcode != "conditional":
        return caller.callees

    def cycles(name: str) -> int:
        return sum(times * (inner.cycles or 0) for inner, times in _walk(computations, name, 1))

    return (max(caller.callees, key=cycles),)


def _turns(computations: dict[str, list[_Instruction]], loop: _Instruction) -> int:
    condition, _ = loop.callees
    limits = [instruction.limit for instruction in computations[condition] if instruction.limit is not None]
    if len(limits) != 1:
        raise ValueError(f"the condition {condition} does not say how often its loop turns")
    return limits[0]


def _parse(text: str) -> tuple[dict[str, list[_Instruction]], str]:
    computations: dict[str, list[_Instruction]] = {}
    entry = None
    name = ""
    for line in text.splitlines():
        if header := _COMPUTATION.match(line):
            name = header[2]
            computations[name] = []
            entry = name if header[1] else entry
        elif (match := _INSTRUCTION.match(line)) and name:
            computations[name].append(_within(name, _instruction(line, *match.groups())))
    if entry is None:
        raise ValueError("the HLO text has no entry computation")
    return computations, entry


def _within(computation: str, instruction: _Instruction) -> _Instruction:
    """The instruction as what it does in its computation."""
    if computation.startswith(_REDUCE_SCATTER) and instruction.opcode == "all-reduce" and instruction.group:
        kept = instruction.result_bytes // instruction.group
        instruction = dataclasses.replace(instruction, opcode="reduce-scatter", result_bytes=kept)
    # Outside of fusions, several collectives may have one channel.
    in_fusion = "fusion" in computation or computation.startswith("fused")
    return instruction if in_fusion else dataclasses.replace(instruction, channel="")


def _instruction(line: str, name: str, shape: str, opcode: str, operand: str) -> _Instruction:
    priced, limit, branches = _CYCLES.search(line), _LIMIT.search(line), _BRANCHES.search(line)
    cycles = int(priced[1]) if priced and int(priced[1]) != _NO_ESTIMATE else None
    kernel = _kernel(line, shape) if opcode == "custom-call" and _KERNEL in line else None
    named = re.findall(r"[\w.-]+", branches[1]) if branches else []
    return _Instruction(
        name,
        opcode,
        operand,
        _bytes(shape),
        cycles,
        cycles is None and (priced is not None or opcode in _UNPRICED),
        kernel,
        (*_CALLEE.findall(line), *named),
        int(limit[1]) if limit else None,
        _group(line) if opcode.removesuffix("-start") in COLLECTIVES else None,
        channel[1] if (channel := _CHANNEL.search(line)) else "",
    )


def _group(line: str) -> int | None:
    """How many chips exchange something; None: all."""
    if mesh := _MESH.search(line):
        sizes = dict(axis.split("=") for axis in mesh[1].replace("'", "").split(","))
        return math.prod(int(sizes[axis.strip(" '")]) for axis in mesh[2].split(",") if axis.strip())
    if grid := _GRID.search(line):
        return int(grid[1])
    lists = _LISTS.search(line)
    return len(lists[1].split(",")) if lists else None


def _kernel(line: str, shape: str) -> Kernel:
    name, operands = _KERNEL_NAME.search(line), _OPERANDS.search(line)
    if name is None or operands is None:
        raise ValueError(f"a kernel without name or operands: {line[:200]}")
    return Kernel(name[1], *(tuple(sizes for _, sizes in _arrays(text)) for text in (operands[1], shape)))


def _bytes(shape: str) -> int:
    """Bytes of a shape as HLO writes it, `bf16[8,128]{1,0}` or a tuple of these, without padding."""
    return sum(math.prod(sizes) * ((bits + 7) // 8) for bits, sizes in _arrays(shape))


def _arrays(shape: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The bits of an element and the sizes of each array in a shape."""
    for _, bits, sizes in _ARRAY.findall(re.sub(r"\{[^}]*\}", "", shape)):
        yield int(bits or 8), tuple(int(size) for size in sizes.split(",") if size)
