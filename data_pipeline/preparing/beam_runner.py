"""Shards made by an Apache Beam pipeline, on as many machines as its runner has.

The workers share the directory of the corpus, which they and this machine must all see under the same
path. Each file is read twice, each time by a single worker: to measure it, and to cut it into shards.
"""

import contextlib
import dataclasses
import io
import operator
import pickle
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from data_pipeline.atomic import write_bytes
from data_pipeline.corpus.tokenizer import load_tokenizer
from data_pipeline.errors import Unfinished, UserError
from data_pipeline.names import RunnerName, Split
from data_pipeline.preparing.beam import PipelineOptions, beam, quiet_logging
from data_pipeline.preparing.inputs import Inputs
from data_pipeline.preparing.partitions import (
    SIZES,
    Levels,
    cut_partition,
    find_levels,
    join_shard_texts,
    measure,
    split_inputs,
)
from data_pipeline.preparing.progress import Progress
from data_pipeline.preparing.readers import Document
from data_pipeline.preparing.shard_texts import ShardJob, ShardText, finish_shard
from data_pipeline.preparing.summary import Totals, sum_totals
from data_pipeline.preparing.versions import library_versions

# Beam's own DirectRunner would first try to download Prism.
_BEAM_NAMES: dict[RunnerName, str] = {
    "direct": "FnApiRunner",
    "prism": "PrismRunner",
    "dataflow": "DataflowRunner",
    "flink": "FlinkRunner",
    "spark": "SparkRunner",
    "portable": "PortableRunner",
}

_SCRATCH = ".beam"  # hidden, so that `publish` removes it


@dataclasses.dataclass(frozen=True)
class BeamRunner:
    """Makes shards by a Beam pipeline. Raises UserError if Beam rejects the options or cannot run `name`."""

    name: RunnerName
    options: tuple[str, ...] = ()
    """Flags for Beam's PipelineOptions."""
    workers: ClassVar[int | None] = None
    """One process per core for what is done on this machine."""

    def __post_init__(self) -> None:
        self._make_pipeline()

    def make_shards(self, job: ShardJob, on_progress: Progress) -> Totals:
        """Fills `job.directory`; see `data_pipeline.preparing.prepare.Runner`."""
        job = job.absolute()
        plan = Plan(job, tuple(split_inputs(job.inputs)), library_versions())
        shutil.rmtree(plan.scratch, ignore_errors=True)
        plan.scratch.mkdir()
        write_bytes(plan.scratch / "plan", pickle.dumps(plan))
        on_progress(f"tokenising ({self.name})", 0, None)
        pipeline = self._make_pipeline()
        _lay_out(pipeline, plan.scratch)
        self._run(pipeline)
        return _collect(plan.scratch)

    def _make_pipeline(self) -> beam.Pipeline:
        if any(flag.partition("=")[0] == "--runner" for flag in self.options):
            raise UserError("--runner is given twice; give it once, before the --")
        screen = io.StringIO()
        try:
            with quiet_logging(), contextlib.redirect_stderr(screen):
                options = PipelineOptions(list(self.options), runner=_BEAM_NAMES[self.name])
                options.get_all_options()
                return beam.Pipeline(options=options)
        except SystemExit:  # raised by argparse
            reason = screen.getvalue().rpartition("error: ")[2]
        except (ValueError, ImportError) as error:
            reason = str(error)
        raise UserError(f"--runner {self.name} does not take its options: {reason}")

    def _run(self, pipeline: beam.Pipeline) -> None:
        try:
            result = pipeline.run()
            try:
                result.wait_until_finish()
            except KeyboardInterrupt:
                result.cancel()
                raise
        except Exception as error:  # a runner raises whatever its service raises
            if "KeyboardInterrupt" in str(error):  # the direct runner reports Ctrl-C as an error of a step
                raise KeyboardInterrupt from error
            reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            raise Unfinished(
                f"the pipeline failed on {self.name} ({reason[0]}); run the same command again to resume"
            ) from error


@dataclasses.dataclass(frozen=True)
class Plan:
    """A job and how it is divided, the same for every worker."""

    job: ShardJob
    """Its paths are absolute."""
    partitions: tuple[Inputs, ...]
    """The job's inputs, in order."""
    versions: dict[str, str]
    """The library versions of the machine that made the plan."""

    @property
    def scratch(self) -> Path:
        """The shared directory of the plan and of what the steps leave for each other."""
        return self.job.directory / _SCRATCH

    def sizes(self, partition: int) -> Path:
        """File with the measured `SIZES` of a partition."""
        return self.scratch / f"sizes-{partition:05d}"


