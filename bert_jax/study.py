"""A study as a value: its arms, its seeds, what is measured, and what the paper reports for each cell.

Files of `experiments/` hold studies, and so may a user's own file. Nothing runs when one is read. Settings
are changed by their dotted names, as flags do: {"model.num_layers": 4} is --model.num-layers 4.
"""

import abc
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

from bert_jax.objectives.experiment import Experiment
from data_pipeline.checks import check_number, check_positive, check_seed, check_types
from data_pipeline.errors import UserError

Changes: TypeAlias = Mapping[str, Any]
"""Dotted name of a setting -> its value."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


@dataclasses.dataclass(frozen=True)
class Arm:
    """One line of a study's table: how the model is pretrained, and what changes in its fine-tuning."""

    experiment: Experiment
    changes: Changes = dataclasses.field(default_factory=dict)
    """Settings of the experiment for this arm, after those of the scale. An objective brings the attention,
    pairs and masks that it needs, as `--objective` does."""
    finetuning: Changes = dataclasses.field(default_factory=dict)
    """Flags of `bert-jax finetune` for this arm, such as {"features.lstm_layers": 2}."""
    measured: tuple[str, ...] | None = None
    """Names of the measures that this arm has; None: all."""
    claim: str = ""
    """What its source says that it gives, where that is no number of the table; shown beside the arm."""
    from_scratch: bool = False
    """Whether it begins with random parameters even if the study's runs start from a model (--init-from),
    whose shape it has."""
    compared_with: str = ""
    """Another arm that it is compared with besides the base, such as the one before it in a chain."""

    def has(self, measure: "Measure") -> bool:
        """Whether the arm has this measure."""
        return self.measured is None or measure.name in self.measured


@dataclasses.dataclass(frozen=True)
class Measure(abc.ABC):
    """What is measured of a pretrained model. Each kind of measure is a subclass."""

    column: str
    """Heading of the column, such as "MNLI-m"; columns of one study differ."""
    metric: str
    """Name of the metric that the column shows."""

    of_column: ClassVar[tuple[str, ...]] = ("column", "metric")
    """Fields that only select what a column shows; measures that differ in nothing else share a job."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Name of the directory that its results lie in; measures of one name share a job."""

    @property
    def higher_is_better(self) -> bool:
        """Which direction of the metric is better."""
        return True

    def of_job(self) -> dict[str, Any]:
        """The fields that measures of one job have in common."""
        return {name: value for name, value in vars(self).items() if name not in self.of_column}


@dataclasses.dataclass(frozen=True)
class Finetuned(Measure):
    """The dev metric of a fine-tuned model: with the hyperparameters that are best on the dev set."""

    task: str
    """As `bert-jax finetune` calls it."""
    data: str
    """Directory of the task's files inside that of all tasks."""
    flags: Changes = dataclasses.field(default_factory=dict)
    """Other flags of `bert-jax finetune`, such as {"grid": True, "seeds": 5}."""
    variant: str = ""
    """Tells two ways of fine-tuning on one task apart, such as "features"."""
    every: int | None = None
    """Fine-tunes also the checkpoints at multiples of this many steps; None: only the last one."""
    lower_is_better: bool = False
    """Whether lower values of the metric are better, as those of an error."""

    of_column: ClassVar[tuple[str, ...]] = (*Measure.of_column, "lower_is_better")

    def __post_init__(self) -> None:
        if self.every is not None:
            check_positive(f"{self.column}: every", self.every)

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.task, self.variant)))

    @property
    def higher_is_better(self) -> bool:
        return not self.lower_is_better


@dataclasses.dataclass(frozen=True)
class Probe(Finetuned):
    """The dev metric of a linear head on one layer of the frozen encoder (Alain and Bengio 2016).

    Every layer has a head of its own, from layer 0, the embeddings, to the last one; their outputs are
    computed once. Columns of several layers share a job. What an arm changes in its fine-tuning is left out.
    """

    layer: int | None = None
    """The layer that the column shows; None: the one that is best on the dev set, for each arm and seed."""

    of_column: ClassVar[tuple[str, ...]] = (*Finetuned.of_column, "layer")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layer is not None and self.layer < 0:
            raise UserError(f"{self.column}: layer is {self.layer}; it must be 0, the embeddings, or more")

    @property
    def name(self) -> str:
        return f"{super().name}-probe"

    @staticmethod
    def flags_of(num_layers: int) -> Changes:
        """The flags of `bert-jax finetune` that make it a probe of a model of so many layers."""
        return {
            "frozen_layers": num_layers,
            "features.layers": tuple(range(num_layers + 1)),
            "features.combine": "each",
        }


