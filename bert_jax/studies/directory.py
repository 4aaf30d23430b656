"""What lies where in the directory of a study, and whether it is that of the study at hand.

study.json                      which study, at which scale, with which budget of hours, on which corpus, from
                                which model, and with how many seeds
budget.json                     with a budget of hours, the steps of each arm
ARM/seed-N/pretraining/         the work directory of a run
ARM/seed-N/MEASURE/             what `bert-jax finetune` writes, or what another measure does
ARM/seed-N/.../job.json         last: what came of the job, and from which settings
leases/                         which worker does which job
progress.json                   how many jobs failed or are left, for scripts; written after every job
report.md, report.html, ...     the report so far, for people
"""

import contextlib
import dataclasses
import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from bert_jax.parallel.leases import Leases
from bert_jax.pretraining.initial_shape import InitialModel
from bert_jax.studies.plan import Job, Plan, PretrainingJob
from bert_jax.training.metric_log import METRICS_FILE
from bert_jax.workdir.config_text import differences, from_json, to_json
from bert_jax.workdir.grid import ITEMS_FILE
from bert_jax.workdir.record import CONFIG_FILE, MAY_CHANGE, read_record
from data_pipeline.atomic import write_json
from data_pipeline.directories import check_path
from data_pipeline.errors import UserError, bad_input
from data_pipeline.json_text import load_json
from data_pipeline.stand_in import bucket_of, is_empty, pull, pull_files, push_files, remove_file

STUDY_FILE = "study.json"
JOB_FILE = "job.json"
PROGRESS_FILE = "progress.json"
LEASES_DIRECTORY = "leases"
CORPUS_DIRECTORY = "corpus"
"""The corpus that a study makes from the installed documentation."""
TASKS_DIRECTORY = "tasks"
"""The tasks that a study makes from the installed documentation."""
LOG_FILE = "log.txt"

# What a report needs of a job.
_REPORTED = {JOB_FILE, CONFIG_FILE, METRICS_FILE, ITEMS_FILE}
# Of a pretraining the steps may not change.
_MAY_CHANGE = MAY_CHANGE - {"num_train_steps"}


@dataclasses.dataclass(frozen=True)
class Ended:
    """The content of `job.json`."""

    settings: Mapping[str, Any]
    """`Job.settings`."""
    seconds: float
    """From its last start to its end."""
    devices: str
    """Such as "1 x cpu"."""
    measurements: tuple[Mapping[str, Any], ...] = ()
    """Of a measure, the fields of `Measurement` that depend on the job alone."""
    error: str = ""
    """Why it failed, in one line; empty if it did not."""

    def __post_init__(self) -> None:
        if not all(isinstance(fields, Mapping) for fields in (self.settings, *self.measurements)):
            raise TypeError("settings and measurements are objects")


def write_shared(directory: Path, name: str, content: Any) -> None:
    """Writes a JSON file into the directory of a study, and into its bucket if it stands for one."""
    write_json(directory / name, content)
    push_files(directory, name)


def pull_ended(directory: Path) -> None:
    """If the directory stands for one of a bucket, copies what the report needs of the jobs that have ended.

    Files of jobs that have not ended are left out, since this machine may be at work on them.
    """

    def choose(names: Collection[str]) -> list[str]:
        ended = tuple(name.removesuffix(JOB_FILE) for name in names if name.endswith(f"/{JOB_FILE}"))
        return [
            name
            for name in names
            if "/" not in name or (name.startswith(ended) and PurePosixPath(name).name in _REPORTED)
        ]

    pull(directory, choose)


def check_directory(directory: Path, identity: Mapping[str, Any]) -> None:
    """Raises UserError if the directory holds another study or something else.

    Args:
      directory: of the study; it need not exist.
      identity: name -> value of what the study is, such as its scale.
    """
    check_path(directory, "--output")
    if (directory / STUDY_FILE).exists():
        _check_same(directory, identity)
    elif directory.exists() and not directory.is_dir():
        raise UserError(f"--output {directory} is a file; name a directory")
    elif directory.exists() and not is_empty(directory):
        raise UserError(f"{directory} is not empty and holds no study; name another --output")


