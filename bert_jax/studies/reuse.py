"""Pretrainings that another study has done already: those of equal settings on the same corpus are copied."""

import errno
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from bert_jax.studies.directory import JOB_FILE, read_ended, read_settings, read_study
from bert_jax.studies.plan import Plan, PretrainingJob
from bert_jax.training.checkpoints import saved_steps
from bert_jax.workdir.config_text import differences
from data_pipeline.atomic import atomically, copy_tree
from data_pipeline.errors import UserError

# What these say changes neither parameters nor what is measured of them; the corpus's content is compared.
_MAY_DIFFER = frozenset(
    ("data.corpus", "log_every", "eval_every", "eval_examples", "checkpoint_every", "keep_checkpoints")
)


def find_reusable(
    plan: Plan, directory: Path, others: Sequence[Path], corpus: str
) -> dict[PurePosixPath, Path]:
    """The pretrainings that are neither begun nor done, and that another study has done.

    Args:
      others: directories of other studies; the first that has a run counts.
      corpus: fingerprint of the corpus.

    Returns:
      Path of the job -> work directory of the same run in another study.

    Raises:
      UserError: a directory holds no study, or a study of another corpus.
    """
    done = [run for other in others for run in _done(other, corpus)]
    found: dict[PurePosixPath, Path] = {}
    for job in plan.jobs:
        if isinstance(job, PretrainingJob) and not (directory / job.path).exists():
            same = (path for path, settings in done if _serves(settings, job.settings))
            if path := next(same, None):
                found[job.path] = path
    return found


def copy_reusable(directory: Path, reusable: Mapping[PurePosixPath, Path]) -> None:
    """Copies the runs that `find_reusable` found into a study's directory, each whole or not at all."""
    for path, source in reusable.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with atomically(target) as partial:
                copy_tree(source, partial)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another worker was here first
                raise


def _done(study: Path, corpus: str) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Work directory and settings of each run that a study has done."""
    if not (known := read_study(study)):
        raise UserError(f"--reuse {study} holds no study; name the --output of one")
    if known.get("corpus") != corpus:
        raise UserError(f"--reuse {study} is a study of another corpus; its runs cannot be reused")
    for file in sorted(study.glob(f"*/seed-*/pretraining/{JOB_FILE}")):
        ended = read_ended(file.parent)
        if ended and not ended.error and saved_steps(file.parent):  # one that was published has none
            yield file.parent, read_settings(file.parent)


def _serves(done: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a run is the one that is wanted, and keeps the checkpoints that are wanted."""
    keeps_enough = {"keep_every"} if wanted["keep_every"] is None else set()
    return not differences(done, wanted, _MAY_DIFFER | keeps_enough)
