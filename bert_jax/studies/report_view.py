"""What the report of a study says: numbers as text, notes, findings, settings and costs."""

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from bert_jax.studies.csv_files import CSV_FILE, DIFFERENCES_FILE
from bert_jax.studies.plan import Plan
from bert_jax.studies.results import StudyResults
from bert_jax.studies.statistics import FEWEST_SEEDS, Difference, least_distinguishable
from bert_jax.studies.tables import Cell, StudyTable, Verdict, several_steps
from bert_jax.study import Measure
from bert_jax.training.accounting import flops_done
from bert_jax.workdir.config_text import flatten

_NOT_OF_AN_ARM = ("seed", "data.corpus")
CAPTIONS = {
    "scores-flops": ("Scores against FLOPs", "Means over seeds; bars and bands are their range."),
    "scores-steps": ("Scores against pretraining steps", "Lines are means over seeds, bands their range."),
    "pretraining-steps": ("Pretraining against steps", "Lines are means over seeds, bands their range."),
    "pretraining-flops": ("Pretraining against FLOPs", "Lines are means over seeds, bands their range."),
}
"""Figure -> title and caption, in the order of the report; `differences` stands beside its table."""

_OTHER_QUESTIONS = (
    "Each arm is evaluated on pairs and masks of its own settings: where its data differ from another's, so "
    "do the questions, and these curves do not compare the two."
)

_NUMBERS_OF_SEEDS = (3, 5, 10)
"""For which the report of a study with one arm says what is noise."""
_NOISE = (
    "With so many pretraining seeds in each of two arms, the arms must differ by more than this for the 95% "
    "interval of the difference to exclude 0, if the scores of both vary from seed to seed as those of {} do."
    " Test items add to it."
)
_HOW_TO_READ = (
    "Each cell is the mean over pretraining seeds ± their standard deviation. The value of one seed is the "
    "mean over its fine-tuning seeds, with the hyperparameters that are best on the dev set. Degenerate "
    "trials, which predict the same for every item, are included.",
    "Scores of fine-tuning and of minimal pairs are in percent, and correlations are multiplied by 100; "
    "errors are as they are. Held-out metrics are those of `bert-jax evaluate`: accuracies are fractions "
    "from 0 to 1, losses are in nats.",
    "Differences are paired by pretraining seed. The 95% interval is the range in which the difference would "
    'be expected with other seeds and other test items; "over seeds alone" means other seeds on these test '
    "items. If it contains 0, these seeds and items cannot tell the arms apart, which does not show that "
    "they are equal. Intervals are not corrected for multiple comparisons: even if no arm differed from the "
    "base, about one interval in twenty would exclude 0.",
    f"{CSV_FILE} has each score that the tables are made of, and {DIFFERENCES_FILE} each difference.",
)


@dataclasses.dataclass(frozen=True)
class TextCell:
    """A cell of the table as text."""

    ours: str
    order: float | None
    """What the column is sorted by; None: last."""
    paper: str
    difference: str
    words: str
    """What the interval says."""
    difference_order: float | None
    paper_difference: str
    notes: str
    """Seeds that are missing, and trials that diverged or degenerated."""
    values: str
    """Of each pretraining seed."""
    finetuning: list[str]
    """Standard deviation of fine-tuning seeds, and the hyperparameters that were chosen."""


def make_view(results: StudyResults, table: StudyTable) -> dict[str, Any]:
    """What both templates show, and the terminal shows a part of, by name."""
    plan, study = results.plan, table.study
    columns = [column.column for column in study.measures]
    decimals = {column.column: _decimals(table, column) for column in study.measures}
    rows = [
        (arm, [_text_cell(table.cells.get((arm, heading)), decimals[heading]) for heading in columns])
        for arm in study.arms
    ]
    return {
        "plan": plan,
        "results": results,
        "seeds": plan.scale.seeds,
        "fewest_seeds": FEWEST_SEEDS,
        "only_guessing": _only_guessing(results),
        "base": study.base,
        "from_scratch": [name for name, arm in study.arms.items() if arm.from_scratch],
        "columns": columns,
        "has_paper": any(cell.published is not None for cell in table.cells.values()),
        "rows": rows,
        "between_arms": [
            (pair, [(_difference(of[h], max(decimals[h], 2)), _words(of[h])) for h in columns])
            for pair, of in table.between_arms.items()
        ],
        "notes": _grouped_notes(rows, columns),
        "least_differences": _least_differences(table, decimals) if len(study.arms) == 1 else [],
        "noise": _NOISE.format(study.base),
        "findings": list(_findings(table)),
        "by_step": {
            heading: _by_step(table, heading, decimals[heading])
            for heading, cells in table.by_step.items()
            if several_steps(cells)
        },
        "settings": _settings(plan),
        "has_claims": any(arm.claim for arm in study.arms.values()),
        "costs": _costs(results),
        "shared": _shared(plan),
        "captions": _captions(plan),
        "how_to_read": _HOW_TO_READ,
        "higher": {column.column: column.higher_is_better for column in study.measures},
    }


