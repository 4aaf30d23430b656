"""What a run saves when a loss or a gradient is NaN or infinite: the step and its batch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.parallel import processes
from data_pipeline.atomic import write_json
from data_pipeline.stand_in import bucket_of, push_files


class NonFiniteError(Exception):
    """Training met NaN or infinity and stopped; the message is one line and suggests no remedy."""


def report_nonfinite(
    workdir: Path, step: int, batch: Mapping[str, np.ndarray], identity: Mapping[str, Any]
) -> NonFiniteError:
    """Saves the batch of the first bad step, also in a bucket, and makes the error to raise.

    Args:
      workdir: of the run; `nonfinite/step-N.npz` and `step-N.json` are written in it, the first by each
        process for its own rows (`step-N.process-0-of-2.npz`).
      step: 0-based step whose loss or gradient was not finite.
      batch: the batch of that step, or this process's rows of it.
      identity: what determines the whole batch besides the step: seed, corpus.
    """
    directory = workdir / "nonfinite"
    directory.mkdir(exist_ok=True)
    name = f"nonfinite/step-{step}{processes.file_suffix()}.npz"
    np.savez(workdir / name, allow_pickle=False, **batch)
    if processes.is_first():
        write_json(directory / f"step-{step}.json", {"step": step, **identity})
    push_files(workdir, name)  # what else a run writes, process 0 copies to the bucket
    place = (bucket_of(workdir) or workdir) / name
    return NonFiniteError(
        f"the loss or its gradient was NaN or infinite at step {step}; its batch is in {place}"
    )
