"""SQuAD 1.1 and 2.0: finds the span of a passage that answers a question."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from bert_jax.cross_entropy import cross_entropy
from bert_jax.finetuning_config import FineTuningConfig, TransformersHead
from bert_jax.model.packed_rows import instance_masks
from bert_jax.task import Batch, Metric, Sums
from bert_jax.tasks.finetuning.features import token_features
from bert_jax.tasks.finetuning.head import IMPOSSIBLE, Head, classifier, example_inputs, real_rows
from bert_jax.tasks.finetuning.labelled_data import ACCURACY
from bert_jax.tasks.finetuning.predict_records import as_json, in_parts, predict_records
from bert_jax.tasks.finetuning.task import AppliedModel, Apply, Outcome, Prediction, TaskData, TaskSettings
from data_pipeline import tfds
from data_pipeline.errors import UserError
from data_pipeline.json_text import JSON_LINES_SUFFIXES
from data_pipeline.tasks.finetuning.encode import make_task_tokenizer
from data_pipeline.tasks.finetuning.records import as_records, read_records
from data_pipeline.tasks.finetuning.rows import Rows
from data_pipeline.tasks.finetuning.splits import SplitName, find_split, require_split
from data_pipeline.tasks.squad import Flags
from data_pipeline.tasks.squad.answers import (
    Candidate,
    PredictedAnswer,
    SquadVersion,
    find_best_answers,
    write_answers,
)
from data_pipeline.tasks.squad.questions import (
    QUESTION_FIELDS,
    SquadExample,
    add_predictions,
    find_answers,
    read_question,
    read_squad,
    read_unanswered,
    require_answers,
)
from data_pipeline.tasks.squad.scores import (
    best_thresholds,
    score_questions_1,
    score_questions_2,
    score_squad_1,
    score_squad_2,
    tune_null_threshold,
)
from data_pipeline.tasks.squad.windows import (
    Windows,
    label_windows,
    leave_out_pieceless,
    make_windows,
)
from data_pipeline.tfds import TfdsSplit

# Fewer than records of other tasks, as each question has a few windows.
_QUESTIONS_AT_ONCE = 1024
_IDS_SHOWN = 5


F1 = Metric("f1", "F1", in_percent=True)
EXACT = Metric("exact_match", "exact match", in_percent=True)
EXACT_2 = Metric("exact", "exact match", in_percent=True)


class SpanHead(nn.Module):
    """float32 [R, T, 2]: scores of a span's start and end; positions outside the row score -10000."""

    config: FineTuningConfig

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        sequence_BTW = token_features(self.config, batch, deterministic)
        logits_BT2 = classifier(self.config.encoder, 2)(sequence_BTW)
        logits = jnp.where(instance_masks(batch)[..., None], logits_BT2[:, None], IMPOSSIBLE)
        return logits.reshape(-1, *logits_BT2.shape[1:])


class Spans(Head):
    """Where an answer starts and ends. Targets: `start_positions`, `end_positions` int32 [R];
    the loss is the mean of the two cross-entropies, as in google-research/bert's run_squad.py."""

    kind: ClassVar[str] = "spans"
    exports_as: ClassVar[TransformersHead | None] = TransformersHead("BertForQuestionAnswering")

    @property
    def module(self) -> nn.Module:
        return SpanHead(self.config)

    def example_batch(self) -> dict[str, jax.Array]:
        position = jnp.zeros((1,), jnp.int32)
        return example_inputs() | {"start_positions": position, "end_positions": position}

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        start_loss, start_right = cross_entropy(outputs[..., 0], batch["start_positions"].reshape(-1))
        end_loss, end_right = cross_entropy(outputs[..., 1], batch["end_positions"].reshape(-1))
        real = real_rows(batch)
        loss = (start_loss + end_loss) / 2
        return {"loss": (loss * real).sum(), "correct": (start_right * end_right * real).sum()}


