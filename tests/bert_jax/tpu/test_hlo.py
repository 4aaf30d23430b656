"""Reading the text of a program that the TPU compiler made (`tests/golden/make_hlo_golden.py`)."""

import pytest

from bert_jax.tpu.hlo import Costs, Kernel, Operations, read_costs
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
    assert costs.collectives == (Operations("all-reduce", 128 * 128 * 2, 1), Operations("all-reduce", 512, 1))


def test_what_has_no_price_is_named(costs: Costs) -> None:
    assert costs.unpriced == costs.collectives


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


def test_an_asynchronous_pair_counts_once(text: str) -> None:
    first = "  %start = (f32[32]{0:T(128)}, f32[128]{0:T(128)}) all-gather-start(%p)\n"
    second = "  %done = f32[128]{0:T(128)} all-gather-done(%start)\n"
    changed = text.replace("  %iota", first + second + "  %iota", 1)
    assert Operations("all-gather", 512, 1) in read_costs(changed, no_kernel).collectives


def test_a_loop_of_unknown_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not say how often"):
        read_costs(text.replace("constant(5)", "parameter(5)"), no_kernel)


def test_a_kernel_is_priced_by_its_name_and_operands(text: str, costs: Costs) -> None:
    changed = text.replace("  %iota", KERNEL + "  %iota", 1)
    prices = {Kernel("scale_rows", ((4,), (2, 64, 128))): 1000}
    found = read_costs(changed, prices.__getitem__)
    assert (costs.kernel_cycles, found.kernel_cycles) == (0, 1000)
    assert found.cycles == costs.cycles + 1000


def test_a_kernel_in_a_loop_counts_as_often_as_it_turns(text: str) -> None:
    changed = text.replace("  %param", KERNEL + "  %param", 1)
    assert changed != text
    assert read_costs(changed, lambda kernel: 1000).kernel_cycles == 5000
