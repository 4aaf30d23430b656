"""What came of a grid's trials, on disk: a result for each, the link to the best one, and `results.json`."""

import dataclasses
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from bert_jax.finetuning_config import Trial
from bert_jax.task import Metric
from bert_jax.tasks.finetuning.results import best_of, by_seed, read_results, score_of, trial_of
from bert_jax.tasks.finetuning.task import Outcome
from bert_jax.training.checkpoint_files import DIRECTORY
from bert_jax.training.checkpoints import saved_steps
from bert_jax.training.nonfinite import NonFiniteError
from bert_jax.workdir.grid import BEST_DIRECTORY, RESULT_FILE, RESULTS_FILE, TRIALS_DIRECTORY, write_items
from data_pipeline.atomic import write_json
from data_pipeline.errors import UserError


class Outcomes:
    """The results in the directory of a grid, those of other processes and earlier starts included."""

    def __init__(self, output: Path, metric: Metric, metrics: Sequence[Metric]) -> None:
        """
        Args:
          output: directory of the grid.
          metric: chooses the best trial.
          metrics: all that can choose it.
        """
        self._output, self._metric, self._metrics = output, metric, metrics

    def directory_of(self, trial: Trial) -> Path:
        """The directory of a trial."""
        return self._output / TRIALS_DIRECTORY / trial.name

    def is_finished(self, trial: Trial) -> bool:
        """Whether a trial has a result."""
        return (self.directory_of(trial) / RESULT_FILE).exists()

    def check_best(self) -> None:
        """Raises UserError if `best` is a directory and no link, as after a copy that followed links.

        Also if another trial is best by this metric and its checkpoint is gone: only the best one's is kept.
        """
        link = self._output / BEST_DIRECTORY
        if link.is_dir() and not link.is_symlink():
            raise UserError(
                f"{link} is a directory, and no link to the best one of {TRIALS_DIRECTORY}; move it away"
            )
        if not link.is_symlink() or not self.has_score():
            return
        kept, best = link.readlink().name, trial_of(best_of(read_results(self._output), self._metric))
        if best.name != kept and not saved_steps(self.directory_of(best)):
            raise UserError(
                f"{self.directory_of(best)} is best by {self._metric.name}, but its checkpoint was deleted "
                f"when {kept} was chosen by another metric; give that --metric, or another --output"
            )

    def check_diverged(self) -> None:
        """Raises NonFiniteError if all trials did, in this start or before."""
        said = [result["diverged"] for result in read_results(self._output)]
        if all(said):
            raise NonFiniteError(said[-1])

    def has_score(self) -> bool:
        """Whether a finished trial has a score that is a number."""
        results = read_results(self._output)
        return not all(math.isnan(score_of(result, self._metric)) for result in results)

    def write(self, trial: Trial, outcome: Outcome, diverged: str | None = None) -> None:
        """Writes a trial's result, which marks it as finished; `diverged` says how, if it did."""
        result = {
            "trial": trial.name,
            **dataclasses.asdict(trial),
            "metrics": outcome.metrics,
            "degenerate": outcome.degenerate,
            "diverged": diverged,
            "examples": outcome.examples,
        }
        if outcome.items:
            write_items(self.directory_of(trial), outcome.items)
        # Last, as it marks the trial as finished.
        write_json(self.directory_of(trial) / RESULT_FILE, result)

    def keep_best(self) -> None:
        """Links `best` to the best finished trial, writes `results.json`, deletes the others' checkpoints."""
        results = read_results(self._output)
        best = best_of(results, self._metric)["trial"]
        link = self._output / BEST_DIRECTORY
        beside = self._output / f".{BEST_DIRECTORY}"
        beside.unlink(missing_ok=True)
        beside.symlink_to(Path(TRIALS_DIRECTORY) / best, target_is_directory=True)
        beside.replace(link)
        self.write_table()
        for result in results:
            if result["trial"] != best:
                shutil.rmtree(self.directory_of(trial_of(result)) / DIRECTORY, ignore_errors=True)

    def write_table(self) -> None:
        """Writes `results.json`: the finished trials, singly and over seeds, and the best one."""
        results = read_results(self._output)
        content = {
            "metric": dataclasses.asdict(self._metric),
            "best": best_of(results, self._metric),
            "trials": results,
            "rows": by_seed(results, self._metric),
            "by_metric": [
                {"metric": dataclasses.asdict(one), "rows": by_seed(results, one)} for one in self._metrics
            ],
        }
        write_json(self._output / RESULTS_FILE, content)