def claim(directory: Path, identity: Mapping[str, Any]) -> None:
    """Makes a directory that of a study, unless it is already; arguments and errors as `check_directory`."""
    pull_files(directory, STUDY_FILE)  # another machine may have begun it meanwhile
    check_directory(directory, identity)
    before = read_study(directory)
    if not identity.keys() <= before.keys():
        directory.mkdir(parents=True, exist_ok=True)
        write_shared(directory, STUDY_FILE, {**before, **identity})


def identity_of_inputs(corpus: str, initial: InitialModel | None) -> dict[str, Any]:
    """What `study.json` says of the corpus, by its fingerprint, and of the initial model."""
    return {"corpus": corpus, "init_fingerprint": "" if initial is None else initial.fingerprint}


def record_inputs_and_seeds(directory: Path, plan: Plan, corpus: str, vocabulary_size: int | None) -> None:
    """Keeps with the study how many seeds it has, the fingerprint and size of vocabulary of its corpus, and
    its initial model.

    Raises UserError if jobs were done with other settings, on another corpus, or from another model.
    """
    now = {**identity_of_inputs(corpus, plan.initial), "vocabulary_size": vocabulary_size}
    # Other machines may start with other numbers of seeds, of which the largest counts.
    with Leases(directory / LEASES_DIRECTORY).hold_when_free(PurePosixPath(STUDY_FILE)):
        pull_files(directory, STUDY_FILE)
        before = _check_same(directory, now)
        check_settings(directory, plan, ", remove that directory to do it again, or name another --output")
        seeds = max(plan.scale.seeds, before.get("seeds", 0))
        model = {"init_from": to_json(plan.initial)} if plan.initial else {}
        write_shared(directory, STUDY_FILE, {**before, **now, **model, "seeds": seeds})


def check_settings(directory: Path, plan: Plan, otherwise: str = "") -> None:
    """Raises UserError if pretrainings began, or measures are done, with other settings than the plan's.

    `otherwise` is what the message advises besides the settings that they were made with.
    """
    for job in plan.jobs:
        if changed := _changed_settings(directory, job):
            command = last_command(directory)
            flags = f" by `bert-jax study {command}`" if command else ""
            raise UserError(
                f"{directory / job.path} was made with other settings: {'; '.join(changed)}; give the flags "
                f"that it was made with{flags}{otherwise}"
            )


def last_command(directory: Path) -> str:
    """What followed `bert-jax study` when it last did jobs in the directory; empty if that is not known."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return str(load_json(directory / PROGRESS_FILE)["command"])
    return ""


def _check_same(directory: Path, now: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `study.json`. Raises UserError if it says otherwise than `now`."""
    before = read_study(directory)
    known = {name: value for name, value in now.items() if name in before}
    for name, begun in (("corpus", "on another corpus"), ("init_fingerprint", "from another model")):
        if name in known and before[name] != now[name]:
            command = last_command(directory)
            made_by = f" (the command was `bert-jax study {command}`)" if command else ""
            raise UserError(
                f"{directory} was begun {begun}, whose fingerprint is {before[name] or 'none'} and not "
                f"{now[name] or 'none'}; give that one{made_by}, or name another --output"
            )
    if changed := differences({name: before[name] for name in known}, known, ()):
        raise UserError(
            f"{directory} was begun with other settings: {'; '.join(changed)}; give those that it was begun "
            f"with, or name another --output"
        )
    return before