HELDOUT_LENGTH = 128
"""Tokens of a held-out sequence, unless an arm was pretrained on shorter ones."""
HELDOUT_METRICS = (
    *(f"{kind}_{metric}" for kind in ("mlm", "all_mask") for metric in ("loss", "perplexity", "accuracy")),
    "bits_per_byte",
    *(f"{kind}_{metric}" for kind in ("ltr", "rtl") for metric in ("loss", "perplexity", "accuracy")),
    *("ltr_bits_per_byte", "rtl_bits_per_byte"),
)
"""Of masked models, then of those that read in one direction."""


@dataclasses.dataclass(frozen=True)
class HeldoutLM(Measure):
    """Language modelling of the corpus's held-out documents, under the same masks for all arms.

    Accuracies are fractions from 0 to 1, losses are in nats.
    """

    def __post_init__(self) -> None:
        _check_metric(self, HELDOUT_METRICS)

    @property
    def name(self) -> str:
        return "heldout"

    @property
    def higher_is_better(self) -> bool:
        return not self.metric.endswith(("perplexity", "loss", "bits_per_byte"))


@dataclasses.dataclass(frozen=True)
class MinimalPairs(Measure):
    """Which of two sentences the model finds likelier, as in BLiMP (Warstadt et al. 2020)."""

    data: str = "blimp"
    """File or directory of pairs inside that of all tasks."""
    score: Literal["pll", "pll_word_l2r"] = "pll_word_l2r"
    """How masked models score a sentence; models that read in one direction take the likelihood."""
    variant: str = ""
    """Tells two sets of pairs apart."""

    def __post_init__(self) -> None:
        _check_metric(self, ("accuracy",))

    @property
    def name(self) -> str:
        return "-".join(filter(None, ("minimal-pairs", self.score, self.variant)))


def _check_metric(measure: Measure, valid: Sequence[str]) -> None:
    if measure.metric not in valid:
        raise UserError(f"{measure.column}: no metric {measure.metric!r}; valid: {', '.join(valid)}")


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much a study spends."""

    seeds: int
    """Number of pretraining seeds."""
    first_seed: int = 0
    """The lowest pretraining seed: to measure the winner of a study again, the first that the study lacks."""
    changes: Changes = dataclasses.field(default_factory=dict)
    """Settings of every arm's experiment."""
    finetuning: Changes = dataclasses.field(default_factory=dict)
    """Flags of `bert-jax finetune` for all arms, after those of measure and arm."""
    arms: Mapping[str, Arm] | None = None
    """In place of the study's, where those do not fit; None: the study's own."""
    base: str = ""
    """In place of the study's, where `arms` are."""
    measures: tuple[Measure, ...] | None = None
    """In place of the study's; None: the study's own."""
    equal_flops: bool = False
    """Whether every arm gets as many steps as the FLOPs of the base's pretraining allow."""
    corpus: str = ""
    """Where the command line names none; INSTALLED_DOCUMENTATION also brings the tasks."""
    note: str = ""
    """What is smaller than in the paper, and which conclusions that forbids; the report begins with it."""

    def __post_init__(self) -> None:
        check_positive("seeds", self.seeds)
        check_seed("first_seed", self.first_seed)


