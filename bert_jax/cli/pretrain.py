"""`bert-jax pretrain EXPERIMENT --workdir DIR`: trains, or resumes where an earlier run stopped."""

from pathlib import Path

from bert_jax.cli.showcase import show
from bert_jax.exit_status import SAVED
from bert_jax.parallel import interrupt, processes
from bert_jax.pretraining.arguments import Pretrain
from bert_jax.pretraining.run import pretrain
from data_pipeline import stand_in


def run(args: Pretrain) -> int:
    """Trains, as one of several processes if the flags say so, and shows what came of it.

    Returns as `pretrain`; for the other exit statuses of a distributed process see
    `bert_jax.parallel.processes`.
    """
    if not args.distributed:
        return _run(args)
    return processes.run_distributed(lambda: _run(args))


def _run(args: Pretrain) -> int:
    status = pretrain(args)
    if status == 0:
        status = processes.broadcast_from_first(lambda: _show(args.workdir))
    return status


def _show(workdir: Path) -> int:
    """Shows a finished run. Returns 0, or 75 if interrupted, which all processes of the run must know."""
    try:
        show(workdir)
        stand_in.push(workdir)  # the export
    except KeyboardInterrupt:
        interrupt.answer("SIGINT: training is finished and saved; run the same command again to show it\n")
        return SAVED
    return 0
