"""The model that a study starts from, read in a process of its own.

Reading a run's checkpoint makes jax take the devices, which are the workers'.
"""

from pathlib import Path

import jax

from bert_jax.formats.open_model import open_model
from bert_jax.model_config import Activation
from bert_jax.pretraining.init_from import check_vocabulary
from bert_jax.pretraining.initial_shape import InitialModel
from data_pipeline.corpus.store import Description
from data_pipeline.preparing.worker_pool import worker_pool


def open_initial(directory: Path, corpus: Description, activation: Activation | None) -> InitialModel:
    """Reads a model without keeping its arrays, and checks that a study's corpus has its vocabulary.

    Args:
      directory: as `open_model` takes it.
      corpus: the study's.
      activation: the kind of GELU that flags ask for, if the directory does not name it.

    Raises:
      UserError: the directory is not a model, or the corpus has another vocabulary.
    """
    with worker_pool(1) as pool:
        return pool.submit(_read, directory, corpus, activation).result()


def _read(directory: Path, corpus: Description, activation: Activation | None) -> InitialModel:
    jax.config.update("jax_platforms", "cpu")
    model = open_model(directory)
    if activation is not None and model.has_assumed_activation:
        model = model.with_activation(activation)
    check_vocabulary(model, corpus)
    return InitialModel(model.name, model.fingerprint(), model.config)
