"""Commands with gs://BUCKET/... in place of directories and files of this machine.

Each such place has a stand-in on this machine (`data_pipeline.stand_in`), which the command is given. What it
reads is copied there before; the directory of a run is kept the same in both; what it writes is copied to the
bucket every half minute and at the end.
"""

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_pipeline import stand_in
from data_pipeline.bucket import BucketDirectory, is_bucket
from data_pipeline.errors import UserError

_OUTPUTS = ("output", "csv", "plot", "json")
"""Names of the flags whose place a command writes."""
_OF_RUNS = ("pretrain",)
"""Commands that train in --workdir; others read it."""
_SHARED = ("finetune", "study")
"""Commands whose processes share --output under leases."""


def reach_buckets_by_gcsfs() -> None:
    """Makes Orbax reach buckets by gcsfs, whether TensorFlow is installed or not; before it is imported."""
    os.environ.setdefault("EPATH_USE_TF", "false")
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


def run_with_buckets(command: str, run: Callable[[Any], int | None], args: Any) -> int | None:
    """Runs a command, given stand-ins for the places in buckets that its flags name.

    Raises:
      UserError: there is nothing at such a place, or the bucket may not be used.
      Unfinished: a bucket does not answer.
    """
    if getattr(args, "runner", None) is not None:
        return run(args)  # Beam's workers would not see this machine's stand-ins
    writes: list[tuple[Path, BucketDirectory]] = []
    of_process: list[Path] = []

    def replaced(name: str, value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            changed = {part: new for part, old in parts.items() if (new := replaced(part, old)) is not old}
            return dataclasses.replace(value, **changed) if changed else value
        if isinstance(value, tuple | list):
            items = [replaced(name, item) for item in value]
            return type(value)(items) if any(a is not b for a, b in zip(items, value, strict=True)) else value
        if name == "corpus" and isinstance(value, str) and "," in value:
            return ",".join(replaced(name, one) for one in value.split(","))
        if not isinstance(value, Path | str) or not is_bucket(value):
            return value
        if name == "workdir" and command in _OF_RUNS:
            place = stand_in.fetch(str(value), as_run=True, of_process=args.distributed)
            of_process.extend([place] if args.distributed else [])
        elif name in _OUTPUTS:
            place = _stand_in_for_output(command, str(value))
            writes.append((place, BucketDirectory(value)))
        else:
            place = stand_in.fetch(str(value))
        return type(value)(place) if isinstance(value, str) else place

    def copy() -> None:
        for place, bucket in writes:
            stand_in.upload(place, bucket)

    try:
        given = replaced("", args)
        with stand_in.copied_now_and_then(copy):
            status = run(given)
        copy()
    finally:
        for place in of_process:
            shutil.rmtree(place, ignore_errors=True)
    return status


def _stand_in_for_output(command: str, url: str) -> Path:
    if command in _SHARED:
        raise UserError(
            f"--output {url}: the processes of `{command}` share this directory in ways that a bucket lacks; "
            "mount the bucket (gcsfuse) and name where it is mounted"
        )
    place = stand_in.place_for(url)
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    if BucketDirectory(url).list():
        return stand_in.fetch(url)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place
