"""The start of a run, checked against its work directory and recorded there."""

import dataclasses
from collections.abc import Callable
from typing import Any

from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.parallel import processes
from bert_jax.pretraining.arguments import Pretrain
from bert_jax.pretraining.corpus import check_same_vocabulary
from bert_jax.training.checkpoints import saved_steps
from bert_jax.training.retention import Kept
from bert_jax.workdir import branch, record
from bert_jax.workdir import directory as workdir
from bert_jax.workdir.config_text import flatten, from_json, to_json
from bert_jax.workdir.grid import TRIALS_DIRECTORY
from bert_jax.workdir.provenance import code, describe_code_changes, this_start
from bert_jax.workdir.record import RunRecord
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.corpus import store
from data_pipeline.errors import UserError


@dataclasses.dataclass(frozen=True)
class Begun:
    """What `config.json` says of this start, in all processes."""

    start: dict[str, Any]
    """Its entry among the starts."""
    kept: Kept
    """The checkpoints that this start or an earlier one asked to keep."""


def check_same_command(args: Pretrain) -> None:
    """Raises UserError if the processes of the run were started with different settings or code."""

    def identity() -> dict[str, Any]:
        settings = flatten(args.experiment)
        del settings["data.corpus"]  # the path may differ; the content is compared by fingerprint
        same = {"experiment": args.name, "--workdir": str(args.workdir)}
        return {**same, **settings, **code(this_start())}

    processes.check_same(identity, "start all with the same command, code and packages")


def check_workdir(args: Pretrain) -> None:
    """Raises UserError if the work directory is something else's, such as the corpus's."""
    if args.experiment.data.corpus != INSTALLED_DOCUMENTATION:
        workdir.check_apart(args.workdir, args.experiment.data.corpus)
    workdir.check_free(args.workdir)
    if (args.workdir / TRIALS_DIRECTORY).exists():
        raise UserError(f"--workdir {args.workdir} holds fine-tuned models; name another directory")


def make_record(args: Pretrain, corpus: str, model: PretrainedModel | None) -> RunRecord:
    """Returns the record of this run, not yet written, with this start as its only one.

    Raises:
      UserError: the corpus was altered, or is not that of the other processes.
    """
    now = RunRecord(
        args.name,
        args.experiment,
        corpus_fingerprint=store.fingerprint(corpus),
        init_from=model.name if model else "",
        init_fingerprint=model.fingerprint() if model else "",
        starts=(this_start(),),
        kept=Kept.asked_for_by(args.experiment),
    )
    processes.check_same(
        lambda: {
            "fingerprint of data.corpus": now.corpus_fingerprint,
            "fingerprint of --init-from": now.init_fingerprint,
        },
        "give all of them the same text, vocabulary and model",
    )
    store.verify(corpus)  # at every start: a run may be resumed on a machine that has its own copy
    return now


def begin_or_resume(args: Pretrain, corpus: str, now: RunRecord, say: Callable[[str], None]) -> Begun:
    """Records this start in the work directory, by process 0.

    Args:
      now: the record of `make_record`.
      say: prints one line.

    Raises:
      UserError: the work directory holds another run, or the checkpoint to branch from does not fit.
    """

    def record_start() -> dict[str, Any]:
        steps = saved_steps(args.workdir)
        recorded = _resume(args, now, steps[-1], say) if steps else _begin(args, corpus, now, say)
        return to_json(Begun(recorded.starts[-1], recorded.kept))

    return from_json(Begun, processes.broadcast_from_first(record_start))


def _begin(args: Pretrain, corpus: str, now: RunRecord, say: Callable[[str], None]) -> RunRecord:
    """Makes the work directory that of a run: its record, its tokenizer, the checkpoint it branches from."""
    origin = None
    if record.begun_on_other_corpus(args.workdir, now):
        workdir.remove_tokenizer(args.workdir)
    if args.branch_from is not None:
        origin = branch.find_origin(args.branch_from, args.branch_step, now)
        check_same_vocabulary(origin.workdir, origin.record, corpus)
        now = dataclasses.replace(now, branched_from=origin.point)
    # Written first, because this file marks the rest of the directory as a run's.
    record.write_record(args.workdir, now)
    workdir.copy_tokenizer(corpus, args.workdir)
    if origin is not None:  # last, so that a start killed before this point is repeated in full
        say("; ".join([f"branched from {origin.point}", *origin.differences(now)]))
        branch.copy_state(origin, args.workdir)
    return now


def _resume(args: Pretrain, now: RunRecord, step: int, say: Callable[[str], None]) -> RunRecord:
    """Adds this start to the record of the run that has saved `step`; says what changed since its last."""
    before = record.read_record(args.workdir)
    record.check_same_run(args.workdir, before, now, step)
    if args.branch_from is not None:
        branch.check_same_origin(args.workdir, before.branched_from, args.branch_from, args.branch_step)
    kept = record.checkpoints_to_keep(before, now.experiment)
    for line in (
        *record.describe_changes(before.experiment, now.experiment),
        *record.describe_kept(kept, now.experiment),
        *describe_code_changes(before.starts[-1], now.starts[-1]),
    ):
        say(line)
    starts = (*before.starts, *now.starts)
    now = dataclasses.replace(now, branched_from=before.branched_from, starts=starts, kept=kept)
    record.write_record(args.workdir, now)
    return now
