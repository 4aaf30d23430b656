"""Settings of training: the optimizer, the devices, the run, as frozen dataclasses on the standard library.

They are values: hashable, comparable, printable. Impossible combinations are refused when a value is made.
"""

import dataclasses
import math
from typing import Literal

from bert_jax.model_config import DType
from data_pipeline.checks import (
    check_above_zero,
    check_not_negative,
    check_positive,
    check_seed,
    check_types,
)
from data_pipeline.errors import UserError

OptimizerName = Literal["adamw", "lamb", "stable_adamw", "muon"]
DecayShape = Literal["polynomial", "cosine", "sqrt"]
DecayStart = Literal["step_0", "warmup_end"]
BiasCorrection = Literal["none", "adam"]
ParallelMode = Literal["jit", "pmap"]
PrngImplementation = Literal["rbg", "threefry2x32"]
Remat = Literal["none", "layers"]


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """The parameter update; the defaults are those of google-research/bert's `optimization.py`."""

    name: OptimizerName = "adamw"
    """adamw, or lamb, which also scales the update of each array in proportion
    to the array's own norm, for very large batches; stable_adamw, which limits
    the step of each array whose gradient is unusually large; muon, which makes
    the update of each matrix of a layer orthogonal, and has adamw for all
    other parameters."""
    learning_rate: float = 1e-4
    """Peak learning rate, towards which warm-up rises."""
    warmup_steps: int = 10_000
    """Steps over which the learning rate rises; 0 disables warm-up."""
    warmup_from: float = 0.0
    """Fraction of the peak learning rate from which warm-up rises."""
    decay_shape: DecayShape = "polynomial"
    """How the learning rate falls from the peak to 0, with t from 0 at decay_start to 1 at num_train_steps.
    polynomial: peak * (1 - t)^decay_power. cosine: peak * (1 + cos(pi t)) / 2. sqrt: peak * (1 - sqrt(t))."""
    decay_power: float = 1.0
    """Power of the polynomial; 1 is linear, 0.5 is NVIDIA's LAMB recipe, 0 is no decay."""
    decay_start: DecayStart | int = "step_0"
    """Step at which t is 0. step_0, as in google-research/bert: when warm-up ends, the rate drops from the
    peak to what the decay gives at that step. warmup_end, or a later step: the rate is constant
    until then ("warm-up, stable, decay")."""
    bias_correction: BiasCorrection = "none"
    """none: as google-research/bert. adam: divide the moments by 1 - beta^t. lamb and stable_adamw
    require it."""
    beta1: float = 0.9
    """Decay rate of the first moment."""
    beta2: float = 0.999
    """Decay rate of the second moment."""
    epsilon: float = 1e-6
    """Added to the square root of the second moment."""
    moment_dtype: DType = "float32"
    """dtype in which the moments are kept from step to step. bfloat16 halves
    their memory; they are then rounded up or down at random, so that they are
    right on average (Muon's momentum: to nearest)."""
    weight_decay: float = 0.01
    """Decoupled weight decay; multiplied by the learning rate."""
    decay_exclusions: tuple[str, ...] = ("bias", "layer_norm")
    """Parameters without weight decay: those with one of these words in their path."""
    clip_norm: float | None = 1.0
    """Largest global norm of the gradient; None turns clipping off."""

    def __post_init__(self) -> None:
        check_types(self, "optimizer.")
        if self.name in ("lamb", "stable_adamw") and self.bias_correction == "none":
            raise UserError(f"optimizer.name {self.name} needs optimizer.bias_correction adam")
        for name in ("learning_rate", "epsilon"):
            check_above_zero(f"optimizer.{name}", getattr(self, name))
        for name in ("warmup_steps", "decay_power", "weight_decay"):
            check_not_negative(f"optimizer.{name}", getattr(self, name))
        if not 0 <= self.warmup_from <= 1:
            raise UserError(f"optimizer.warmup_from is {self.warmup_from:g}; it must be from 0 to 1")
        if self.decay_shape != "polynomial" and self.decay_power != 1:
            raise UserError(
                "optimizer.decay_power goes with optimizer.decay_shape polynomial; "
                f"{self.decay_shape} has none"
            )
        if isinstance(self.decay_start, int):
            check_not_negative("optimizer.decay_start", self.decay_start)
            if 0 < self.decay_start < self.warmup_steps:
                raise UserError(
                    f"optimizer.decay_start is {self.decay_start}; it must be 0, or at least "
                    f"optimizer.warmup_steps ({self.warmup_steps})"
                )
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(
                    f"optimizer.{name} is {getattr(self, name)}; it must be at least 0 and below 1"
                )
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise UserError(
                f"optimizer.clip_norm is {self.clip_norm}; "
                f"it must be above 0 and finite, or None for no clipping"
            )


