"""launch_tpu.sh with a stand-in for gcloud whose hosts are local processes: see stand_in_gcloud.py."""

import dataclasses
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from bert_jax.training.checkpoints import saved_steps
from data_pipeline.atomic import write_json
from tests.stand_in_gcloud import Cloud
from tests.tiny_run import FLAGS, deterministic_rows, environment, final_state, write_corpus

ROOT = Path(__file__).parent.parent
LAUNCH_TPU = ROOT / "launch_tpu.sh"
PLACE = ("--zone", "us-west4-a", "--project", "mine")
TYPE = ("--type", "v5litepod-16")
WORKDIR = ("--workdir", "gs://bucket/runs/a")
RUN = (*WORKDIR, "--corpus", "/corpora/a", "--", "quickstart_bert")
IDENTITY = ("-c", "user.name=me", "-c", "user.email=me@example.org")
PATIENCE_SECONDS = 900

INSTALLED_IMAGE = (
    "python3 -m venv --without-pip --system-site-packages venv && "
    "venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --ignore-installed -e ."
)
"""A --setup for hosts whose image has every package already, as those of the stand-in have."""


@dataclasses.dataclass(frozen=True)
class Laptop:
    """The machine that launches: a PATH with the stand-in, and the cloud that it talks to."""

    cloud: Cloud
    env: dict[str, str]
    started: list[subprocess.Popen[str]] = dataclasses.field(default_factory=list)

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Starts launch_tpu.sh in a process group of its own, as a terminal does."""
        process = subprocess.Popen(
            [LAUNCH_TPU, *args],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
            # A shell cannot trap what was ignored when it began, as SIGINT is in a background job.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        self.started.append(process)
        return process

    def launch(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Runs launch_tpu.sh to its end."""
        process = self.start(*args)
        stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
        return subprocess.CompletedProcess(args, process.returncode, stdout, stderr)

    def calls(self, command: str) -> list[str]:
        """The calls of a gcloud command so far."""
        calls = self.cloud.calls.read_text().splitlines() if self.cloud.calls.exists() else []
        return [call for call in calls if call.startswith(command)]

    def rented(self) -> int:
        """How many slices were created so far."""
        return len(self.cloud.rented.read_text().splitlines())

    def created(self) -> int:
        """How many slices were requested so far."""
        return len(self.calls("compute tpus tpu-vm create")) + len(
            self.calls("compute tpus queued-resources create")
        )


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    """A laptop that is logged in, and a project with a bucket and no slice."""
    cloud = Cloud(tmp_path / "cloud")
    (tmp_path / "cloud" / "buckets" / "bucket").mkdir(parents=True)
    cloud.account.write_text("me@example.org\n")
    programs = tmp_path / "bin"
    write_program(
        programs / "gcloud", f'exec {sys.executable} -I {ROOT}/tests/stand_in_gcloud.py "$@"', shell="sh"
    )
    # `sleep 1` takes a tenth of a second; 1 is the shortest --poll-seconds.
    write_program(programs / "sleep", '[ "$1" != 1 ] || set 0.1; exec /bin/sleep "$1"', shell="sh")
    # Stands in for Cloud Storage FUSE: the bucket appears as a directory.
    write_program(
        programs / "gcsfuse",
        f'shift $(($# - 2)); [ -L "$2" ] || rmdir "$2" && ln -sfT {tmp_path}/cloud/buckets/"$1" "$2"',
        shell="sh",
    )
    env = {
        **environment(),
        "PATH": f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "STAND_IN_CLOUD": str(tmp_path / "cloud"),
        "STAND_IN_PACKAGES": str(tmp_path / "packages"),
    }
    laptop = Laptop(cloud, {key: value for key, value in env.items() if not key.startswith("CLOUDSDK_")})
    yield laptop
    for process in laptop.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    for name in [path.name for path in cloud.slices.glob("*")]:
        cloud.remove_slice(name)


@pytest.fixture
def source(tmp_path: Path) -> tuple[str, ...]:
    """The flags that name a repository and its only commit: this checkout as it is."""
    copy = tmp_path / "repository"
    copy.mkdir()
    for name in ("bert_jax", "data_pipeline", "experiments"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "constraints.txt", "tpu_host.sh"):
        shutil.copy(ROOT / name, copy / name)
    for command in (["init", "--quiet"], ["add", "."], [*IDENTITY, "commit", "--quiet", "-m", "all"]):
        subprocess.run(["git", *command], cwd=copy, check=True)
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=copy, text=True).strip()
    return ("--repository", str(copy), "--commit", commit)


def write_program(path: Path, text: str, shell: str = "bash") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/usr/bin/env {shell}\n{text}\n")
    path.chmod(0o755)
    return path


def test_help_names_every_verb_and_flag(laptop: Laptop) -> None:
    shown = laptop.launch("--help")
    assert shown.returncode == 0
    assert [line for line in shown.stdout.splitlines() if len(line) > 80] == []
    known = set(re.findall(r"^ +(--[a-z-]+)\) ", LAUNCH_TPU.read_text(), re.MULTILINE))
    assert known <= set(re.findall(r"--[a-z-]+", shown.stdout))
    verbs = re.findall(r"^  ([a-z]+)\) ", LAUNCH_TPU.read_text().rpartition("case $verb in")[2], re.MULTILINE)
    assert set(verbs) <= set(re.findall(r"^  ([a-z]+) ", shown.stdout, re.MULTILINE))


