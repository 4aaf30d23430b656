"""SQuAD 1.1 and 2.0: finds the span of a passage that answers a question."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.downstream.predict_records import as_json, in_parts, predict_records
from bert_jax.downstream.task_data import AppliedModel, Apply, Outcome, Prediction
from bert_jax.finetuning.config import HeadKind
from data_pipeline import tfds
from data_pipeline.errors import UserError
from data_pipeline.tasks.names import PartName
from data_pipeline.tasks.parts import find_part, require_part

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from data_pipeline.tasks.encode import TaskTokenizer
    from data_pipeline.tasks.rows import Rows
    from data_pipeline.tasks.squad import SquadExample
    from data_pipeline.tasks.squad_answers import AnswerSearch, Candidate, PredictedAnswer
    from data_pipeline.tasks.squad_windows import Windows
    from data_pipeline.tfds import TfdsSplit

# Fewer than records of other tasks, as each question has a few windows.
_QUESTIONS_AT_ONCE = 1024
_IDS_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class SquadSettings:
    """A folder with train-v1.1.json and dev-v1.1.json, or train-v2.0.json and dev-v2.0.json; or
    tfds:squad/v1.1 or tfds:squad/v2.0."""

    max_seq_length: int = 384
    """Most tokens of a window with its question; longer passages have several windows."""
    doc_stride: int = 128
    """Tokens from the start of a window to the start of the next one."""
    max_query_length: int = 64
    """Most tokens of a question; longer ones are cut."""
    n_best_size: int = 20
    """Number of starts and of ends tried in each window, and of answers kept for each question."""
    max_answer_length: int = 30
    """Most tokens of an answer."""

    def load(self, task: str, data: str, tokenizer: "Tokenizer") -> "SquadData":
        """Reads and encodes training and development questions."""
        from data_pipeline.tasks.encode import make_task_tokenizer
        from data_pipeline.tasks.squad import find_answers, read_squad, require_answers
        from data_pipeline.tasks.squad_windows import label_windows, leave_out_pieceless

        plain = make_task_tokenizer(tokenizer)
        train = leave_out_pieceless(find_answers(read_squad(_find(data, "train", task))), plain)
        windows = self.windows(train.examples, plain)
        file = _find(data, "dev", task)
        dev = read_squad(file)
        if task == "squad":
            require_answers(dev, file)
        if train.misplaced:
            first = ", ".join(train.misplaced[:_IDS_SHOWN])
            print(
                f"left out {len(train.misplaced)} questions whose answer is not where the file says or has "
                f"no piece of the vocabulary, first {first}"
            )
        return SquadData(label_windows(windows, train.spans), self.windows(dev, plain), self.search(task))

    def predict_file(self, job: Prediction) -> int:
        """Predicts SQuAD's JSON, whose answers are ignored, or JSONL of {"question", "context"}.

        JSONL is read in parts; SQuAD's JSON is held in memory as a whole.
        """
        from data_pipeline import jsonl
        from data_pipeline.tasks.records import read_records
        from data_pipeline.tasks.squad import (
            QUESTION_FIELDS,
            add_predictions,
            read_question,
            read_unanswered,
        )

        if job.input.suffix in jsonl.SUFFIXES:
            read = functools.partial(read_records, job.input, QUESTION_FIELDS)
            predict = functools.partial(self._predict, model=job.model)
            return predict_records(job, read, read_question, predict, at_once=_QUESTIONS_AT_ONCE)
        examples = read_unanswered(job.input)
        found: dict[str, Any] = {}
        for part in in_parts(iter(examples), _QUESTIONS_AT_ONCE):
            found |= zip((example.id for example in part), self._predict(part, job.model), strict=True)
        job.write_text([[as_json(add_predictions(job.input, found), indent=1) + "\n"]])
        return len(examples)

    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[dict[str, Any]]:
        """Predicts dicts {"question", "context"}."""
        from data_pipeline.tasks.records import as_records
        from data_pipeline.tasks.squad import QUESTION_FIELDS, read_question

        questions = [read_question(record) for record in as_records(examples, QUESTION_FIELDS)]
        parts = in_parts(iter(questions), _QUESTIONS_AT_ONCE)
        return [one for part in parts for one in self._predict(part, model)]

    def _predict(self, examples: "Sequence[SquadExample]", model: AppliedModel) -> list[dict[str, Any]]:
        windows = self.windows(examples, model.plain_tokenizer)
        threshold = model.record.learnt["null_threshold"] if model.record.task == "squad2" else None
        answers = answer(windows, self.search(model.record.task), model.apply)
        return [describe(found, threshold) for found in answers]

    def windows(self, examples: "Sequence[SquadExample]", tokenizer: "TaskTokenizer") -> "Windows":
        """The windows of some questions."""
        from data_pipeline.tasks.squad_windows import Windowing, make_windows

        windowing = Windowing(self.max_seq_length, self.doc_stride, self.max_query_length)
        return make_windows(examples, tokenizer, windowing)

    def search(self, task: str) -> "AnswerSearch":
        """The settings of the search for answers."""
        from data_pipeline.tasks.squad_answers import AnswerSearch

        version = "2.0" if task == "squad2" else "1.1"
        return AnswerSearch(version, self.n_best_size, self.max_answer_length)  # type: ignore[arg-type]


class SquadData:
    """The `TaskData` of SQuAD."""

    kind: HeadKind = "spans"
    labels: tuple[str, ...] = ()
    metric = "f1"

    def __init__(self, train: Any, dev: "Windows", search: "AnswerSearch") -> None:
        self.train = train
        self._dev = dev
        self._search = search

    @property
    def evaluated(self) -> "Mapping[str, Rows]":
        """The rows of dev."""
        return {"dev": self._dev.rows}

    @property
    def dev_fingerprint(self) -> str:
        """A hash of the development set, including its answers."""
        return self._dev.rows.fingerprint(self._dev.examples)

    @property
    def test_fingerprint(self) -> str:
        """Empty: SQuAD's test sets are not public."""
        return ""

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """Exact match and F1 on the development set, in percent; for 2.0 with the best null threshold."""
        answers = answer(self._dev, self._search, apply)
        return self._figures(answers, self._tune(answers))

    def finish(self, apply: Apply, folder: Path) -> Outcome:
        """Writes predictions.json and nbest_predictions.json, and for 2.0 null_odds.json."""
        from data_pipeline.tasks.squad_answers import write_answers

        answers = answer(self._dev, self._search, apply)
        threshold = self._tune(answers)
        write_answers(folder, answers, threshold)
        is_empty = all(found.text(threshold) == "" for found in answers)
        return Outcome(
            self._figures(answers, threshold),
            "every answer is empty" if is_empty else None,
            {} if threshold is None else {"null_threshold": threshold},
        )

    def _figures(self, answers: "Sequence[PredictedAnswer]", threshold: float | None) -> dict[str, float]:
        from data_pipeline.tasks.squad_metrics import best_thresholds, score_squad_1, score_squad_2

        texts = {found.id: found.text(threshold) for found in answers}
        if threshold is None:
            return score_squad_1(self._dev.examples, texts)
        odds = {found.id: found.null_odds for found in answers}
        best = best_thresholds(self._dev.examples, {found.id: found.best.text for found in answers}, odds)
        return score_squad_2(self._dev.examples, texts) | best

    def _tune(self, answers: "Sequence[PredictedAnswer]") -> float | None:
        from data_pipeline.tasks.squad_metrics import tune_null_threshold

        if self._search.version == "1.1":
            return None
        return tune_null_threshold(self._dev.examples, answers)