@dataclasses.dataclass(frozen=True)
class ParallelConfig:
    """How a step is spread over devices and time.

    Sums are the same up to rounding. The bits that dropout draws depend on mode, accumulation_steps and
    prng, and with rbg on how many devices share a batch. All settings but prng may change when a run is
    resumed; the run then continues, but not bit for bit.
    """

    mode: ParallelMode = "jit"
    """jit: one program over a mesh. pmap: the same step copied to every device, data-parallel."""
    fsdp: int = 1
    """Devices over which parameters and optimizer state are split (mode jit)."""
    tensor: int = 1
    """Devices over which heads, feed-forward width and vocabulary are split (mode jit)."""
    accumulation_steps: int = 1
    """Micro-batches that a batch is split into, computed one after the other; each draws its own dropout."""
    remat: Remat = "none"
    """Recomputation in the backward pass, with the same dropout, to save
    memory. none: all activations are kept. layers: only each layer's input
    is kept, and the rest is computed again."""
    prng: PrngImplementation = "rbg"
    """Generator of random bits for dropout. rbg: an accelerator's own, which
    is fast. threefry2x32: the same bits on any number of devices (mode
    jit)."""

    def __post_init__(self) -> None:
        check_types(self, "parallel.")
        for name in ("fsdp", "tensor", "accumulation_steps"):
            check_positive(f"parallel.{name}", getattr(self, name))
        if self.mode == "pmap" and (self.fsdp, self.tensor) != (1, 1):
            raise UserError("parallel.fsdp and parallel.tensor need parallel.mode jit; pmap copies all")

    def batch_unit(self, num_devices: int) -> int:
        """What a batch size must be a multiple of: devices that share a batch x micro-batches."""
        return num_devices // self.tensor * self.accumulation_steps


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Settings that every training run has, whatever its task."""

    optimizer: OptimizerConfig = OptimizerConfig()
    parallel: ParallelConfig = ParallelConfig()
    num_train_steps: int = 1_000_000
    """Steps of the run, over all phases."""
    global_batch_size: int = 256
    """Rows in a step, over all devices and micro-batches; a row is a sequence unless rows are packed."""
    seed: int = 0
    """Seed of the initial parameters, dropout and all random choices in the data."""
    log_every: int = 100
    """Steps between rows of metrics.jsonl; a row holds means over those steps."""
    eval_every: int = 10_000
    """Steps between evaluations on held-out data; there is also one at the end."""
    checkpoint_every: int = 1_000
    """Steps between checkpoints; there is also one at the end."""
    keep_checkpoints: int = 3
    """Newest checkpoints kept; older ones are deleted."""
    keep_every: int | None = None
    """Checkpoints at multiples of this many steps are also kept, to study how a model learns.
    None: only the newest are kept."""

    def __post_init__(self) -> None:
        for name in (
            "num_train_steps",
            "global_batch_size",
            "log_every",
            "eval_every",
            "checkpoint_every",
            "keep_checkpoints",
        ):
            check_positive(name, getattr(self, name))
        if self.keep_every is not None:
            check_positive("keep_every", self.keep_every)
        check_seed("seed", self.seed)
        start = self.optimizer.decay_start
        if isinstance(start, int) and start >= self.num_train_steps:
            raise UserError(
                f"optimizer.decay_start is {start}; it must be below num_train_steps "
                f"({self.num_train_steps}); for a constant rate set "
                "optimizer.decay_shape polynomial and optimizer.decay_power 0"
            )
        for size in self.batch_sizes:
            if size % self.parallel.accumulation_steps:
                name = "global_batch_size" if size == self.global_batch_size else "a size of the batch"
                raise UserError(
                    f"parallel.accumulation_steps ({self.parallel.accumulation_steps}) does not divide "
                    f"{name} ({size})"
                )

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The sizes of batch that the run has, in rows, ascending."""
        return (self.global_batch_size,)

    def check_devices(self, num_devices: int) -> None:
        """Raises UserError unless so many devices can form the mesh and share batches of all sizes."""
        inner = self.parallel.fsdp * self.parallel.tensor
        if num_devices % inner:
            raise UserError(
                f"parallel.fsdp x parallel.tensor is {inner}, which does not divide {num_devices} devices"
            )
        unit = self.parallel.batch_unit(num_devices)
        for size in self.batch_sizes:
            if size % unit:
                below = size // unit * unit
                nearest = f"{below} or {below + unit}" if below else f"{unit}"
                raise UserError(
                    f"the batch size is {size}; it must be a multiple of {unit} "
                    f"(devices that share a batch x parallel.accumulation_steps), such as {nearest}"
                )
