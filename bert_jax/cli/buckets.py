"""Commands with gs://BUCKET/... in place of directories and files of this machine.

Each such place has a stand-in on this machine (`data_pipeline.stand_in`), which the command is given. What it
reads is copied there before; the directory of a run is kept the same in both, that of a study is shared with
other machines; what it writes is copied to the bucket at the end.
"""

import contextlib
import dataclasses
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bert_jax.parallel import bucket_lease
from data_pipeline import stand_in
from data_pipeline.atomic import write_json
from data_pipeline.bucket import BucketDirectory, Object, is_bucket, is_same
from data_pipeline.errors import UserError
from data_pipeline.json_text import load_json

_OUTPUT_FILES = ("csv", "plot", "json")
"""Names of the flags whose file a command writes."""
_OUTPUTS = ("output", *_OUTPUT_FILES)
"""Names of the flags whose place a command writes."""


def reach_buckets_by_gcsfs() -> None:
    """Makes Orbax reach buckets by gcsfs, whether TensorFlow is installed or not; before it is imported."""
    os.environ.setdefault("EPATH_USE_TF", "false")
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


def _leave_errors_to_report() -> None:
    """Keeps gcsfs from printing the errors of a bucket, which the command reports in one line."""
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)


def run_with_buckets(command: str, run: Callable[[Any], int | None], args: Any) -> int | None:
    """Runs a command, given stand-ins for the places in buckets that its flags name.

    Raises:
      UserError: there is nothing at such a place, or the bucket may not be used.
      Unfinished: a bucket does not answer.
    """
    if getattr(args, "runner", None) is not None:
        return run(args)  # Beam's workers would not see this machine's stand-ins
    _leave_errors_to_report()
    writes: list[tuple[Path, BucketDirectory]] = []
    with contextlib.ExitStack() as runs:

        def place_of(name: str, url: str) -> Path:
            if name == "workdir" and command == "pretrain":
                return runs.enter_context(stand_in.directory_of_run(url))
            if name == "output" and command == "study":
                return stand_in.shared_directory(url)
            if name not in _OUTPUTS:
                return stand_in.fetch(url)
            bucket = BucketDirectory(url)
            if name in _OUTPUT_FILES and bucket.is_whole_bucket:
                raise UserError(f"--{name} {bucket} is a whole bucket; name an object in it")
            if name == "output" and command == "finetune":
                runs.enter_context(bucket_lease.hold(bucket))
            place = _stand_in_for_output(url, resumes=command == "finetune")
            writes.append((place, bucket))
            return place

        try:
            status = run(_with_places("", args, place_of))
        except UserError as error:
            error.args = (stand_in.with_urls(str(error)),)
            raise
        for place, bucket in writes:
            stand_in.upload(place, bucket)
            print(f"copied to {bucket}")
            _unsaved(place).unlink(missing_ok=True)
        return status


def _with_places(name: str, value: Any, place_of: Callable[[str, str], Path]) -> Any:
    """The value of a flag, with `place_of` (name, URL) for each URL of a bucket in it, else as it is."""
    if name in ("argv", "texts"):  # what workers are started with; what is to be read as text
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        now = {part: _with_places(part, old, place_of) for part, old in parts.items()}
        changed = {part: new for part, new in now.items() if new is not parts[part]}
        return dataclasses.replace(value, **changed) if changed else value
    if isinstance(value, tuple | list):
        items = [_with_places(name, item, place_of) for item in value]
        return type(value)(items) if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if name == "corpus" and isinstance(value, str) and "," in value:
        return ",".join(_with_places(name, one, place_of) for one in value.split(","))
    if isinstance(value, Path | str) and is_bucket(value):
        return type(value)(place_of(name, str(value)))
    return value


def _stand_in_for_output(url: str, resumes: bool) -> Path:
    """The place of an output, with what the bucket has; or, if the command `resumes`, with what a start left
    here that ended before it was copied to the bucket.

    Raises UserError: there is such a rest, but the bucket holds what others wrote since.
    """
    place = stand_in.place_for(url, "@outputs")
    unsaved = _unsaved(place)
    if resumes and unsaved.exists() and place.exists():
        if _others_wrote(url, place):
            raise UserError(
                f"{url} was changed after an earlier start had left its work in {place}; remove {unsaved} to "
                f"go on with what the bucket has"
            )
        print(f"continuing with what an earlier start left in {place}", flush=True)
    else:
        _copy_output_here(url, place)
    if resumes:
        write_json(unsaved, {name: one.generation for name, one in _objects(url).items()})
    return place


def _copy_output_here(url: str, place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    if BucketDirectory(url).exists():
        stand_in.fetch(url, "@outputs")


def _unsaved(place: Path) -> Path:
    """A file that is beside a stand-in while it holds what the bucket lacks: what the bucket held."""
    return place.with_name(f"{place.name}.unsaved")


def _others_wrote(url: str, place: Path) -> bool:
    """Whether a bucket holds what is new since a start began here, and was not copied from here."""
    before = load_json(_unsaved(place))
    return any(
        before.get(name) != one.generation and not is_same(place / name, one)
        for name, one in _objects(url).items()
    )


def _objects(url: str) -> dict[str, Object]:
    """The objects of a directory but for the lease, which each process replaces."""
    return {name: one for name, one in BucketDirectory(url).list().items() if name != stand_in.LEASE_FILE}