@dataclasses.dataclass(frozen=True)
class Study:
    """Arms, measures and scales; a cell of its table is an arm and a column."""

    name: str
    title: str
    """Such as "Table 5: pretraining tasks (Devlin et al. 2019)"."""
    base: str
    """The arm that the others are compared with."""
    arms: Mapping[str, Arm]
    measures: tuple[Measure, ...]
    scales: Mapping[str, Scale]
    published: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    """Arm -> column -> what the paper reports, in the column's unit."""

    def __post_init__(self) -> None:
        check_types(self, f"study {self.name}: ")
        if not self.scales:
            raise UserError(f"study {self.name} has no scale")
        for arm, row in self.published.items():
            if not isinstance(row, Mapping):
                raise UserError(f"study {self.name}: published of {arm} is {row!r}; it must be a dict")
        for name, scale in self.scales.items():
            if not isinstance(scale, Scale):
                raise UserError(f"study {self.name}: scale {name} is {scale!r}; it must be a Scale")
            check_types(scale, f"study {self.name}: scale {name}: ")
            study = self.at(scale)
            study._check_arms()
            study._check_measures()
        if unknown := set(self.published) - set(self.arms):
            raise UserError(
                f"study {self.name}: {min(unknown)!r} is none of its arms: {', '.join(self.arms)}"
            )
        columns = dict.fromkeys(measure.column for measure in self.measures)
        if unknown := set().union(*self.published.values()) - set(columns):
            raise UserError(
                f"study {self.name}: {min(unknown)!r} in published is none of its columns: "
                f"{', '.join(columns)}"
            )
        for arm, row in self.published.items():
            for column, value in row.items():
                check_number(f"study {self.name}: published of {arm}, {column},", value)

    def at(self, scale: Scale) -> "Study":
        """The study with the arms, base and measures of a scale, where that has its own.

        If the scale has none of its own, the study itself; else one whose scales have none either, so that
        `at` may be called again.
        """
        if scale.arms is None and not scale.base and scale.measures is None:
            return self
        arms = self.arms if scale.arms is None else scale.arms
        measures = self.measures if scale.measures is None else scale.measures
        columns = {measure.column for measure in measures}
        return dataclasses.replace(
            self,
            base=scale.base or self.base,
            arms=arms,
            measures=measures,
            scales={
                name: dataclasses.replace(other, arms=None, base="", measures=None)
                for name, other in self.scales.items()
            },
            published={
                arm: {column: value for column, value in row.items() if column in columns}
                for arm, row in self.published.items()
                if arm in arms
            },
        )

    def _check_arms(self) -> None:
        """Raises UserError if a name cannot be a directory's, or an arm or a measure is unknown."""
        what = f"study {self.name}"
        for name in (self.name, *self.scales, *self.arms):
            if not _NAME.fullmatch(name):
                raise UserError(
                    f"{what}: {name!r} is also a directory's name; use letters, digits, and _ . + -"
                )
        if self.base not in self.arms:
            raise UserError(f"{what}: base {self.base!r} is none of its arms: {', '.join(self.arms)}")
        names = {measure.name for measure in self.measures}
        for name, arm in self.arms.items():
            if not isinstance(arm, Arm):
                raise UserError(f"{what}: arm {name} is {arm!r}; it must be an Arm")
            if not isinstance(arm.experiment, Experiment):
                raise UserError(
                    f"{what}: the experiment of arm {name} is {arm.experiment!r}; it must be an Experiment, "
                    f"such as experiments.base.BASE"
                )
            check_types(arm, f"{what}: arm {name}: ")
            if arm.compared_with and arm.compared_with not in self.arms:
                raise UserError(
                    f"{what}: arm {name} is compared with {arm.compared_with!r}, none of its arms: "
                    f"{', '.join(self.arms)}"
                )
            if unknown := set(arm.measured or ()) - names:
                raise UserError(
                    f"{what}: arm {name} has measure {min(unknown)!r}; valid: {', '.join(sorted(names))}"
                )

    def _check_measures(self) -> None:
        """Raises UserError if a field has another type, if a name cannot be a directory's, or if two have one
        column, or one directory although they differ."""
        for measure in self.measures:
            if not isinstance(measure, Finetuned | HeldoutLM | MinimalPairs):
                raise UserError(
                    f"study {self.name}: {measure!r} is no measure; valid: Finetuned, Probe, HeldoutLM, "
                    f"MinimalPairs"
                )
            check_types(measure, f"study {self.name}: measure {measure.column}: ")
            if not _NAME.fullmatch(measure.name):
                raise UserError(
                    f"study {self.name}: {measure.column}: {measure.name!r} is also a directory's name; use "
                    f"letters, digits, and _ . + - in its variant"
                )
        columns = [measure.column for measure in self.measures]
        if double := next((column for column in columns if columns.count(column) > 1), None):
            raise UserError(f"study {self.name}: two measures have the column {double!r}")
        for measure, other in itertools.combinations(self.measures, 2):
            alike = type(measure) is type(other) and measure.of_job() == other.of_job()
            if measure.name == other.name and not alike:
                raise UserError(
                    f"study {self.name}: {measure.column!r} and {other.column!r} are both named "
                    f"{measure.name}, but differ in more than the metric; give one a variant"
                )


def published_of(experiment: Experiment, studies: Iterable[Study]) -> Iterator[tuple[Study, Measure, float]]:
    """What papers report for an experiment: the study, the measure and the value.

    Arms that change something in their experiment or its fine-tuning are others.
    """
    for study in studies:
        measures = {measure.column: measure for measure in study.measures}
        for name, row in study.published.items():
            arm = study.arms[name]
            if arm.experiment == experiment and not arm.finetuning and not arm.changes:
                for column, value in row.items():
                    yield study, measures[column], value