@dataclasses.dataclass(frozen=True)
class Settings(Flags, TaskSettings):
    """Windows of passages, and the span of each that answers the question."""

    def load(self, task: str, data: str, tokenizer: Tokenizer) -> "SquadData":
        """Reads and encodes training and development questions."""
        plain = make_task_tokenizer(tokenizer)
        train = leave_out_pieceless(find_answers(read_squad(_find(data, "train", task))), plain)
        windows = make_windows(train.examples, plain, self)
        file = _find(data, "dev", task)
        dev = read_squad(file)
        if task == "squad":
            require_answers(dev, file)
        if train.misplaced:
            first = ", ".join(train.misplaced[:_IDS_SHOWN])
            print(
                "note: left out are questions whose answer is not where the file says or has no piece of the "
                f"vocabulary: {len(train.misplaced)}, first {first}"
            )
        rows = label_windows(windows, train.spans)
        return SquadData(rows, make_windows(dev, plain, self), self, _version(task))

    def head(self, task: str, config: FineTuningConfig) -> Spans:
        """A score for each token as the start and as the end of the answer."""
        return Spans(config, (F1, EXACT_2 if task == "squad2" else EXACT, ACCURACY))

    def predict_file(self, job: Prediction) -> int:
        """Predicts SQuAD's JSON, whose answers are ignored, or JSONL of {"question", "context"}.

        JSONL is read in parts; SQuAD's JSON is held in memory as a whole.
        """
        if job.input.suffix in JSON_LINES_SUFFIXES:
            read = functools.partial(read_records, job.input, QUESTION_FIELDS)
            predict = functools.partial(self._predict, model=job.model)
            return predict_records(job, read, read_question, predict, at_once=_QUESTIONS_AT_ONCE)
        examples = read_unanswered(job.input)
        found: dict[str, Any] = {}
        for part in in_parts(examples, _QUESTIONS_AT_ONCE):
            found |= zip((example.id for example in part), self._predict(part, job.model), strict=True)
        job.write_text([[as_json(add_predictions(job.input, found), indent=1) + "\n"]])
        return len(examples)

    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[dict[str, Any]]:
        """Predicts dicts {"question", "context"}."""
        questions = [read_question(record) for record in as_records(examples, QUESTION_FIELDS)]
        parts = in_parts(questions, _QUESTIONS_AT_ONCE)
        return [one for part in parts for one in self._predict(part, model)]

    def _predict(self, examples: Sequence[SquadExample], model: AppliedModel) -> list[dict[str, Any]]:
        windows = make_windows(examples, model.plain_tokenizer, self)
        threshold = model.record.learnt["null_threshold"] if model.record.task == "squad2" else None
        answers = answer(windows, self, _version(model.record.task), model.apply)
        return [describe(found, threshold) for found in answers]