def _lay_out(pipeline: beam.Pipeline, scratch: Path) -> None:
    start = pipeline | "Start" >> beam.Create([None])
    measured = (
        start
        | "List partitions" >> beam.ParDo(_ListPartitions(scratch))
        | "Spread partitions" >> beam.Reshuffle()
        | "Measure" >> beam.ParDo(_Measure(scratch))
    )
    (
        start
        | "Find levels" >> beam.ParDo(_FindLevels(scratch), beam.pvalue.AsList(measured))
        | "Spread partitions again" >> beam.Reshuffle()
        | "Cut" >> beam.ParDo(_Cut(scratch))
        | "Join" >> beam.GroupByKey()
        | "Finish" >> beam.ParDo(_Finish(scratch))
        | "Add up" >> beam.CombineGlobally(sum_totals)
        | "Save totals" >> beam.Map(_save_totals, scratch)
    )


def _collect(scratch: Path) -> Totals:
    """Reads the workers' result. Raises the error that they left, or Unfinished if they left nothing."""
    with contextlib.suppress(FileNotFoundError):
        raise pickle.loads((scratch / "error").read_bytes())
    try:
        return pickle.loads((scratch / "totals").read_bytes())
    except FileNotFoundError:
        raise Unfinished(
            "the pipeline ended without a result, as if cancelled; run the same command again to resume"
        ) from None


class _Step(beam.DoFn):
    """A step that reads its plan from the shared directory."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def setup(self) -> None:
        self._plan: Plan = pickle.loads((self._scratch / "plan").read_bytes())


class _ListPartitions(_Step):
    def process(self, start: None) -> Iterator[int]:
        yield from range(len(self._plan.partitions))


class _Measure(_Step):
    """Bad input is returned, not raised, because a runner would retry a step that raises again and again."""

    def process(self, partition: int) -> Iterator[tuple[int, UserError | None]]:
        yield partition, self._measure(partition)

    def _measure(self, partition: int) -> UserError | None:
        """Returns what is wrong with the partition or with this worker, or None."""
        plan = self._plan
        try:
            _check_versions(plan.versions)
            sizes = measure(plan.partitions[partition].documents(), plan.job.heldout_threshold)
        except UserError as error:
            return error
        except (FileNotFoundError, PermissionError) as error:
            return Unfinished(
                f"{error.filename}: {error.strerror} on a worker; let all see the inputs under one name, and "
                f"run the same command again to resume"
            )
        write_bytes(plan.sizes(partition), sizes.tobytes())
        return None


class _FindLevels(_Step):
    def process(
        self, start: None, measured: list[tuple[int, UserError | None]]
    ) -> Iterator[tuple[int, Levels, Levels]]:
        wrong = {partition: error for partition, error in measured if error}
        if wrong:
            write_bytes(self._scratch / "error", pickle.dumps(wrong[min(wrong)]))
            return
        partitions = range(len(measured))
        levels = find_levels(np.fromfile(self._plan.sizes(partition), SIZES) for partition in partitions)
        for partition, (before, after) in zip(partitions, levels, strict=True):
            yield partition, before, after


class _Cut(_Step):
    """Yields None in place of the documents of a shard that exists already."""

    def process(
        self, element: tuple[int, Levels, Levels]
    ) -> Iterator[tuple[tuple[str, int], tuple[int, list[Document] | None, int]]]:
        partition, before, after = element
        job, inputs = self._plan.job, self._plan.partitions[partition]
        for text in cut_partition(
            inputs.documents(), job.heldout_threshold, before, after, str(inputs.items[0])
        ):
            is_made = (job.directory / text.file).exists()
            yield (text.split, text.number), (partition, None if is_made else text.documents, text.size)


class _Finish(_Step):
    def setup(self) -> None:
        super().setup()
        self._tokenizer = load_tokenizer(self._plan.job.tokenizer_directory)

    def process(
        self, element: tuple[tuple[Split, int], Iterable[tuple[int, list[Document] | None, int]]]
    ) -> Iterator[Totals]:
        (split, number), ends = element
        job = self._plan.job
        in_order = sorted(ends, key=operator.itemgetter(0))
        text = join_shard_texts(
            ShardText(split, number, documents or [], size) for _, documents, size in in_order
        )
        path = job.directory / text.file
        is_made = path.exists()
        if not is_made and any(documents is None for _, documents, _ in in_order):
            # Over NFS a worker's view of the directory may be out of date. Written now, the shard would lack
            # the documents that another worker left out because it exists.
            raise FileNotFoundError(f"a worker does not see the shard {path} that another one saw")
        yield finish_shard(job, text, self._tokenizer, is_made)


def _save_totals(totals: Totals, scratch: Path) -> None:
    write_bytes(scratch / "totals", pickle.dumps(totals))


def _check_versions(expected: dict[str, str]) -> None:
    """Raises Unfinished if this worker's library versions are not `expected`, as its shards could differ."""
    for name, version in library_versions().items():
        if version != expected[name]:
            raise Unfinished(
                f"a worker has {name} {version} and this machine {expected[name]}; install the same "
                f"versions, or the shards would differ, and run the same command again to resume"
            )
