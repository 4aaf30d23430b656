"""Trains the cells of a grid one after the other, each in its folder, and keeps the best one's model.

A finished cell leaves `result.json`, so an interrupted grid resumes with the cell that it was training.
"""

import dataclasses
import functools
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.config import ParallelConfig
from bert_jax.downstream.arguments import Finetune
from bert_jax.downstream.choose_packing import find_packing
from bert_jax.downstream.results import best_of, cell_of, read_results, write_results
from bert_jax.downstream.task_data import Apply, Outcome, TaskData
from bert_jax.finetuning.cells import Programs, cell_config, check_negatives
from bert_jax.finetuning.config import Cell, FineTuningConfig, check_direction, has_pooler
from bert_jax.finetuning.finetuned import prediction_run
from bert_jax.finetuning.grid_folder import BEST_FOLDER, CELLS_FOLDER, RESULT_FILE, write_cells
from bert_jax.finetuning.predict import predict
from bert_jax.finetuning.record import FineTuningRecord, check_same, read_record, write_record
from bert_jax.formats.huggingface_tokenizer import TOKENIZER_FILE
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.parallel.interrupt import Interrupt
from bert_jax.parallel.sharding import make_mesh
from bert_jax.training.checkpoints import FOLDER, load_params, saved_steps
from bert_jax.training.loop import Ending, TrainingData, TrainingRun
from bert_jax.training.nonfinite import NonFiniteError
from bert_jax.training.program import Program, batch_unit, check_batch
from bert_jax.training.progress import duration
from bert_jax.training.train_step import Params
from bert_jax.training.warm_start import start_from
from bert_jax.workdir.provenance import describe_code_changes, this_start
from bert_jax.workdir.record import describe_layout_changes
from data_pipeline.atomic import write_json
from data_pipeline.errors import UserError
from data_pipeline.tasks.batches import evaluation_batches, lengths_up_to, training_batches
from data_pipeline.tasks.bin_packing import Packing
from data_pipeline.tasks.rows import Rows

# Evaluation batch size as a multiple of the training batch size; there are no gradients to hold.
_EVALUATION_FACTOR = 2


