"""The named experiments: values only, one file per table or recipe."""

from bert_jax.config import Experiment
from experiments.base import BASE
from experiments.large import LARGE
from experiments.packed import BASE_PACKED
from experiments.quickstart import QUICKSTART
from experiments.roberta import ROBERTA_BASE
from experiments.table5 import LARGE_LTR_NO_NSP, LARGE_NO_NSP, LTR_NO_NSP, NO_NSP
from experiments.table6 import SIZES
from experiments.table8 import MASKINGS

EXPERIMENTS: dict[str, Experiment] = {
    "quickstart": QUICKSTART,
    "base": BASE,
    "large": LARGE,
    "no_nsp": NO_NSP,
    "ltr_no_nsp": LTR_NO_NSP,
    "large_no_nsp": LARGE_NO_NSP,
    "large_ltr_no_nsp": LARGE_LTR_NO_NSP,
    **SIZES,
    **MASKINGS,
    "roberta_base": ROBERTA_BASE,
    "base_packed": BASE_PACKED,
}