def test_a_dry_run_prints_the_commands_and_runs_none(laptop: Laptop) -> None:
    dry = laptop.launch(
        *("train", "a", *PLACE, *TYPE, "--spot", "--dry-run", "--repository", "git@example.org:me/r.git"),
        *("--create-flags", "--network=mine --internal-ips", "--ssh-flags", "--internal-ip"),
        *("--commit", "abc", "--workdir", "gs://bucket/runs/a", "--corpus", "gs://bucket/corpora/b"),
        *("--", "base", "--optimizer.decay-exclusions", "it's one word"),
    )
    assert dry.returncode == 0, dry.stderr
    calls = [shlex.split(line) for line in dry.stdout.splitlines() if line.startswith("gcloud ")]
    created = next(call for call in calls if "create" in call)
    assert created == shlex.split(
        "gcloud compute tpus tpu-vm create a --zone=us-west4-a --project=mine "
        "--network=mine --internal-ips --accelerator-type=v5litepod-16 --version=v2-alpha-tpuv5-lite --spot"
    )
    assert all("--internal-ip" in call for call in calls if "ssh" in call)
    installed, fetched, started, *_ = [call[-1] for call in calls if "ssh" in call]
    assert "git fetch --quiet --depth 1 https://example.org/me/r.git abc" in installed
    assert shlex.split(fetched)[-3:] == ["fetch", "gs://bucket/runs/a", "gs://bucket/corpora/b"]
    run = (
        "run",
        "gs://bucket/runs/a",
        "gs://bucket/corpora/b",
        "base",
        "--optimizer.decay-exclusions",
        "it's one word",
    )
    assert shlex.split(started)[-6:] == [*run]
    assert calls[-1][:6] == shlex.split("gcloud compute tpus tpu-vm delete a")
    assert laptop.calls("") == []


@pytest.mark.parametrize(
    ("flags", "image"),
    [
        *((["--type", f"v{version}-8"], "tpu-ubuntu2204-base") for version in (2, 3, 4)),
        (["--type", "v5litepod-16"], "v2-alpha-tpuv5-lite"),
        (["--type", "v5p-8"], "v2-alpha-tpuv5"),
        (["--type", "v6e-8"], "v2-alpha-tpuv6e"),
        (["--type", "v6e-8", "--runtime-version", "mine"], "mine"),
        (["--type", "v9-8", "--runtime-version", "mine"], "mine"),
    ],
)
def test_each_type_has_its_image(flags: list[str], image: str, laptop: Laptop) -> None:
    dry = laptop.launch("create", "a", *PLACE, *flags, "--dry-run")
    assert (dry.returncode, f" --version={image}\n" in dry.stdout) == (0, True), dry.stdout + dry.stderr


@pytest.mark.parametrize(
    ("workdir", "model", "is_mounted"),
    [
        ("gs://bucket/runs/a", [], True),
        ("gs://bucket/runs/a", ["--init-from", "gs://bucket/bert"], True),
        ("/disk/a", [], False),
        ("/disk/a", ["--init-from", "/disk/bert"], False),
        ("/disk/a", ["--init-from", "gs://bucket/bert"], True),
    ],
)
def test_hosts_get_what_mounts_a_bucket_only_if_one_is_read(
    workdir: str, model: list[str], is_mounted: bool, laptop: Laptop
) -> None:
    dry = laptop.launch(
        *("train", "a", *PLACE, *TYPE, "--dry-run", "--repository", str(ROOT), "--commit", "abc"),
        *("--workdir", workdir, "--corpus", "/corpora/a", "--", "base", *model),
    )
    assert dry.returncode == 0, dry.stderr
    (installed,) = (line for line in dry.stdout.splitlines() if "git init" in line)
    assert ("install_gcsfuse" in installed) == is_mounted


def no_gcloud(laptop: Laptop) -> None:
    path = Path(laptop.env["PATH"].split(":")[0])
    for program in ("bash", "dirname"):
        (path / program).symlink_to(shutil.which(program) or "")
    (path / "gcloud").unlink()
    laptop.env["PATH"] = str(path)


def no_account(laptop: Laptop) -> None:
    laptop.cloud.account.unlink()


def slice_exists(laptop: Laptop) -> None:
    laptop.cloud.add_slice("a")


def nothing(laptop: Laptop) -> None:
    """All is well."""


