"""Table 8, what replaces the tokens to predict: MASK / SAME / RANDOM, in percent.

    bert-jax pretrain mask_100_0_0 --workdir runs/mask_100_0_0 --data.corpus corpora/wiki_books

Expected on the development sets: MNLI and NER fine-tuned, NER feature-based:

    mask_80_10_10   84.2  95.4  94.9   (`base`)
    mask_100_0_0    84.3  94.9  94.0
    mask_80_0_20    84.1  95.2  94.6
    mask_80_20_0    84.4  95.2  94.7
    mask_0_20_80    83.7  94.8  94.6
    mask_0_0_100    83.6  94.9  94.6
"""

from dataclasses import replace

from data_pipeline.config import MaskingConfig
from experiments.base import BASE

MASKINGS = {
    "mask_100_0_0": replace(
        BASE, data=replace(BASE.data, masking=MaskingConfig(mask=1.0, same=0.0, random=0.0))
    ),
    "mask_80_0_20": replace(
        BASE, data=replace(BASE.data, masking=MaskingConfig(mask=0.8, same=0.0, random=0.2))
    ),
    "mask_80_20_0": replace(
        BASE, data=replace(BASE.data, masking=MaskingConfig(mask=0.8, same=0.2, random=0.0))
    ),
    "mask_0_20_80": replace(
        BASE, data=replace(BASE.data, masking=MaskingConfig(mask=0.0, same=0.2, random=0.8))
    ),
    "mask_0_0_100": replace(
        BASE, data=replace(BASE.data, masking=MaskingConfig(mask=0.0, same=0.0, random=1.0))
    ),
}

ALIASES = {"mask_80_10_10": "base"}
"""The other row of the table: its name, and the experiment that it is."""
