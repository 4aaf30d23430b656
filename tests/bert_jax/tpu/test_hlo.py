"""Reading the text of a program that the TPU compiler made (`tests/golden/make_hlo_golden.py`)."""

import pytest

from bert_jax.tpu.hlo import Costs, Exchange, Kernel, read_costs
from tests.golden.make_hlo_golden import FILE

KERNEL = (
    "  %closed_call.2 = (bf16[2,64,128]{2,1,0:T(8,128)(2,1)}, bf16[2,64,128]{2,1,0}) custom-call(%p, %q), "
    'custom_call_target="tpu_custom_call", operand_layout_constraints={u32[4]{0}, bf16[2,64,128]{2,1,0}}, '
    'metadata={op_name="jit(step)/transpose(jvp(scale_rows))/pallas_call" stack_frame_id=3}\n'
)


def no_kernel(kernel: Kernel) -> int:
    raise AssertionError(kernel)


@pytest.fixture
def text() -> str:
    return FILE.read_text()


@pytest.fixture
def costs(text: str) -> Costs:
    return read_costs(text, no_kernel)


def test_a_loop_counts_as_often_as_it_turns(costs: Costs) -> None:
    before, per_turn, after = 1824, 1826 + 1832 + 3946, 1841 + 2221
    assert costs.cycles == before + 5 * per_turn + after


def test_collectives_have_the_bytes_of_their_results(costs: Costs) -> None:
    large, small = (Exchange("all-reduce", size, 4, 0, 1) for size in (128 * 128 * 2, 512))
    assert costs.exchanges == (large, small)
    assert costs.unpriced == ()


def test_what_has_no_price_is_named(text: str) -> None:
    bits = "  %bits = u32[8,128]{1,0} rng-bit-generator(%key), algorithm=rng_default\n"
    (found,) = read_costs(text.replace("  %iota", bits + "  %iota", 1), no_kernel).unpriced
    assert (found.kind, found.result_bytes, found.count) == ("rng-bit-generator", 4096, 1)


def test_what_the_compiler_cannot_estimate_is_named_and_adds_nothing(text: str, costs: Costs) -> None:
    moved = (
        "  %gather_offload_custom_fusion.3 = f32[64,128]{1,0:T(8,128)} fusion(%p), kind=kCustom, "
        'backend_config={"window_config":{"estimated_cycles":"9223372036854775807"}}\n'
    )
    found = read_costs(text.replace("  %iota", moved + "  %iota", 1), no_kernel)
    assert found.cycles == costs.cycles
    (unpriced,) = found.unpriced
    assert (unpriced.kind, unpriced.result_bytes) == ("gather_offload_custom_fusion", 64 * 128 * 4)


@pytest.mark.parametrize(
    ("groups", "size"),
    [
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_0'}", 4),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_1', 'axis_0'}", 8),
        ("[2,4]<=[8]", 4),
        ("[4,2]<=[2,4]T(1,0)", 2),
        ("{{0,1,2,3},{4,5,6,7}}", 4),
        ("{}", None),
    ],
)
def test_the_chips_of_an_exchange_are_counted(text: str, groups: str, size: int | None) -> None:
    line = f"  %sum = f32[1024]{{0}} all-gather(%p), replica_groups={groups}\n"
    found = read_costs(text.replace("  %iota", line + "  %iota", 1), no_kernel).exchanges
    assert [exchange.group for exchange in found if exchange.result_bytes == 4096] == [size]


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        ("all-reduce", 2 * 0.75 * 1000),
        ("all-gather", 0.75 * 1000),
        ("reduce-scatter", 3 * 1000),
        ("all-to-all", 0.75 * 1000),
        ("collective-permute", 1000),
    ],
)
def test_what_a_chip_sends_follows_from_the_result(kind: str, sent: float) -> None:
    assert Exchange(kind, 1000, 4, 0, 1).bytes_sent(16) == sent
    assert Exchange(kind, 1000, None, 0, 1).bytes_sent(4) == sent


