"""What a finished run prints: its accuracy beside that of guessing, and for the quickstart filled masks."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bert_jax.cli.fill_mask import list_guesses
from bert_jax.formats.convert import convert
from bert_jax.formats.open_model import open_model
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.inference.fill_mask import fill_mask
from bert_jax.objectives import Objective
from bert_jax.task import only_guesses
from bert_jax.training.metric_log import heldout_rows
from bert_jax.workdir.directory import corpus_of
from bert_jax.workdir.record import read_record
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.corpus.documents import open_corpus
from data_pipeline.errors import UserError

_SENTENCES = 3
_TOKENS = range(9, 22)
_PLAIN = re.compile(r"[a-z][a-z ,-]+[.]")


def show(workdir: Path) -> None:
    """Prints the last held-out accuracies; on the installed documentation also exports and fills masks."""
    experiment = read_record(workdir).experiment
    summarise(workdir, experiment.objective)
    if experiment.data.corpus == INSTALLED_DOCUMENTATION:
        export_and_fill(workdir, corpus_of(workdir, experiment.data.corpus))


def summarise(workdir: Path, objective: Objective) -> None:
    """Prints the last held-out metrics that guessing could reach too, each beside that of guessing."""
    rows = heldout_rows(workdir)
    if not rows:
        return
    row = rows[-1]
    print(f"\nheld-out documents, step {row['step']}, {row['examples']:.0f} sequences")
    for metric in objective.metrics:
        if metric.guess_name in row:
            value, guess = metric.show(row[metric.name]), metric.show(row[metric.guess_name])
            print(f"  {metric.label} {value:>6}   always guessing {metric.guess}: {guess}")
    if only_guesses(objective.metrics, row):
        print(
            "warning: this is hardly better than guessing; try more steps, or another "
            "--optimizer.learning-rate or --optimizer.warmup-steps"
        )


def export_and_fill(workdir: Path, corpus: str) -> None:
    """Exports the trained model to WORKDIR/export and fills one mask in each of three held-out sentences.

    An existing WORKDIR/export is left as it is. If the model cannot be exported, a line says why. Masks are
    filled by models that have learned to, in both directions.
    """
    output = workdir / "export"
    if output.exists():
        model = open_model(workdir)
        print(f"\nnot exported: {output} is there already; `bert-jax export` makes another")
    else:
        model = _export(workdir, output)
    if model.config.attention != "bidirectional" or "language_model" not in model.params:
        return
    print("\nheld-out sentences, one word masked:")
    for text, word in masked_sentences(corpus, _SENTENCES):
        (guesses,) = fill_mask(model, text, top_k=5)
        print(f"  {text}\n    it was: {word}   guesses: {list_guesses(guesses)}")


def _export(workdir: Path, output: Path) -> PretrainedModel:
    try:
        model = convert(workdir, output)
    except UserError as error:  # transformers has no class for its objective, or not its encoder's parts
        print(f"\nnot exported: {error}")
        return open_model(workdir)
    print(f"\nexported to {output} in the layout of Hugging Face transformers")
    return model


def masked_sentences(corpus_dir: str, count: int) -> Iterator[tuple[str, str]]:
    """Held-out sentences of plain words with one word masked, and that word; always the same ones."""
    corpus = open_corpus(corpus_dir, "heldout")
    step = max(corpus.num_sentences // (100 * count), 1)
    found: set[str] = set()
    for index in range(0, corpus.num_sentences, step):
        start, stop = corpus.sentence_starts[index : index + 2]
        ids = corpus.read(int(start), int(stop)).tolist()
        place = _maskable(ids, corpus.tokenizer.continues_word)
        sentence = corpus.tokenizer.decode(ids)
        if len(ids) not in _TOKENS or not _PLAIN.fullmatch(sentence) or place is None:
            continue
        word = corpus.tokenizer.id_to_token(ids[place])
        if len(word) < 3 or word in found:
            continue
        found.add(word)
        before, after = corpus.tokenizer.decode(ids[:place]), corpus.tokenizer.decode(ids[place + 1 :])
        yield f"{before} [MASK] {after}", word
        if len(found) == count:
            return


def _maskable(ids: list[int], continues_word: np.ndarray) -> int | None:
    """The position nearest the middle that holds a one-piece word, or None.

    The first token and the last two are left out.
    """
    whole = [
        i for i in range(1, len(ids) - 2) if not continues_word[ids[i]] and not continues_word[ids[i + 1]]
    ]
    return min(whole, key=lambda i: abs(2 * i - len(ids)), default=None)