def _least_differences(table: StudyTable, decimals: Mapping[str, int]) -> list[tuple[int, list[str]]]:
    """Numbers of seeds, and for each column how far apart two arms like the base must then be."""

    def text(heading: str, seeds: int) -> str:
        cell = table.cells.get((table.study.base, heading))
        if cell is None or cell.stdev is None:
            return "-"
        return f"{least_distinguishable(cell.stdev, seeds):.{max(decimals[heading], 2)}f}"

    return [(seeds, [text(heading, seeds) for heading in decimals]) for seeds in _NUMBERS_OF_SEEDS]


def _by_step(
    table: StudyTable, heading: str, decimals: int
) -> tuple[list[str], list[tuple[str, list[TextCell | None]]]]:
    """The steps at which a column was measured, and for each arm that has it a cell for each of them."""
    cells = table.by_step[heading]
    steps, arms = sorted({step for _, step in cells}), {arm for arm, _ in cells}
    rows = [
        (arm, [_text_cell(cells.get((arm, step)), decimals) for step in steps])
        for arm in table.study.arms
        if arm in arms
    ]
    return [f"{step:,}" for step in steps], rows


def _text_cell(cell: Cell | None, decimals: int) -> TextCell | None:
    """None for an arm that is not measured so."""
    if cell is None:
        return None
    paper = cell.published_difference
    return TextCell(
        ours=_ours(cell, decimals),
        order=cell.mean,
        paper="" if cell.published is None else f"{cell.published:g}",
        difference=_difference(cell.difference, max(decimals, 2)),
        words=_words(cell.difference),
        difference_order=cell.difference.mean if cell.difference else None,
        paper_difference="" if paper is None else f"{round(paper, 2):+g}",
        notes=_notes(cell),
        values=", ".join(f"{value:.{decimals}f}" for value in cell.values.values()),
        finetuning=_finetuning(cell, decimals),
    )


def _decimals(table: StudyTable, column: Measure) -> int:
    """Of percent and large perplexities one; of fractions, losses and perplexities below 10 three."""
    means = [cell.mean or 0 for (_, heading), cell in table.cells.items() if heading == column.column]
    return 1 if max(map(abs, means), default=0) > (1 if column.higher_is_better else 10) else 3


def _ours(cell: Cell, decimals: int) -> str:
    if cell.mean is None:
        return "-"
    mean = f"{cell.mean:.{decimals}f}"
    return mean if cell.stdev is None else f"{mean} ± {cell.stdev:.{decimals}f}"


def _difference(difference: Difference | None, decimals: int) -> str:
    if difference is None:
        return ""
    text = f"{difference.mean:+.{decimals}f}"
    if difference.interval is None:
        return text
    low, high = difference.interval
    return f"{text} [{low:+.{decimals}f}, {high:+.{decimals}f}]"


def _words(difference: Difference | None) -> str:
    if difference is None:
        return ""
    if difference.interval is None:
        return "no interval"
    words = [] if difference.is_distinguishable else ["not distinguishable"]
    return ", ".join(words + ["over seeds alone"] * (difference.num_items is None))


def _notes(cell: Cell) -> str:
    notes = []
    if len(cell.values) < cell.num_seeds:
        notes.append(f"{len(cell.values)} of {cell.num_seeds} seeds")
    for count, what in ((cell.num_diverged, "diverged"), (cell.num_degenerate, "degenerate")):
        if count:
            notes.append(f"{count} of {cell.num_trials} trials {what}")
    return "; ".join(notes)


