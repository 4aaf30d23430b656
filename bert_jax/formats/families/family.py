"""What tells one family of Hugging Face's models from another: names of settings, tensors and classes."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bert_jax.config import Activation, ModelConfig
from bert_jax.formats.configuration import make_model_config
from bert_jax.formats.tensors import Entry, Parts, Rows, expand, rows_of_parts
from data_pipeline.errors import UserError

# "gelu_new" is the same formula as "gelu_pytorch_tanh", written out in Python.
ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": "gelu_exact",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}


@dataclasses.dataclass(frozen=True)
class TaskClass:
    """A class of a family for fine-tuned models."""

    name: str
    layer: str
    """Its name for the layer that fine-tuning adds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """A family of models, such as RoBERTa, as data: everything that reading and writing it needs to know."""

    name: str
    """For messages."""
    model_type: str
    """transformers' name of it."""
    prefix: str
    """What names of the encoder's tensors begin with, but in the class without heads, which is
    `classes["BertModel"]`."""
    settings: Mapping[str, str]
    """Fields of `ModelConfig` and of `config.json` that mean the same."""
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What fields mean that a `config.json` lacks; others have the defaults of `ModelConfig`."""
    valid: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    """Fields of `config.json` of which not every value is supported: those that are, the default first."""
    activation: str = "hidden_act"
    """The field that names the activation."""
    activations: Mapping[str, Activation] = dataclasses.field(default_factory=lambda: ACTIVATIONS)
    """The activations by transformers' names, of several for the same the one to write first."""
    further_settings: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda fields: {}
    """Fields of `config.json` -> those fields of `ModelConfig` that are not as simple as `settings`."""
    further_fields: Callable[[ModelConfig], Mapping[str, Any]] = lambda model: {}
    """The inverse of `further_settings`."""
    table: Rows
    """Names of the tensors that every model of the family has, and of the heads of pretraining."""
    parts: Parts
    """The parts of the encoder that the family has, with the names of their tensors."""
    decoder: str
    """Name of the output layer over the vocabulary, whose weight is that of the word embeddings."""
    classes: Mapping[str, str]
    """BERT's name of a pretrained model's class -> the family's."""
    tasks: Mapping[str, TaskClass]
    """BERT's name of a fine-tuned model's class -> the family's."""

    def entries(self, model: ModelConfig) -> list[Entry]:
        """Our path and the family's name of each array.

        Raises:
          UserError: the family has no such encoder.
        """
        rows = (*self.table, *rows_of_parts(self.parts, model, "transformers", self.name))
        return [
            Entry(path, name, "out_in" if path[-1] == "kernel" else "in_out")
            for path, name in expand(rows, model.num_layers)
        ]

    def name_of(self, path: str) -> str:
        """The family's name of an array that is in `table`, by its path."""
        return dict(self.table)[path]

    @property
    def modules(self) -> tuple[str, ...]:
        """The beginnings of the encoder's names in the class without heads."""
        names = (name for _, name in self.table if name.startswith(self.prefix))
        return tuple(sorted({name.removeprefix(self.prefix).partition(".")[0] + "." for name in names}))

    def read_config(self, fields: Mapping[str, Any], path: Path) -> ModelConfig:
        """The encoder that a `config.json` describes, computing in float32.

        Args:
          fields: content of the file.
          path: named in the error.

        Raises:
          UserError: a setting has a value that this project does not support.
        """
        valid = {**self.valid, self.activation: tuple(self.activations)}
        fields = {**{name: values[0] for name, values in valid.items()}, **self.defaults, **fields}
        for name, values in valid.items():
            if fields[name] not in values:
                known = ", ".join(map(repr, values))
                raise UserError(f"{path} has {name} {fields[name]!r}; valid: {known}")
        further = {
            "activation": self.activations[fields[self.activation]],
            **self.further_settings(fields),
        }
        return make_model_config(fields, self.settings, path, further)

    def write_config(self, model: ModelConfig) -> dict[str, Any]:
        """The inverse of `read_config`: the fields of `config.json` that describe the encoder."""
        activation = next(name for name, ours in self.activations.items() if ours == model.activation)
        return {
            "model_type": self.model_type,
            **{theirs: getattr(model, name) for name, theirs in self.settings.items()},
            self.activation: activation,
            **self.further_fields(model),
        }
