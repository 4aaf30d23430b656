"""Trains the trials of a grid, each in its directory, and keeps the best one's model.

A finished trial leaves `result.json`, so an interrupted grid resumes with the trials that it was training.
Several processes may share a grid: each trains one trial after the other, under leases (`turns.py`).
"""

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict

from bert_jax.config import ParallelConfig
from bert_jax.finetuning_config import FineTuningConfig, Trial
from bert_jax.formats.huggingface_tokenizer import TOKENIZER_FILE
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.parallel.interrupt import Interrupt, Interrupted
from bert_jax.tasks.finetuning.dealing import parent_of_helper
from bert_jax.tasks.finetuning.feature_cache import FeatureCache
from bert_jax.tasks.finetuning.flags import Finetune
from bert_jax.tasks.finetuning.outcomes import Outcomes
from bert_jax.tasks.finetuning.outputs import predict
from bert_jax.tasks.finetuning.packing import find_packing
from bert_jax.tasks.finetuning.predictor import prediction_run
from bert_jax.tasks.finetuning.results import best_of, find_metric, read_results, score_of, trial_of
from bert_jax.tasks.finetuning.task import Apply, Outcome, TaskData
from bert_jax.tasks.finetuning.trials import Programs, trial_config
from bert_jax.tasks.finetuning.turns import Turns
from bert_jax.training.checkpoints import load_params, saved_steps
from bert_jax.training.loop import TrainingData, train
from bert_jax.training.nonfinite import NonFiniteError
from bert_jax.training.program import Program
from bert_jax.training.progress import duration
from bert_jax.training.train_step import Params
from bert_jax.training.warm_start import start_from
from bert_jax.workdir.finetuning import FineTuningRecord, check_same, read_record, write_record
from bert_jax.workdir.grid import write_trials
from bert_jax.workdir.provenance import describe_code_changes, this_start
from bert_jax.workdir.record import describe_layout_changes
from data_pipeline.errors import UserError
from data_pipeline.stand_in import with_urls
from data_pipeline.tasks.finetuning.batches import evaluation_batches, lengths_up_to, training_batches
from data_pipeline.tasks.finetuning.packing import Packing
from data_pipeline.tasks.finetuning.rows import Rows

# Evaluation batch size as a multiple of the training batch size; there are no gradients to hold.
_EVALUATION_FACTOR = 2


