"""Flags of `bert-jax finetune` that all tasks share."""

import dataclasses
import itertools
from pathlib import Path
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import tyro

from bert_jax.config import BiasCorrection, DecayStart, OptimizerConfig, ParallelConfig
from bert_jax.finetuning_config import FeatureConfig, FineTuningConfig, LayerRates, Trial
from bert_jax.formats.model_source import ModelSource
from bert_jax.model_config import DROPOUT_RATES, DType, ModelConfig
from data_pipeline.checks import check_dropout_rate, check_positive, check_types
from data_pipeline.errors import UserError

Axes: TypeAlias = dict[str, tuple[float, ...]]

_DEFAULT: Axes = {"learning_rate": (3e-5,), "batch_size": (32,), "epochs": (3.0,)}
# The paper's grid (A.3).
_PAPER: Axes = {"learning_rate": (5e-5, 3e-5, 2e-5), "batch_size": (16, 32), "epochs": (2.0, 3.0, 4.0)}


@dataclasses.dataclass(frozen=True)
class TrainingFlags:
    """How to train. Several values make a grid, of which the best model on the development set is kept."""

    learning_rate: Annotated[
        tuple[float, ...] | None, tyro.conf.arg(metavar="FLOAT...", help_behavior_hint="(default: 3e-05)")
    ] = None
    """Peak learning rate: warm-up rises to it, then it falls to 0."""
    batch_size: Annotated[
        tuple[int, ...] | None, tyro.conf.arg(metavar="INT...", help_behavior_hint="(default: 32)")
    ] = None
    """Rows per training step: texts, windows of passages, or questions with
    their choices."""
    epochs: Annotated[
        tuple[float, ...] | None, tyro.conf.arg(metavar="FLOAT...", help_behavior_hint="(default: 3.0)")
    ] = None
    """Passes over the training set."""
    grid: bool = False
    """Use the paper's values for what is not given: learning rates 5e-5 3e-5
    2e-5, batch sizes 16 32, epochs 2 3 4."""
    seeds: int = 1
    """Number of runs with each setting of the grid, each with its own seed."""
    first_seed: int = 0
    """Seed of the first run; the others count up from it."""
    metric: str | None = None
    """Name of the task's metric that chooses the best trial; None: the first one."""
    keep_head: bool = False
    """Start from the head of a fine-tuned --model with the same labels, instead of a new random one."""
    rates: Annotated[LayerRates, tyro.conf.arg(name="")] = LayerRates()
    features: FeatureConfig = FeatureConfig()
    dropout_rate: float | None = None
    """Dropout rate on the embeddings, the outputs of attention and
    feed-forward layers, and the input of the head's classifier; None: the
    model's own."""
    attention_dropout_rate: float | None = None
    """Dropout rate on the attention probabilities; None: the model's own."""
    dtype: DType = "float32"
    """dtype of the activations; parameters and losses are always float32."""
    warmup_proportion: float = 0.1
    """Fraction of the steps in which the learning rate rises."""
    decay_start: DecayStart = "step_0"
    """Step from which the decay counts: step_0 as in google-research/bert, warmup_end as in transformers."""
    weight_decay: float = 0.01
    """Decoupled weight decay, multiplied by the learning rate; not applied to biases and LayerNorm."""
    clip_norm: float | None = 1.0
    """Largest global norm of the gradient; None turns clipping off."""
    bias_correction: BiasCorrection = "none"
    """none: as in google-research/bert. adam: as in the Adam paper, steadier on small data sets."""
    pack: bool = True
    """Pack several short texts into one line of a training batch, which saves padding and changes no loss."""
    parallel: ParallelConfig = ParallelConfig()

    def __post_init__(self) -> None:
        check_types(self, "")
        check_positive("seeds", self.seeds)
        if self.first_seed < 0:
            raise UserError(f"--first-seed is {self.first_seed}; it must be at least 0")
        for name in _DEFAULT:
            if getattr(self, name) == ():
                raise UserError(f"--{name.replace('_', '-')} has no value; give one or more")
        for name, rate in self._dropout_rates().items():
            check_dropout_rate(f"--{name.replace('_', '-')}", rate)

    def config(self, pretrained: ModelConfig, num_labels: int) -> FineTuningConfig:
        """The configuration that `trial_config` makes those of the trials from."""
        return FineTuningConfig(
            optimizer=OptimizerConfig(
                decay_start=self.decay_start,
                weight_decay=self.weight_decay,
                clip_norm=self.clip_norm,
                bias_correction=self.bias_correction,
            ),
            warmup_proportion=self.warmup_proportion,
            parallel=self.parallel,
            model=dataclasses.replace(pretrained, dtype=self.dtype, **self._dropout_rates()),
            rates=self.rates,
            features=self.features,
            pack=self.pack,
            num_labels=num_labels,
            global_batch_size=self.trials()[0].batch_size,
        )

    def trials(self) -> list[Trial]:
        """The grid's trials: every combination once, in order. Raises UserError if a value is impossible."""
        rates, sizes, epochs = (
            getattr(self, name) or (_PAPER if self.grid else _DEFAULT)[name] for name in _DEFAULT
        )
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        layers = self.features.layers if self.features.combine == "each" else (None,)
        trials = itertools.starmap(Trial, itertools.product(rates, sizes, epochs, seeds, layers))
        return list(dict.fromkeys(trials))

    def _dropout_rates(self) -> dict[str, Any]:
        """The dropout rates that are given."""
        rates = {name: getattr(self, name) for name in DROPOUT_RATES}
        return {name: rate for name, rate in rates.items() if rate is not None}


S = TypeVar("S")


@dataclasses.dataclass(frozen=True)
class Finetune(Generic[S]):
    """Fine-tune a pretrained model on a task. Run the same command again to resume where it stopped."""

    task: tyro.conf.Suppress[str]
    source: Annotated[ModelSource, tyro.conf.arg(name="")]
    data: str
    """Directory of the data set, with the files described above; for most tasks also tfds:NAME."""
    output: Path
    """Directory to write: results, predictions, and the best model under best/."""
    settings: Annotated[S, tyro.conf.arg(name="")]
    training: Annotated[TrainingFlags, tyro.conf.arg(name="")] = TrainingFlags()

    argv: tyro.conf.Suppress[tuple[str, ...]] = ()
    """The command line after `bert-jax finetune`, with which processes for other chips are started."""
