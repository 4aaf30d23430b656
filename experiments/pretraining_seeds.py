"""How far apart runs are that differ in nothing but the seed: differences below that are noise.

bert-jax study pretraining_seeds --output studies/seeds --corpus corpora/wiki_books --tasks tasks/
"""

from dataclasses import replace

from bert_jax.study import Arm, Scale, Study
from experiments.base import BASE
from experiments.measures import (
    BITS,
    BLIMP,
    MNLI,
    MRPC,
    NEIGHBOURS,
    PACKAGE,
    QNLI,
    SMALL_COLA,
    SMALL_SICK,
    SMALL_SST2,
    SMALL_STSB,
    SQUAD_F1,
    SST2,
)
from experiments.scales import SMALL_SCALE, SMOKE_SCALE

PRETRAINING_SEEDS = Study(
    name="pretraining_seeds",
    title="BASE with several pretraining seeds",
    base="base",
    arms={"base": Arm(BASE)},
    measures=(MNLI, QNLI, MRPC, SST2, SQUAD_F1, BITS),
    scales={
        "paper": Scale(seeds=5),
        "small": replace(
            SMALL_SCALE,
            seeds=8,
            measures=(SMALL_COLA, SMALL_SST2, SMALL_STSB, SMALL_SICK, BLIMP, BITS),
        ),
        "smoke": replace(SMOKE_SCALE, seeds=4, measures=(PACKAGE, NEIGHBOURS)),
    },
)
