"""Table 7, the feature-based approach: named entities from BASE's activations, and fine-tuned.

    bert-jax study table7 --output studies/table7 --corpus corpora/wiki_books_cased --tasks tasks/

The paper's models of named entities are cased: the corpus has BERT's cased vocabulary. Its final version
calls the sums weighted, with the same numbers as the first version's plain sums, and says nothing of weights.
"""

from dataclasses import replace

from bert_jax.study import Arm, Changes, Scale, Study
from experiments.base import BASE
from experiments.measures import NER, PACKAGE, SMALL_NER
from experiments.scales import LARGER, SMALL, SMALL_SCALE, SMOKE_SCALE, small_note


def _arms(num_layers: int, width: int) -> dict[str, Arm]:
    """The rows of the table for a model of so many layers."""
    last_four = tuple(range(-min(4, num_layers), 0))
    layers: dict[str, Changes] = {
        "embeddings": {"features.layers": (0,)},
        "second_to_last": {"features.layers": (-2,)},
        "last": {"features.layers": (-1,)},
        "sum_last_four": {"features.layers": last_four, "features.combine": "sum"},
        "concat_last_four": {"features.layers": last_four},
        "sum_all": {"features.layers": tuple(range(1, num_layers + 1)), "features.combine": "sum"},
    }
    # Section 5.3: a BiLSTM of two layers on frozen activations. Of learning rate and epochs the paper says
    # nothing.
    frozen = {
        "frozen_layers": num_layers,
        "features.lstm_layers": 2,
        "features.lstm_width": width,
        "learning_rate": (1e-3,),
        "batch_size": (32,),
        "epochs": (20.0,),
    }
    return {"finetuned": Arm(BASE)} | {
        name: Arm(BASE, finetuning={**frozen, **row}) for name, row in layers.items()
    }


TABLE7 = Study(
    name="table7",
    title="Table 7: feature-based named entities (Devlin et al. 2019)",
    base="finetuned",
    arms=_arms(12, 768),
    measures=(NER,),
    published={
        "finetuned": {"NER": 96.4},
        "embeddings": {"NER": 91.0},
        "second_to_last": {"NER": 95.6},
        "last": {"NER": 94.9},
        "sum_last_four": {"NER": 95.9},
        "concat_last_four": {"NER": 96.1},
        "sum_all": {"NER": 95.5},
    },
    scales={
        "paper": Scale(seeds=1),
        "small": replace(
            SMALL_SCALE,
            arms=_arms(6, 128),
            changes={**SMALL, **LARGER, "model.num_layers": 6},
            measures=(SMALL_NER,),
            note=small_note("models of 6 layers of width 128"),
        ),
        "smoke": replace(SMOKE_SCALE, arms=_arms(2, 32), finetuning={"epochs": (2.0,)}, measures=(PACKAGE,)),
    },
)
