"""The compiler's schedule of the attention kernel is counted by how often each part of it runs."""

import pytest

from bert_jax.tpu.kernel_cycles import Schedule, _longer, read_schedule
from bert_jax.tpu.topology import CHIPS, Slice

LISTING = """\
= control target key start
LB: loop body
= control target key end

     0   :  { %1 = vsyncpa [#allocation6], 0 } /* Start region 1 */
   0x1 LB: > { %2 = sadd.s32 1, %3 }
   0x2   : > { %9 = sbr.rel (!%p4) target = $region20 }
   0x3   : > { %5 = dma.vmem.to.hbm
second_minor_factor: 1 */ } /* End region 17 */
   0x4 PF: > { %10 = sbr.rel (%p5) target = $region30 } /* Start/End empty region 20 */
   0x5   : > { %11 = vmatmul %v1 }
   0x6   : > { %12 = sbr.rel (%p6) target = $region21 }
   0x7   : > { %13 = vst %v2 }
   0x8   : > { %14 = vst %v3 }
   0x9 PF: > { %15 = vmatmul %v4 } /* Start/End empty region 21 :: Start region 22 */
   0xa   : > { %16 = sbr.rel (%p7) target = $region23 }
   0xb   : > { %17 = vst %v5 } /* End region 22 */
   0xc PF: > { %18 = vst %v6 } /* Start/End empty region 23 */
   0xd PF: > { %19 = sld [smem:[#allocation26_spill]] } /* Start/End empty region 30 */
   0xe   : > { %27 = sbr.rel (!%p8) target = $region3 }
"""


def test_what_some_steps_jump_over_is_told_apart() -> None:
    # 0x7, 0x8 and 0xb; over 0x5 to 0xc it jumps only before the first step.
    assert read_schedule(LISTING) == Schedule(of_every_step=12, of_some_step=3)


def test_a_single_step_jumps_over_nothing() -> None:
    listing = "     0   :  { %1 = vsyncpa } /* Start region 1 */\n   0x1   :  { %2 = vmatmul %v1 }\n"
    assert read_schedule(listing) == Schedule(of_every_step=2, of_some_step=0)


def test_a_listing_without_bundles_is_refused() -> None:
    with pytest.raises(ValueError, match="no bundles"):
        read_schedule("= control target key start\n")


@pytest.mark.parametrize(("chip", "cycles"), [("v5e", 7000), ("v4", 4000)])
def test_a_chips_cores_share_the_parts(chip: str, cycles: int) -> None:
    where = Slice(chip, CHIPS[chip], (2, 2), ())
    assert _longer(where, parts=7, bundles=1000, moved=0) == cycles
    moved = int(where.chip.hbm_bandwidth)  # for a second
    assert _longer(where, parts=7, bundles=1000, moved=moved) == where.chip.clock_hz
