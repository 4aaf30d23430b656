"""The data of a run: checks that a corpus fits an experiment, and its batches as the loop takes them."""

import functools
from collections.abc import Callable

from bert_jax.config import Experiment
from bert_jax.loop import Data
from data_pipeline.errors import UserError


def check_vocabulary(experiment: Experiment, corpus: str, say: Callable[[str], None]) -> None:
    """Compares the corpus's vocabulary with the model's.

    Raises:
      UserError: the model has fewer rows than the vocabulary has ids, or there is no corpus.
    """
    from data_pipeline.store import vocabulary_size

    ids, rows = vocabulary_size(corpus), experiment.model.vocab_size
    if ids is None:
        return
    if ids > rows:
        raise UserError(
            f"the vocabulary of {corpus} has {ids} entries, but model.vocab_size is {rows}; "
            f"pass --model.vocab-size {ids}"
        )
    if ids < 0.9 * rows:
        say(f"note: model.vocab_size is {rows}, the vocabulary of {corpus} has {ids} entries")


def make_data(experiment: Experiment, corpus: str) -> Data:
    """The batches of an experiment from the corpus at a path.

    Raises:
      UserError: there is no whole corpus.
    """
    from data_pipeline.batches import evaluation_batches, training_batches
    from data_pipeline.store import fingerprint, has_heldout

    training = functools.partial(
        training_batches,
        corpus,
        experiment.data,
        seed=experiment.seed,
        global_batch_size=experiment.global_batch_size,
        num_train_steps=experiment.num_train_steps,
    )
    evaluation = functools.partial(
        evaluation_batches,
        corpus,
        experiment.data,
        batch_size=experiment.global_batch_size // experiment.parallel.accumulation_steps,
        examples=experiment.eval_examples,
    )
    identity = {"seed": experiment.seed, "corpus": corpus, "fingerprint": fingerprint(corpus)}
    return Data(
        training=lambda step: training(first_step=step),
        evaluation=evaluation if has_heldout(corpus) else None,
        identity=identity,
    )


def check_batches(experiment: Experiment, data: Data) -> None:
    """Opens the data of every phase, so that what is missing shows before training, not after days.

    Raises:
      UserError: a phase gets no training or no held-out batch, or ids that the model has no row for.
    """
    first, rows = next(data.training(0)), experiment.model.vocab_size
    highest = max(int(first[key].max(initial=0)) for key in ("input_ids", "masked_lm_ids"))
    if highest >= rows:
        raise UserError(
            f"{data.identity['corpus']} holds the token id {highest}, but model.vocab_size is {rows}; "
            f"pass --model.vocab-size with the size of the vocabulary that it was made with"
        )
    if data.evaluation is not None:
        for phase in experiment.data.phases:
            data.evaluation(phase)
