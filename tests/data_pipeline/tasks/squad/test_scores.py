"""Scores of answers against SQuAD's definitions, written out anew."""

import re
import string
from collections import Counter

import numpy as np
import pytest

from data_pipeline.errors import UserError
from data_pipeline.tasks.squad.answers import Candidate, PredictedAnswer, no_answer
from data_pipeline.tasks.squad.questions import Answer, SquadExample
from data_pipeline.tasks.squad.scores import (
    best_thresholds,
    score_squad_1,
    score_squad_2,
    tune_null_threshold,
)

WORDS = ["the", "The", "a", "an", "king", "King's", "1895", "—", "«", "Ünïcode", "İstanbul", "ß", "東京"]
WORDS += ["theatre", "", " ", "\u00a0", "\u200b", "$", "!", "can't", "ﬁ", "①", "e\u0301", "é"]


def clean(text: str) -> str:
    """Lower case; drop ASCII punctuation; articles are blanks; blanks are single."""
    kept = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def f1(gold: str, predicted: str, both_empty: float) -> float:
    golds, predictions = clean(gold).split(), clean(predicted).split()
    if not golds and not predictions:
        return both_empty
    common = sum((Counter(golds) & Counter(predictions)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(predictions), common / len(golds)
    return 2 * precision * recall / (precision + recall)


def literal_scores_1(examples, predictions) -> dict[str, float]:
    exact = total_f1 = 0.0
    for example in examples:
        golds = [answer.text for answer in example.answers]
        if example.id in predictions:
            predicted = predictions[example.id]
            exact += any(clean(gold) == clean(predicted) for gold in golds)
            total_f1 += max(f1(gold, predicted, both_empty=0.0) for gold in golds)
    return {"exact_match": 100 * exact / len(examples), "f1": 100 * total_f1 / len(examples)}


def literal_raw_2(examples, predictions) -> dict[str, tuple[float, float]]:
    raw = {}
    for example in examples:
        golds = [answer.text for answer in example.answers if clean(answer.text) != ""]
        golds = golds if golds else [""]
        predicted = predictions[example.id]
        raw[example.id] = (
            max(int(clean(gold) == clean(predicted)) for gold in golds),
            max(f1(gold, predicted, both_empty=1.0) for gold in golds),
        )
    return raw


def literal_scores_2(examples, predictions) -> dict[str, float]:
    raw = literal_raw_2(examples, predictions)
    result = {}
    for prefix, wanted in (("", None), ("HasAns_", True), ("NoAns_", False)):
        ids = [e.id for e in examples if wanted is None or bool(e.answers) == wanted]
        if ids:
            result[prefix + "exact"] = 100.0 * sum(raw[i][0] for i in ids) / len(ids)
            result[prefix + "f1"] = 100.0 * sum(raw[i][1] for i in ids) / len(ids)
            result[prefix + "total"] = len(ids)
    return result


def literal_thresholds(examples, predictions, odds) -> dict[str, float]:
    raw, has_answer = literal_raw_2(examples, predictions), {e.id: bool(e.answers) for e in examples}
    result = {}
    for place, name in enumerate(("exact", "f1")):
        score = sum(1 for answered in has_answer.values() if not answered)
        best_score, threshold = score, 0.0
        for i in sorted(odds, key=lambda i: odds[i]):
            score += raw[i][place] if has_answer[i] else (-1 if predictions[i] else 0)
            if score > best_score:
                best_score, threshold = score, odds[i]
        result[f"best_{name}"], result[f"best_{name}_thresh"] = 100.0 * best_score / len(raw), threshold
    return result


def random_text(rng: np.random.Generator) -> str:
    return str(rng.choice([" ", ""])).join(rng.choice(WORDS, rng.integers(0, 5)))


def random_questions(rng: np.random.Generator, count: int, fewest_answers: int):
    """Examples, predictions (often a gold answer or nothing) and null odds with ties."""
    examples, predictions = [], {}
    for number in range(count):
        golds = [random_text(rng) for _ in range(rng.integers(fewest_answers, 4))]
        answers = tuple(Answer(gold, 0) for gold in golds)
        examples.append(SquadExample(f"q{number}", "?", "x", answers, is_impossible=not golds))
        predictions[f"q{number}"] = str(rng.choice([random_text(rng), *golds, ""]))
    odds = {name: float(rng.integers(-200, 200)) for name in predictions}
    return examples, predictions, odds


@pytest.mark.parametrize("seed", range(5))
def test_squad_1_scores_are_those_of_the_definition(seed):
    examples, predictions, _ = random_questions(np.random.default_rng(seed), 500, fewest_answers=1)
    del predictions["q7"]
    # From Python 3.12 on, `sum` rounds once, at its end.
    assert score_squad_1(examples, predictions) == pytest.approx(
        literal_scores_1(examples, predictions), rel=1e-12
    )


@pytest.mark.parametrize("seed", range(5))
def test_squad_2_scores_and_thresholds_are_those_of_the_definition(seed):
    examples, predictions, odds = random_questions(np.random.default_rng(seed), 500, fewest_answers=0)
    scores = score_squad_2(examples, predictions)
    assert scores == literal_scores_2(examples, predictions)
    assert scores["HasAns_total"] + scores["NoAns_total"] == scores["total"] == 500
    assert best_thresholds(examples, predictions, odds) == literal_thresholds(examples, predictions, odds)


def test_two_answers_without_words_are_equal_but_only_squad_2_gives_them_f1():
    example = SquadExample("q", "?", "x", (Answer("The", 0),), is_impossible=False)
    assert score_squad_1([example], {"q": "a."}) == {"exact_match": 100.0, "f1": 0.0}
    assert score_squad_2([example], {"q": "a."})["f1"] == 100.0


def test_an_article_leaves_a_blank():
    example = SquadExample("q", "?", "x", (Answer("king— —Paris", 0),), is_impossible=False)
    assert score_squad_1([example], {"q": "King—the—Paris"}) == {"exact_match": 100.0, "f1": 100.0}


def predicted(name: str, text: str, odds: float) -> PredictedAnswer:
    best = Candidate(text, 0, 0.0, 0.0)
    return PredictedAnswer(name, best, no_answer(odds, 0.0), odds, (best,))


def f1_at(examples, answers, threshold: float) -> float:
    return score_squad_2(examples, {a.id: a.text(threshold) for a in answers})["f1"]


def test_the_tuned_threshold_gives_the_best_f1_of_all_thresholds():
    rng = np.random.default_rng(0)
    texts = ["king", "king of Paris", "in Paris", "1895"]
    golds = [(Answer(text, 0),) if text else () for text in rng.choice(["", *texts], 200)]
    examples = [SquadExample(f"q{n}", "?", "x", gold, not gold) for n, gold in enumerate(golds)]
    answers = [predicted(e.id, str(rng.choice(texts)), float(rng.normal())) for e in examples]
    tuned = f1_at(examples, answers, tune_null_threshold(examples, answers))
    everywhere = [f1_at(examples, answers, t) for t in (-99.0, *(answer.null_odds for answer in answers))]
    assert tuned == pytest.approx(max(everywhere))
    assert min(everywhere) < tuned


@pytest.mark.parametrize(("odds", "threshold"), [((1.0, 2.0, 5.0), 3.5), ((1.0, 2.0, 2.0), 3.0)])
def test_no_question_has_the_tuned_threshold_for_its_odds(odds: tuple[float, ...], threshold: float):
    golds = [(Answer("king", 0),) if number < 5 else () for number in odds]
    examples = [SquadExample(f"q{n}", "?", "x", gold, not gold) for n, gold in enumerate(golds)]
    answers = [predicted(example.id, "king", o) for example, o in zip(examples, odds, strict=True)]
    assert tune_null_threshold(examples, answers) == threshold


def test_questions_of_equal_odds_are_answered_together_or_not_at_all():
    """Answering only the first of the three would give the best F1, but no threshold does."""
    golds = [(Answer("king", 0),), (), (), (Answer("king", 0),)]
    examples = [SquadExample(f"q{n}", "?", "x", gold, not gold) for n, gold in enumerate(golds)]
    odds = (0.0, 0.0, 0.0, 1.0)
    answers = [predicted(example.id, "king", o) for example, o in zip(examples, odds, strict=True)]
    assert f1_at(examples, answers, tune_null_threshold(examples, answers)) == 50
    texts, null_odds = (
        {e.id: "king" for e in examples},
        dict(zip((e.id for e in examples), odds, strict=True)),
    )
    assert best_thresholds(examples, texts, null_odds)["best_f1"] == 75  # as evaluate-v2.0.py says


def test_the_tuned_threshold_answers_nothing_if_that_is_best():
    examples = [SquadExample("q", "?", "x", (), is_impossible=True)]
    answers = [predicted("q", "king", -5.0)]
    assert answers[0].text(tune_null_threshold(examples, answers)) == ""


def test_what_cannot_be_scored_is_named():
    without = SquadExample("q", "?", "x", (), is_impossible=False)
    with pytest.raises(UserError, match="question q has no answer to score by"):
        score_squad_1([without], {"q": "x"})
    with pytest.raises(UserError, match="question q has no prediction"):
        score_squad_2([without], {})
