"""Replaced token detection with a generator (Clark et al. 2020, "ELECTRA", arXiv 2003.10555)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from etils import epy

from bert_jax.model.size import dense_parameters, encoder_flops, encoder_parameters, layers_parameters
from bert_jax.model_config import GeneratorEmbeddings, ModelConfig
from bert_jax.objectives import language_model
from bert_jax.objectives.base import register
from bert_jax.objectives.mlm import MaskedLM
from bert_jax.task import Batch, Metric, Sums
from data_pipeline.checks import check_not_negative, check_types
from data_pipeline.errors import UserError

with epy.lazy_imports():  # settings are read, and help is printed, without jax
    import jax
    import jax.numpy as jnp

    from bert_jax.model import replaced_tokens


@register
@dataclasses.dataclass(frozen=True)
class ReplacedTokenDetection(MaskedLM):
    """Says of each token whether a small masked language model, trained beside, has put it there.

    The loss is the generator's mean over masked tokens, plus `weight` times the discriminator's mean over all
    tokens. What is used afterwards is the discriminator.
    """

    name = "rtd"
    metrics = (
        Metric(
            "rtd_accuracy",
            "RTD accuracy",
            "{:.1%}",
            guess="that no token is replaced",
            panel="held-out accuracy, %",
        ),
        Metric("rtd_precision", "RTD precision", "{:.1%}"),
        Metric("rtd_recall", "RTD recall", "{:.1%}"),
        *language_model.token_metrics("mlm", "generator's MLM"),
    )
    trained_parts = frozenset(("encoder", "replaced_token", "generator"))
    transformers_class = "ElectraForPreTraining"

    generator_size: float = 0.25
    """Width and feed-forward width of the generator, as a fraction of the
    discriminator's. It has as many heads of the discriminator's head width as
    fit, and at least one."""
    weight: float = 50.0
    """Factor on the discriminator's loss."""
    generator_embeddings: GeneratorEmbeddings = "shared"
    """shared: the generator's embeddings, and its output layer, are those of
    the discriminator. own: it has others, as wide."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_types(self, "objective.")
        if not 0 < self.generator_size <= 1:
            raise UserError(
                f"objective.generator_size is {self.generator_size:g}; it must be above 0 and at most 1, a "
                "generator as wide as its discriminator"
            )
        check_not_negative("objective.weight", self.weight)

    def generator(self, model: ModelConfig) -> ModelConfig:
        """The settings of the generator's encoder.

        Raises:
          UserError: there is no generator of this size.
        """
        width, inner = (
            max(1, round(self.generator_size * size)) for size in (model.hidden_size, model.intermediate_size)
        )
        heads = max(1, width // model.head_width)
        try:
            return dataclasses.replace(
                model,
                hidden_size=width,
                num_heads=heads,
                intermediate_size=inner,
                embedding_size=model.embedding_width,
            )
        except UserError as error:
            raise UserError(f"objective.generator_size {self.generator_size:g}: {error}") from None

    def check_model(self, model: ModelConfig) -> None:
        self.generator(model)

    def module(self, model: ModelConfig) -> replaced_tokens.ReplacedTokenModel:
        return replaced_tokens.ReplacedTokenModel(model, self.generator(model), self.generator_embeddings)

    def numerators(self, outputs: replaced_tokens.Detection, batch: Batch) -> Sums:
        logits, real = outputs.replaced_logits, batch["input_mask"].astype(jnp.float32)
        said, true = logits > 0, outputs.is_replaced
        losses = jax.nn.softplus(logits) - jnp.where(true, logits, 0.0)
        counted = {"correct": said == true, "found": said & true, "said": said, "replaced": true}
        of_all = {f"rtd_{name}": (real * values).sum() for name, values in counted.items()}
        return super().numerators(outputs, batch) | of_all | {"rtd_loss": (real * losses).sum()}

    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        return super().loss(sums, totals) + self.weight * sums["rtd_loss"] / jnp.maximum(
            totals["tokens"], 1.0
        )

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        row, tokens = super().means(sums), max(sums["tokens"], 1.0)
        rtd_loss, replaced = sums["rtd_loss"] / tokens, sums["rtd_replaced"] / tokens
        return {
            **row,
            "loss": row["loss"] + self.weight * rtd_loss,
            "rtd_loss": rtd_loss,
            "rtd_accuracy": sums["rtd_correct"] / tokens,
            "rtd_precision": sums["rtd_found"] / max(sums["rtd_said"], 1.0),
            "rtd_recall": sums["rtd_found"] / max(sums["rtd_replaced"], 1.0),
            # What is replaced, the batch alone does not say.
            "rtd_guess_accuracy": 1 - replaced,
        }

    def flops(self, model: ModelConfig, length: int, predictions: int, instances: int) -> int:
        width = model.hidden_size
        detection = 3 * 2 * length * width * (width + 1)
        generation = language_model.language_model_flops(self.generator(model), length, predictions)
        return encoder_flops(model, length) + detection + generation

    def num_parameters(self, model: ModelConfig) -> int:
        width, generator = model.hidden_size, self.generator(model)
        discriminator = encoder_parameters(model) + dense_parameters(model, width, width) + width + 1
        has_own = self.generator_embeddings == "own"
        layers = (encoder_parameters if has_own else layers_parameters)(generator)
        return discriminator + layers + language_model.head_parameters(generator)