class Grid:
    """The trials of one `bert-jax finetune`."""

    def __init__(self, args: Finetune[Any], model: PretrainedModel, data: TaskData) -> None:
        model.check_ids([rows.highest_id for rows in (data.train, *data.evaluated.values())])
        if args.training.keep_head:
            kind = args.settings.head(args.task, FineTuningConfig()).kind
            model = model.with_head(kind, data.labels, args.training.features)
        self.args = args
        self.model = model
        self.data = data
        self.metric = find_metric(data.metrics, args.training.metric)
        self.trials: list[Trial] = args.training.trials()
        self.make_head = functools.partial(args.settings.head, args.task)
        self.programs = Programs(self.make_head)
        self.outcomes = Outcomes(args.output, self.metric, data.metrics)
        self.turns = Turns(args.output, self.trials, self.outcomes.is_finished, parent_of_helper())
        self.model_fingerprint = model.fingerprint()
        self.data_fingerprint = data.train.fingerprint()
        self.lengths = lengths_up_to(args.settings.max_seq_length)
        self.base = args.training.config(model.config, num_labels=max(len(data.labels), 1))
        # All of them now, so that an impossible one is reported before the first is trained.
        self.configs = {trial: trial_config(self.base, trial, len(data.train)) for trial in self.trials}
        for config in self.configs.values():
            config.check_devices(jax.device_count())
            self.make_head(config).check(data.train)
        self.head = self.make_head(self.configs[self.trials[0]])
        self._params = self.head.abstract_params()
        self._check_something_is_trained()
        self.with_features = self._feature_cache()

    def _feature_cache(self) -> FeatureCache | None:
        """What computes the features once, if the encoder is frozen as a whole."""
        config = self.head.config.encoder
        if self.base.rates.frozen_layers != config.num_layers:
            return None
        encoder, layers = self.model.params["encoder"], self.base.features.layers
        alone = functools.partial(self.turns.alone, "features")
        return FeatureCache(self.args.output, encoder, self.model_fingerprint, config, layers, alone)

    def _prepared(self, rows: Rows, trial: Trial, after_batch: Callable[[], None]) -> Rows:
        # The best trial of an earlier start may see a layer that this grid does not compute.
        is_kept = trial.layer is None or trial.layer in self.base.features.layers
        return self.with_features(rows, trial.layer, after_batch) if self.with_features and is_kept else rows

    def _check_something_is_trained(self) -> None:
        if not any(self.head.learning_rate_scale(path) for path in flatten_dict(self._params)):
            frozen = self.base.rates.frozen_layers
            raise UserError(f"--frozen-layers {frozen} leaves {self.args.task} nothing to train; give fewer")

    def describe_start(self) -> str | None:
        """A line to print if the model lacks a pooler that the task needs; None if only the head is new."""
        if "pooler" in self.model.params or "pooler" not in self._params:
            return None
        return f"note: {self.model.name} lacks a pooler; like the head, it is drawn from each trial's seed"

    def begin(self) -> None:
        """Checks what the output holds already, and names the trials in it.

        Raises:
          UserError: the output has trials of other settings or data, or a directory in place of the link
          `best`.
        """
        with self.turns.alone("grid"):
            self._check_others()
            self.outcomes.check_best()
            self._check_begun(self.turns.unfinished())
            # Whoever reads the output meanwhile can then tell that trials are still to come.
            write_trials(self.args.output, [trial.name for trial in self.trials])

    def train(self, interrupt: Interrupt) -> None:
        """Trains the trials that are not finished.

        A trial that diverges counts as finished, with a score of NaN, which ranks below all others. A helper
        (`dealing.py`) leaves what concerns the whole grid to the process that started it.

        Raises:
          Interrupted: it was asked to stop, and has saved what it did.
          NonFiniteError: all trials diverged.
        """
        with contextlib.closing(self._announced(interrupt)) as trials:
            for trial in trials:
                self._check_begun([trial])  # another process may have begun it meanwhile
                try:
                    self._train_trial(trial, interrupt)
                except NonFiniteError as error:
                    unknown = {metric.name: math.nan for metric in self.data.metrics}
                    self.outcomes.write(trial, Outcome(unknown), diverged=str(error))
                with self.turns.alone("grid"):
                    self.outcomes.keep_best()
        if parent_of_helper():
            return
        if self.turns.unfinished():
            raise Interrupted  # the request to stop came between two trials
        with self.turns.alone("grid"):
            self.outcomes.keep_best()  # a start may have ended after a trial's result but before this
            self._test_again(interrupt)
            if self.with_features:
                self.with_features.clear()
            self.outcomes.check_diverged()

    def _announced(self, interrupt: Interrupt) -> Generator[Trial, None, None]:
        """The trials that this process takes, each after a line that says how long all will take."""
        began = time.perf_counter()
        epochs_at_first = self._epochs_left()
        with contextlib.closing(self.turns.take(interrupt)) as trials:
            for trial in trials:
                line = f"trial {self.trials.index(trial) + 1} of {len(self.trials)}: {trial.name}"
                left = self._epochs_left()
                if epochs_at_first > left:
                    pace = (time.perf_counter() - began) / (epochs_at_first - left)
                    line += f"; about {duration(pace * left)} left for all"
                print(line, flush=True)
                yield trial

    def _epochs_left(self) -> float:
        return sum(trial.epochs for trial in self.turns.unfinished())

    def _train_trial(self, trial: Trial, interrupt: Interrupt) -> None:
        config = self.configs[trial]
        if config not in self.programs:
            print("compiling the step; trials of the same batch size share it", flush=True)
        program = self.programs.get(config)
        packing = self._begin(trial, config)
        training = functools.partial(
            training_batches,
            self._prepared(self.data.train, trial, interrupt.check),
            batch_size=trial.batch_size,
            seed=trial.seed,
            num_steps=config.num_train_steps,
            lengths=self.lengths,
            packing=packing,
        )
        identity = {
            "seed": trial.seed,
            "data": self.args.data,
            "batch_size": trial.batch_size,
            "packing": packing and dataclasses.asdict(packing),
        }
        train(
            program,
            TrainingData(training=lambda step: training(first_step=step), identity=identity),
            self.outcomes.directory_of(trial),
            interrupt,
            evaluation=lambda params, _, after_batch: self.data.evaluate(
                self._apply(trial, program, params, after_batch)
            ),
            start=functools.partial(start_from, program, self.model.params),
        )
        # Last: a result marks its trial as finished.
        self.outcomes.write(trial, self._predict(trial, program, interrupt.check))

    def _begin(self, trial: Trial, config: FineTuningConfig) -> Packing | None:
        """Writes a trial's tokenizer and `config.json` into its directory, and returns its packing.

        A resumed trial keeps the packing that it was begun with. None: rows do not share lines.
        """
        directory = self.outcomes.directory_of(trial)
        directory.mkdir(parents=True, exist_ok=True)
        record, start = self._record(config), this_start()
        if saved_steps(directory):
            before = read_record(directory)
            for line in describe_layout_changes(before.config, config):
                print(line, flush=True)
            for line in describe_code_changes(before.starts[-1], start):
                print(line, flush=True)
            record = dataclasses.replace(record, starts=before.starts, packing=before.packing)
        elif packing := find_packing(self.make_head(config), self.data.train, self.lengths):
            record = dataclasses.replace(record, packing=dataclasses.asdict(packing))
        self.model.tokenizer.save(str(directory / TOKENIZER_FILE))
        write_record(directory, dataclasses.replace(record, starts=(*record.starts, start)))
        if record.packing is None:
            return None
        unit = config.parallel.batch_unit(jax.device_count())
        return dataclasses.replace(Packing(**record.packing), unit=unit)

    def _check_others(self) -> None:
        """Raises UserError if a finished trial differs from this grid in more than its hyperparameters."""
        for result in read_results(self.args.output):
            trial = trial_of(result)
            before = read_record(self.outcomes.directory_of(trial))
            # This grid's layout may not fit the trial's batch size, so it counts as changed only where rows
            # compete: there the layout decides which rows are each other's negatives.
            parallel = self.base.parallel if self.head.rows_compete else before.config.parallel
            self._check_same(trial, before, self._record(self._config(trial, parallel)))

    def _check_same(self, trial: Trial, before: FineTuningRecord, now: FineTuningRecord) -> None:
        # A setting that an older record lacks has its default, which reproduces the behaviour before it.
        settings = {**dataclasses.asdict(type(self.args.settings)()), **before.settings}
        before = dataclasses.replace(before, settings=settings)
        check_same(self.outcomes.directory_of(trial), before, now, self.head.rows_compete)

    def _check_begun(self, trials: Sequence[Trial]) -> None:
        """Raises UserError if one of these trials has a checkpoint of a run with other settings."""
        for trial in trials:
            directory = self.outcomes.directory_of(trial)
            if saved_steps(directory):
                self._check_same(trial, read_record(directory), self._record(self.configs[trial]))

    def _config(self, trial: Trial, parallel: ParallelConfig) -> FineTuningConfig:
        """The configuration of a trial, which need not be in this grid."""
        base = dataclasses.replace(self.base, parallel=parallel, global_batch_size=trial.batch_size)
        return trial_config(base, trial, len(self.data.train))

    def _record(self, config: FineTuningConfig) -> FineTuningRecord:
        return FineTuningRecord(
            task=self.args.task,
            config=config,
            labels=self.data.labels,
            kind=self.head.kind,
            exports_as=self.head.exports_as,
            settings=dataclasses.asdict(self.args.settings),
            trained_from=self.model.name,
            family=self.model.family,
            model_fingerprint=self.model_fingerprint,
            pretraining=self.model.pretraining,
            data=with_urls(self.args.data),
            data_fingerprint=self.data_fingerprint,
            dev_fingerprint=self.data.dev_fingerprint,
            test_fingerprint=self.data.test_fingerprint,
        )

    def _predict(self, trial: Trial, program: Program, after_batch: Callable[[], None]) -> Outcome:
        """Writes the predictions of a trained trial, and records what was tuned on the development set."""
        directory = self.outcomes.directory_of(trial)
        _, params = load_params(directory)
        apply = self._apply(trial, program, program.put_params(params), after_batch)
        outcome = self.data.finish(apply, directory)
        write_record(directory, dataclasses.replace(read_record(directory), learnt=outcome.learnt))
        return outcome

    def _test_again(self, interrupt: Interrupt) -> None:
        """Predicts the test sets with the best trial if they are new or have changed since it did so."""
        if not self.data.test_fingerprint or not self.outcomes.has_score():
            return
        best = best_of(read_results(self.args.output), self.metric)
        trial, directory = trial_of(best), self.outcomes.directory_of(trial_of(best))
        if read_record(directory).test_fingerprint == self.data.test_fingerprint:
            return
        print(f"the test set is new or was changed: {trial.name} predicts it", flush=True)
        run = prediction_run(self._config(trial, ParallelConfig()), trial.batch_size)
        outcome = self._predict(trial, self.programs.get(run), interrupt.check)
        # The scores it can be chosen by are kept, since other devices may round differently.
        chosen_by = {metric.name: score_of(best, metric) for metric in self.data.metrics}
        self.outcomes.write(trial, dataclasses.replace(outcome, metrics={**outcome.metrics, **chosen_by}))
        self.outcomes.write_table()
        # Last, so that the next start does all this again if this one ends before here.
        record = dataclasses.replace(read_record(directory), test_fingerprint=self.data.test_fingerprint)
        write_record(directory, record)

    def _apply(
        self, trial: Trial, program: Program, params: Params, after_batch: Callable[[], None]
    ) -> Apply:
        def apply(rows: Rows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            size = program.run.global_batch_size * _EVALUATION_FACTOR
            prepared = self._prepared(rows, trial, after_batch)
            batches = evaluation_batches(prepared, size, self.lengths)
            for numbers, outputs in predict(program, params, batches):
                # No later step has checked the last update.
                if not np.isfinite(outputs).all():
                    raise NonFiniteError("the outputs of the trained model are NaN or infinite")
                yield numbers, outputs
                after_batch()

        return apply