def read_study(directory: Path) -> dict[str, Any]:
    """The content of `study.json`: study, scale and, once jobs have begun, the corpus's fingerprint, the size
    of its vocabulary and the number of seeds.

    Empty if there is no study yet. Raises UserError if the file is damaged.
    """
    path = directory / STUDY_FILE
    if not path.exists():
        return {}
    try:
        study = dict(load_json(path))
        if not isinstance(study.get("seeds", 0), int):
            raise TypeError("the number of seeds is no number")
        return study
    except (OSError, ValueError, TypeError) as error:
        raise bad_input(error, path, f"{path} is not a study's; name another directory") from None


def read_initial(directory: Path) -> InitialModel | None:
    """The model that the pretrainings of a study start from; None if it is not recorded, or there is none.

    Raises UserError if the file is damaged.
    """
    value = read_study(directory).get("init_from")
    try:
        return None if value is None else from_json(InitialModel, value)
    except (KeyError, TypeError) as error:
        path = directory / STUDY_FILE
        raise bad_input(error, path, f"{path} is damaged; name another --output") from None


def read_ended(directory: Path) -> Ended | None:
    """What came of a directory's job; None if it has not ended. Raises UserError if its file is damaged."""
    path = directory / JOB_FILE
    if not path.exists():
        return None
    try:
        return Ended(**load_json(path))
    except (OSError, ValueError, TypeError) as error:
        raise bad_input(error, path, f"{path} is damaged; remove it, and the job is done again") from None


def read_settings(workdir: Path) -> dict[str, Any]:
    """`PretrainingJob.settings` of a run that has begun; settings that are newer than its record are filled
    in."""
    record = read_record(workdir)
    return PretrainingJob(PurePosixPath(workdir), record.experiment, record.init_fingerprint).settings


def write_ended(directory: Path, job: Job, ended: Ended) -> None:
    """Marks a job as ended."""
    (directory / job.path).mkdir(parents=True, exist_ok=True)
    write_shared(directory, f"{job.path}/{JOB_FILE}", dataclasses.asdict(ended))


def write_progress(directory: Path, plan: Plan, argv: Sequence[str]) -> None:
    """Writes how many jobs a command has, and how many failed or are left, on other machines too; `argv` is
    what follows `bert-jax study`."""
    pull_files(directory, f"*/{JOB_FILE}")
    ended = [read_ended(directory / job.path) for job in plan.jobs]
    failed = sum(job is not None and bool(job.error) for job in ended)
    progress = {"command": shlex.join(argv), "jobs": len(ended), "failed": failed, "left": ended.count(None)}
    write_shared(directory, PROGRESS_FILE, progress)


def forget_failures(directory: Path, plan: Plan) -> None:
    """Lets the jobs that failed be tried again."""
    for job in plan.jobs:
        if (ended := read_ended(directory / job.path)) and ended.error:
            remove_file(directory, f"{job.path}/{JOB_FILE}")


def forget_what_others_retry(directory: Path, plan: Plan) -> None:
    """If the directory stands for one of a bucket, removes each `job.json` that the bucket does not have.

    Another machine has begun to retry that job, or this one could not copy what it had written.
    """
    if bucket := bucket_of(directory):
        ended = bucket.list()
        for name in (f"{job.path}/{JOB_FILE}" for job in plan.jobs):
            if name not in ended:
                (directory / name).unlink(missing_ok=True)


def _changed_settings(directory: Path, job: Job) -> list[str]:
    """Which settings of a pretraining that has begun, or of a measure that is done, differ now."""
    path = directory / job.path
    if isinstance(job, PretrainingJob):
        if not (path / CONFIG_FILE).exists():
            return []
        # Checkpoints that a run has not kept cannot be had later; more of them than wanted do no harm.
        lacks_kept = job.experiment.keep_every is not None and read_ended(path)
        may_change = _MAY_CHANGE - {"keep_every"} if lacks_kept else _MAY_CHANGE
        return differences(read_settings(path), job.settings, may_change)
    ended = read_ended(path)
    if ended is None or ended.error:  # --retry does it with the new ones
        return []
    # A file holds lists where settings have tuples.
    return differences(ended.settings, json.loads(json.dumps(job.settings)), ())
