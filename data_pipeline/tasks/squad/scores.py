"""Exact match and F1 of answers, in percent, by the rules of SQuAD's evaluate-v1.1.py and -v2.0.py."""

import itertools
import operator
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from data_pipeline.errors import UserError
from data_pipeline.tasks.squad.answers import PredictedAnswer
from data_pipeline.tasks.squad.questions import SquadExample

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def score_squad_1(examples: Sequence[SquadExample], predictions: Mapping[str, str]) -> dict[str, float]:
    """The means of `score_questions_1`."""
    scored = score_questions_1(examples, predictions)
    return {name: 100 * sum(scores) / len(scores) for name, scores in scored.items()}


def score_questions_1(
    examples: Sequence[SquadExample], predictions: Mapping[str, str]
) -> dict[str, list[float]]:
    """`exact_match` and `f1` of SQuAD 1.1, from 0 to 1: for each question the best score over its answers.

    A question without prediction scores 0. Raises UserError naming a question without answer.
    """
    scored: dict[str, list[float]] = {"exact_match": [], "f1": []}
    for example in examples:
        if not example.answers:
            raise UserError(
                f"question {example.id} has no answer to score by; SQuAD 1.1 asks for one or more"
            )
        exact, f1 = 0.0, 0.0
        if example.id in predictions:
            predicted, golds = predictions[example.id], [answer.text for answer in example.answers]
            exact = max(_exact(gold, predicted) for gold in golds)
            f1 = max(_overlap(_words(gold), _words(predicted)) for gold in golds)
        scored["exact_match"].append(exact)
        scored["f1"].append(f1)
    return scored


def score_squad_2(examples: Sequence[SquadExample], predictions: Mapping[str, str]) -> dict[str, float]:
    """The scores of SQuAD 2.0: `exact`, `f1` and `total`, for all questions and by group.

    Names of the groups' scores begin with `HasAns_` and `NoAns_`. A prediction of no answer is "". Raises
    UserError naming a question without prediction.
    """
    scored = score_questions_2(examples, predictions)
    has_answer = [bool(example.answers) for example in examples]
    groups = {"": [True] * len(examples), "HasAns_": has_answer, "NoAns_": [not has for has in has_answer]}
    result = {}
    for prefix, chosen in groups.items():
        if count := sum(chosen):
            for name, scores in scored.items():
                result[f"{prefix}{name}"] = 100 * sum(itertools.compress(scores, chosen)) / count
            result[f"{prefix}total"] = count
    return result


def score_questions_2(
    examples: Sequence[SquadExample], predictions: Mapping[str, str]
) -> dict[str, list[float]]:
    """`exact` and `f1` of SQuAD 2.0 for each question, from 0 to 1.

    Raises UserError naming a question without prediction.
    """
    return {
        name: list(_scores(examples, predictions, measure).values()) for name, measure in _MEASURES.items()
    }


def best_thresholds(
    examples: Sequence[SquadExample], predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> dict[str, float]:
    """The best scores that a null threshold can give, and these thresholds.

    Questions with null odds up to the threshold are answered. A threshold is 0 if it is best to answer
    nothing, as in evaluate-v2.0.py.

    Returns:
      `best_exact`, `best_exact_thresh`, `best_f1` and `best_f1_thresh`.
    """
    result = {}
    for name, measure in _MEASURES.items():
        totals = _totals(examples, predictions, null_odds, measure)
        threshold, total = max(totals, key=operator.itemgetter(1))
        result[f"best_{name}"] = 100 * total / len(examples)
        result[f"best_{name}_thresh"] = 0.0 if threshold is None else threshold
    return result


def tune_null_threshold(examples: Sequence[SquadExample], answers: Sequence[PredictedAnswer]) -> float:
    """The null threshold with the best F1 for these answers: in the middle between two neighbouring odds.

    So rounding does not decide any of these answers. It is below all odds if answering nothing is best, and
    above all if answering everything is.
    """
    odds = {answer.id: answer.null_odds for answer in answers}
    texts = {answer.id: answer.best.text for answer in answers}
    # Of equal odds the last total counts: a threshold answers all of these questions or none.
    totals = dict(_totals(examples, texts, odds, _f1_or_equal))
    highest_answered, _ = max(totals.items(), key=operator.itemgetter(1))
    if highest_answered is None:
        return min(odds.values()) - 1.0
    lowest_unanswered = min(
        (o for o in odds.values() if o > highest_answered), default=highest_answered + 2.0
    )
    return (highest_answered + lowest_unanswered) / 2


Measure = Callable[[str, str], float]


def _totals(
    examples: Sequence[SquadExample],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    measure: Measure,
) -> Iterator[tuple[float | None, float]]:
    """Each threshold, in rising order, with the sum of the scores; the first, None, answers nothing.

    As in evaluate-v2.0.py, questions are added one by one, even those of equal odds.
    """
    scores = _scores(examples, predictions, measure)
    has_answer = {example.id: bool(example.answers) for example in examples}
    total = float(sum(not answer for answer in has_answer.values()))
    yield None, total
    for name in sorted(null_odds, key=lambda name: null_odds[name]):
        if has_answer[name]:
            total += scores[name]
        elif predictions[name]:
            total -= 1
        yield null_odds[name], total


def _scores(
    examples: Sequence[SquadExample], predictions: Mapping[str, str], measure: Measure
) -> dict[str, float]:
    """For each question the best score over its answers; a question without answers is scored against ""."""
    scores = {}
    for example in examples:
        if example.id not in predictions:
            raise UserError(f"question {example.id} has no prediction; SQuAD 2.0 asks for one of each")
        golds = [answer.text for answer in example.answers if _normalise(answer.text)] or [""]
        scores[example.id] = max(measure(gold, predictions[example.id]) for gold in golds)
    return scores


def _normalise(text: str) -> str:
    """The text in lower case, without ASCII punctuation and English articles, with single blanks."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _words(text: str) -> list[str]:
    return _normalise(text).split()


def _exact(gold: str, predicted: str) -> float:
    return float(_normalise(gold) == _normalise(predicted))


def _f1_or_equal(gold: str, predicted: str) -> float:
    """F1 of SQuAD 2.0, where two texts without words are equal; in 1.1 they have nothing in common."""
    golds, predictions = _words(gold), _words(predicted)
    return _overlap(golds, predictions) if golds and predictions else float(golds == predictions)


_MEASURES: Mapping[str, Measure] = {"exact": _exact, "f1": _f1_or_equal}
"""Those of SQuAD 2.0."""


def _overlap(golds: list[str], predictions: list[str]) -> float:
    common = (Counter(golds) & Counter(predictions)).total()
    if not common:
        return 0.0
    precision, recall = common / len(predictions), common / len(golds)
    return 2 * precision * recall / (precision + recall)
