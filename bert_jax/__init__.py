"""BERT pretraining in JAX and Flax: the model, the training step and the loop.

Nothing below this package imports TensorFlow, so that it runs on accelerator machines that
have none. Importing this module is cheap: it does not import jax either.

    model = bert_jax.load_model("DIR")
    model.encode(["a text", ("text a", "text b")]).pooled_output
    model.fill_mask("The [MASK] sat.")
    bert_jax.load_finetuned("DIR").predict(["a text"])  # or what else its task answers
"""

from __future__ import annotations

import os
import typing

if typing.TYPE_CHECKING:
    from bert_jax.config import Activation
    from bert_jax.downstream.predictor import Predictor
    from bert_jax.inference.bert import Bert

__version__ = "0.1.0"


def load_model(
    directory: str | os.PathLike[str], step: int | None = None, activation: Activation | None = None
) -> Bert:
    """A pretrained model that texts can be given to.

    Args:
      directory: the work directory of a run, an export, a Hugging Face BERT, a checkpoint of
        google-research/bert, or what `bert-jax finetune` made, whose encoder it is then.
      step, activation: as `bert_jax.inference.open_model.open_model`.

    Raises:
      UserError: the folder is not a model.
    """
    from pathlib import Path

    from bert_jax.inference.bert import Bert
    from bert_jax.inference.open_model import open_model

    return Bert(open_model(Path(directory), step, activation))


def load_finetuned(directory: str | os.PathLike[str], batch_size: int = 64) -> Predictor:
    """A fine-tuned model of any task, ready for examples in memory.

    Args:
      directory: what `bert-jax finetune` made; the best model in it is taken.
      batch_size: rows that are computed at once, such as texts, windows of a passage, or questions with
        their choices; it changes no result.

    Raises:
      UserError: the folder is no fine-tuned model, or training is not finished.
    """
    from pathlib import Path

    from bert_jax.downstream.predictor import Predictor
    from bert_jax.finetuning.finetuned import open_finetuned

    return Predictor(open_finetuned(Path(directory), batch_size))
