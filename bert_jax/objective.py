"""The pretraining objectives, and everything in which they differ."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

Attention = Literal["bidirectional", "causal"]
ObjectiveName = Literal["mlm_nsp", "mlm", "ltr"]


@dataclasses.dataclass(frozen=True)
class Objective:
    """What a model learns to predict.

    Raises ValueError if a model with causal attention is to predict the next sentence: [CLS] sees neither
    segment there.
    """

    attention: Attention
    """What a position may attend to: its whole sequence, or itself and the positions to its left."""
    predicts: Literal["masked_tokens", "next_tokens"]
    """masked_tokens: those in a batch's `masked_lm_*`. next_tokens: at each position the one after it."""
    next_sentence: bool
    """Whether the model predicts from [CLS] if the second segment followed the first in the text."""

    def __post_init__(self) -> None:
        if self.next_sentence and self.attention == "causal":
            raise ValueError(
                "next_sentence needs bidirectional attention: it is predicted from [CLS], the first "
                "position, which sees nothing else under causal attention"
            )

    @property
    def metric_prefix(self) -> str:
        """Prefix of the names of the language model's metrics."""
        return "mlm" if self.predicts == "masked_tokens" else "lm"

    @property
    def trained_parts(self) -> frozenset[str]:
        """Parts of the pretraining model that are trained; the others stay as initialised."""
        pair_parts = ("pooler", "next_sentence") if self.next_sentence else ()
        return frozenset(("encoder", "language_model", *pair_parts))


OBJECTIVES: Mapping[ObjectiveName, Objective] = {
    "mlm_nsp": Objective("bidirectional", "masked_tokens", next_sentence=True),
    "mlm": Objective("bidirectional", "masked_tokens", next_sentence=False),
    "ltr": Objective("causal", "next_tokens", next_sentence=False),
}
