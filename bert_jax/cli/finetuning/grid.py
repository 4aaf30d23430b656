"""Every cell of a grid, one after the other, each in its folder; the best one's model is kept.

A finished cell leaves `result.json`, so an interrupted grid goes on with the cell it was in.
"""

import dataclasses
import functools
import json
import math
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bert_jax.checkpoints import FOLDER, load_params, saved_steps
from bert_jax.cli.finetuning.task_data import TaskData
from bert_jax.config import OptimizerConfig
from bert_jax.finetuning.config import Cell, FineTuning
from bert_jax.finetuning.finetuned import BEST_FOLDER, TOKENIZER_FILE
from bert_jax.finetuning.predict import predict
from bert_jax.finetuning.record import FineTuningRecord, check_same, read_record, write_record
from bert_jax.finetuning.run import Programs, cell_config, train_cell
from bert_jax.interrupt import Interrupt
from bert_jax.loop import Ending
from bert_jax.parallel import Program
from bert_jax.pretrained import Pretrained
from bert_jax.provenance import describe
from bert_jax.train_step import Params
from bert_jax.workdir import write_json
from data_pipeline.tasks.batches import evaluation_batches, lengths_up_to, training_batches
from data_pipeline.tasks.rows import Rows

if TYPE_CHECKING:
    from bert_jax.cli.finetune import Finetune

RESULT_FILE = "result.json"

# Rows that are evaluated at once, as a multiple of the training batch: there is no gradient to hold.
_EVALUATION_FACTOR = 2


