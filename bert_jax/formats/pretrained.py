"""A pretrained model, in the one form that all other code takes, whatever format it was read from."""

import dataclasses
import functools
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict
from tokenizers import Tokenizer

from bert_jax.finetuning_config import FeatureConfig, TransformersHead
from bert_jax.model.heads import ReplacedTokenHead
from bert_jax.model_config import Activation, ModelConfig
from bert_jax.objectives import OBJECTIVES, MaskedLM, Objective, ReplacedTokenDetection
from bert_jax.objectives.task import PretrainingTask
from bert_jax.workdir.pretraining_identity import Pretraining
from data_pipeline.config import Pairing
from data_pipeline.corpus.vocabulary_file import Vocabulary
from data_pipeline.errors import UserError

HEADS = ("pooler", "language_model", "next_sentence")


@dataclasses.dataclass(frozen=True, eq=False)
class TaskHead:
    """The new layers of a fine-tuned model."""

    kind: str
    """What it does: classification, spans, ..."""
    labels: tuple[str, ...]
    """Labels in the order of the head's outputs."""
    params: Mapping[str, Any]
    """float32 arrays of each layer, such as `classifier`: `kernel` [D, outputs], `bias` [outputs]."""
    features: FeatureConfig
    """The encoder features that it is applied to."""
    exports_as: TransformersHead | None
    """The head in transformers; None if it has none."""


def with_shared_pooler(config: ModelConfig, params: dict[str, Any]) -> dict[str, Any]:
    """The parameters with a pooler of kind `transform`, if they lack it: as in ModernBERT, it is the
    transform of the language model head."""
    head = params.get("language_model")
    is_one = config.pooler == "transform" and config.embedding_width == config.hidden_size
    if not is_one or head is None or "pooler" in params:
        return params
    return {**params, "pooler": {name: head[name] for name in ("dense", "layer_norm")}}


