"""A pretrained model as everything else takes it, and the one way to name it: a folder."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict
from tokenizers import Tokenizer

from bert_jax.config import Activation, ModelConfig
from bert_jax.finetuning.settings import FeatureConfig
from bert_jax.formats.vocabulary import Vocabulary
from data_pipeline.errors import UserError

HEADS = ("pooler", "language_model", "next_sentence")


@dataclasses.dataclass(frozen=True, eq=False)
class TaskHead:
    """The new layer of a fine-tuned model."""

    kind: str
    """As `bert_jax.finetuning.config.Kind`."""
    labels: tuple[str, ...]
    """In the order of its outputs."""
    params: Mapping[str, np.ndarray]
    """float32 `kernel` [D, outputs] and `bias` [outputs]; rankings have none."""
    features: FeatureConfig
    """What it sees of the encoder; with a BiLSTM, `params` is not all of it."""


@dataclasses.dataclass(frozen=True, eq=False)
class Pretrained:
    """A model with what is needed to apply it to text, to train it further or to convert it."""

    name: str
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
    """What fine-tuning put on it; training on another task begins without."""

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

    @property
    def rowless_tokens(self) -> list[str]:
        """Tokens that the tokenizer may give and the model has no word embedding for."""
        ids = self.tokenizer.get_vocab()
        return sorted(token for token, index in ids.items() if index >= self.config.vocab_size)

    def check_ids(self, ids: Sequence[int]) -> None:
        """Raises UserError if a text's ids have one that the model has no word embedding for."""
        if ids and max(ids) >= self.config.vocab_size:
            token = self.tokenizer.id_to_token(max(ids))
            raise UserError(
                f"{self.name} has {self.config.vocab_size} word embeddings, none for the token {token!r} "
                f"with id {max(ids)}: its tokenizer is that of another model"
            )

    def require(self, head: str, purpose: str) -> None:
        """Raises UserError if a head is absent, naming what it was wanted for."""
        if head not in self.params:
            raise UserError(f"{self.name} has no {head.replace('_', ' ')} head, which {purpose} needs")


def open_model(directory: Path, step: int | None = None, activation: Activation | None = None) -> Pretrained:
    """Reads a model from a folder of any kind that this project knows.

    Args:
      directory: the work directory of a run; what `bert-jax convert` or `bert-jax finetune` wrote; a
        Hugging Face model
        (`config.json` and weights); or a TensorFlow checkpoint of google-research/bert
        (`bert_config.json`, `vocab.txt`, `*.index`).
      step: checkpoint of a work directory; None takes the newest.
      activation: the flavour of GELU, where the folder says another or, as Google's, none.

    Raises:
      UserError: the folder is no model, or one of another architecture, or a file in it is missing
        or damaged.
    """
    from bert_jax.formats import finetuned, google_tf1, huggingface, npz, run  # they import this module

    if not directory.is_dir():
        raise UserError(f"{directory} is no folder; --model takes the folder of a model")
    if step is not None and not run.recognises(directory):
        raise UserError(f"{directory} is not the work directory of a run; --step goes with those only")
    if run.recognises(directory):
        model = run.read(directory, step)
    elif finetuned.recognises(directory):
        model = finetuned.read(directory)
    elif npz.recognises(directory):
        model = npz.read(directory)
    elif huggingface.recognises(directory):
        model = huggingface.read(directory)
    elif google_tf1.recognises(directory):
        model = google_tf1.read(directory)
    else:
        raise UserError(
            f"{directory} is no model: it has neither config.json (a run, an export, a Hugging Face model) "
            f"nor bert_config.json (a checkpoint of google-research/bert)"
        )
    if activation is None:
        return model
    return dataclasses.replace(model, config=dataclasses.replace(model.config, activation=activation))
