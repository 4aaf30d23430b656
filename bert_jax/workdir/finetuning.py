"""`config.json` of a fine-tuned model: how it was trained, and all that predicting with it needs."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.finetuning_config import FineTuningConfig, TransformersHead
from bert_jax.workdir.config_text import differences, flatten, from_json
from bert_jax.workdir.pretraining_identity import Pretraining
from bert_jax.workdir.record import CONFIG_FILE, PARALLEL_MAY_CHANGE
from data_pipeline.atomic import write_json
from data_pipeline.errors import UserError, bad_input
from data_pipeline.json_text import load_json

# Settings that may differ between two starts of one run; they affect it by rounding and dropout alone.
_MAY_CHANGE = frozenset(
    f"config.{name}" for name in ("log_every", "eval_every", "checkpoint_every", *PARALLEL_MAY_CHANGE)
)
# In-batch negatives are those of the same micro-batch and, under pmap, of the same device.
_DECIDES_NEGATIVES = frozenset(("config.parallel.mode", "config.parallel.accumulation_steps"))


@dataclasses.dataclass(frozen=True)
class FineTuningRecord:
    """What `config.json` holds."""

    task: str
    """Name of the task on the command line: cola, squad, classify, ..."""
    config: FineTuningConfig
    labels: tuple[str, ...]
    """Words of the classes or tags, in the order of the model's outputs."""
    settings: Mapping[str, Any]
    """The task's own flags, such as max_seq_length, which decide how text becomes rows."""
    kind: str = ""
    """What the head does: classification, spans, ...; heads of one kind have parameters of one form."""
    exports_as: TransformersHead | None = None
    """The head in transformers; None if it has none."""
    learnt: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Values tuned on the development set, such as SQuAD's null threshold."""
    packing: Mapping[str, int] | None = None
    """How training rows share lines (`data_pipeline.tasks.finetuning.packing`); None if they do not."""
    trained_from: str = ""
    """Name of the pretrained model: that of its directory."""
    family: str | None = None
    """The family of transformers' models that it was read as; None if it was not read as one of theirs."""
    model_fingerprint: str = ""
    """Hash of the pretrained parameters."""
    pretraining: Pretraining | None = None
    """Which run the pretrained model comes from; None if that is not known."""
    data: str = ""
    """The value of --data."""
    data_fingerprint: str = ""
    """Hash of the training rows."""
    dev_fingerprint: str = ""
    """Hash of the development set."""
    test_fingerprint: str = ""
    """Hash of the test sets that were last predicted; empty if there were none."""
    starts: tuple[dict[str, Any], ...] = ()
    """One entry for each time the command was run: versions, git state, devices, command."""


def write_record(directory: Path, record: FineTuningRecord) -> None:
    """Writes `config.json`."""
    write_json(directory / CONFIG_FILE, dataclasses.asdict(record))


def read_record(directory: Path) -> FineTuningRecord:
    """The record in `config.json` of a fine-tuned model's directory.

    Raises:
      UserError: the directory is not that of a fine-tuned model, or its config.json cannot be read.
    """
    path = directory / CONFIG_FILE
    if not directory.exists():
        raise UserError(f"there is no directory {directory}; name that of a fine-tuned model")
    try:
        value = load_json(path)
        if "task" not in value:
            raise UserError(
                f"{directory} is no fine-tuned model, which `bert-jax finetune` makes; a pretrained model "
                f"has no head"
            )
        record = from_json(FineTuningRecord, value)
        # A file holds lists where settings have tuples.
        settings = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in dict(record.settings).items()
        }
        return dataclasses.replace(record, settings=settings)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise bad_input(
            error,
            path,
            f"{directory} is not the directory of a fine-tuned model, which `bert-jax finetune` makes, or is "
            f"of another version of bert-jax: {error}",
        ) from None


def check_same(
    directory: Path, before: FineTuningRecord, now: FineTuningRecord, rows_compete: bool = False
) -> None:
    """Checks that a run has the settings and data that it was begun with.

    Args:
      rows_compete: whether rows that are computed together are each other's negatives.

    Raises:
      UserError: names each difference as `setting before -> now`.
    """
    may_change = _MAY_CHANGE
    if rows_compete:
        may_change -= _DECIDES_NEGATIVES
    if before.model_fingerprint == now.model_fingerprint:
        may_change |= {"model"}  # the same model, in a directory of another name
    changes = differences(_comparable(before), _comparable(now), may_change)
    if any(change.startswith("settings.") for change in changes):
        # The data's hashes are of its rows as these settings make them.
        changes = [change for change in changes if not change.startswith(("data ", "development data "))]
    if changes:
        raise UserError(
            f"{directory} holds a run with other settings or data: {'; '.join(changes)}; "
            "undo these changes, or give another --output"
        )


def _comparable(record: FineTuningRecord) -> dict[str, Any]:
    settings = {f"settings.{name}": value for name, value in record.settings.items()}
    given = {
        "task": record.task,
        "labels": ", ".join(record.labels),
        "model": f"{record.trained_from} {record.model_fingerprint[:12]}",
        "data": record.data_fingerprint[:12],
        "development data": record.dev_fingerprint[:12],
    }
    return {**given, **flatten(record.config, "config"), **settings}