class Grid:
    """The cells of one `bert-jax finetune`."""

    def __init__(self, args: "Finetune[Any]", model: Pretrained, data: TaskData) -> None:
        _check_rows(data.train, model, args.settings.max_seq_length)
        self.args = args
        self.model = model
        self.data = data
        self.cells: list[Cell] = args.training.cells()
        self.programs = Programs()
        self.model_fingerprint = model.fingerprint()
        self.data_fingerprint = data.train.fingerprint()
        self.lengths = lengths_up_to(args.settings.max_seq_length)
        self.base = FineTuning(
            optimizer=OptimizerConfig(bias_correction=args.training.bias_correction),
            parallel=args.training.parallel,
            kind=data.kind,
            model=dataclasses.replace(model.config, dtype=args.training.dtype),
            rates=args.training.rates,
            features=args.training.features,
            num_labels=max(len(data.labels), 1),
        )

    def train(self, interrupt: Interrupt) -> bool:
        """Trains the cells that are not finished; False if it was interrupted."""
        self._check_others()
        for number, cell in enumerate(self.cells, 1):
            if (self._folder(cell) / RESULT_FILE).exists():
                continue
            print(f"cell {number} of {len(self.cells)}: {cell.name}", flush=True)
            if self._train_cell(cell, interrupt) is Ending.INTERRUPTED:
                return False
            self._keep_best()
        return True

    def report(self) -> None:
        """A table of the cells, seeds together, on the screen and in `results.json`."""
        results = self._results()
        best = max(results, key=self._rank)
        rows = []
        for cell, group in self._by_seed(results):
            values = [result["figures"][self.data.metric] for result in group]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            degenerate = sum(result["degenerate"] is not None for result in group)
            rows.append(
                {
                    "learning_rate": cell.learning_rate,
                    "batch_size": cell.batch_size,
                    "epochs": cell.epochs,
                    "seeds": len(values),
                    "mean": statistics.mean(values),
                    "stdev": spread,
                    "best": max(values),
                    "degenerate": degenerate,
                }
            )
        content = {"metric": self.data.metric, "best": best, "cells": results, "rows": rows}
        write_json(self.args.output / "results.json", content)
        self._print_table(rows)
        for result in results:
            if result["degenerate"]:
                print(f"warning: {result['cell']}: {result['degenerate']}")
        print_examples(best["examples"])
        figures = "  ".join(f"{name} {value:.4g}" for name, value in best["figures"].items())
        print(f"best: {best['cell']}: {figures}")
        print(f"model and predictions: {self.args.output / BEST_FOLDER}")

    def _train_cell(self, cell: Cell, interrupt: Interrupt) -> Ending:
        folder = self._folder(cell)
        config = cell_config(self.base, cell, len(self.data.train))
        program = self.programs.get(config)
        self._begin(cell, config)
        training = functools.partial(
            training_batches,
            self.data.train,
            batch_size=cell.batch_size,
            seed=cell.seed,
            num_steps=config.num_train_steps,
            lengths=self.lengths,
        )
        ending = train_cell(
            program,
            lambda step: training(first_step=step),
            {"seed": cell.seed, "data": self.args.data},
            lambda params, _: self.data.evaluate(self._apply(program, params)),
            self.model.params,
            folder,
            interrupt=interrupt,
            say=functools.partial(print, flush=True),
        )
        if ending is Ending.FINISHED:
            self._finish(cell, program)
        return ending

    def _begin(self, cell: Cell, config: FineTuning) -> None:
        """Makes the folder of a cell, or checks that what is in it is this cell."""
        folder = self._folder(cell)
        folder.mkdir(parents=True, exist_ok=True)
        record = self._record(config)
        if saved_steps(folder):
            before = read_record(folder)
            check_same(folder, before, record)
            record = dataclasses.replace(record, starts=before.starts)
        self.model.tokenizer.save(str(folder / TOKENIZER_FILE))
        write_record(folder, dataclasses.replace(record, starts=(*record.starts, describe())))

    def _check_others(self) -> None:
        """Raises UserError if a cell in the folder differs in more than the grid's hyperparameters."""
        fields = [field.name for field in dataclasses.fields(Cell)]
        for result in self._results():
            cell = Cell(**{name: result[name] for name in fields})
            config = cell_config(self.base, cell, len(self.data.train))
            check_same(self._folder(cell), read_record(self._folder(cell)), self._record(config))

    def _record(self, config: FineTuning) -> FineTuningRecord:
        return FineTuningRecord(
            task=self.args.task,
            config=config,
            labels=self.data.labels,
            settings=dataclasses.asdict(self.args.settings),
            trained_from=self.model.name,
            model_fingerprint=self.model_fingerprint,
            data_fingerprint=self.data_fingerprint,
        )

    def _finish(self, cell: Cell, program: Program) -> None:
        """Writes predictions and, last, the cell's result."""
        folder = self._folder(cell)
        _, params = load_params(folder)
        outcome = self.data.finish(self._apply(program, program.put_params(params)), folder)
        write_record(folder, dataclasses.replace(read_record(folder), learnt=outcome.learnt))
        result = {
            "cell": cell.name,
            **dataclasses.asdict(cell),
            "figures": outcome.figures,
            "degenerate": outcome.degenerate,
            "examples": outcome.examples,
        }
        write_json(folder / RESULT_FILE, result)

    def _keep_best(self) -> None:
        """`best` names the best cell so far; the other finished ones lose their checkpoints."""
        results = self._results()
        best = max(results, key=self._rank)["cell"]
        link = self.args.output / BEST_FOLDER
        beside = self.args.output / f".{BEST_FOLDER}"
        beside.unlink(missing_ok=True)
        beside.symlink_to(Path("cells") / best, target_is_directory=True)
        beside.replace(link)
        for result in results:
            if result["cell"] != best:
                shutil.rmtree(self.args.output / "cells" / result["cell"] / FOLDER, ignore_errors=True)

    def _apply(self, program: Program, params: Params) -> Any:
        def apply(rows: Rows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            size = program.run.global_batch_size * _EVALUATION_FACTOR
            return predict(program, params, evaluation_batches(rows, size, self.lengths))

        return apply

    def _folder(self, cell: Cell) -> Path:
        return self.args.output / "cells" / cell.name

    def _results(self) -> list[dict[str, Any]]:
        """Of every finished cell in the folder, so that a grid may grow from run to run."""
        files = sorted((self.args.output / "cells").glob(f"*/{RESULT_FILE}"))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def _rank(self, result: dict[str, Any]) -> float:
        value = result["figures"][self.data.metric]
        return -math.inf if math.isnan(value) else value

    def _by_seed(self, results: list[dict[str, Any]]) -> Iterator[tuple[Cell, list[dict[str, Any]]]]:
        groups: dict[Cell, list[dict[str, Any]]] = {}
        fields = [field.name for field in dataclasses.fields(Cell)]
        for result in results:
            cell = Cell(**{name: result[name] for name in fields})
            groups.setdefault(dataclasses.replace(cell, seed=0), []).append(result)
        yield from groups.items()

    def _print_table(self, rows: list[dict[str, Any]]) -> None:
        table = Table(title=f"{self.args.task}: {self.data.metric} on the development set")
        for name in ("learning rate", "batch", "epochs", "seeds", "mean", "stdev", "best"):
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(
                f"{row['learning_rate']:g}",
                str(row["batch_size"]),
                f"{row['epochs']:g}",
                str(row["seeds"]),
                f"{row['mean']:.4g}",
                f"{row['stdev']:.2g}",
                f"{row['best']:.4g}",
            )
        Console().print(table)


def print_examples(rows: Sequence[Mapping[str, str]]) -> None:
    """A table of what the best model says, if the task shows such."""
    if not rows:
        return
    table = Table(title="the best model on the development set")
    for name in rows[0]:
        table.add_column(name, no_wrap=name in ("rank", "score", "relevance"))
    for row in rows:
        table.add_row(*map(escape, row.values()))
    Console().print(table)


def _check_rows(rows: Rows, model: Pretrained, max_seq_length: int) -> None:
    """Says how many texts were cut. Raises UserError if there is an id that the model has no row for."""
    model.check_ids([max(int(ids.max(initial=0)) for ids in rows.tokens["input_ids"])])
    if rows.num_cut:
        print(
            f"warning: {rows.num_cut:,} of {len(rows.tokens['input_ids']):,} training sequences were cut to "
            f"--max-seq-length {max_seq_length}"
        )