def _finetuning(cell: Cell, decimals: int) -> list[str]:
    parts = []
    if cell.finetuning_stdev is not None:
        parts.append(f"fine-tuning seeds ± {cell.finetuning_stdev:.{decimals}f}")
    chosen = collections.Counter(filter(None, cell.hyperparameters.values()))
    return parts + [f"{name} ({count} of {len(cell.values)})" for name, count in chosen.most_common()]


def _grouped_notes(
    rows: Sequence[tuple[str, Sequence[TextCell | None]]], columns: Sequence[str]
) -> dict[tuple[str, str], list[str]]:
    """(Arm, note) -> the columns that it is about."""
    found: dict[tuple[str, str], list[str]] = {}
    for arm, cells in rows:
        for column, cell in zip(columns, cells, strict=True):
            if cell and cell.notes:
                found.setdefault((arm, cell.notes), []).append(column)
    return found


def _findings(table: StudyTable) -> Iterator[str]:
    """For each column which of the paper's orders of two arms came out again."""
    for heading, orders in table.orders.items():
        parts = []
        for verdict in get_args(Verdict):
            worse: dict[str, list[str]] = {}
            for order in orders:
                if order.verdict == verdict:
                    worse.setdefault(order.better, []).append(order.worse)
            if worse:
                named = [f"{better} over {' and '.join(arms)}" for better, arms in worse.items()]
                parts.append(f"{verdict} for {', and '.join(named)}")
        if parts:
            yield f"{heading}: the paper's order is {'; '.join(parts)}."


def _settings(plan: Plan) -> list[tuple[str, str, str]]:
    """Each arm but the base, in which settings it differs from the base, and what its source claims."""
    arms, of_scale = plan.study.arms, plan.scale.finetuning
    of_arms = {}
    for name, experiment in plan.experiments.items():
        settings = {k: v for k, v in flatten(experiment).items() if k not in _NOT_OF_AN_ARM}
        finetuning = {k: v for k, v in arms[name].finetuning.items() if k not in of_scale}
        of_arms[name] = settings | {f"fine-tuning {k}": v for k, v in finetuning.items()}
    of_base = of_arms.pop(plan.study.base)
    rows = []
    for name, settings in of_arms.items():
        both = {key: (settings.get(key, "-"), of_base.get(key, "-")) for key in {**settings, **of_base}}
        differ = [f"{key} {own} (base: {other})" for key, (own, other) in both.items() if own != other]
        rows.append((name, "; ".join(differ) or "none", arms[name].claim))
    return rows


def _captions(plan: Plan) -> dict[str, tuple[str, str]]:
    """`CAPTIONS`, with a warning where the held-out metrics of the arms do not compare."""
    if len({experiment.data for experiment in plan.experiments.values()}) == 1:
        return CAPTIONS
    return {
        name: (title, f"{caption} {_OTHER_QUESTIONS}" if name.startswith("pretraining") else caption)
        for name, (title, caption) in CAPTIONS.items()
    }


def _shared(plan: Plan) -> list[tuple[str, str]]:
    """Pairs of arms whose pretraining is the same one."""
    pairs = itertools.combinations(plan.experiments.items(), 2)
    return [(one, other) for (one, settings), (other, others) in pairs if settings == others]


def _only_guessing(results: StudyResults) -> dict[str, list[int]]:
    """Arm -> seeds whose pretraining has ended hardly better than guessing."""
    found: dict[str, list[int]] = {}
    for run in results.runs:
        if run.only_guesses:
            found.setdefault(run.arm, []).append(run.seed)
    return found


def _costs(results: StudyResults) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for arm, experiment in results.plan.experiments.items():
        runs = [run for run in results.runs if run.arm == arm]
        devices = ", ".join(dict.fromkeys(run.devices for run in runs if run.devices))
        size = experiment.objective.num_parameters(experiment.model)
        steps, of_steps = sum(run.step for run in runs), len(runs) * experiment.num_train_steps
        flops = sum(flops_done(experiment, run.step) for run in runs)
        seconds = sum(run.seconds for run in runs)
        rows.append(
            {
                "arm": arm,
                "parameters": (size, f"{size / 1e6:,.1f} M"),
                "steps": (steps, f"{steps:,} of {of_steps:,}"),
                "FLOPs": (flops, f"{flops:.2e}"),
                "hours": (seconds, f"{seconds / 3600:.2f}"),
                "devices": devices or "-",
            }
        )
    return rows
