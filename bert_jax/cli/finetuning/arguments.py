"""What `bert-jax finetune` is told besides a task's own flags."""

import dataclasses
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Generic, TypeVar

import tyro

from bert_jax.config import BiasCorrection, DecayStart, DType, OptimizerConfig, ParallelConfig, check_positive
from bert_jax.finetuning.settings import FeatureConfig, LayerRates
from data_pipeline.errors import UserError

if TYPE_CHECKING:
    from bert_jax.finetuning.config import Cell

# The paper's grid (A.3).
_PAPER_RATES, _PAPER_BATCHES, _PAPER_EPOCHS = (5e-5, 3e-5, 2e-5), (16, 32), (2.0, 3.0, 4.0)
_AXES = ("learning_rate", "batch_size", "epochs")


@dataclasses.dataclass(frozen=True)
class Training:
    """How to train. Several values make a grid, of which the best on the development set is kept."""

    learning_rate: tuple[float, ...] = (3e-5,)
    """Reached at the end of warm-up, then falling to 0."""
    batch_size: tuple[int, ...] = (32,)
    """Examples in a step."""
    epochs: tuple[float, ...] = (3.0,)
    """Passes over the training set."""
    grid: bool = False
    """The paper's grid: learning rates 5e-5 3e-5 2e-5, batch sizes 16 32, epochs 2 3 4."""
    seeds: int = 1
    """Repeats of every cell of the grid, with the seeds 0, 1, ..."""
    rates: Annotated[LayerRates, tyro.conf.arg(name="")] = LayerRates()
    features: FeatureConfig = FeatureConfig()
    dtype: DType = "float32"
    """Type that activations are computed in; parameters and losses are always float32."""
    warmup_proportion: float = 0.1
    """Share of the steps in which the learning rate rises."""
    decay_start: DecayStart = "step_0"
    """Where the fall counts from: step_0, as google-research/bert; warmup_end, as transformers."""
    weight_decay: float = 0.01
    """Decoupled, and multiplied by the learning rate; none for biases and LayerNorm."""
    clip_norm: float | None = 1.0
    """Largest global norm of the gradient; None turns clipping off."""
    bias_correction: BiasCorrection = "none"
    """none: as google-research/bert. adam: as Adam's authors, steadier on small data sets."""
    pack: bool = True
    """Whether short texts share lines of training batches, which saves padding and changes no loss."""
    parallel: ParallelConfig = ParallelConfig()

    def __post_init__(self) -> None:
        check_positive("seeds", self.seeds)
        for field in dataclasses.fields(self):
            if field.name not in _AXES:
                continue
            values, flag = getattr(self, field.name), f"--{field.name.replace('_', '-')}"
            if not values:
                raise UserError(f"{flag} has no value; give one or more")
            if self.grid and values != field.default:
                raise UserError(f"--grid has values of its own for {flag}; leave out one of the two")

    def optimizer(self) -> OptimizerConfig:
        """All of it but the learning rate and the warm-up, which are a cell's."""
        return OptimizerConfig(
            decay_start=self.decay_start,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            bias_correction=self.bias_correction,
        )

    def cells(self) -> "list[Cell]":
        """Every combination, in order. Raises UserError if a value is impossible."""
        from bert_jax.finetuning.config import Cell

        axes = (self.learning_rate, self.batch_size, self.epochs)
        if self.grid:
            axes = (_PAPER_RATES, _PAPER_BATCHES, _PAPER_EPOCHS)
        return [Cell(*values) for values in itertools.product(*axes, range(self.seeds))]


S = TypeVar("S")


@dataclasses.dataclass(frozen=True)
class Finetune(Generic[S]):
    """Fine-tune a pretrained model on a task. Run the same command again to go on where it stopped."""

    task: tyro.conf.Suppress[str]
    model: Path
    """A run, an export, a Hugging Face model or a checkpoint of google-research/bert."""
    data: str
    """Folder of the data set, or for most tasks tfds:NAME; what it holds stands above."""
    output: Path
    """Folder to make: results, predictions, and the best model under best/."""
    settings: Annotated[S, tyro.conf.arg(name="")]
    training: Annotated[Training, tyro.conf.arg(name="")] = Training()
