"""Table 5, the pretraining tasks: without NSP, and left-to-right without NSP, in both sizes.

The data stays as it is, pairs of which half are random; only what is predicted changes. `roberta_base`
goes further, and fills rows with full sentences across documents; `--data.pairing contiguous` takes single
texts of one document.

    bert-jax pretrain no_nsp --workdir runs/no_nsp --data.corpus corpora/wiki_books
    bert-jax pretrain ltr_no_nsp --workdir runs/ltr_no_nsp --data.corpus corpora/wiki_books

    bert-jax study table5 --output studies/table5 --corpus corpora/wiki_books --tasks tasks/

Hardware as `base` and `large`. What the paper reports is in `TABLE5.published`; it has no such numbers
for LARGE.
"""

from dataclasses import replace

from bert_jax.objectives import LeftToRight, MaskedLM
from bert_jax.study import Arm, Scale, Study
from experiments.base import BASE
from experiments.large import LARGE
from experiments.measures import (
    BLIMP,
    MNLI,
    MRPC,
    NEIGHBOURS,
    PACKAGE,
    PACKAGE_PROBE,
    QNLI,
    SMALL_NER_PROBE,
    SMALL_SICK,
    SMALL_SQUAD,
    SMALL_SST2,
    SQUAD_F1,
    SST2,
)
from experiments.scales import SMALL_SCALE, SMOKE_SCALE

NO_NSP = replace(BASE, objective=MaskedLM())
LTR_NO_NSP = BASE.with_objective(LeftToRight())
LARGE_NO_NSP = replace(LARGE, objective=MaskedLM())
LARGE_LTR_NO_NSP = LARGE.with_objective(LeftToRight())

TABLE5 = Study(
    name="table5",
    title="Table 5: pretraining tasks (Devlin et al. 2019)",
    base="base",
    arms={
        "base": Arm(BASE),
        "no_nsp": Arm(NO_NSP),
        "ltr_no_nsp": Arm(LTR_NO_NSP),
        # On top of the encoder, for each task, as section 5.1 says.
        "ltr_no_nsp_bilstm": Arm(LTR_NO_NSP, finetuning={"features.lstm_layers": 1}),
    },
    measures=(MNLI, QNLI, MRPC, SST2, SQUAD_F1),
    published={
        "base": {"MNLI-m": 84.4, "QNLI": 88.4, "MRPC": 86.7, "SST-2": 92.7, "SQuAD F1": 88.5},
        "no_nsp": {"MNLI-m": 83.9, "QNLI": 84.9, "MRPC": 86.5, "SST-2": 92.6, "SQuAD F1": 87.9},
        "ltr_no_nsp": {"MNLI-m": 82.1, "QNLI": 84.3, "MRPC": 77.5, "SST-2": 92.1, "SQuAD F1": 77.8},
        "ltr_no_nsp_bilstm": {"MNLI-m": 82.1, "QNLI": 84.1, "MRPC": 75.7, "SST-2": 91.6, "SQuAD F1": 84.9},
    },
    scales={
        "paper": Scale(seeds=1),
        "small": replace(
            SMALL_SCALE,
            finetuning={"features.lstm_width": 128},
            measures=(SMALL_SICK, SMALL_SST2, SMALL_SQUAD, SMALL_NER_PROBE, BLIMP),
        ),
        "smoke": replace(
            SMOKE_SCALE,
            finetuning={"features.lstm_width": 128},
            measures=(PACKAGE, NEIGHBOURS, PACKAGE_PROBE),
        ),
    },
)
