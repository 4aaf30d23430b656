"""What decides a fine-tuning run: a value, written to the `config.json` of its folder."""

import dataclasses
from typing import Literal

from bert_jax.config import ModelConfig, OptimizerConfig, RunConfig, check_positive
from bert_jax.finetuning.tasks import (
    Classification,
    FineTuningTask,
    MultipleChoice,
    Ranking,
    Regression,
    RelationClassification,
    SpanExtraction,
    Tagging,
)

Kind = Literal[
    "classification",
    "regression",
    "choice",
    "spans",
    "tagging",
    "relation",
    "in_batch_ranking",
    "triplet_ranking",
]

# The paper's schedule (A.3): warm-up over the first tenth, then linear to 0.
_WARMUP_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class FineTuning(RunConfig):
    """One run: a model, the kind of its head, and how it is trained."""

    kind: Kind = "classification"
    model: ModelConfig = ModelConfig()
    num_labels: int = 2
    """Of classification, tagging and relation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("num_labels", self.num_labels)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One choice of hyperparameters: a cell of the paper's grid."""

    learning_rate: float
    batch_size: int
    epochs: float
    seed: int

    @property
    def name(self) -> str:
        """A folder's name."""
        return f"lr{self.learning_rate:g}-batch{self.batch_size}-epochs{self.epochs:g}-seed{self.seed}"


def make_optimizer_config(base: OptimizerConfig, cell: Cell, num_train_steps: int) -> OptimizerConfig:
    """The cell's learning rate with the paper's schedule for fine-tuning."""
    warmup = int(num_train_steps * _WARMUP_SHARE)
    return dataclasses.replace(base, learning_rate=cell.learning_rate, warmup_steps=warmup)


def make_task(config: FineTuning) -> FineTuningTask:
    """The task of a run."""
    match config.kind:
        case "classification":
            return Classification(config.model, config.num_labels)
        case "relation":
            return RelationClassification(config.model, config.num_labels)
        case "tagging":
            return Tagging(config.model, config.num_labels)
        case "regression":
            return Regression(config.model)
        case "choice":
            return MultipleChoice(config.model)
        case "spans":
            return SpanExtraction(config.model)
        case "in_batch_ranking":
            return Ranking(config.model, "in_batch")
        case "triplet_ranking":
            return Ranking(config.model, "triplet")