@pytest.mark.parametrize(
    ("before", "args", "message"),
    [
        (no_gcloud, ("create", "a", *PLACE, *TYPE), "gcloud is not installed"),
        (no_account, ("create", "a", *PLACE, *TYPE), "not logged in; run: gcloud auth login"),
        (nothing, ("create", "a", "--project", "mine", *TYPE), "no zone: pass --zone"),
        (nothing, ("create", "a", "--zone", "us-west4-a", *TYPE), "no project: pass --project"),
        (nothing, ("create", "a", *PLACE), "no accelerator type: pass --type"),
        (
            nothing,
            ("create", "a", *PLACE, "--type", "h100-8"),
            "unknown accelerator type 'h100-8'; known: v2-N",
        ),
        (
            nothing,
            ("create", "a", *PLACE, "--type", "v4-32"),
            "us-west4-a has no accelerator type v4-32; it has: v5litepod-8 v5litepod-16",
        ),
        (nothing, ("create", "a", *PLACE, *TYPE, "--zone", "mars"), "zone mars: ERROR: .*PERMISSION_DENIED"),
        (slice_exists, ("create", "a", *PLACE, *TYPE), r"name a is already in use in us-west4-a \(READY\)"),
        (nothing, ("create", "My_Slice", *PLACE, *TYPE), "'My_Slice' is no name for a slice"),
        (
            nothing,
            ("run", "a", *PLACE, "--workdir", "gs://other/runs", "--corpus", "/corpora/a", "--", "base"),
            "cannot read gs://other: ERROR: .*permission",
        ),
        (
            nothing,
            ("run", "a", *PLACE, *WORKDIR, "--corpus", "corpora/a", "--", "base"),
            "'corpora/a' is not on the hosts",
        ),
        (
            nothing,
            ("run", "a", *PLACE, *WORKDIR, "--corpus", "gs://bucket/none", "--", "base"),
            "cannot read gs://bucket/none: ERROR: .*matched no objects",
        ),
        *(
            (
                nothing,
                ("run", "a", *PLACE, *WORKDIR, "--", *experiment),
                "no corpus: pass --corpus gs://BUCKET/corpora/NAME",
            )
            for experiment in (["base"], ["base", "--data.corpus", ""])
        ),
        (
            nothing,
            ("train", "a", *PLACE, *TYPE, "--repository", str(ROOT), *WORKDIR, "--", "quickstart_bert"),
            "no corpus: ",
        ),
        (
            nothing,
            ("run", "a", *PLACE, *WORKDIR, "--", "base", "--data.corpus=gs://bucket/c"),
            "pass gs://bucket/c as --corpus",
        ),
        (nothing, ("run", "a", *PLACE, *RUN, "--data.corpus", "c"), "'c' is not on the hosts"),
        *(
            (
                nothing,
                ("run", "a", *PLACE, *RUN, *flag),
                "the model or run '/home/me/bert' is not on the hosts: copy it to the bucket, and pass gs://",
            )
            for flag in (
                ["--init-from", "/home/me/bert"],
                ["--init-from=/home/me/bert"],
                ["--init_from", "/home/me/bert"],
                ["--branch-from=/home/me/bert"],
            )
        ),
        (
            nothing,
            ("train", "a", *PLACE, *TYPE, "--repository", str(ROOT), *RUN, "--init-from", "gs://bucket/bert"),
            "cannot read gs://bucket/bert: ERROR: .*matched no objects",
        ),
        (
            nothing,
            ("watch", "a", *PLACE, *TYPE, "--repository", str(ROOT), *RUN),
            "there is no slice a in us-west4-a of project mine, and no request for one: .* `train` with the "
            "same words rents one and resumes from the newest checkpoint in gs://bucket/runs/a",
        ),
        (nothing, ("run", "a", *PLACE, "--", "base"), "no work directory: pass --workdir"),
        (nothing, ("run", "a", *PLACE, "--workdir", "gs://bucket/a"), "no experiment: name one after --"),
        (
            nothing,
            ("train", "a", *PLACE, *TYPE, "--repository", "/nowhere", *RUN),
            "the hosts cannot read /nowhere: they have no password and no key",
        ),
        (
            nothing,
            ("train", "a", *PLACE, *TYPE, "--repository", str(ROOT), "--commit", "abcdef", *RUN),
            f"no commit abcdef at {ROOT}; push it",
        ),
        (
            nothing,
            ("create", "a", *PLACE, *TYPE, "--num-train-steps", "3"),
            "unknown flag '--num-train-steps'",
        ),
        (nothing, ("create", "a", *PLACE, "--type"), "--type: unknown flag, or a flag without a value"),
        (nothing, ("delete", "a", *PLACE), "there is no slice a in us-west4-a of project mine, and"),
        *(
            (
                nothing,
                ("create", "a", *PLACE, *TYPE, flag, value),
                f"{flag} {value}: pass a whole number above 0",
            )
            for flag in ("--poll-seconds", "--max-slices", "--lines", "--slices")
            for value in ("0", "-1", "1.5", "ten", "1 2", "")
        ),
        (
            nothing,
            ("train", "a", *PLACE, *TYPE, "--repository", str(ROOT), *RUN, "--model.num-layer", "3"),
            "of this machine refuses -- quickstart_bert --model.num-layer 3: unknown flag .*; nearest: ",
        ),
        (
            nothing,
            (
                "train",
                "a",
                *PLACE,
                *TYPE,
                "--dry-run",
                "--workdir",
                "gs://b/a",
                "--corpus",
                "gs://b/c",
                "--",
                "bse",
            ),
            "of this machine refuses -- bse: unknown experiment 'bse'; nearest: base",
        ),
        (
            nothing,
            ("study", "a", *PLACE, *TYPE, *RUN),
            "no tasks: pass --tasks gs://BUCKET/tasks, with a directory for each data set",
        ),
        (
            nothing,
            ("train", "a", *PLACE, *TYPE, "--tasks", "/tasks", *RUN),
            "--tasks is for a study: launch_tpu.sh study NAME",
        ),
        (
            nothing,
            ("watch", "a", *PLACE, *TYPE, "--slices", "2", *RUN),
            "--slices is for study, status, logs, stop and delete; name one slice to watch",
        ),
        (nothing, ("creat", "a"), "unknown verb 'creat'; valid: create"),
        (nothing, (), "pass a verb and the name of a slice"),
    ],
)
def test_bad_input_is_one_line_and_creates_nothing(
    before: Callable[[Laptop], None], args: tuple[str, ...], message: str, laptop: Laptop
) -> None:
    before(laptop)
    refused = laptop.launch(*args)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
    assert re.match(f"launch_tpu.sh: error: .*{message}", refused.stderr)
    assert laptop.created() == 0


@pytest.mark.parametrize("what", ["queued-resources", "tpu-vm"])
def test_a_slice_that_gcloud_does_not_list_is_not_taken_for_deleted(what: str, laptop: Laptop) -> None:
    laptop.cloud.add_slice("a")
    laptop.cloud.fail(f"compute tpus {what} list", times=1)
    refused = laptop.launch("delete", "a", *PLACE)
    assert (refused.returncode, laptop.cloud.state("a")) == (69, "READY")
    assert refused.stderr.endswith("error: gcloud does not say whether a is there; if it is, it costs\n")
    assert laptop.launch("delete", "a", *PLACE).returncode == 0
    assert laptop.cloud.state("a") is None


@pytest.mark.parametrize("other", ["ab", "ba"])
def test_a_slice_is_told_from_one_whose_name_holds_its_own(other: str, laptop: Laptop) -> None:
    laptop.cloud.add_slice(other)
    laptop.cloud.queue.mkdir()
    (laptop.cloud.queue / other).write_text("ACTIVE")
    assert laptop.launch("status", "a", *PLACE).stdout == "launch_tpu.sh: slice a: none\n"
    laptop.cloud.add_slice("a")
    laptop.cloud.preempt("a")
    assert laptop.launch("status", "a", *PLACE).stdout == "launch_tpu.sh: slice a: PREEMPTED\n"
    assert laptop.launch("delete", "a", *PLACE).returncode == 0
    assert (laptop.cloud.state("a"), laptop.cloud.state(other)) == (None, "READY")


