"""A study that needs no data: corpus and tasks are made from the documentation of the installed packages.

bert-jax study smoke --output studies/smoke
"""

from bert_jax.objectives import LeftToRight, MaskedLM
from bert_jax.study import Arm, HeldoutLM, Scale, Study
from data_pipeline.config import INSTALLED_DOCUMENTATION
from experiments.base import BASE
from experiments.measures import NEIGHBOURS, PACKAGE
from experiments.scales import SMOKE, smoke_note

SMOKE_STUDY = Study(
    name="smoke",
    title="Pretraining tasks, at a size at which minutes are enough",
    base="mlm_nsp",
    arms={
        "mlm_nsp": Arm(BASE),
        "mlm": Arm(BASE.with_objective(MaskedLM())),
        "ltr": Arm(BASE.with_objective(LeftToRight())),
    },
    measures=(
        PACKAGE,
        NEIGHBOURS,
        HeldoutLM("LM bits/byte", "bits_per_byte"),
    ),
    scales={
        "smoke": Scale(seeds=2, changes=SMOKE, corpus=INSTALLED_DOCUMENTATION, note=smoke_note()),
    },
)
