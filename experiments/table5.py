"""Table 5, the pretraining tasks: without NSP, and left-to-right without NSP, in both sizes.

The data stays as it is, pairs of which half are random; only what is predicted changes. `roberta_base`
goes further and takes one contiguous text in place of a pair, as --data.pairing contiguous does here.

    bert-jax pretrain no_nsp --workdir runs/no_nsp --data.corpus corpora/wiki_books
    bert-jax pretrain ltr_no_nsp --workdir runs/ltr_no_nsp --data.corpus corpora/wiki_books

Hardware as `base` and `large`. Expected on the development sets after fine-tuning, BASE (MRPC is
accuracy):

                  MNLI-m  QNLI  MRPC  SST-2  SQuAD F1
    base            84.4  88.4  86.7   92.7      88.5
    no_nsp          83.9  84.9  86.5   92.6      87.9
    ltr_no_nsp      82.1  84.3  77.5   92.1      77.8

The paper has no such numbers for LARGE.
"""

from dataclasses import replace

from bert_jax.objectives import LeftToRight, MaskedLM
from experiments.base import BASE
from experiments.large import LARGE

NO_NSP = replace(BASE, objective=MaskedLM())
LTR_NO_NSP = BASE.with_objective(LeftToRight())
LARGE_NO_NSP = replace(LARGE, objective=MaskedLM())
LARGE_LTR_NO_NSP = LARGE.with_objective(LeftToRight())