class SquadData(TaskData):
    """Training rows and development questions; SQuAD's test sets are not public."""

    def __init__(self, train: Rows, dev: Windows, flags: Flags, version: SquadVersion) -> None:
        self.train = train
        self.metrics = (F1, EXACT_2 if version == "2.0" else EXACT)
        self.evaluated = {"dev": dev.rows}
        self.dev_fingerprint = dev.rows.fingerprint(dev.examples)
        self._dev = dev
        self._flags = flags
        self._version = version

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """Exact match and F1 on the development set, in percent; for 2.0 with the best null threshold."""
        answers = answer(self._dev, self._flags, self._version, apply)
        return self._score(answers, self._tune(answers))

    def finish(self, apply: Apply, directory: Path) -> Outcome:
        """Writes predictions.json and nbest_predictions.json, and for 2.0 null_odds.json."""
        answers = answer(self._dev, self._flags, self._version, apply)
        threshold = self._tune(answers)
        write_answers(directory, answers, threshold)
        is_empty = all(found.text(threshold) == "" for found in answers)
        return Outcome(
            self._score(answers, threshold),
            "every answer is empty" if is_empty else None,
            {} if threshold is None else {"null_threshold": threshold},
            items=self._items({found.id: found.text(threshold) for found in answers}),
        )

    def _items(self, texts: Mapping[str, str]) -> dict[str, np.ndarray]:
        """The `Outcome.items` of predicted answers; those of groups are parts of sums and of counts."""
        examples = self._dev.examples
        score = score_questions_1 if self._version == "1.1" else score_questions_2
        items = {name: 100 * np.array(scores) for name, scores in score(examples, texts).items()}
        if self._version == "1.1":
            return items
        has_answer = np.array([bool(example.answers) for example in examples])
        for prefix, chosen in (("HasAns_", has_answer), ("NoAns_", ~has_answer)):
            if chosen.any():
                items |= {
                    prefix + name: np.stack([items[name] * chosen, chosen], -1) for name in ("exact", "f1")
                }
        return items

    def _score(self, answers: Sequence[PredictedAnswer], threshold: float | None) -> dict[str, float]:
        texts = {found.id: found.text(threshold) for found in answers}
        if threshold is None:
            return score_squad_1(self._dev.examples, texts)
        odds = {found.id: found.null_odds for found in answers}
        best = best_thresholds(self._dev.examples, {found.id: found.best.text for found in answers}, odds)
        return score_squad_2(self._dev.examples, texts) | best

    def _tune(self, answers: Sequence[PredictedAnswer]) -> float | None:
        if self._version == "1.1":
            return None
        return tune_null_threshold(self._dev.examples, answers)


def answer(windows: Windows, flags: Flags, version: SquadVersion, apply: Apply) -> list[PredictedAnswer]:
    """The model's answers to the questions of some windows."""
    logits = ((rows, outputs[..., 0], outputs[..., 1]) for rows, outputs in apply(windows.rows))
    return find_best_answers(windows, logits, flags, version)


def describe(found: PredictedAnswer, null_threshold: float | None) -> dict[str, Any]:
    """The prediction for a question: the answer and the other candidates, each with its place in the passage.

    `text` is context[start:end]; for no answer it is "", and start and end are null. `score` is the sum of
    the two logits, `probability` the softmax of the scores over `n_best`.
    """
    chosen = found.choose(null_threshold)
    odds = {} if null_threshold is None else {"null_odds": round(found.null_odds, 6)}
    n_best = [
        {**_place(one), "probability": round(probability, 6)}
        for one, probability in zip(found.candidates, found.probabilities(), strict=True)
    ]
    return {**_place(chosen), **odds, "n_best": n_best}


def _place(candidate: Candidate) -> dict[str, Any]:
    start, end = (candidate.start, candidate.end) if candidate.text else (None, None)
    return {"text": candidate.text, "start": start, "end": end, "score": round(candidate.score, 6)}


def _version(task: str) -> SquadVersion:
    return "2.0" if task == "squad2" else "1.1"


def _find(data: str, split: SplitName, task: str) -> Path | TfdsSplit:
    """The file of a split: the one of its published name, or the only one that begins with the split's name.

    Raises UserError as `require_split`, and if there is only a file of the other version, by its name.
    """
    version, other = ("2.0", "1.1") if task == "squad2" else ("1.1", "2.0")
    if tfds.is_tfds(data):
        tfds.check_config(data, tfds.open_tfds(data), "squad", f"v{version}", task)
    suffixes = (f"-v{version}.json", f"-v{version}*.json", "*.json")
    for suffix in suffixes:
        # A file of either version can be read as the other, so only its name tells that it is the wrong one.
        if file := find_split(data, split, (suffix,), without=f"*{other}*" if suffix == "*.json" else ""):
            return file
    if file := find_split(data, split, (f"*{other}*.json",)):
        theirs = "squad" if task == "squad2" else "squad2"
        raise UserError(f"{file} is a file of SQuAD {other}, for the task {theirs}; {task} needs {version}")
    return require_split(data, split, suffixes)
