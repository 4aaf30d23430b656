"""BERT in JAX and Flax: the model, pretraining, fine-tuning and inference.

Nothing in this package imports TensorFlow, so it runs on accelerator machines that do not have
it. Importing this module is cheap: it does not import jax either.

    model = bert_jax.load_model("DIR")
    model.encode(["a text", ("text a", "text b")]).pooled_output
    model.fill_mask("The [MASK] sat.")
    bert_jax.load_finetuned("DIR").predict(["a text"])  # or other examples, as its task needs
"""

from __future__ import annotations

import os
import typing
from pathlib import Path

from bert_jax.version import __version__ as __version__

if typing.TYPE_CHECKING:
    from bert_jax.inference.bert import Bert
    from bert_jax.model_config import Activation
    from bert_jax.tasks.finetuning.predictor import Predictor


def load_model(
    directory: str | os.PathLike[str], step: int | None = None, activation: Activation | None = None
) -> Bert:
    """Loads a pretrained model that encodes texts and fills in masked words.

    Args:
      directory: the work directory of a run, an export, a Hugging Face BERT, a checkpoint of
        google-research/bert, or the output of `bert-jax finetune`, of which the encoder is loaded.
      step: checkpoint of a work directory; None takes the newest.
      activation: what to use instead of the one that the model names; checkpoints of
        google-research/bert name none.

    Raises:
      UserError: the directory is not a model.
    """
    from bert_jax.formats.open_model import open_model
    from bert_jax.inference.bert import Bert

    return Bert(open_model(Path(directory), step, activation))


def load_finetuned(directory: str | os.PathLike[str], batch_size: int = 64) -> Predictor:
    """Loads a fine-tuned model of any task, to predict on examples in memory.

    Args:
      directory: output of `bert-jax finetune`; its best model is loaded. If its grid is not finished, a line
        on standard error says so.
      batch_size: rows computed at once (a row is a text, a window of a passage, or a question with its
        choices); it does not change the results.

    Raises:
      UserError: the directory is no fine-tuned model, or not one trial of its grid is finished.
    """
    from bert_jax.tasks.finetuning.predictor import Predictor

    return Predictor(Path(directory), batch_size)
