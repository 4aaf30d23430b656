"""The named experiments: values only, one file per table or recipe."""

from bert_jax.objectives.experiment import Experiment
from bert_jax.study import Study
from experiments import table6, table8
from experiments.albert import ALBERT_BASE
from experiments.base import BASE
from experiments.best_small import BEST_SMALL, BEST_SMALL_STUDY
from experiments.cramming import CRAMMING
from experiments.departures import DEPARTURES
from experiments.electra import ELECTRA_BASE, ELECTRA_SMALL
from experiments.figure5 import FIGURE5
from experiments.gpt_bert import GPT_BERT_BASE
from experiments.large import LARGE
from experiments.modern import MODERN_BASE, MODERN_LARGE
from experiments.moments import MOMENTS
from experiments.packed import BASE_PACKED
from experiments.pretraining_seeds import PRETRAINING_SEEDS
from experiments.quickstart import QUICKSTART, QUICKSTART_BERT
from experiments.roberta import ROBERTA_BASE
from experiments.smoke import SMOKE_STUDY
from experiments.spanbert import SPANBERT_BASE
from experiments.table5 import LARGE_LTR_NO_NSP, LARGE_NO_NSP, LTR_NO_NSP, NO_NSP, TABLE5
from experiments.table7 import TABLE7

_NAMED: dict[str, tuple[Experiment, str]] = {
    "quickstart": (QUICKSTART, "a small model on the installed documentation"),
    "quickstart_bert": (QUICKSTART_BERT, "BERT as published, at quickstart's size"),
    "base": (BASE, "BERT-BASE as published"),
    "large": (LARGE, "BERT-LARGE as published"),
    "no_nsp": (NO_NSP, "Table 5: BASE without NSP"),
    "ltr_no_nsp": (LTR_NO_NSP, "Table 5: BASE without NSP, left to right"),
    "large_no_nsp": (LARGE_NO_NSP, "Table 5: LARGE without NSP"),
    "large_ltr_no_nsp": (LARGE_LTR_NO_NSP, "Table 5: LARGE without NSP, left to right"),
    **{name: (run, "Table 6: layers, width and heads as in the name") for name, run in table6.SIZES.items()},
    **{name: (run, "Table 8: MASK, SAME and RANDOM in percent") for name, run in table8.MASKINGS.items()},
    "roberta_base": (ROBERTA_BASE, "RoBERTa-BASE's recipe: no NSP, length 512, large batch"),
    "base_packed": (BASE_PACKED, "base almost without padding: several sequences in a row"),
    "modern_base": (MODERN_BASE, "ModernBERT-BASE's encoder and first stage"),
    "modern_large": (MODERN_LARGE, "ModernBERT-LARGE's encoder and first stage"),
    "electra_small": (ELECTRA_SMALL, "ELECTRA-SMALL: replaced tokens and a generator"),
    "electra_base": (ELECTRA_BASE, "ELECTRA-BASE: replaced tokens and a generator"),
    "albert_base": (ALBERT_BASE, "ALBERT-BASE: shared layers, sentence order"),
    "spanbert_base": (SPANBERT_BASE, "SpanBERT at BASE's size: spans and their boundaries"),
    "gpt_bert_base": (GPT_BERT_BASE, "GPT-BERT: causal and masked, a growing batch"),
    "cramming": (CRAMMING, "Cramming: one GPU, one day"),
    "best_small": (BEST_SMALL, "the best recipe of the study `departures` at scale small"),
}
"""Name -> settings, and what they are in a few words."""

EXPERIMENTS = {name: experiment for name, (experiment, _) in _NAMED.items()}
SUMMARIES = {name: summary for name, (_, summary) in _NAMED.items()}

ALIASES: dict[str, str] = {**table6.ALIASES, **table8.ALIASES}
"""Rows of tables that are other experiments: their names, and those of the experiments."""

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        *(SMOKE_STUDY, TABLE5, table6.TABLE6, TABLE7, table8.TABLE8, FIGURE5, PRETRAINING_SEEDS),
        *(DEPARTURES, BEST_SMALL_STUDY, MOMENTS),
    )
}
"""The studies that `bert-jax study` knows by name."""
