"""A pretrained model as everything else takes it, whatever it was read from."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict
from tokenizers import Tokenizer

from bert_jax.config import Activation, ModelConfig
from bert_jax.finetuning.settings import FeatureConfig
from data_pipeline.errors import UserError
from data_pipeline.vocabulary_file import Vocabulary

HEADS = ("pooler", "language_model", "next_sentence")


@dataclasses.dataclass(frozen=True, eq=False)
class TaskHead:
    """The new layer of a fine-tuned model."""

    kind: str
    """As `bert_jax.finetuning.config.HeadKind`."""
    labels: tuple[str, ...]
    """In the order of its outputs."""
    params: Mapping[str, np.ndarray]
    """float32 `kernel` [D, outputs] and `bias` [outputs]; rankings have none."""
    features: FeatureConfig
    """What it sees of the encoder; with a BiLSTM, `params` is not all of it."""


@dataclasses.dataclass(frozen=True, eq=False)
class PretrainedModel:
    """A model with what is needed to apply it to text, to train it further or to convert it."""

    name: str
    """That of its folder; of a run also the step, if one was asked for."""
    config: ModelConfig
    """Computes in float32. The objective is that of the heads that are there."""
    params: dict[str, Any]
    """Nested float32 numpy arrays as `BertForPreTraining` takes them: `encoder`, and those of `HEADS`
    that the model has and that were trained."""
    tokenizer: Tokenizer
    """Puts [CLS] and [SEP]; takes "[MASK]" in a text for the token; neither cuts nor pads."""
    vocabulary: Vocabulary | None
    """None if the tokenizer is not one of the kinds that this project trains with."""
    left_out: tuple[str, ...] = ()
    """Names of tensors in the folder that are no part of a pretrained BERT, such as a classifier's."""
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What is known of its training, for a model card."""
    head: TaskHead | None = None
    """What fine-tuning put on it; more fine-tuning begins without, but for `with_head`."""

    has_assumed_activation: bool = False
    """Whether its folder does not say which GELU it was trained with."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Those of `HEADS` that it lacks."""
        return tuple(head for head in HEADS if head not in self.params)

    def fingerprint(self) -> str:
        """A hash of all parameters with their names and shapes; half a second for BASE."""
        total = hashlib.sha256()
        for path, array in sorted(flatten_dict(self.params).items()):
            total.update(f"{'/'.join(path)} {array.shape} {array.dtype}".encode())
            total.update(np.ascontiguousarray(array).data)
        return total.hexdigest()

    def with_activation(self, activation: Activation) -> "PretrainedModel":
        """The same with another GELU."""
        config = dataclasses.replace(self.config, activation=activation)
        return dataclasses.replace(self, config=config, has_assumed_activation=False)

    def with_head(self, kind: str, labels: Sequence[str], features: FeatureConfig) -> "PretrainedModel":
        """The same with its task's head among `params`, so that training goes on with that.

        Raises:
          UserError: it has no head, or one of another kind, for other labels or features.
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
        return dataclasses.replace(self, params={**self.params, "classifier": self.head.params})

    @property
    def tokens_without_embedding(self) -> list[str]:
        """Tokens that the tokenizer may give and the model has no word embedding for."""
        ids = self.tokenizer.get_vocab()
        return sorted(token for token, index in ids.items() if index >= self.config.vocab_size)

    def check_ids(self, ids: Sequence[int]) -> None:
        """Raises UserError if a text's ids have one that the model has no word embedding for."""
        check_ids(ids, self.config.vocab_size, self.tokenizer, self.name)

    def require(self, head: str, purpose: str) -> None:
        """Raises UserError if a head is absent, naming what it was wanted for."""
        if head not in self.params:
            raise UserError(f"{self.name} has no {head.replace('_', ' ')} head, which {purpose} needs")


def check_ids(ids: Sequence[int], vocab_size: int, tokenizer: Tokenizer, name: str) -> None:
    """As `PretrainedModel.check_ids`, of the model `name`. jax would compute NaN from such an id."""
    if ids and max(ids) >= vocab_size:
        raise UserError(
            f"{name} has {vocab_size} word embeddings, none for the token "
            f"{tokenizer.id_to_token(max(ids))!r} with id {max(ids)}: its tokenizer is that of another model"
        )
