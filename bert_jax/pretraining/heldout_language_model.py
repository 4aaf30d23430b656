"""Language modelling of held-out documents that compares models, whatever they were pretrained with.

All models see the same contiguous text ([CLS] text [SEP]) under the same masks:

| metrics | masks |
|---|---|
| `mlm_loss`, `mlm_perplexity`, `mlm_accuracy` | 15% of the tokens: 80% [MASK], 10% as they are, 10% random |
| `all_mask_loss`, `all_mask_perplexity`, `all_mask_accuracy` | 15% of the tokens, all of them [MASK] |
| `bits_per_byte` | words that have 15% of the tokens, all their pieces [MASK] |

Bits per byte compare models of different vocabularies, since whole words are predicted: the negative
log2-probability of all masked pieces over the UTF-8 bytes of their words, each with the space before it. The
words are not the same for all vocabularies, but drawn alike.

Left-to-right models are measured by their likelihood of every token: `ltr_loss`, `ltr_perplexity`,
`ltr_accuracy`, `ltr_bits_per_byte`. They see one side only, so these answer another question than a masked
model's.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.objectives import LeftToRight, MaskedLM
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.pretraining.evaluation import evaluate
from bert_jax.training.program import Program, make_program
from bert_jax.training.train_step import Params
from data_pipeline.config import DataConfig, MaskingConfig, Phase
from data_pipeline.corpus.tokenizer import load_tokenizer
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS, TOKENIZER_DIRECTORY
from data_pipeline.pretraining.batches import evaluation_batches

_ROWS_OF_A_DEVICE = 32
_LONGEST = 128
_RATE = 0.15
_ALL_MASK = MaskingConfig(rate=_RATE, mask=1.0, same=0.0, random=0.0)
_MASKS = {
    "mlm": MaskingConfig(rate=_RATE),
    "all_mask": _ALL_MASK,
    "words": dataclasses.replace(_ALL_MASK, unit="whole_word"),
}


def heldout_metrics(model: PretrainedModel, corpus: str, examples: int = 2_000) -> dict[str, float]:
    """The metrics of a model on the held-out documents of a corpus of `bert-jax prepare`.

    Args:
      model: with the vocabulary of the corpus.
      corpus: directory.
      examples: most sequences, of at most 128 tokens, evenly spaced over the split.

    Raises:
      UserError: the model has no language model head; the corpus is none, or has no held-out documents.
    """
    model.require("language_model", "held-out language modelling")
    piece_bytes = _piece_bytes(corpus)
    if model.config.attention == "causal":
        sums = _evaluate(model, corpus, MaskingConfig(rate=0.0), examples, piece_bytes)
        return {
            **{f"ltr_{name}": sums[f"lm_{name}"] for name in ("loss", "perplexity", "accuracy")},
            "ltr_bits_per_byte": sums["bits_per_byte"],
        }
    found: dict[str, float] = {}
    for name, masking in _MASKS.items():
        sums = _evaluate(model, corpus, masking, examples, piece_bytes)
        if name == "words":
            found["bits_per_byte"] = sums["bits_per_byte"]
        else:
            found |= {f"{name}_{what}": sums[f"mlm_{what}"] for what in ("loss", "perplexity", "accuracy")}
    return found


def _evaluate(
    model: PretrainedModel, corpus: str, masking: MaskingConfig, examples: int, piece_bytes: np.ndarray
) -> dict[str, float]:
    """The objective's metrics, and `bits_per_byte`."""
    length = min(_LONGEST, model.config.max_position_embeddings)
    phase = Phase(length, round(masking.rate * length))
    data = DataConfig(corpus, pairing="contiguous", short_seq_prob=0.0, masking=masking, phases=(phase,))
    experiment = Experiment(
        model=model.config,
        objective=LeftToRight() if model.config.attention == "causal" else MaskedLM(),
        data=data,
        global_batch_size=_ROWS_OF_A_DEVICE * jax.device_count(),
    )
    task = PretrainingTask(experiment.objective, experiment.model)
    program = make_program(task, experiment)
    size = experiment.global_batch_size
    counts = _Counts(piece_bytes)
    batches = counts.of(evaluation_batches(corpus, data, phase, batch_size=size, examples=examples))
    metrics = evaluate(program, _params(program, model), map(task.select, batches))
    bits = metrics["loss"] / math.log(2) * counts.tokens
    return {**metrics, "bits_per_byte": bits / counts.bytes}


def _params(program: Program, model: PretrainedModel) -> Params:
    """The model's parameters, on the program's devices; heads that it was not trained with are 0."""
    there = flatten_dict(model.params)
    wanted = flatten_dict(program.abstract_state().params)
    params = {path: there.get(path, np.zeros(shape.shape, shape.dtype)) for path, shape in wanted.items()}
    return program.put_params(unflatten_dict(params))


class _Counts:
    """The predicted tokens of batches, and the bytes of their text."""

    def __init__(self, piece_bytes: np.ndarray) -> None:
        self.tokens = 0
        self.bytes = 0
        self._piece_bytes = piece_bytes

    def of(self, batches: Iterator[Mapping[str, np.ndarray]]) -> Iterator[Mapping[str, np.ndarray]]:
        """The same batches, which are counted on the way."""
        for batch in batches:
            if "masked_lm_ids" in batch and batch["masked_lm_ids"].size:
                ids = batch["masked_lm_ids"][batch["masked_lm_weights"] > 0]
            else:  # each token predicts the next one of its sequence
                ids = batch["input_ids"][:, 1:][batch["input_mask"][:, 1:] > 0]
            self.tokens += len(ids)
            self.bytes += int(self._piece_bytes[ids].sum())
            yield batch


def _piece_bytes(corpus: str) -> np.ndarray:
    """int64 [vocab_size]: UTF-8 bytes of each piece, and one for the space before a word; special ones 0."""
    tokenizer = load_tokenizer(Path(corpus) / TOKENIZER_DIRECTORY)
    continues = tokenizer.continues_word
    sizes = [
        0 if token in SPECIAL_TOKENS else len(_text_of(token).encode()) + (not inner)
        for token, inner in zip(tokenizer.tokens, continues, strict=True)
    ]
    return np.array(sizes, np.int64)


def _text_of(token: str) -> str:
    return token.removeprefix("##").replace("▁", "")