def test_what_is_inside_a_priced_instruction_counts_once(text: str) -> None:
    priced = '%priced = f32[] add(), "estimated_cycles":"7"\n  ROOT %bitcast.4 = '
    changed = text.replace("ROOT %bitcast.4 = ", priced)
    assert changed != text
    assert read_costs(changed, no_kernel).cycles == read_costs(text, no_kernel).cycles


def test_of_a_conditional_the_most_expensive_branch_counts(text: str) -> None:
    branch = '%branch_{0} (p: f32[]) -> f32[] {{\n  ROOT %a = f32[] add(), "estimated_cycles":"{0}"\n}}\n\n'
    branches = branch.format(11) + branch.format(22)
    choice = "  %choice = f32[] conditional(%i), branch_computations={%branch_11, %branch_22}\n"
    changed = branches + text.replace("  %iota", choice + "  %iota", 1)
    assert read_costs(changed, no_kernel).cycles == read_costs(text, no_kernel).cycles + 22


def test_an_asynchronous_pair_counts_once_and_hides_what_is_between(text: str) -> None:
    first = "  %start = (f32[32]{0}, f32[128]{0}) all-gather-start(%p), replica_groups=[2,4]<=[8]\n"
    between = '  %work = f32[] add(%a), "estimated_cycles":"70"\n'
    second = "  %done = f32[128]{0:T(128)} all-gather-done(%start)\n"
    changed = text.replace("  %iota", first + between + second + "  %iota", 1)
    assert Exchange("all-gather", 512, 4, 70, 1) in read_costs(changed, no_kernel).exchanges


def test_a_collective_that_is_fused_with_a_row_of_instructions_counts_once(text: str) -> None:
    inside = "channel_id=9, replica_groups=[2,4]<=[8]\n"
    fusions = "".join(
        f"%fused_{number} {{\n  %sum.{number} = f32[1024]{{0}} all-reduce(%p), {inside}}}\n\n"
        for number in range(3)
    )
    row = "".join(
        f'  %row.{number} = f32[] fusion(%a), calls=%fused_{number}, "estimated_cycles":"{cycles}"\n'
        for number, cycles in enumerate((5, 70, 7))
    )
    costs = read_costs(fusions + text.replace("  %iota", row + "  %iota", 1), no_kernel)
    assert [found for found in costs.exchanges if found.result_bytes == 4096] == [
        Exchange("all-reduce", 4096, 4, 77, 1)
    ]


def test_a_loop_of_unknown_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not say how often"):
        read_costs(text.replace("constant(5)", "parameter(5)"), no_kernel)


def test_a_kernel_is_priced_by_its_name_and_arrays(text: str, costs: Costs) -> None:
    changed = text.replace("  %iota", KERNEL + "  %iota", 1)
    prices = {Kernel("scale_rows", ((4,), (2, 64, 128)), ((2, 64, 128), (2, 64, 128))): 1000}
    found = read_costs(changed, prices.__getitem__)
    assert (costs.kernel_cycles, found.kernel_cycles) == (0, 1000)
    assert found.cycles == costs.cycles + 1000


def test_a_kernel_in_a_loop_counts_as_often_as_it_turns(text: str) -> None:
    changed = text.replace("  %param", KERNEL + "  %param", 1)
    assert changed != text
    assert read_costs(changed, lambda kernel: 1000).kernel_cycles == 5000


def test_an_all_reduce_of_which_a_chip_keeps_its_slice_is_a_reduce_scatter(text: str) -> None:
    computations = "".join(
        f"%all-reduce-scatter.{number} {{\n  %sum.{number} = f32[1024]{{0}} all-reduce(%p), channel_id=1, "
        f"replica_groups=[2,4]<=[8]\n}}\n\n"
        for number in range(2)
    )
    calls = "".join(
        f"  %half.{number} = f32[256]{{0}} fusion(%a), calls=%all-reduce-scatter.{number}\n"
        for number in range(2)
    )
    costs = read_costs(computations + text.replace("  %iota", calls + "  %iota", 1), no_kernel)
    # One channel for both does not make them one.
    assert Exchange("reduce-scatter", 1024, 4, 0, 2) in costs.exchanges
