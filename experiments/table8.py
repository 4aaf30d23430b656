"""Table 8, what replaces the tokens to predict: MASK / SAME / RANDOM, in percent.

    bert-jax pretrain mask_100_0_0 --workdir runs/mask_100_0_0 --data.corpus corpora/wiki_books

    bert-jax study table8 --output studies/table8 --corpus corpora/wiki_books --tasks tasks/

What the paper reports is in `TABLE8.published`: MNLI and NER fine-tuned, and NER feature-based.
"""

from dataclasses import replace

from bert_jax.objectives.experiment import Experiment
from bert_jax.study import Arm, Measure, Scale, Study
from data_pipeline.config import MaskingConfig
from experiments.base import BASE
from experiments.measures import (
    ALL_MASK_PERPLEXITY,
    BLIMP,
    FEATURES_NER,
    MNLI,
    NEIGHBOURS,
    NER,
    PACKAGE,
    PERPLEXITY,
    SMALL_FEATURES_NER,
    SMALL_NER,
    SMALL_SICK,
)
from experiments.scales import SMALL_SCALE, SMOKE_SCALE


def _masking(mask: float, same: float, random: float) -> Experiment:
    masking = MaskingConfig(mask=mask, same=same, random=random)
    return replace(BASE, data=replace(BASE.data, masking=masking))


MASKINGS = {
    "mask_100_0_0": _masking(1.0, 0.0, 0.0),
    "mask_80_0_20": _masking(0.8, 0.0, 0.2),
    "mask_80_20_0": _masking(0.8, 0.2, 0.0),
    "mask_0_20_80": _masking(0.0, 0.2, 0.8),
    "mask_0_0_100": _masking(0.0, 0.0, 1.0),
}

ALIASES = {"mask_80_10_10": "base"}
"""The other row of the table: its name, and the experiment that it is."""


def _arms(finetuned: tuple[Measure, ...]) -> dict[str, Arm]:
    """The rows of the table; models that see no [MASK] in training have only the measures `finetuned`."""
    names = tuple(measure.name for measure in finetuned)
    maskings = {"mask_80_10_10": BASE, **MASKINGS}
    return {
        name: Arm(run, measured=None if run.data.masking.mask else names) for name, run in maskings.items()
    }


TABLE8 = Study(
    name="table8",
    title="Table 8: what replaces masked tokens (Devlin et al. 2019)",
    base="mask_80_10_10",
    arms=_arms((MNLI, NER, FEATURES_NER)),
    measures=(MNLI, NER, FEATURES_NER),
    published={
        "mask_80_10_10": {"MNLI-m": 84.2, "NER": 95.4, "NER features": 94.9},
        "mask_100_0_0": {"MNLI-m": 84.3, "NER": 94.9, "NER features": 94.0},
        "mask_80_0_20": {"MNLI-m": 84.1, "NER": 95.2, "NER features": 94.6},
        "mask_80_20_0": {"MNLI-m": 84.4, "NER": 95.2, "NER features": 94.7},
        "mask_0_20_80": {"MNLI-m": 83.7, "NER": 94.8, "NER features": 94.6},
        "mask_0_0_100": {"MNLI-m": 83.6, "NER": 94.9, "NER features": 94.6},
    },
    scales={
        "paper": Scale(seeds=1),
        "small": replace(
            SMALL_SCALE,
            arms=_arms((SMALL_SICK, SMALL_NER, SMALL_FEATURES_NER)),
            measures=(SMALL_SICK, SMALL_NER, SMALL_FEATURES_NER, BLIMP, PERPLEXITY, ALL_MASK_PERPLEXITY),
        ),
        "smoke": replace(SMOKE_SCALE, arms=_arms((PACKAGE, NEIGHBOURS)), measures=(PACKAGE, NEIGHBOURS)),
    },
)
