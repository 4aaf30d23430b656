"""Reads what a compiled TPU program costs from its HLO text: the compiler's estimates and collectives.

The text is a list of computations, each a list of instructions in the order in which they run. The
compiler writes `estimated_cycles` beside the instructions for which it has an estimate.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Callable, Iterator

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
# Operations that may have no estimate. Others without one only move or rename data beside the work.
_UNPRICED = (*COLLECTIVES, "rng-bit-generator", "sort")

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.-]+ = (.*?) ([a-z][\w-]*)\(")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
# jax's loops count up from 0 while below a constant.
_LIMIT = re.compile(r"constant\((\d+)\)")
_CALLEE = re.compile(r"(?:calls|to_apply|condition|body|true_computation|false_computation)=%?([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
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
class Costs:
    """What a program costs on one chip."""

    cycles: int
    """Estimated cycles of all instructions, one after the other, kernels included."""
    kernel_cycles: int
    """The part of `cycles` that kernels take."""
    collectives: tuple[Operations, ...]
    """Every exchange between chips, the largest first."""
    unpriced: tuple[Operations, ...]
    """Operations that do work and have no estimate, collectives among them."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A Pallas kernel as a program calls it."""

    name: str
    operands: tuple[tuple[int, ...], ...]
    """Shapes of the operands on one chip."""


@dataclasses.dataclass(frozen=True)
class _Instruction:
    opcode: str
    result_bytes: int
    cycles: int | None
    kernel: Kernel | None
    callees: tuple[str, ...]
    limit: int | None
    """Value, if the instruction is an integer constant."""


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
    found: collections.Counter[tuple[str, int]] = collections.Counter()
    unpriced: collections.Counter[tuple[str, int]] = collections.Counter()
    for instruction, times in _walk(computations, entry, 1):
        cycles += times * (instruction.cycles or 0)
        if instruction.kernel is not None:
            kernel_cycles += times * price(instruction.kernel)
        # An asynchronous collective is a pair of instructions; only the second's type is the result alone.
        kind = instruction.opcode.removesuffix("-done")
        if kind in COLLECTIVES:
            found[kind, instruction.result_bytes] += times
        if kind in _UNPRICED and instruction.cycles is None:
            unpriced[kind, instruction.result_bytes] += times
    return Costs(cycles + kernel_cycles, kernel_cycles, _largest_first(found), _largest_first(unpriced))


def _largest_first(counts: collections.Counter[tuple[str, int]]) -> tuple[Operations, ...]:
    operations = [Operations(*kind_and_bytes, count) for kind_and_bytes, count in counts.items()]
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
            computations[name].append(_instruction(line, *match.groups()))
    if entry is None:
        raise ValueError("the HLO text has no entry computation")
    return computations, entry


def _instruction(line: str, shape: str, opcode: str) -> _Instruction:
    priced, limit, branches = _CYCLES.search(line), _LIMIT.search(line), _BRANCHES.search(line)
    kernel = _kernel(line) if opcode == "custom-call" and _KERNEL in line else None
    named = re.findall(r"[\w.-]+", branches[1]) if branches else []
    return _Instruction(
        opcode,
        _bytes(shape),
        int(priced[1]) if priced else None,
        kernel,
        (*_CALLEE.findall(line), *named),
        int(limit[1]) if limit else None,
    )


def _kernel(line: str) -> Kernel:
    name, operands = _KERNEL_NAME.search(line), _OPERANDS.search(line)
    if name is None or operands is None:
        raise ValueError(f"a kernel without name or operands: {line[:200]}")
    shapes = (sizes for _, _, sizes in _ARRAY.findall(re.sub(r"\{[^}]*\}", "", operands[1])))
    return Kernel(name[1], tuple(tuple(int(size) for size in shape.split(",") if size) for shape in shapes))


def _bytes(shape: str) -> int:
    """Bytes of a shape as HLO writes it, `bf16[8,128]{1,0}` or a tuple of these, without padding."""
    return sum(
        math.prod(int(size) for size in sizes.split(",") if size) * ((int(bits or 8) + 7) // 8)
        for _, bits, sizes in _ARRAY.findall(re.sub(r"\{[^}]*\}", "", shape))
    )
