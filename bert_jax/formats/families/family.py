"""What tells one family of Hugging Face's models from another: names of settings, tensors and classes."""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from bert_jax.formats.configuration import check_told, make_model_config
from bert_jax.formats.tensors import Entry, Parts, Rows, expand, rows_of_parts
from bert_jax.model_config import Activation, ModelConfig, Pooler
from data_pipeline.config import Pairing
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
    pooler: str | None = None
    """Its name for the linear layer of the pooler; None: that of `Family.poolers`."""


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
    further_fields: Callable[[ModelConfig, Mapping[str, int]], Mapping[str, Any]] = lambda model, ids: {}
    """The inverse of `further_settings`; it is also given the ids of special tokens: pad, cls, sep."""
    head_dropouts: tuple[str, ...] = ()
    """Fields for the dropout rate of heads, where `config.json` does not take it from the encoder's."""
    pairing: Pairing = "next_sentence"
    """What the head on pairs was trained to predict."""
    positions_after_padding: bool = False
    """Whether the first position is the one after the id of padding; the table then has rows before it that
    no token reads."""
    table: Rows
    """Names of the tensors that every model of the family has, and of the heads of pretraining."""
    parts: Parts
    """The parts of the encoder that the family has, with the names of their tensors."""
    poolers: Mapping[Pooler, Rows]
    """The poolers that its classes have, with the names of their tensors; models are read with the first."""
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
        rows = (
            *self.table,
            *rows_of_parts(self.parts, model, "transformers", self.name),
            *self.poolers.get(model.pooler, ()),
        )
        return [
            Entry(path, name, "out_in" if path[-1] == "kernel" else "in_out")
            for path, name in expand(rows, model.num_distinct_layers)
        ]

    def name_of(self, path: str) -> str:
        """The family's name of an array that is in `table`, by its path."""
        return dict(self.table)[path]

    @property
    def modules(self) -> tuple[str, ...]:
        """The beginnings of the encoder's names in the class without heads."""
        of_parts = (rows for choices in self.parts.values() for rows in choices.values())
        rows = itertools.chain(self.table, *self.poolers.values(), *of_parts)
        names = (name.removeprefix(self.prefix) for _, name in rows if name.startswith(self.prefix))
        return tuple({name.partition(".")[0] + "." for name in names})

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
        try:
            further = self.further_settings(fields)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        except TypeError:
            raise UserError(f"{path} has a setting that is no number") from None
        usual = {"activation": self.activations[fields[self.activation]], "pooler": next(iter(self.poolers))}
        return make_model_config(fields, self.settings, path, {**usual, **further})

    def write_config(self, model: ModelConfig, ids: Mapping[str, int]) -> dict[str, Any]:
        """The inverse of `read_config`: the fields of `config.json` that describe the encoder.

        Args:
          model: of the encoder.
          ids: those of the special tokens pad, cls and sep.

        Raises:
          UserError: they cannot describe it.
        """
        activation = next(name for name, ours in self.activations.items() if ours == model.activation)
        fields = {
            "model_type": self.model_type,
            **{theirs: getattr(model, name) for name, theirs in self.settings.items()},
            self.activation: activation,
            **self.further_fields(model, ids),
            "pad_token_id": ids["pad"],
        }
        check_told(model, self.read_config(fields, Path("config.json")), f"transformers' {self.name}")
        return fields

    def rows_before_positions(self, pad_token_id: int) -> int:
        """How many rows of the position table stand before the first position's."""
        return pad_token_id + 1 if self.positions_after_padding else 0


def linear(ours: str, theirs: str) -> Rows:
    """The rows of a linear layer with a bias, by our path and torch's name of the layer."""
    return ((f"{ours}/kernel", f"{theirs}.weight"), (f"{ours}/bias", f"{theirs}.bias"))


def layer_norm(ours: str, theirs: str) -> Rows:
    """As `linear`, of a normalization with scale and bias."""
    return ((f"{ours}/scale", f"{theirs}.weight"), (f"{ours}/bias", f"{theirs}.bias"))


def renamed(rows: Rows, names: Mapping[str, str]) -> Rows:
    """Rows of another family's table with some parts of its names replaced."""

    def rename(name: str) -> str:
        for old, new in names.items():
            name = name.replace(old, new)
        return name

    return tuple((ours, rename(theirs)) for ours, theirs in rows)


def renamed_parts(
    parts: Parts, names: Mapping[str, str], without: Collection[str] = ()
) -> dict[str, dict[Any, Rows]]:
    """As `renamed`, for `Family.parts`, of which some settings may be left out."""
    return {
        setting: {choice: renamed(rows, names) for choice, rows in choices.items()}
        for setting, choices in parts.items()
        if setting not in without
    }


def same_classes(prefix: str, names: Iterable[str]) -> dict[str, str]:
    """BERT's names of classes, and those of a family that replaces "Bert" in them."""
    return {name: name.replace("Bert", prefix, 1) for name in names}