SAVE = "mkdir -p gs/bucket/runs/a/checkpoints/$start; "
PREEMPTED = "printf PREEMPTED > ~/../state; exit 69"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("endings", "status", "slices"),
    [
        (["exit 0"], 0, 1),
        # A defect in the code fails again on the next start; a chip's fault may not.
        (["exit 1", "exit 1"], 1, 1),
        ([SAVE + "exit 1", SAVE + "exit 1", "exit 0"], 0, 1),
        (["exit 1", "exit 69", "exit 1"], 1, 2),
        (["exit 2"], 2, 1),
        # A restart on the same slice: one, and one more after each new checkpoint. Then on another slice.
        (["exit 69", "exit 0"], 0, 1),
        ([SAVE + "exit 75", SAVE + "kill -9 $$", SAVE + "exit 69", "exit 0"], 0, 1),
        (["exit 75", "kill -9 $$", "exit 0"], 0, 2),
        (["[ $JAX_PROCESS_ID = 1 ] && exit 69; sleep 60", "exit 0"], 0, 1),
        # What fails on two slices would fail on the next one too. A preempted slice does not count.
        (["exit 69"] * 4, 69, 2),
        (["exit 69", "exit 69", PREEMPTED, "exit 0"], 0, 3),
        ([PREEMPTED] * 3, 75, 3),
        (["exit 69", "exit 69", SAVE + PREEMPTED, "exit 69", "exit 69", "exit 0"], 0, 4),
        (["exit 69", "exit 69", SAVE + "exit 69", "exit 69", "exit 69", "exit 69"], 75, 3),
        # A slice that cannot be created does not count.
        (["exit 75", "echo 2 > $STAND_IN_CLOUD/full; exit 75", "exit 0"], 0, 2),
        # A slice that exists after a failed create may be another user's, or was created after all.
        (["exit 75", "echo 1 > $STAND_IN_CLOUD/unseen; exit 75", "exit 0"], 0, 2),
    ],
)
def test_what_follows_an_exit_status(
    endings: list[str], status: int, slices: int, laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    train = train_with(endings, laptop, source, tmp_path, max_slices=max(slices, 3))
    assert (train.returncode, laptop.rented()) == (status, slices), train.stdout + train.stderr
    assert len(laptop.calls("compute tpus tpu-vm ssh")) > len(endings)
    kept = laptop.cloud.state("a") is not None
    assert kept == (status != 0), "a finished run's slice is given back, a failed one's can be looked at"
    assert kept == ("and costs: launch_tpu.sh delete a" in train.stdout)
    assert ("t1v-n-a-w-1: the end" in train.stdout) == (status in (1, 2, 69)), "the log tells why"


@pytest.mark.parametrize("recorded", [True, False])
def test_watch_puts_the_commit_of_the_run_on_another_slice(
    recorded: bool, laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    _, copy, _, begun_with = source
    laptop.cloud.add_slice("a")
    laptop.cloud.preempt("a")
    if recorded:
        run = laptop.cloud.bucket("gs://bucket/runs/a")
        run.mkdir(parents=True)
        starts = [{"git": {"commit": commit}} for commit in ("0" * 40, begun_with)]
        write_json(run / "config.json", {"starts": starts})
    subprocess.run(
        ["git", *IDENTITY, "commit", "--quiet", "--allow-empty", "-m", "later"], cwd=copy, check=True
    )
    setup = setup_of(write_program(tmp_path / "bert-jax", "exit 0"))
    watch = laptop.launch(
        *("watch", "a", *PLACE, *TYPE, "--repository", copy, *setup, "--poll-seconds", "1", *RUN)
    )
    # HEAD means this checkout's commit, which the copy does not have.
    assert watch.returncode == (0 if recorded else 2), watch.stderr
    assert (f"installing {begun_with} on a" in watch.stdout) == recorded
    assert ("config.json names no commit: another slice would get HEAD" in watch.stdout) == (not recorded)


@pytest.mark.slow
def test_a_run_on_a_shared_disk_is_watched_as_one_in_a_bucket(
    laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    _, copy, _, begun_with = source
    run = tmp_path / "shared" / "a"
    run.mkdir(parents=True)
    write_json(run / "config.json", {"starts": [{"git": {"commit": begun_with}}]})
    save = f"mkdir -p {run}/checkpoints/$start; exit 75"
    laptop.cloud.add_slice("a")
    watch = laptop.launch(
        *("watch", "a", *PLACE, *TYPE, "--repository", copy, "--poll-seconds", "1"),
        *setup_of(write_endings([save, save, save, "exit 0"], laptop, tmp_path)),
        *("--workdir", str(run), "--corpus", "/corpora/a", "--", "quickstart_bert"),
    )
    assert (watch.returncode, laptop.rented()) == (0, 1), watch.stdout + watch.stderr
    assert f"installing {begun_with} on a" in watch.stdout


def test_watch_does_not_take_silence_for_no_commit(laptop: Laptop) -> None:
    laptop.cloud.add_slice("a")
    run = laptop.cloud.bucket("gs://bucket/runs/a")
    run.mkdir(parents=True)
    write_json(run / "config.json", {"starts": []})
    watch_from_bucket = ("watch", "a", *PLACE, *TYPE, "--repository", str(ROOT), *RUN)
    laptop.cloud.fail("storage objects list", times=1)
    not_listed = laptop.launch(*watch_from_bucket)
    laptop.cloud.fail("storage cat", times=1)
    not_read = laptop.launch(*watch_from_bucket)
    laptop.cloud.preempt("a")
    on_disk = ("--workdir", "/shared/a", "--corpus", "/corpora/a", "--", "quickstart_bert")
    from_hosts = laptop.launch("watch", "a", *PLACE, *TYPE, "--repository", str(ROOT), *on_disk)
    for watch in (not_listed, not_read, from_hosts):
        assert (watch.returncode, laptop.created()) == (69, 0), watch.stderr
        assert "config.json, which names the run's commit (" in watch.stderr


def test_watch_does_not_take_silence_for_no_slice(laptop: Laptop) -> None:
    laptop.cloud.fail("compute tpus tpu-vm list", times=1)
    watch = laptop.launch("watch", "a", *PLACE, *TYPE, "--repository", str(ROOT), *RUN)
    assert (watch.returncode, laptop.created()) == (69, 0), watch.stderr
    assert "gcloud does not say whether a is there" in watch.stderr


def test_watch_waits_for_the_queue_and_installs_on_what_comes(
    laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    laptop.cloud.queue.mkdir()
    (laptop.cloud.queue / "a").write_text("WAITING_FOR_RESOURCES")
    setup = setup_of(write_program(tmp_path / "bert-jax", "exit 0"))
    watch = laptop.launch("watch", "a", *PLACE, *TYPE, *source, *setup, "--poll-seconds", "1", *RUN)
    assert (watch.returncode, laptop.rented(), laptop.created()) == (0, 1, 0), watch.stdout + watch.stderr
    assert (laptop.cloud.state("a"), list(laptop.cloud.queue.iterdir())) == (None, [])


def test_what_is_not_committed_is_named(laptop: Laptop, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "bert_jax" / "model").mkdir(parents=True)
    shutil.copy(LAUNCH_TPU, checkout)
    (checkout / "README.md").touch()
    for command in (["init", "--quiet"], ["add", "."], [*IDENTITY, "commit", "--quiet", "-m", "all"]):
        subprocess.run(["git", *command], cwd=checkout, check=True)

    def noted(*flags: str) -> str:
        words = ("install", "a", *PLACE, "--repository", str(ROOT), "--dry-run", *flags)
        done = subprocess.run(
            [checkout / "launch_tpu.sh", *words], env=laptop.env, capture_output=True, text=True, check=True
        )
        assert "git init" in done.stdout, "it goes on"
        return done.stderr

    (checkout / "notes.py").touch()  # not among the files that are installed
    assert noted() == ""
    (checkout / "README.md").write_text("changed")
    said = "launch_tpu.sh: note: the hosts get HEAD, without what is not committed: README.md"
    assert noted() == f"{said}\n"
    for number in range(3):
        (checkout / "bert_jax" / "model" / f"new_{number}.py").touch()
    assert noted() == f"{said} bert_jax/model/new_0.py bert_jax/model/new_1.py ...\n"
    assert noted("--commit", "HEAD") == ""


@pytest.mark.slow
def test_a_slice_that_is_taken_away_while_it_is_installed_is_replaced(
    laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    flag, setup = setup_of(write_program(tmp_path / "bert-jax", "exit 0"))
    taken = f"[ -e {tmp_path}/taken ] || {{ touch {tmp_path}/taken; printf PREEMPTED > ~/../state; exit 1; }}"
    train = laptop.launch(
        *("train", "a", *PLACE, *TYPE, *source, flag, f"{taken}; {setup}", "--poll-seconds", "1", *RUN)
    )
    assert (train.returncode, laptop.rented()) == (0, 2), train.stdout + train.stderr


def test_a_setup_that_fails_on_a_slice_that_is_there_rents_no_other(
    laptop: Laptop, source: tuple[str, ...]
) -> None:
    train = laptop.launch(
        *("train", "a", *PLACE, *TYPE, *source, "--setup", "false", "--poll-seconds", "1", *RUN)
    )
    assert (train.returncode, laptop.rented()) == (1, 1), train.stdout + train.stderr


@pytest.mark.slow
def test_a_host_that_was_not_installed_to_the_end_is_installed_again(
    laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    flag, setup = setup_of(write_program(tmp_path / "bert-jax", "exit 0"))
    assert laptop.launch("create", "a", *PLACE, *TYPE).returncode == 0
    assert laptop.launch("install", "a", *PLACE, *source, flag, "false").returncode != 0
    watch = laptop.launch("watch", "a", *PLACE, *TYPE, *source, flag, setup, "--poll-seconds", "1", *RUN)
    assert (watch.returncode, laptop.rented()) == (0, 1), watch.stdout + watch.stderr
    assert "installing" in watch.stdout


@pytest.mark.parametrize(("status", "state"), [("0\n", "0"), ("", "lost"), (None, "lost")])
def test_a_status_that_a_full_disk_left_empty_is_no_end(
    status: str | None, state: str, tmp_path: Path
) -> None:
    directory = tmp_path / "bert-jax-run"
    directory.mkdir()
    if status is not None:
        (directory / "status").write_text(status)
    said = subprocess.run(
        ["bash", ROOT / "tpu_host.sh", "state"],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == f"run: {state}\n"


def test_a_start_that_is_said_again_starts_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "bert-jax-run"
    directory.mkdir()
    (directory / "pid").write_text(str(os.getpid()))
    subprocess.run(
        ["bash", ROOT / "tpu_host.sh", "run", "/runs/a", "", "quickstart_bert"],
        env={**os.environ, "HOME": str(tmp_path)},
        check=True,
    )
    assert [path.name for path in directory.iterdir()] == ["pid"]


def test_a_setup_is_run_only_in_a_checkout(laptop: Laptop, source: tuple[str, ...]) -> None:
    laptop.cloud.add_slice("a")
    homes = laptop.cloud.homes("a")
    (homes[1] / "bert-jax").touch()  # in the place of the checkout's directory
    install = laptop.launch("install", "a", *PLACE, *source, "--setup", "false || touch ~/set-up")
    assert install.returncode != 0
    assert [(home / "set-up").exists() for home in homes] == [True, False]


@pytest.mark.slow
def test_a_model_is_read_from_the_bucket(laptop: Laptop, source: tuple[str, ...], tmp_path: Path) -> None:
    for bucket in ("bucket", "models", "runs"):
        model = laptop.cloud.buckets / bucket / "bert"
        model.mkdir(parents=True)
        (model / "config.json").write_text(f"that of {bucket}\n")
    program = write_program(tmp_path / "bert-jax", 'for word; do cat "${word#*=}/config.json"; done; exit 0')
    laptop.cloud.add_slice("a")
    assert laptop.launch("install", "a", *PLACE, *source, *setup_of(program)).returncode == 0
    for flags, read in (
        (["--init-from", "gs://bucket/bert"], "that of bucket"),
        (["--init-from=gs://models/bert"], "that of models"),
        (["--branch-from=gs://runs/bert"], "that of runs"),
    ):
        run = laptop.launch("run", "a", *PLACE, *RUN, *flags)
        assert run.returncode == 0, run.stderr
        wait_until(lambda: laptop.launch("status", "a", *PLACE).stdout.count("run: 0") == 2)
        assert laptop.launch("logs", "a", *PLACE, "--lines", "20").stdout.count(read) == 2
    assert len(laptop.launch("logs", "a", *PLACE, "--lines", "1").stdout.splitlines()) == 2


def test_hosts_that_do_not_answer_are_not_waited_for_forever(
    laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    train = train_with(["touch ~/../silent; sleep 60"], laptop, source, tmp_path)
    assert (train.returncode, laptop.rented()) == (75, 1), train.stdout + train.stderr
    assert train.stderr.count("(ssh: connect to host 10.0.0.2 port 22: Connection timed out)") == 5
    assert "and costs: launch_tpu.sh delete a" in train.stdout


def train_with(
    endings: list[str], laptop: Laptop, source: tuple[str, ...], tmp_path: Path, max_slices: int = 3
) -> subprocess.CompletedProcess[str]:
    """Runs `train` to its end; the successive starts of the run end as `endings` says."""
    return laptop.launch(
        *("train", "a", *PLACE, *TYPE, *source),
        *setup_of(write_endings(endings, laptop, tmp_path)),
        *("--max-slices", str(max_slices), "--poll-seconds", "1", *RUN),
    )


def write_endings(endings: list[str], laptop: Laptop, tmp_path: Path) -> Path:
    """A program whose successive starts end as `endings` says."""
    for number, ending in enumerate(endings, start=1):
        (tmp_path / f"ending-{number}").write_text(f"echo the end\n{ending}\n")
    return write_program(
        tmp_path / "bert-jax",
        f"start=$(grep -c 'tpu_host.sh run ' {laptop.cloud.calls}); . {tmp_path}/ending-$start",
    )


@pytest.mark.slow
def test_all_hosts_have_the_corpus_before_any_of_them_waits_for_the_others(
    laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    corpus = laptop.cloud.bucket("gs://bucket") / "corpora" / "big"
    corpus.mkdir(parents=True)
    (corpus / "text").touch()
    laptop.env["STAND_IN_SLOW_COPY"] = "1"
    program = write_program(tmp_path / "bert-jax", "ls ~/../host-*/bert-jax-run/corpora/big/text")
    laptop.cloud.add_slice("a")
    for verb, *flags in (
        ("install", *source, *setup_of(program)),
        ("run", *WORKDIR, "--corpus", "gs://bucket/corpora/big", "--", "quickstart_bert"),
    ):
        done = laptop.launch(verb, "a", *PLACE, *flags)
        assert done.returncode == 0, done.stderr
    wait_until(lambda: laptop.launch("status", "a", *PLACE).stdout.count("run: 0") == 2)
    assert laptop.launch("logs", "a", *PLACE).stdout.count("corpora/big/text") == 4


@pytest.mark.parametrize("repository", ["https://localhost:1/r.git", "ssh://me@localhost:1/r.git"])
def test_a_repository_that_only_this_user_can_read_is_refused(
    repository: str, laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    _, copy, *commit = source
    (tmp_path / ".gitconfig").write_text(f'[url "{copy}"]\ninsteadOf = https://localhost:1/r.git\n')
    laptop.env["GIT_CONFIG_GLOBAL"] = str(tmp_path / ".gitconfig")
    laptop.env["GIT_SSH_COMMAND"] = str(write_program(tmp_path / "ssh", f"git-upload-pack {copy}"))
    subprocess.run(["git", "ls-remote", "--quiet", repository], env=laptop.env, check=True)
    refused = laptop.launch("install", "a", *PLACE, "--repository", repository, *commit)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
    assert f"the hosts cannot read {repository}: they have no password" in refused.stderr


def test_a_token_is_not_shown(laptop: Laptop, tmp_path: Path) -> None:
    repository = ("--repository", "https://oauth2:secret@localhost:1/r.git")
    refused = laptop.launch("install", "a", *PLACE, *repository, "--commit", "abc")
    assert refused.returncode == 2
    assert "the hosts cannot read https://localhost:1/r.git: " in refused.stderr
    assert "secret" not in refused.stderr


def test_a_fresh_host_waits_for_its_own_updates(laptop: Laptop, tmp_path: Path) -> None:
    programs, did = tmp_path / "bin", tmp_path / "did"
    (programs / "gcsfuse").unlink()
    for name, text in {
        "lsb_release": "echo jammy",
        "curl": "echo key",
        "sleep": f"echo wait >> {did}",
        "sudo": 'if [ "$1" = tee ]; then cat >/dev/null; else exec "$@"; fi',
        "apt-get": f"""echo "${{@: -1}}" >> {did}; [ "$1" != update ] || [ $(grep -c update {did}) = 3 ]""",
    }.items():
        write_program(programs / name, text)
    subprocess.run(
        ["bash", ROOT / "tpu_host.sh", "install_gcsfuse"],
        env={**laptop.env, "HOME": str(tmp_path)},
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert did.read_text().split() == ["update", "wait", "update", "wait", "update", "gcsfuse"]


def test_ctrl_c_leaves_the_run_and_says_how_to_end_it(
    laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    program = write_program(
        tmp_path / "bert-jax", "trap 'echo saved; exit 75' TERM; while true; do sleep 0.1; done"
    )
    train = laptop.start(
        *("train", "a", *PLACE, *TYPE, *source),
        *(*setup_of(program), "--poll-seconds", "1", *RUN),
    )
    wait_until(lambda: len(laptop.calls("compute tpus tpu-vm ssh")) > 3)
    os.killpg(train.pid, signal.SIGINT)
    said, _ = train.communicate(timeout=PATIENCE_SECONDS)
    assert train.returncode == 130
    assert "launch_tpu.sh stop a --zone us-west4-a --project mine" in said
    assert laptop.launch("status", "a", *PLACE).stdout.count("run: going") == 2
    assert laptop.launch("run", "a", *PLACE, *RUN).returncode == 2, "two runs on a host"
    assert laptop.launch("stop", "a", *PLACE).returncode == 0
    wait_until(lambda: laptop.launch("status", "a", *PLACE).stdout.count("run: 75") == 2)
    assert "t1v-n-a-w-0: saved" in laptop.launch("logs", "a", *PLACE).stdout
    assert laptop.launch("delete", "a", *PLACE).returncode == 0
    assert laptop.cloud.state("a") is None


def test_a_queued_slice_is_waited_for_and_deleted_with_its_request(laptop: Laptop) -> None:
    flags = ("--queued", "--spot", "--create-flags", "--network=n --internal-ips", "--poll-seconds", "1")
    queued = laptop.launch("create", "a", *PLACE, *TYPE, *flags)
    assert (queued.returncode, laptop.cloud.state("a")) == (0, "READY"), queued.stderr
    assert "in the queue: PROVISIONING" in queued.stdout
    assert "slice a: READY; its request in the queue: ACTIVE" in laptop.launch("status", "a", *PLACE).stdout
    (asked,) = laptop.calls("compute tpus queued-resources create")
    assert "--network=n --internal-ips" in asked
    assert "--spot" in asked.split()
    assert laptop.launch("create", "a", *PLACE, *TYPE).returncode == 2, "the request has the name"
    assert laptop.launch("delete", "a", *PLACE).returncode == 0
    assert (laptop.cloud.state("a"), list(laptop.cloud.queue.iterdir())) == (None, [])


@pytest.mark.slow
def test_a_request_that_waits_is_seen_and_one_that_vanishes_is_not_waited_for(laptop: Laptop) -> None:
    create = laptop.start("create", "a", *PLACE, *TYPE, "--queued", "--poll-seconds", "600")
    waits = "slice a: none; its request in the queue: "
    wait_until(lambda: waits in laptop.launch("status", "a", *PLACE).stdout)
    os.killpg(create.pid, signal.SIGKILL)

    create = laptop.start("create", "b", *PLACE, *TYPE, "--queued", "--poll-seconds", "2")
    assert create.stdout is not None
    said = [create.stdout.readline() for _ in range(2)]
    assert said[1] == "launch_tpu.sh: in the queue: WAITING_FOR_RESOURCES\n"
    laptop.cloud.fail("compute tpus queued-resources list", times=1)
    (laptop.cloud.queue / "b").unlink()
    said = create.stdout.readlines()
    assert create.wait() == 1
    assert said[0] == "launch_tpu.sh: gcloud does not say how the request stands; looking again\n"
    assert "the request is no longer in the queue" in said[1]


def test_the_commands_of_the_documentation_are_understood(laptop: Laptop, tmp_path: Path) -> None:
    for directory in ("corpora/mine", "corpora/more", "bert-base-uncased", "glue"):
        (tmp_path / directory).mkdir(parents=True)
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "tpu.md").read_text(), re.DOTALL)
    commands = "".join(blocks).replace("\\\n", " ").splitlines()
    for command in commands:
        program, *words = shlex.split(command)
        if program == "./launch_tpu.sh":
            # A checkout need not have a remote.
            done = laptop.launch(*words[:2], "--dry-run", "--repository", str(ROOT), *words[2:])
        elif program == "gcloud":
            done = subprocess.run(
                [program, *words], cwd=tmp_path, env=laptop.env, capture_output=True, text=True, check=False
            )
        else:
            on_a_host = (".", "bash", "cd", "tar")
            others = (
                "bert-jax",
                "eval",
                "git",
                "pip",
                "ssh-add",
                "ssh-keygen",
                "sudo",
                "tensorboard",
                "tmux",
            )
            assert program in (*others, *on_a_host), command
            continue
        assert done.returncode == 0, (command, done.stderr)
        if "buckets add-iam-policy-binding" in command:
            run = laptop.cloud.bucket("gs://my-bucket/runs/mine")
            (run / "tensorboard").mkdir(parents=True)
            (run / "metrics.jsonl").touch()
    verbs = {shlex.split(command)[1] for command in commands if command.startswith("./launch_tpu.sh")}
    assert verbs == {
        "train",
        "study",
        "create",
        "install",
        "run",
        "watch",
        "status",
        "logs",
        "stop",
        "delete",
    }


STUDY = (
    *(
        "--workdir",
        "gs://bucket/studies/a",
        "--corpus",
        "gs://bucket/corpora/a",
        "--tasks",
        "gs://bucket/tasks",
    ),
    *("--poll-seconds", "1", "--", "table5", "--scale", "small"),
)


@pytest.fixture
def inputs(laptop: Laptop) -> None:
    """The corpus and the tasks of a study in the bucket."""
    for directory in ("corpora/a", "tasks/sick"):
        (laptop.cloud.bucket("gs://bucket") / directory).mkdir(parents=True)


def note_progress(laptop: Laptop, command: str, left: int) -> None:
    """Leaves the file that the workers of a study write."""
    directory = laptop.cloud.bucket("gs://bucket/studies/a")
    directory.mkdir(parents=True, exist_ok=True)
    progress = {"command": f"{command} --output gs/bucket/studies/a", "jobs": 9, "left": left}
    write_json(directory / "progress.json", progress)


def test_each_slice_works_on_the_study_and_is_given_back(
    laptop: Laptop, source: tuple[str, ...], inputs: None, tmp_path: Path
) -> None:
    program = write_program(
        tmp_path / "bert-jax",
        f'echo "$@" > {tmp_path}/$HOSTNAME.words; ls corpora/a tasks/tasks > {tmp_path}/$HOSTNAME.copied',
    )
    study = laptop.launch("study", "a", *PLACE, *TYPE, *source, *setup_of(program), "--slices", "2", *STUDY)
    assert (study.returncode, laptop.rented()) == (0, 2), study.stdout + study.stderr
    assert [*laptop.cloud.slices.iterdir()] == []
    for number in (1, 2):
        words = (tmp_path / f"t1v-n-a-{number}-w-1.words").read_text().split()
        assert words[:4] == ["study", "table5", "--scale", "small"]
        assert words[4:] == [
            *("--output", "gs/bucket/studies/a", "--corpus", "corpora/a", "--tasks", "tasks/tasks"),
            *("--leave-when-idle", "--distributed"),
        ]
        assert "sick" in (tmp_path / f"t1v-n-a-{number}-w-0.copied").read_text()


@pytest.mark.parametrize(
    ("command", "left", "slices"),
    [
        ("table5 --scale small", 0, 0),
        ("table5 --scale small", 1, 1),
        ("table5 --scale small --seeds 5", 0, 1),
        ("table5 --scale paper", 0, 1),
    ],
)
def test_no_slice_is_rented_if_nothing_is_left_of_the_same_study(
    command: str,
    left: int,
    slices: int,
    laptop: Laptop,
    source: tuple[str, ...],
    inputs: None,
    tmp_path: Path,
) -> None:
    note_progress(laptop, command, left)
    setup = setup_of(write_program(tmp_path / "bert-jax", "exit 0"))
    study = laptop.launch("study", "a", *PLACE, *TYPE, *source, *setup, *STUDY)
    assert (study.returncode, laptop.created()) == (0, slices), study.stdout + study.stderr
    assert ("nothing is left to do of: table5 --scale small" in study.stdout) == (slices == 0)


@pytest.mark.parametrize(("left", "slices"), [(0, 1), (1, 2)])
def test_a_slice_of_a_study_that_is_taken_away_is_replaced_if_something_is_left(
    left: int, slices: int, laptop: Laptop, source: tuple[str, ...], inputs: None, tmp_path: Path
) -> None:
    note_progress(laptop, "table5 --scale small", 1)
    written = tmp_path / "progress.json"
    shutil.copy(laptop.cloud.bucket("gs://bucket/studies/a") / "progress.json", written)
    written.write_text(written.read_text().replace('"left": 1', f'"left": {left}'))
    note = f"cp {written} ~/bert-jax-run/gs/bucket/studies/a/; {PREEMPTED}"
    program = write_endings([note, "exit 0"], laptop, tmp_path)
    program.write_text(program.read_text().replace("tpu_host.sh run ", "tpu_host.sh run_study "))
    study = laptop.launch("study", "a", *PLACE, *TYPE, *source, *setup_of(program), *STUDY)
    assert (study.returncode, laptop.rented()) == (0, slices), study.stdout + study.stderr
    assert [*laptop.cloud.slices.iterdir()] == []


def test_the_slices_of_a_study_are_asked_and_deleted_together(laptop: Laptop) -> None:
    for number in (1, 2):
        laptop.cloud.add_slice(f"a-{number}")
    said = laptop.launch("status", "a", *PLACE, "--slices", "2").stdout
    assert "slice a-1: READY" in said
    assert "slice a-2: READY" in said
    assert laptop.launch("delete", "a", *PLACE, "--slices", "2").returncode == 0
    assert [*laptop.cloud.slices.iterdir()] == []


@pytest.mark.slow
def test_a_preempted_run_goes_on_elsewhere_and_ends_like_an_undisturbed_one(
    laptop: Laptop, source: tuple[str, ...]
) -> None:
    bucket = laptop.cloud.bucket("gs://bucket")
    write_corpus(bucket / "corpora" / "tiny")
    link_packages(Path(laptop.env["STAND_IN_PACKAGES"]))
    from_here = (*source, "--setup", INSTALLED_IMAGE)
    tiny = {**FLAGS, "--num-train-steps": 80, "--eval-every": 40}
    overrides = [word for flag, value in tiny.items() for word in (flag, str(value))]

    def run(name: str) -> tuple[str, ...]:
        directories = ("--workdir", f"gs://bucket/runs/{name}", "--corpus", "gs://bucket/corpora/tiny/")
        return (*directories, "--poll-seconds", "2", "--", "quickstart_bert", *overrides)

    watch = (*TYPE, *from_here, *run("undisturbed"))
    for verb, flags in {
        "create": TYPE,
        "install": from_here,
        "run": run("undisturbed"),
        "watch": watch,
    }.items():
        done = laptop.launch(verb, "undisturbed", *PLACE, *flags)
        assert done.returncode == 0, done.stdout + done.stderr

    train = laptop.start("train", "disturbed", *PLACE, *TYPE, "--spot", *from_here, *run("disturbed"))
    disturbed = bucket / "runs" / "disturbed"
    wait_until(lambda: bool(saved_steps(disturbed)))
    laptop.cloud.preempt("disturbed")
    interrupted_at = saved_steps(disturbed)[-1]
    said = train.communicate(timeout=PATIENCE_SECONDS)
    assert (train.returncode, laptop.created()) == (0, 3), said
    assert "slice 2 of at most 20" in said[0]
    assert interrupted_at < 80, "the run ended before its slice was taken away"
    assert [*laptop.cloud.slices.iterdir()] == [], "a slice is left over, and costs"

    expected, actual = final_state(bucket / "runs" / "undisturbed"), final_state(disturbed)
    assert [path for path in expected if not np.array_equal(actual[path], expected[path])] == []
    assert deterministic_rows(disturbed) == deterministic_rows(bucket / "runs" / "undisturbed")


def link_packages(directory: Path) -> None:
    """Makes the hosts' image: everything that is installed here except this package itself."""
    directory.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "bert_jax" not in path.name:
            (directory / path.name).symlink_to(path)


def setup_of(program: Path) -> tuple[str, str]:
    """The flag that has a program installed as `bert-jax`."""
    return ("--setup", f"mkdir -p venv/bin && cp {program} venv/bin/bert-jax")


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
