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

SUMMARIES: dict[str, str] = {
    "quickstart": "a small model on the installed documentation",
    "base": "BERT-BASE as published",
    "large": "BERT-LARGE as published",
    "no_nsp": "Table 5: BASE without NSP",
    "ltr_no_nsp": "Table 5: BASE without NSP, left to right",
    "large_no_nsp": "Table 5: LARGE without NSP",
    "large_ltr_no_nsp": "Table 5: LARGE without NSP, left to right",
    **dict.fromkeys(SIZES, "Table 6: layers, width and heads as named"),
    **dict.fromkeys(MASKINGS, "Table 8: MASK, SAME and RANDOM in percent"),
    "roberta_base": "RoBERTa-BASE's recipe: no NSP, length 512, large batch",
    "base_packed": "base without padding: several sequences in a row",
}
"""What each experiment is, in a few words."""
