"""Table 6, the size of the model: layers, hidden size, heads.

    bert-jax pretrain size_3_768_12 --workdir runs/size_3_768_12 --data.corpus corpora/wiki_books

    bert-jax study table6 --output studies/table6 --corpus corpora/wiki_books --tasks tasks/

What the paper reports is in `TABLE6.published`: held-out perplexity, and accuracy on the development
sets, the mean of 5 fine-tunings.
"""

from dataclasses import replace

from bert_jax.study import Arm, Scale, Study
from experiments.base import BASE
from experiments.large import LARGE
from experiments.measures import (
    BLIMP,
    MNLI,
    MRPC,
    NEIGHBOURS,
    PACKAGE,
    PERPLEXITY,
    SMALL_COLA,
    SMALL_SICK,
    SMALL_SST2,
    SST2,
)
from experiments.scales import LARGER, SMALL, SMALL_SCALE, SMOKE, SMOKE_SCALE, small_note, smoke_note

SIZES = {
    "size_3_768_12": replace(BASE, model=replace(BASE.model, num_layers=3)),
    "size_6_768_3": replace(BASE, model=replace(BASE.model, num_layers=6, num_heads=3)),
    "size_6_768_12": replace(BASE, model=replace(BASE.model, num_layers=6)),
    "size_12_1024_16": replace(LARGE, model=replace(LARGE.model, num_layers=12)),
}

ALIASES = {"size_12_768_12": "base", "size_24_1024_16": "large"}
"""The other rows of the table: their names, and the experiments that they are."""

# The sizes that a laptop trains: layers, hidden size, heads.
_TINY_SIZES = ((1, 128, 4), (2, 64, 2), (2, 128, 4), (4, 128, 4), (2, 256, 4))
_TINY_ARMS = {
    f"size_{layers}_{width}_{heads}": Arm(
        BASE,
        {
            "model.num_layers": layers,
            "model.hidden_size": width,
            "model.num_heads": heads,
            "model.intermediate_size": 4 * width,
        },
    )
    for layers, width, heads in _TINY_SIZES
}

TABLE6 = Study(
    name="table6",
    title="Table 6: size of the model (Devlin et al. 2019)",
    base="size_12_768_12",
    arms={
        "size_3_768_12": Arm(SIZES["size_3_768_12"]),
        "size_6_768_3": Arm(SIZES["size_6_768_3"]),
        "size_6_768_12": Arm(SIZES["size_6_768_12"]),
        "size_12_768_12": Arm(BASE),
        "size_12_1024_16": Arm(SIZES["size_12_1024_16"]),
        "size_24_1024_16": Arm(LARGE),
    },
    measures=(PERPLEXITY, MNLI, MRPC, SST2),
    published={
        "size_3_768_12": {"LM ppl": 5.84, "MNLI-m": 77.9, "MRPC": 79.8, "SST-2": 88.4},
        "size_6_768_3": {"LM ppl": 5.24, "MNLI-m": 80.6, "MRPC": 82.2, "SST-2": 90.7},
        "size_6_768_12": {"LM ppl": 4.68, "MNLI-m": 81.9, "MRPC": 84.8, "SST-2": 91.3},
        "size_12_768_12": {"LM ppl": 3.99, "MNLI-m": 84.4, "MRPC": 86.7, "SST-2": 92.9},
        "size_12_1024_16": {"LM ppl": 3.54, "MNLI-m": 85.7, "MRPC": 86.9, "SST-2": 93.3},
        "size_24_1024_16": {"LM ppl": 3.23, "MNLI-m": 86.6, "MRPC": 87.8, "SST-2": 93.7},
    },
    scales={
        "paper": Scale(seeds=1),
        "small": replace(
            SMALL_SCALE,
            arms=_TINY_ARMS,
            base="size_2_128_4",
            changes={**SMALL, **LARGER},
            measures=(PERPLEXITY, SMALL_COLA, SMALL_SST2, SMALL_SICK, BLIMP),
            note=small_note("models of 0.4 to 3 million parameters"),
        ),
        "smoke": replace(
            SMOKE_SCALE,
            arms=_TINY_ARMS,
            base="size_2_128_4",
            changes={**SMOKE, **LARGER},
            measures=(PACKAGE, NEIGHBOURS),
            note=smoke_note("models of 1 to 4 layers"),
        ),
    },
)
