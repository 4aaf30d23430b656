"""BERT-LARGE as published (Devlin et al. 2019, sections 3 and A.2).

    bert-jax pretrain large --workdir runs/large --data.corpus corpora/wiki_books

Corpus, batch and steps as `base`. Hardware in the paper: 16 Cloud TPUs (64 chips), 4 days.
Expected: held-out MLM perplexity 3.23; after fine-tuning MNLI-m 86.6, MRPC 87.8 (accuracy), SST-2
93.7 on the development sets (Table 6), SQuAD 1.1 EM/F1 84.1/90.9 (Table 2).
"""

from dataclasses import replace

from experiments.base import BASE

LARGE = replace(
    BASE,
    model=replace(BASE.model, num_layers=24, hidden_size=1024, num_heads=16, intermediate_size=4096),
)
