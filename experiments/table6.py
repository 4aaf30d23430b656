"""Table 6, the size of the model: layers, hidden size, heads.

    bert-jax pretrain size_3_768_12 --workdir runs/size_3_768_12 --data.corpus corpora/wiki_books

Expected held-out MLM perplexity, then MNLI-m, MRPC and SST-2 accuracy on the development sets, each the
mean of 5 fine-tunings (--seeds 5):

    size_3_768_12     5.84  77.9  79.8  88.4
    size_6_768_3      5.24  80.6  82.2  90.7
    size_6_768_12     4.68  81.9  84.8  91.3
    size_12_768_12    3.99  84.4  86.7  92.9   (`base`)
    size_12_1024_16   3.54  85.7  86.9  93.3
    size_24_1024_16   3.23  86.6  87.8  93.7   (`large`)
"""

from dataclasses import replace

from experiments.base import BASE
from experiments.large import LARGE

SIZES = {
    "size_3_768_12": replace(BASE, model=replace(BASE.model, num_layers=3)),
    "size_6_768_3": replace(BASE, model=replace(BASE.model, num_layers=6, num_heads=3)),
    "size_6_768_12": replace(BASE, model=replace(BASE.model, num_layers=6)),
    "size_12_1024_16": replace(LARGE, model=replace(LARGE.model, num_layers=12)),
}

ALIASES = {"size_12_768_12": "base", "size_24_1024_16": "large"}
"""The other rows of the table: their names, and the experiments that they are."""
