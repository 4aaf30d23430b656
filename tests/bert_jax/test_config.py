"""Settings of a run that are impossible, in Python and in the arms of a study."""

import re

import pytest

from bert_jax.objectives import ReplacedTokenDetection
from bert_jax.studies.changes import with_changes
from data_pipeline.errors import UserError
from experiments.base import BASE


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("data.masking.unit", "spans", "valid: token, whole_word, span, ngram"),
        ("data.pairing", "nsp", "valid: next_sentence, sentence_order, contiguous, full_sentences"),
        ("optimizer.name", "adam", "valid: adamw, lamb, stable_adamw, muon"),
        ("optimizer.decay_shape", "linear", "valid: polynomial, cosine, sqrt"),
        ("parallel.mode", "PMAP", "valid: jit, pmap"),
        ("optimizer.decay_start", "warmup", "it must be step_0, warmup_end, or a whole number"),
        ("optimizer.decay_exclusions", "bias", "it must be a tuple, of which each item is a string"),
        ("optimizer.beta1", "0.9", "it must be a number"),
        ("optimizer.clip_norm", "1", "it must be a number, or None"),
        ("data.masking.rate", "0.2", "it must be a number"),
        ("data.short_seq_prob", "0", "it must be a number"),
        ("data.weights", (0.5, "0.5"), "it must be a tuple, of which each item is a number"),
        ("data.batch_schedule", ((0.1,),), "it must be a tuple, of which each item is a tuple of 2"),
        ("data.batch_schedule", "0.5", "it must be a tuple, of which each item is a tuple of 2"),
    ],
)
def test_a_value_of_another_type_is_named(setting: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"{setting} is {value!r}; {message}")):
        with_changes(BASE, {setting: value}, "arm")


def test_a_misspelt_choice_of_an_objective_is_named() -> None:
    with pytest.raises(UserError, match=r"objective\.generator_embeddings is 'tied'; valid: shared, own"):
        ReplacedTokenDetection(generator_embeddings="tied")  # type: ignore[arg-type]
