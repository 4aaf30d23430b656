"""Which pretraining a model comes from: `pretraining.json` of an exported model.

Tables put repeats of one pretraining, which differ in the seed alone, into one row by it.
"""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from bert_jax.objectives.experiment import Experiment
from bert_jax.workdir.config_text import flatten, from_json
from bert_jax.workdir.record import MAY_CHANGE, RunRecord
from data_pipeline.atomic import write_json
from data_pipeline.errors import bad_input
from data_pipeline.json_text import load_json

# Settings on which neither parameters nor metrics depend, except for rounding, and the seed.
_DOES_NOT_COUNT = (MAY_CHANGE - {"num_train_steps", "eval_examples"}) | {"seed"}

PRETRAINING_FILE = "pretraining.json"
"""In the directory of an exported model: its `Pretraining`."""


@dataclasses.dataclass(frozen=True)
class Pretraining:
    """Which pretraining a model comes from. Its repeats differ in the seed alone."""

    experiment: str
    """Name of the experiment."""
    seed: int
    step: int
    """Of the checkpoint."""
    settings: str
    """Hash of `counted_settings`."""
    given: str
    """Hash of the corpus and of the model that it started from."""


def counted_settings(experiment: Experiment) -> dict[str, Any]:
    """Dotted path -> value of everything but the seed that parameters and metrics may depend on."""
    settings = flatten(experiment)
    return {name: value for name, value in settings.items() if name not in _DOES_NOT_COUNT}


def pretraining_of(record: RunRecord, step: int) -> Pretraining:
    """Where the parameters of a run's checkpoint come from."""
    # Of branches alone, so that the hashes of other runs stay those of earlier versions.
    origin = [str(record.branched_from)] if record.branched_from.run else []
    return Pretraining(
        experiment=record.experiment_name,
        seed=record.experiment.seed,
        step=step,
        settings=hash_of_settings(record.experiment),
        given=_hash([record.corpus_fingerprint, record.init_fingerprint, *origin]),
    )


def hash_of_settings(experiment: Experiment) -> str:
    """The hash of `counted_settings`."""
    return _hash(counted_settings(experiment))


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_pretraining(directory: Path, pretraining: Pretraining) -> None:
    """Writes an exported model's `pretraining.json`."""
    write_json(directory / PRETRAINING_FILE, dataclasses.asdict(pretraining))


def read_pretraining(directory: Path) -> Pretraining | None:
    """An exported model's `pretraining.json`; None if there is none, as in other people's models.

    Raises:
      UserError: the file is damaged.
    """
    path = directory / PRETRAINING_FILE
    if not path.exists():
        return None
    try:
        return from_json(Pretraining, load_json(path))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise bad_input(error, path, f"{path} is not what `bert-jax convert` writes: {error}") from None
