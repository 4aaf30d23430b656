"""All settings of a pretraining run, as one frozen dataclass.

An `Experiment` is a value: hashable, comparable, printable. Files in `experiments/` hold such values and
nothing else.
"""

import dataclasses

from bert_jax.config import RunConfig
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import MaskedLMAndNSP, Objective, objective_name
from data_pipeline.checks import check_positive
from data_pipeline.config import DataConfig, Phase, Stretch
from data_pipeline.errors import UserError


@dataclasses.dataclass(frozen=True)
class Experiment(RunConfig):
    """All settings of a pretraining run, except the directory it writes to."""

    objective: Objective = MaskedLMAndNSP()
    """What the model learns."""
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    eval_examples: int = 10_000
    """Maximum number of held-out sequences in an evaluation; always the same ones with the same masks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("eval_examples", self.eval_examples)
        lengths = [phase.max_seq_length for phase in self.data.phases]
        longest, positions = max(lengths), self.model.max_position_embeddings
        if longest > positions:
            flags = (
                f"--data.phases.{i}.max-seq-length" for i, length in enumerate(lengths) if length > positions
            )
            raise UserError(
                f"a phase's max_seq_length ({longest}) is longer than model.max_position_embeddings "
                f"({positions}); pass --model.max-position-embeddings {longest}, or at most {positions} as "
                f"{' and '.join(flags)}"
            )
        if self.data.has_pairs and self.model.type_vocab_size == 1:
            raise UserError(
                f"data.pairing {self.data.pairing} gives two segments, and model.type_vocab_size is 1; valid "
                "are 2, 0 (the model is not told of segments), and texts without pairs: --objective mlm "
                "--data.pairing contiguous"
            )
        name = objective_name(self.objective)
        if self.model.attention != self.objective.attention:
            raise UserError(
                f"model.attention is {self.model.attention}; "
                f"it must be {self.objective.attention} with objective {name}"
            )
        self.objective.check(self.data)
        self.objective.check_model(self.model)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """The steps of the run, cut where a phase begins or the batch size changes."""
        return self.data.stretches(self.num_train_steps, self.global_batch_size)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        return tuple(sorted({stretch.batch_size for stretch in self.stretches}))

    def largest_batch(self, phase: Phase) -> int:
        """Most rows in a step of one of the phases."""
        return max(stretch.batch_size for stretch in self.stretches if stretch.phase == phase)

    def with_batches_of(self, rows: int) -> "Experiment":
        """The same experiment with batches of one size throughout."""
        data = dataclasses.replace(self.data, batch_schedule=())
        return dataclasses.replace(self, global_batch_size=rows, data=data)

    def with_objective(self, objective: Objective) -> "Experiment":
        """The same experiment with another objective, and the attention, pairs and masks that it needs."""
        model = dataclasses.replace(self.model, attention=objective.attention)
        data = objective.required_data(self.data)
        return dataclasses.replace(self, objective=objective, model=model, data=data)