@dataclasses.dataclass(frozen=True, eq=False)
class PretrainedModel:
    """A model with all that is needed to apply it to text, to train it further or to convert it."""

    name: str
    """Name of its directory. A run's step follows if one was asked for; a fine-tuned model is named after the
    model that it was trained from and its task."""
    config: ModelConfig
    """Shape and settings, with float32 computation."""
    params: dict[str, Any]
    """Nested float32 numpy arrays as `BertForPreTraining` takes them: `encoder`, and those of `HEADS`
    that the model has and that were trained."""
    tokenizer: Tokenizer
    """Adds [CLS] and [SEP], reads "[MASK]" in a text as the token, and neither truncates nor pads.
    Its own names of these may be others (`data_pipeline.corpus.special_tokens`)."""
    vocabulary: Vocabulary | None
    """The tokenizer's vocabulary; None if it is not of a kind that this project trains with."""
    family: str | None = None
    """The family of transformers' models that it was read as, such as roberta; None if it was not read as one
    of theirs."""
    objective: Objective | None = None
    """What its heads were trained for; None if they are not those of an objective."""
    left_out: tuple[str, ...] = ()
    """Names of tensors in the directory that are not part of a pretrained BERT, such as a classifier's."""
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What is known of its training, for a model card."""
    pretraining: Pretraining | None = None
    """Which run it comes from; None if that is not known, or if it was trained further since."""
    head: TaskHead | None = None
    """The head that fine-tuning added; further fine-tuning starts without it unless `with_head` is used."""

    has_assumed_activation: bool = False
    """Whether the GELU variant is an assumption, because the directory does not name it."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Those of `HEADS` that the model lacks."""
        return tuple(head for head in HEADS if head not in self.params)

    def fingerprint(self) -> str:
        """A hash of all parameters with their names, shapes and dtypes; takes half a second for BASE."""
        total = hashlib.sha256()
        for path, array in sorted(flatten_dict(self.params).items()):
            total.update(f"{'/'.join(path)} {array.shape} {array.dtype}".encode())
            total.update(np.ascontiguousarray(array).data)
        return total.hexdigest()

    def with_activation(self, activation: Activation) -> "PretrainedModel":
        """A copy with another GELU variant."""
        config = dataclasses.replace(self.config, activation=activation)
        return dataclasses.replace(self, config=config, has_assumed_activation=False)

    def with_head(self, kind: str, labels: Sequence[str], features: FeatureConfig) -> "PretrainedModel":
        """A copy with the task's head among `params`, so that training continues from that head.

        Raises:
          UserError: the model has no head, or its head has another kind, other labels or other features.
        """
        if self.head is None or not self.head.params:
            raise UserError(f"{self.name} has no head to keep; --keep-head needs a fine-tuned --model")
        if self.head.kind != kind:
            raise UserError(f"the head of {self.name} is one of {self.head.kind}, not of {kind}")
        if self.head.labels != tuple(labels):
            raise UserError(
                f"the head of {self.name} has the labels {', '.join(self.head.labels)}; "
                f"training has {', '.join(labels)}"
            )
        depth = self.config.num_layers
        if not (self.head.features.are_plain(depth) and features.are_plain(depth)):
            raise UserError("--keep-head goes with the last layer's features alone, not with --features")
        return dataclasses.replace(self, params={**self.params, **self.head.params})

    def generator(self) -> "PretrainedModel":
        """The masked language model that was trained beside a discriminator, a model of its own.

        Raises:
          UserError: there is none.
        """
        objective = self.objective
        if not (isinstance(objective, ReplacedTokenDetection) and "generator" in self.params):
            raise UserError(
                f"{self.name} has no generator; runs of objective rtd have one, and what `bert-jax convert "
                "--format npz` writes of them"
            )
        parts = self.params["generator"]
        embeddings = {"embeddings": self.params["encoder"]["embeddings"]}  # unless it has its own
        return dataclasses.replace(
            self,
            name=f"{self.name}-generator",
            config=objective.generator(self.config),
            params={**parts, "encoder": {**embeddings, **parts["encoder"]}},
            objective=MaskedLM(),
            pretraining=None,  # whose fine-tuned scores are the discriminator's
            facts={name: fact for name, fact in self.facts.items() if not name.startswith("held-out ")},
        )

    @property
    def tokens_without_embedding(self) -> list[str]:
        """Tokens of the tokenizer that the model has no word embedding for."""
        ids = self.tokenizer.get_vocab()
        return sorted(token for token, index in ids.items() if index >= self.config.vocab_size)

    def check_ids(self, ids: Sequence[int]) -> None:
        """Raises UserError if the model has no word embedding for one of a text's ids."""
        check_ids(ids, self.config.vocab_size, self.tokenizer, self.name)

    def require(self, head: str, purpose: str) -> None:
        """Raises UserError if a head is absent, naming what it was wanted for."""
        if head not in self.params:
            raise UserError(f"{self.name} has no {head.replace('_', ' ')} head, which {purpose} needs")


def parameter_shapes(config: ModelConfig) -> dict[str, Any]:
    """Shapes of the parameters of an encoder and of the heads that a model without an objective may have."""
    init = functools.partial(ReplacedTokenHead(config).init, jax.random.key(0))
    detection = jax.eval_shape(init, jnp.zeros((1, config.hidden_size)))["params"]
    return {**PretrainingTask(MaskedLM(), config).abstract_params(), "replaced_token": detection}


def objective_of(
    config: ModelConfig, parts: Collection[str], pairing: Pairing = "next_sentence"
) -> Objective | None:
    """The objective that trains these parts of a model, for directories that name none; None if none does.

    Args:
      config: of the encoder.
      parts: top-level names of the parameters.
      pairing: what a head on pairs predicts, which its parameters do not tell.
    """
    found = [
        kind
        for kind in OBJECTIVES.values()
        if kind.transformers_class
        and kind.attention == config.attention
        and getattr(kind, "pairing", pairing) == pairing
        and kind.trained_parts - {"encoder", "pooler"} <= set(parts)
    ]
    return max(found, key=lambda kind: len(kind.trained_parts))() if found else None


def check_ids(ids: Sequence[int], vocab_size: int, tokenizer: Tokenizer, name: str) -> None:
    """Raises UserError if an id has no word embedding in the model `name`; jax would give NaN for it."""
    if ids and max(ids) >= vocab_size:
        raise UserError(
            f"{name} has {vocab_size} word embeddings, none for the token "
            f"{tokenizer.id_to_token(max(ids))!r} with id {max(ids)}: its tokenizer is that of another model"
        )
