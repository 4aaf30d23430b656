"""A study that needs no data: corpus and tasks are made from the documentation of the installed packages.

bert-jax study smoke --output studies/smoke
"""

from bert_jax.objectives import LeftToRight, MaskedLM
from bert_jax.study import Arm, HeldoutLM, Study
from experiments.base import BASE
from experiments.measures import NEIGHBOURS, PACKAGE
from experiments.scales import SMOKE_SCALE

SMOKE_STUDY = Study(
    name="smoke",
    title="Pretraining tasks, at a size at which minutes are enough",
    base="mlm_nsp",
    arms={
        "mlm_nsp": Arm(BASE),
        "mlm": Arm(BASE.with_objective(MaskedLM())),
        "ltr": Arm(BASE.with_objective(LeftToRight())),
    },
    measures=(PACKAGE, NEIGHBOURS, HeldoutLM("LM bits/byte", "bits_per_byte")),
    scales={"smoke": SMOKE_SCALE},
)