def answer(windows: "Windows", search: "AnswerSearch", apply: Apply) -> "list[PredictedAnswer]":
    """The model's answers to the questions of some windows."""
    from data_pipeline.tasks.squad_answers import find_best_answers

    def logits() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        for rows, outputs in apply(windows.rows):
            yield rows, outputs[..., 0], outputs[..., 1]

    return find_best_answers(windows, logits(), search)


def describe(found: "PredictedAnswer", null_threshold: float | None) -> dict[str, Any]:
    """The prediction for a question: the answer and the other candidates, each with its place in the passage.

    `text` is context[start:end]; for no answer it is "", and start and end are null. `score` is the sum of
    the two logits, `probability` the softmax of the scores over `n_best`.
    """
    shares = dict(zip(found.candidates, found.probabilities(), strict=True))
    chosen = found.choose(null_threshold)
    odds = {} if null_threshold is None else {"null_odds": round(found.null_odds, 6)}
    n_best = [{**_place(one), "probability": round(share, 6)} for one, share in shares.items()]
    return {**_place(chosen), **odds, "n_best": n_best}


def _place(candidate: "Candidate") -> dict[str, Any]:
    start, end = (candidate.start, candidate.end) if candidate.text else (None, None)
    return {"text": candidate.text, "start": start, "end": end, "score": round(candidate.score, 6)}


def _find(data: str, part: PartName, task: str) -> "Path | TfdsSplit":
    """The file of a part: the one with its published name, or the only one whose name begins with the part's.

    Raises UserError as `require_part`, and if there is only a file of the other version, by its name.
    """
    version, other = ("2.0", "1.1") if task == "squad2" else ("1.1", "2.0")
    if tfds.is_tfds(data):
        tfds.check_config(data, tfds.open_tfds(data), "squad", f"v{version}", task)
    suffixes = (f"-v{version}.json", f"-v{version}*.json", "*.json")
    for suffix in suffixes:
        # A file of either version can be read as the other, so only its name tells that it is the wrong one.
        if file := find_part(data, part, (suffix,), without=f"*{other}*" if suffix == "*.json" else ""):
            return file
    if file := find_part(data, part, (f"*{other}*.json",)):
        theirs = "squad" if task == "squad2" else "squad2"
        raise UserError(f"{file} is of SQuAD {other}, which is the task {theirs}; {task} needs {version}")
    return require_part(data, part, suffixes)
