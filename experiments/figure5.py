"""Figure 5, the number of pretraining steps: MNLI against steps, for the masked LM and for LTR.

bert-jax study figure5 --output studies/figure5 --corpus corpora/wiki_books --tasks tasks/
"""

from dataclasses import replace

from bert_jax.study import Arm, Changes, Scale, Study
from experiments.base import BASE
from experiments.measures import MNLI, PACKAGE, SMALL_SICK, SMALL_SST2
from experiments.scales import SMALL, SMALL_SCALE, SMOKE, SMOKE_SCALE
from experiments.table5 import LTR_NO_NSP


def _kept(every: int) -> Changes:
    return {"keep_every": every, "checkpoint_every": every, "eval_every": every}


FIGURE5 = Study(
    name="figure5",
    title="Figure 5: number of pretraining steps (Devlin et al. 2019)",
    base="base",
    arms={"base": Arm(BASE), "ltr_no_nsp": Arm(LTR_NO_NSP)},
    # The paper draws 200,000 to 1,000,000 steps.
    measures=(replace(MNLI, every=200_000),),
    scales={
        "paper": Scale(seeds=1, changes={"keep_every": 200_000}),
        "small": replace(
            SMALL_SCALE,
            changes={**SMALL, **_kept(500)},
            measures=(replace(SMALL_SICK, every=500), replace(SMALL_SST2, every=500)),
        ),
        "smoke": replace(
            SMOKE_SCALE, changes={**SMOKE, **_kept(200)}, measures=(replace(PACKAGE, every=200),)
        ),
    },
)