class Grid:
    """The cells of one `bert-jax finetune`."""

    def __init__(self, args: Finetune[Any], model: PretrainedModel, data: TaskData) -> None:
        model.check_ids([rows.highest_id for rows in (data.train, *data.evaluated.values())])
        if args.training.keep_head:
            model = model.with_head(data.kind, data.labels, args.training.features)
        self.args = args
        self.model = model
        self.data = data
        self.cells: list[Cell] = args.training.cells()
        self.programs = Programs()
        self.model_fingerprint = model.fingerprint()
        self.data_fingerprint = data.train.fingerprint()
        self.dev_fingerprint = data.dev_fingerprint
        self.test_fingerprint = data.test_fingerprint
        self.lengths = lengths_up_to(args.settings.max_seq_length)
        self.base = FineTuningConfig(
            optimizer=args.training.optimizer(),
            warmup_proportion=args.training.warmup_proportion,
            parallel=args.training.parallel,
            kind=data.kind,
            model=args.training.model(model.config),
            rates=args.training.rates,
            features=args.training.features,
            pack=args.training.pack,
            num_labels=max(len(data.labels), 1),
            global_batch_size=self.cells[0].batch_size,
        )
        if self.base.parallel.mode == "jit":
            make_mesh(self.base.parallel)  # now, so that an impossible mesh leaves no folder behind
        # All of them now, so that an impossible one is reported before the first is trained.
        self.configs = {cell: cell_config(self.base, cell, len(data.train)) for cell in self.cells}
        for config in self.configs.values():
            check_batch(config)
            check_direction(config)
            check_negatives(config, data.train.sequences_per_row)

    def describe_start(self) -> str | None:
        """A line to print if the model lacks a pooler that the task needs; None if only the head is new."""
        if "pooler" in self.model.params or not has_pooler(self.base):
            return None
        return f"note: {self.model.name} lacks a pooler; like the head, it is drawn from each cell's seed"

    def train(self, interrupt: Interrupt) -> bool:
        """Trains the cells that are not finished; returns False if it was interrupted.

        A cell that diverges counts as finished, with a figure of NaN, which ranks below all others.

        Raises:
          UserError: the output has cells of other settings or data, or a folder in place of the link `best`.
          NonFiniteError: all cells diverged.
        """
        self._check_others()
        self._check_best()
        began, epochs_done = time.perf_counter(), 0.0
        if read_results(self.args.output):
            self._keep_best()  # the previous start may have ended after a cell's result but before this
        unfinished = [cell for cell in self.cells if not (self._folder(cell) / RESULT_FILE).exists()]
        self._check_begun(unfinished)
        # Before the first, so that whoever reads the output meanwhile can tell that cells are still to come.
        self.args.output.mkdir(parents=True, exist_ok=True)
        write_cells(self.args.output, [cell.name for cell in self.cells])
        for number, cell in enumerate(unfinished):
            if number and interrupt.signal_name:
                return False  # the request came while the cell before was being finished
            line = f"cell {self.cells.index(cell) + 1} of {len(self.cells)}: {cell.name}"
            if epochs_done:
                pace = (time.perf_counter() - began) / epochs_done
                line += f"; about {duration(pace * sum(c.epochs for c in unfinished[number:]))} left for all"
            print(line, flush=True)
            try:
                if self._train_cell(cell, interrupt) is Ending.INTERRUPTED:
                    return False
            except NonFiniteError as error:
                self._write_result(cell, Outcome({self.data.metric: math.nan}), diverged=str(error))
            self._keep_best()
            epochs_done += cell.epochs
        self._check_diverged()
        self._test_again()
        return True

    def _train_cell(self, cell: Cell, interrupt: Interrupt) -> Ending:
        config = self.configs[cell]
        program = self.programs.get(config)
        packing = self._begin(cell, config)
        training = functools.partial(
            training_batches,
            self.data.train,
            batch_size=cell.batch_size,
            seed=cell.seed,
            num_steps=config.num_train_steps,
            lengths=self.lengths,
            packing=packing,
        )
        identity = {
            "seed": cell.seed,
            "data": self.args.data,
            "batch_size": cell.batch_size,
            "packing": packing and dataclasses.asdict(packing),
        }
        run = TrainingRun(
            program=program,
            data=TrainingData(training=lambda step: training(first_step=step), identity=identity),
            workdir=self._folder(cell),
            say=functools.partial(print, flush=True),
            evaluation=lambda params, _: self.data.evaluate(self._apply(program, params)),
            start=functools.partial(start_from, program, self.model.params),
        )
        ending = run.train(interrupt)
        if ending is Ending.FINISHED:
            self._finish(cell, program)
        return ending

    def _begin(self, cell: Cell, config: FineTuningConfig) -> Packing | None:
        """Writes a cell's tokenizer and `config.json` into its folder, and returns its packing.

        A resumed cell keeps the packing that it was begun with. None: rows do not share lines.
        """
        folder = self._folder(cell)
        folder.mkdir(parents=True, exist_ok=True)
        record, start = self._record(config), this_start()
        if saved_steps(folder):
            before = read_record(folder)
            for line in describe_layout_changes(before.config, config):
                print(line, flush=True)
            for line in describe_code_changes(before.starts[-1], start):
                print(line, flush=True)
            record = dataclasses.replace(record, starts=before.starts, packing=before.packing)
        elif packing := find_packing(config, self.data.train, self.lengths):
            record = dataclasses.replace(record, packing=dataclasses.asdict(packing))
        self.model.tokenizer.save(str(folder / TOKENIZER_FILE))
        write_record(folder, dataclasses.replace(record, starts=(*record.starts, start)))
        if record.packing is None:
            return None
        unit = batch_unit(config.parallel)
        return dataclasses.replace(Packing(**record.packing), unit=unit)

    def _check_others(self) -> None:
        """Raises UserError if a finished cell differs from this grid in more than its hyperparameters."""
        for result in read_results(self.args.output):
            cell = cell_of(result)
            before = read_record(self._folder(cell))
            config = self._config(cell, self._parallel_of(before))
            check_same(self._folder(cell), before, self._record(config))

    def _check_begun(self, cells: Sequence[Cell]) -> None:
        """Raises UserError if one of these cells has a checkpoint of a run with other settings."""
        for cell in cells:
            folder = self._folder(cell)
            if saved_steps(folder):
                check_same(folder, read_record(folder), self._record(self.configs[cell]))

    def _parallel_of(self, before: FineTuningRecord) -> ParallelConfig:
        """The layout that a finished cell's own must agree with.

        That is its own layout, as this grid's need not fit its batch size; but this grid's if rows compete,
        since the layout decides which rows are each other's negatives.
        """
        return self.base.parallel if self.base.rows_compete else before.config.parallel

    def _config(self, cell: Cell, parallel: ParallelConfig) -> FineTuningConfig:
        """The configuration of a cell, which need not be in this grid."""
        base = dataclasses.replace(self.base, parallel=parallel, global_batch_size=cell.batch_size)
        return cell_config(base, cell, len(self.data.train))

    def _check_best(self) -> None:
        """Raises UserError if `best` is a folder and no link, as after a copy that followed links."""
        link = self.args.output / BEST_FOLDER
        if link.is_dir() and not link.is_symlink():
            raise UserError(
                f"{link} is a folder, and no link to the best one of {CELLS_FOLDER}; move it away"
            )

    def _record(self, config: FineTuningConfig) -> FineTuningRecord:
        return FineTuningRecord(
            task=self.args.task,
            config=config,
            labels=self.data.labels,
            settings=dataclasses.asdict(self.args.settings),
            trained_from=self.model.name,
            model_fingerprint=self.model_fingerprint,
            data=self.args.data,
            data_fingerprint=self.data_fingerprint,
            dev_fingerprint=self.dev_fingerprint,
            test_fingerprint=self.test_fingerprint,
        )

    def _finish(self, cell: Cell, program: Program) -> None:
        """Writes a trained cell's predictions and, last, its result, which marks it as finished."""
        self._write_result(cell, self._predict(cell, program))

    def _predict(self, cell: Cell, program: Program) -> Outcome:
        """Writes the predictions of a trained cell, and records what was tuned on the development set."""
        folder = self._folder(cell)
        _, params = load_params(folder)
        outcome = self.data.finish(self._apply(program, program.put_params(params)), folder)
        write_record(folder, dataclasses.replace(read_record(folder), learnt=outcome.learnt))
        return outcome

    def _test_again(self) -> None:
        """Predicts the test sets with the best cell if they are new or have changed since it did so."""
        if not self.test_fingerprint or not self._has_figure():
            return
        best = best_of(read_results(self.args.output), self.data.metric)
        cell, folder = cell_of(best), self._folder(cell_of(best))
        if read_record(folder).test_fingerprint == self.test_fingerprint:
            return
        print(f"the test set is new or was changed: {cell.name} predicts it", flush=True)
        run = prediction_run(self._config(cell, ParallelConfig()), cell.batch_size)
        outcome = self._predict(cell, self.programs.get(run))
        # The figure it was chosen by is kept, since other devices may round differently.
        chosen_by = {self.data.metric: best["figures"][self.data.metric]}
        self._write_result(cell, dataclasses.replace(outcome, figures={**outcome.figures, **chosen_by}))
        write_results(self.args.output, self.data.metric)
        # Last, so that the next start does all this again if this one ends before here.
        record = dataclasses.replace(read_record(folder), test_fingerprint=self.test_fingerprint)
        write_record(folder, record)

    def _check_diverged(self) -> None:
        """Raises NonFiniteError if all cells did, in this start or before."""
        said = [result["diverged"] for result in read_results(self.args.output)]
        if all(said):
            raise NonFiniteError(said[-1])

    def _has_figure(self) -> bool:
        """Whether a finished cell has a figure that is a number."""
        results = read_results(self.args.output)
        return not all(math.isnan(result["figures"][self.data.metric]) for result in results)

    def _write_result(self, cell: Cell, outcome: Outcome, diverged: str | None = None) -> None:
        result = {
            "cell": cell.name,
            **dataclasses.asdict(cell),
            "figures": outcome.figures,
            "degenerate": outcome.degenerate,
            "diverged": diverged,
            "examples": outcome.examples,
        }
        write_json(self._folder(cell) / RESULT_FILE, result)

    def _keep_best(self) -> None:
        """Links `best` to the best finished cell, writes `results.json`, deletes the others' checkpoints."""
        results = read_results(self.args.output)
        best = best_of(results, self.data.metric)["cell"]
        link = self.args.output / BEST_FOLDER
        beside = self.args.output / f".{BEST_FOLDER}"
        beside.unlink(missing_ok=True)
        beside.symlink_to(Path(CELLS_FOLDER) / best, target_is_directory=True)
        beside.replace(link)
        write_results(self.args.output, self.data.metric)
        for result in results:
            if result["cell"] != best:
                shutil.rmtree(self.args.output / CELLS_FOLDER / result["cell"] / FOLDER, ignore_errors=True)

    def _apply(self, program: Program, params: Params) -> Apply:
        def apply(rows: Rows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            size = program.run.global_batch_size * _EVALUATION_FACTOR
            return predict(program, params, evaluation_batches(rows, size, self.lengths))

        return apply

    def _folder(self, cell: Cell) -> Path:
        return self.args.output / CELLS_FOLDER / cell.name
