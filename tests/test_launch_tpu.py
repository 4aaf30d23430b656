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

import pytest

from bert_jax.training.checkpoints import saved_steps
from data_pipeline.atomic import write_json
from tests.stand_in_gcloud import Cloud
from tests.tiny_run import FLAGS, assert_same_run, environment, write_corpus

ROOT = Path(__file__).parent.parent
LAUNCH_TPU, SLICES, HOST = (ROOT / f"{name}.sh" for name in ("launch_tpu", "tpu_slices", "tpu_host"))
ZONE = ("--zone", "us-west4-a", "--project", "mine")
PLACE = (*ZONE, "--type", "v5litepod-16")
GCE_PLACE = (*ZONE, "--type", "tpu7x-16")
both_apis = pytest.mark.parametrize("place", [PLACE, GCE_PLACE], ids=["cloud_tpu", "compute_engine"])
VERBS = "create install run watch train study status logs stop delete"
WORKDIR = ("--workdir", "gs://bucket/runs/a")
RUN = (*WORKDIR, "--corpus", "/corpora/a", "--poll-seconds", "1", "--", "quickstart_bert")
IDENTITY = ("-c", "user.name=me", "-c", "user.email=me@example.org")
PATIENCE_SECONDS = 900

START = "ssh a(-0)? .*tpu_host.sh fetch "
"""What a call of gcloud holds once in each start: all hosts fetch before any of them runs."""

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
        return sum(" create " in call for call in self.calls("compute"))

    def starts(self) -> int:
        """How often the run was started so far."""
        return sum(re.search(START, call) is not None for call in self.calls("compute"))

    def left_over(self) -> list[str]:
        """What is left of slices: hosts, requests, templates and policies."""
        places = (self.cloud.slices, self.cloud.queue, self.cloud.templates, self.cloud.policies)
        return [path.name for place in places for path in place.glob("*")]


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
    commit_all(copy)
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=copy, text=True).strip()
    return ("--repository", str(copy), "--commit", commit)


def commit_all(directory: Path) -> None:
    """Makes a directory a repository with one commit, of all its files."""
    for command in (["init", "--quiet"], ["add", "."], [*IDENTITY, "commit", "--quiet", "-m", "all"]):
        subprocess.run(["git", *command], cwd=directory, check=True)


def write_program(path: Path, text: str, shell: str = "bash") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/usr/bin/env {shell}\n{text}\n")
    path.chmod(0o755)
    return path


def test_help_names_every_verb_and_flag(laptop: Laptop) -> None:
    shown = laptop.launch("--help")
    assert shown.returncode == 0
    assert laptop.launch("train", "--help").stdout == shown.stdout
    assert [line for line in shown.stdout.splitlines() if len(line) > 80] == []
    (accepted,) = re.findall(r"case \$1 in\n(.*?)\n  esac", LAUNCH_TPU.read_text(), re.DOTALL)
    assert set(re.findall(r"--[a-z-]+", accepted)) <= set(re.findall(r"--[a-z-]+", shown.stdout))
    assert f'verbs="{VERBS}"' in LAUNCH_TPU.read_text()
    rows = re.findall(r"^  ([a-z]+(?:, [a-z]+)*)  ", shown.stdout.partition("flags:")[0], re.MULTILINE)
    assert {verb for row in rows for verb in row.split(", ")} == set(VERBS.split())


def dry_run(laptop: Laptop, *flags: str) -> list[list[str]]:
    """The calls of gcloud that a dry run of `train` prints, by the name of their command."""
    dry = laptop.launch(
        *("train", "a", "--dry-run", "--repository", "git@example.org:me/r.git", "--commit", "abc", *flags),
        *("--ssh-flags", "--internal-ip", *WORKDIR, "--corpus", "gs://bucket/corpora/b"),
        *("--", "base", "--optimizer.decay-exclusions", "it's one word"),
    )
    assert dry.returncode == 0, dry.stderr
    assert laptop.calls("") == []
    return [shlex.split(line) for line in dry.stdout.splitlines() if line.startswith("gcloud ")]


def created_by(laptop: Laptop, *flags: str) -> list[list[str]]:
    """Those of `dry_run` that create something."""
    calls = dry_run(laptop, *flags, "--create-flags", "--network=n")
    return [call for call in calls if "create" in call]


@both_apis
def test_a_dry_run_prints_the_commands_and_runs_none(place: tuple[str, ...], laptop: Laptop) -> None:
    calls = dry_run(laptop, *place)
    on_hosts = [call for call in calls if "ssh" in call]
    assert all("--internal-ip" in call for call in on_hosts)
    installed, fetched, started, *_ = [call[-1] for call in on_hosts]
    assert "git fetch --quiet --depth 1 https://example.org/me/r.git abc" in installed
    words = ["pretrain", "gs://bucket/runs/a", "gs://bucket/corpora/b", ""]
    experiment = ["base", "--optimizer.decay-exclusions", "it's one word"]
    assert shlex.split(fetched)[2:] == ["fetch", *words, *experiment]
    assert shlex.split(started)[2:] == ["run", *words, *experiment]
    deleted = [call[call.index("delete") - 1] for call in calls if "delete" in call]
    assert deleted == (
        ["tpu-vm"] if place == PLACE else ["managed", "instance-templates", "resource-policies"]
    )


def test_what_is_created_by_the_cloud_tpu_api(laptop: Laptop) -> None:
    (created,) = created_by(laptop, *PLACE, "--spot")
    assert created == shlex.split(
        "gcloud compute tpus tpu-vm create a --zone=us-west4-a --project=mine --network=n "
        "--accelerator-type=v5litepod-16 --spot --version=v2-alpha-tpuv5-lite"
    )


@pytest.mark.parametrize(
    ("flags", "provisioning"),
    [
        ([], ""),
        (["--spot"], "--provisioning-model=SPOT --instance-termination-action=DELETE"),
        (["--max-hours", "9"], "--instance-termination-action=DELETE --max-run-duration=9h"),
        (
            ["--queued", "--max-hours", "9"],
            "--provisioning-model=FLEX_START --reservation-affinity=none "
            "--instance-termination-action=DELETE --max-run-duration=9h",
        ),
    ],
)
def test_what_is_created_on_compute_engine(flags: list[str], provisioning: str, laptop: Laptop) -> None:
    assert created_by(laptop, *GCE_PLACE, *flags) == [
        shlex.split(f"gcloud compute {words}")
        for words in (
            "resource-policies create workload-policy a-us-west4-a --region=us-west4 --project=mine "
            "--type=HIGH_THROUGHPUT --accelerator-topology=2x2x2",
            "instance-templates create a-us-west4-a --machine-type=tpu7x-standard-4t "
            "--image-project=ubuntu-os-accelerator-images --image-family=ubuntu-accel-2404-amd64-tpu-tpu7x "
            "--boot-disk-size=200GB --scopes=cloud-platform --maintenance-policy=TERMINATE "
            f"{provisioning} --project=mine --network=n",
            "instance-groups managed create a --zone=us-west4-a --project=mine --size=2 "
            "--template=a-us-west4-a --default-action-on-vm-failure=do-nothing "
            "--workload-policy=projects/mine/regions/us-west4/resourcePolicies/a-us-west4-a "
            "--target-size-policy-mode=bulk",
        )
    ]


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        *((f"v{version}-8", "--version=tpu-ubuntu2204-base") for version in (2, 3, 4)),
        ("v5litepod-16", "--version=v2-alpha-tpuv5-lite"),
        ("v5litepod-16 --runtime-version mine", "--version=mine"),
        ("v6e-1", "ct6e-standard-1t v5e-v5p-v6e --size=1"),
        ("v6e-4", "ct6e-standard-4t v5e-v5p-v6e --size=1"),
        ("v6e-8", "ct6e-standard-8t v5e-v5p-v6e --size=1"),
        ("v6e-16", "ct6e-standard-4t v5e-v5p-v6e --size=4 --accelerator-topology=4x4"),
        ("v6e-256", "ct6e-standard-4t v5e-v5p-v6e --size=64 --accelerator-topology=16x16"),
        ("v5p-8", "ct5p-hightpu-4t v5e-v5p-v6e --size=1"),
        ("v5p-32", "ct5p-hightpu-4t v5e-v5p-v6e --size=4 --accelerator-topology=2x2x4"),
        ("tpu7x-128", "tpu7x-standard-4t amd64-tpu-tpu7x --size=16 --accelerator-topology=4x4x4"),
        ("tpu7x-8 --runtime-version mine", "tpu7x-standard-4t --image-family=mine --size=1"),
    ],
)
def test_each_type_has_its_machines_and_image(flags: str, shown: str, laptop: Laptop) -> None:
    dry = laptop.launch("create", "a", *ZONE, "--type", *flags.split(), "--dry-run")
    assert (dry.returncode, [word for word in shown.split() if word not in dry.stdout]) == (0, []), dry
    assert ("workload-policy" in dry.stdout) == ("topology" in shown)


def no_gcloud(laptop: Laptop) -> None:
    path = Path(laptop.env["PATH"].split(":")[0])
    for program in ("bash", "dirname", "git", "sed", "cut"):
        (path / program).symlink_to(shutil.which(program) or "")
    (path / "gcloud").unlink()
    laptop.env["PATH"] = str(path)


def no_account(laptop: Laptop) -> None:
    laptop.cloud.account.unlink()


def no_repository(laptop: Laptop) -> None:
    laptop.env["GIT_DIR"] = "no-repository"


def slice_exists(laptop: Laptop) -> None:
    laptop.cloud.add_slice("a")


HERE = ("--repository", str(ROOT))
Z, TPU, GCE = (shlex.join(words) for words in (ZONE, PLACE, GCE_PLACE))
ON = f"{shlex.join(WORKDIR)} --corpus /corpora/a -- quickstart_bert"


@pytest.mark.parametrize(
    ("before", "command", "message"),
    [
        (no_gcloud, f"create a {TPU}", "gcloud is not installed, or not logged in"),
        (no_account, f"create a {TPU}", "not logged in; run: gcloud auth login"),
        (no_account, f"create a {GCE}", "not logged in; run: gcloud auth login"),
        (
            no_repository,
            f"install a {TPU} --commit abc",
            "has no remote `origin`, which the hosts would fetch",
        ),
        (slice_exists, f"create a {TPU}", r"a is already in use in us-west4-a \(READY\)"),
        (
            slice_exists,
            f"train a {GCE} --repository {ROOT} {ON}",
            r"a is already in use in us-west4-a \(READY",
        ),
    ],
)
def test_what_stands_in_the_way_is_one_line(
    before: Callable[[Laptop], None], command: str, message: str, laptop: Laptop
) -> None:
    before(laptop)
    assert_refused(command, message, laptop)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("create a --project mine --type v4-8", "no zone: pass --zone"),
        ("create a --zone us-west4-a --type v4-8", "no project: pass --project"),
        (f"status a {Z}", "no type: pass --type, for example v5litepod-16"),
        (f"create a {Z} --type h100-8", "unknown --type 'h100-8'; known: v2-N"),
        (f"create a {Z} --type v6e-16a", "unknown --type 'v6e-16a'; known: v2-N"),
        (f"create a {Z} --type v6e-12", "no slice of v6e-12 has 12 chips; there are: 2x2 4x4"),
        (f"create a {Z} --type tpu7x-2", "no slice of tpu7x-2 has 1 chips; there are: 2x2x1"),
        (f"create a {Z} --type v4-32", "us-west4-a has no v4-32; it has: v5litepod-8 v5litepod-16"),
        (f"create a {Z} --type v6e-8", "us-west4-a has no ct6e-standard-8t; it has: ct5p-hightpu-4t"),
        (f"create a {TPU} --zone mars", "zone mars: ERROR: .*PERMISSION_DENIED"),
        (f"create a {GCE} --zone mars", "zone mars: ERROR: .*PERMISSION_DENIED"),
        (f"create a {TPU} --max-hours 9", "--max-hours: launch_tpu.sh can set no limit for v5litepod-16,"),
        (f"create a {GCE} --queued", "--queued is flex-start for tpu7x-16: pass --max-hours"),
        (f"create a {GCE} --queued --max-hours 9 --spot", "leave out --spot"),
        *(
            (f"create a {Z} --type {name}", f"--type {name}: the number counts cores, two a chip")
            for name in ("v4-9", "v5p-9", "tpu7x-17")
        ),
        (f"create My_Slice {TPU}", "'My_Slice' is no name for a slice"),
        (
            f"create a {TPU} --create-flags '--network=n\n--x'",
            "--create-flags and --ssh-flags: pass one line",
        ),
        (f"create a {TPU} --num-train-steps 3", "unknown flag '--num-train-steps'"),
        (f"create a {TPU} --lines", "--lines: the value is missing"),
        *(
            (f"create a {TPU} {flag} {value}", f"{flag} .*: pass a whole number above 0")
            for flag in ("--poll-seconds", "--slices", "--stall-minutes", "--max-hours")
            for value in ("0", "-1", "1.5", "ten", "'1 2'")
        ),
        (f"run a {TPU} -- base", "no work directory: pass --workdir"),
        (f"run a {TPU} --workdir gs://bucket/runs/a", "no experiment: name one after --"),
        (f"run a {TPU} --workdir gs://bucket/runs/a -- base", "no corpus: pass --corpus gs://BUCKET/corpora"),
        (
            f"run a {TPU} --workdir gs://other/a --corpus /c -- base",
            "cannot read gs://other: ERROR: .*permission",
        ),
        (f"run a {TPU} --workdir gs://bucket/a --corpus c -- base", "'c' is not on the hosts: pass gs://"),
        (
            f"run a {TPU} --workdir gs://bucket/a --corpus gs://bucket/no -- base",
            "cannot read gs://bucket/no: ",
        ),
        (f"run a {TPU} {ON} --init-from /home/me/bert", "'/home/me/bert' is not on the hosts: copy it"),
        (f"run a {TPU} {ON} --branch-from=/home/me/bert", "'/home/me/bert' is not on the hosts: copy it"),
        (f"run a {GCE} {ON} --init-from gs://bucket/no", "cannot read gs://bucket/no: .*matched no objects"),
        (f"study a {TPU} {ON}", "no tasks: pass --tasks gs://BUCKET/tasks"),
        (f"watch a {TPU} --slices 2 {ON}", "--slices: name one slice to watch"),
        (
            f"watch a {TPU} --repository {ROOT} {ON}",
            "there is no slice a in us-west4-a of project mine; `train` with the same words rents one and "
            "resumes from the newest checkpoint in gs://bucket/runs/a",
        ),
        (f"train a {TPU} --repository /nowhere {ON}", "the hosts cannot fetch .* from '/nowhere': push"),
        (f"train a {GCE} --repository {ROOT} --commit abcdef {ON}", "the hosts cannot fetch abcdef from"),
        (
            f"train a {TPU} {ON} --model.num-layer 3",
            "refuses -- quickstart_bert .*: unknown flag .*; nearest: ",
        ),
        (
            f"train a {GCE} {ON} --parallel.fsdp 3",
            "refuses -- quickstart_bert .*: parallel.fsdp x parallel.tensor is 3, which does not divide 16",
        ),
        (
            f"run a {Z} --type v4-32 {ON} --global-batch-size 24",
            "refuses -- quickstart_bert .*: the batch size is 24; it must be a multiple of 16",
        ),
        (
            f"study a {TPU} --workdir gs://bucket/a --corpus /c --tasks /t -- table5 --parallel.tensor 32",
            "refuses -- table5 .*: arm base: parallel.fsdp x parallel.tensor is 32, which does not divide 16",
        ),
        (
            f"study a {TPU} --workdir gs://bucket/a --corpus /c --tasks /t -- table5 --budget-hours 3",
            "refuses -- table5 .*: --budget-hours measures steps on one machine",
        ),
        (f"delete a {TPU}", "there is no slice a in us-west4-a of project mine"),
        (f"delete a {GCE}", "there is no slice a in us-west4-a of project mine"),
        ("creat a", "unknown verb 'creat'; valid: create"),
        ("create", "pass a verb and the name of a slice"),
    ],
)
def test_bad_input_is_one_line_and_creates_nothing(command: str, message: str, laptop: Laptop) -> None:
    assert_refused(command, message, laptop)


def assert_refused(command: str, message: str, laptop: Laptop) -> None:
    refused = laptop.launch(*shlex.split(command))
    stderr = re.sub("launch_tpu.sh: note: .*\n", "", refused.stderr)
    assert (refused.returncode, stderr.count("\n")) == (2, 1), refused.stderr
    assert re.match(f"launch_tpu.sh: error: .*{message}", stderr)
    assert laptop.created() == 0


@pytest.mark.parametrize(
    ("place", "what"),
    [
        (PLACE, "tpus queued-resources list"),
        (PLACE, "tpus tpu-vm list"),
        (GCE_PLACE, "instance-groups managed list"),
        (GCE_PLACE, "instance-groups managed list-instances"),
    ],
)
@pytest.mark.parametrize("verb", ["delete", "watch", "study", "train"])
def test_a_slice_that_gcloud_does_not_list_is_not_taken_for_deleted(
    place: tuple[str, ...], what: str, verb: str, laptop: Laptop
) -> None:
    laptop.cloud.add_slice("a")
    laptop.cloud.fail(f"compute {what}", times=1)
    words = () if verb == "delete" else (*HERE, "--commit", "HEAD", "--tasks", "/tasks", *RUN)
    if verb == "study":
        words = (*words[:-1], "table5")
    refused = laptop.launch(verb, "a", *place, *words)
    assert (refused.returncode, laptop.cloud.state("a"), laptop.created()) == (69, "READY", 0), refused.stderr
    assert refused.stderr.endswith("error: gcloud does not say whether a is there; if it is, it costs\n")


@both_apis
def test_a_slice_is_told_from_others_and_deleted(place: tuple[str, ...], laptop: Laptop) -> None:
    for other in ("ab", "ba"):
        laptop.cloud.add_slice(other)
    assert laptop.launch("status", "a", *place).stdout == "launch_tpu.sh: slice a: none\n"
    laptop.cloud.add_slice("a")
    laptop.cloud.preempt("a")
    assert laptop.launch("status", "a", *place).stdout == "launch_tpu.sh: slice a: PREEMPTED\n"
    assert laptop.launch("delete", "a", *place).returncode == 0
    assert [laptop.cloud.state(name) for name in ("a", "ab", "ba")] == [None, "READY", "READY"]


def test_what_a_failed_creation_made_is_deleted(laptop: Laptop) -> None:
    laptop.cloud.full.write_text("1")
    assert laptop.launch("create", "a", *GCE_PLACE).returncode == 1
    assert laptop.left_over() == []
    created = laptop.launch("create", "a", *GCE_PLACE, "--poll-seconds", "1")
    assert (created.returncode, laptop.cloud.state("a")) == (0, "READY")
    assert "a is CREATING ZONE_RESOURCE_POOL_EXHAUSTED" in created.stdout
    assert laptop.launch("delete", "a", *GCE_PLACE).returncode == 0
    assert laptop.left_over() == []


def test_parts_that_an_interrupted_creation_left_are_deleted(laptop: Laptop) -> None:
    for deleting in (False, True):
        laptop.cloud.policies.mkdir(exist_ok=True)
        (laptop.cloud.policies / "a-us-west4-a").write_text("2x2x2")
        if deleting:
            assert laptop.launch("delete", "a", *GCE_PLACE).returncode == 2
        else:
            assert laptop.launch("create", "a", *GCE_PLACE).returncode == 1
        assert laptop.left_over() == []


SAVE = "mkdir -p gs/bucket/runs/a/checkpoints/$start; "
PREEMPTED = "printf PREEMPTED > ~/../state; exit 69"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "endings", "status", "slices"),
    [
        (PLACE, ["exit 0"], 0, 1),
        # A defect in the code fails again on the next start; a chip's fault may not.
        (PLACE, ["exit 1", "exit 1"], 1, 1),
        (GCE_PLACE, ["exit 1", "exit 1"], 1, 1),
        (PLACE, [SAVE + "exit 1", SAVE + "exit 1", "exit 0"], 0, 1),
        (PLACE, ["exit 1", "exit 69", "exit 1"], 1, 2),
        (PLACE, ["exit 2"], 2, 1),
        # A start in place, and one more after each new checkpoint. Then on another slice.
        (PLACE, ["exit 69", "exit 0"], 0, 1),
        (PLACE, [SAVE + "exit 75", SAVE + "kill -9 $$", SAVE + "exit 69", "exit 0"], 0, 1),
        (GCE_PLACE, [SAVE + "exit 75", "kill -9 $$", "exit 0"], 0, 2),
        (PLACE, ["[ $JAX_PROCESS_ID = 1 ] && exit 69; sleep 60", "exit 0"], 0, 1),
        # A run that makes no metrics is started again like one that was lost.
        (PLACE, ["touch -d '2 hours ago' process; sleep 60", "exit 0"], 0, 1),
        # What fails on two slices would fail on the next one too. A preempted slice does not count.
        (PLACE, ["exit 69"] * 3, 69, 2),
        (GCE_PLACE, ["exit 69"] * 3, 69, 2),
        (PLACE, ["exit 69", "exit 69", PREEMPTED, "exit 0"], 0, 3),
        (PLACE, [PREEMPTED] * 3, 75, 3),
        (GCE_PLACE, [PREEMPTED] * 3, 75, 3),
        (PLACE, ["exit 69", "exit 69", SAVE + PREEMPTED, "exit 69", "exit 69", "exit 0"], 0, 4),
        # A slice that cannot be created does not count.
        (PLACE, ["exit 75", "echo 2 > $STAND_IN_CLOUD/full; exit 75", "exit 0"], 0, 2),
        (GCE_PLACE, ["exit 75", "echo 2 > $STAND_IN_CLOUD/full; exit 75", "exit 0"], 0, 2),
        # A slice that exists after a failed create may be another user's, or was created after all.
        (PLACE, ["exit 75", "echo 1 > $STAND_IN_CLOUD/unseen; exit 75", "exit 0"], 0, 2),
        # Somebody stopped it.
        (PLACE, ["printf STOPPED > ~/../state"], 75, 1),
        (GCE_PLACE, ["printf STOPPED > ~/../state"], 75, 1),
    ],
)
def test_what_follows_an_exit_status(
    place: tuple[str, ...],
    endings: list[str],
    status: int,
    slices: int,
    laptop: Laptop,
    source: tuple[str, ...],
    tmp_path: Path,
) -> None:
    train = train_with(endings, place, laptop, source, tmp_path, "--max-slices", str(max(slices, 3)))
    assert (train.returncode, laptop.rented()) == (status, slices), train.stdout + train.stderr
    assert laptop.starts() == len(endings)
    kept = laptop.cloud.state("a") is not None
    assert kept == (status != 0), "a finished run's slice is given back, a failed one's can be looked at"
    assert kept or laptop.left_over() == []
    assert kept == (f"costs: launch_tpu.sh delete a --type {place[-1]} --zone us-west4-a" in train.stdout)
    assert ("t1v-n-a-w-1: the end" in train.stdout) == (status in (1, 2, 69)), "the log tells why"


@pytest.mark.slow
@both_apis
def test_the_slice_of_a_failed_run_is_deleted_if_wanted(
    place: tuple[str, ...], laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    train = train_with(["exit 2"], place, laptop, source, tmp_path, "--delete-on-failure")
    assert (train.returncode, laptop.left_over()) == (2, []), train.stdout + train.stderr
    assert "t1v-n-a-w-1: the end" in train.stdout


@pytest.mark.slow
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
    watch = laptop.launch("watch", "a", *PLACE, "--repository", copy, *setup, *RUN)
    assert watch.returncode == (0 if recorded else 2), watch.stderr
    assert (f"installing {begun_with} on a" in watch.stdout) == recorded
    assert ("config.json, which names the run's commit; pass --commit" in watch.stderr) == (not recorded)


@pytest.mark.slow
def test_watch_waits_for_the_queue_and_installs_on_what_comes(
    laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    laptop.cloud.queue.mkdir()
    (laptop.cloud.queue / "a").write_text("WAITING_FOR_RESOURCES")
    setup = setup_of(write_program(tmp_path / "bert-jax", "exit 0"))
    watch = laptop.launch("watch", "a", *PLACE, *source, *setup, *RUN)
    assert (watch.returncode, laptop.rented(), laptop.created()) == (0, 1, 0), watch.stdout + watch.stderr
    assert laptop.left_over() == []


def test_what_is_not_committed_is_named(laptop: Laptop, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "bert_jax" / "model").mkdir(parents=True)
    for file in (LAUNCH_TPU, SLICES, HOST):
        shutil.copy(file, checkout)
    commit_all(checkout)

    def install(*flags: str) -> subprocess.CompletedProcess[str]:
        words = ("install", "a", *PLACE, "--repository", "https://example.org/r.git", "--dry-run", *flags)
        line = [checkout / "launch_tpu.sh", *words]
        return subprocess.run(line, env=laptop.env, capture_output=True, text=True, check=False)

    def noted(*flags: str) -> str:
        done = install(*flags)
        assert (done.returncode, "init" in done.stdout) == (0, True), "it goes on"
        return done.stderr

    (checkout / "notes.py").touch()  # not among the files that are installed
    assert noted() == ""
    path = f"file://{ROOT}"
    assert f"note: the hosts must see {path} too: it is a path, not an address" in noted("--repository", path)
    (checkout / "constraints.txt").write_text("changed")
    (checkout / "tpu_host.sh").write_text("changed")
    (checkout / "bert_jax" / "model" / "new.py").touch()
    names = "tpu_host.sh bert_jax/ constraints.txt"
    assert noted() == f"launch_tpu.sh: note: the hosts get HEAD, without what is not committed: {names}\n"
    assert noted("--commit", "HEAD") == ""
    shutil.rmtree(checkout / ".git")
    refused = install()
    assert refused.returncode == 2
    what = f"{checkout} is no git checkout, whose commit the hosts would get; pass --commit"
    assert refused.stderr == f"launch_tpu.sh: error: {what}\n"


@pytest.mark.slow
@both_apis
def test_a_slice_that_is_taken_away_while_it_is_installed_is_replaced(
    place: tuple[str, ...], laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    flag, setup = setup_of(write_program(tmp_path / "bert-jax", "exit 0"))
    taken = f"[ -e {tmp_path}/taken ] || {{ touch {tmp_path}/taken; printf PREEMPTED > ~/../state; exit 1; }}"
    train = laptop.launch("train", "a", *place, *source, flag, f"{taken}; {setup}", *RUN)
    assert (train.returncode, laptop.rented()) == (0, 2), train.stdout + train.stderr


def test_a_setup_that_fails_on_a_slice_that_is_there_rents_no_other(
    laptop: Laptop, source: tuple[str, ...]
) -> None:
    train = laptop.launch("train", "a", *PLACE, *source, "--setup", "false", *RUN)
    assert (train.returncode, laptop.rented()) == (1, 1), train.stdout + train.stderr


@pytest.mark.slow
def test_a_host_that_was_not_installed_to_the_end_is_installed_again(
    laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    flag, setup = setup_of(write_program(tmp_path / "bert-jax", "exit 0"))
    assert laptop.launch("create", "a", *PLACE).returncode == 0
    assert laptop.launch("install", "a", *PLACE, *source, flag, "false").returncode != 0
    watch = laptop.launch("watch", "a", *PLACE, *source, flag, setup, *RUN)
    assert (watch.returncode, laptop.rented()) == (0, 1), watch.stdout + watch.stderr
    assert "installing" in watch.stdout


def on_host(tmp_path: Path, *words: str) -> str:
    """What tpu_host.sh prints where ~ is `tmp_path`."""
    env = {**os.environ, "HOME": str(tmp_path)}
    return subprocess.run(["bash", HOST, *words], env=env, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    """~/bert-jax-run of a host, and the process of the test as the run."""
    directory = tmp_path / "bert-jax-run"
    directory.mkdir()
    (directory / "process").write_text(on_host(tmp_path, "identity", str(os.getpid())))
    (directory / "directory").write_text(str(tmp_path / "run"))
    return directory


@pytest.mark.parametrize(
    ("status", "state"),
    [("0\n", "finished"), ("", "ended"), ("1\n", "1"), ("2\n", "2"), ("75\n", "ended"), ("137\n", "ended")],
)
def test_how_a_run_stands_by_its_status(status: str, state: str, run_directory: Path, tmp_path: Path) -> None:
    (run_directory / "status").write_text(status)
    (run_directory / "process").unlink()  # a status that a full disk left empty is no end
    assert on_host(tmp_path, "state", "60").split()[:2] == ["run:", state]


def test_stop_says_so_if_no_run_is_going_on(run_directory: Path, tmp_path: Path) -> None:
    (run_directory / "process").write_text("1 no such boot 7\n")
    assert on_host(tmp_path, "stop") == "no run is going on here\n"


def test_a_process_is_told_from_another_with_its_id(run_directory: Path, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"], process_group=0) as sleeper:
        pid, boot, start = on_host(tmp_path, "identity", str(sleeper.pid)).split()
        (run_directory / "installed").touch()
        for other in (f"{pid} {boot} {int(start) + 1}", f"{pid} another-boot {start}"):
            (run_directory / "process").write_text(f"{other}\n")
            assert on_host(tmp_path, "state", "60").startswith("run: ended ")
            on_host(tmp_path, "end")
            assert not (run_directory / "process").exists()
        assert sleeper.poll() is None, "another process was killed"
        sleeper.kill()


@pytest.mark.parametrize("place", ["run", "run/bert/seed-0/pretraining"])
def test_a_run_without_new_metrics_stalls(place: str, run_directory: Path, tmp_path: Path) -> None:
    def state() -> str:
        return on_host(tmp_path, "state", "60").split()[1]

    os.utime(run_directory / "process", (0, 0))
    assert state() == "stalled"
    metrics = tmp_path / place / "metrics.jsonl"
    metrics.parent.mkdir(parents=True)
    metrics.touch()
    if place != "run":
        assert state() == "stalled", "by what another slice does"
        (run_directory / "log").write_text(f"{place.removeprefix('run/')}: begun\nbert: begun to learn\n")
    assert state() == "going"
    os.utime(metrics, (time.time() - 3601, time.time() - 3601))
    assert state() == "stalled"


def test_the_word_for_checkpoints_changes_with_each(run_directory: Path, tmp_path: Path) -> None:
    words = []
    (run_directory / "log").write_text("bert/seed-0/mrpc: begun\n")
    for made in ("run/checkpoints/5", "run/checkpoints/10", "run/bert/seed-0/mrpc/job.json"):
        (tmp_path / made).mkdir(parents=True)
        words.append(on_host(tmp_path, "state", "60").split()[2])
        (tmp_path / "run" / "checkpoints" / "20.tmp-5").mkdir(exist_ok=True)  # not yet whole
        assert on_host(tmp_path, "state", "60").split()[2] == words[-1]
    assert len(set(words)) == 3


def test_a_start_that_is_said_again_starts_nothing(run_directory: Path, tmp_path: Path) -> None:
    before = sorted(run_directory.iterdir())
    on_host(tmp_path, "run", "pretrain", "/runs/a", "/corpora/a", "", "quickstart_bert")
    assert sorted(run_directory.iterdir()) == before


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
        wait_until(lambda: laptop.launch("status", "a", *PLACE).stdout.count("run: finished") == 2)
        assert laptop.launch("logs", "a", *PLACE, "--lines", "20").stdout.count(read) == 2
    assert len(laptop.launch("logs", "a", *PLACE, "--lines", "1").stdout.splitlines()) == 2


@both_apis
@pytest.mark.slow
def test_hosts_that_do_not_answer_are_not_waited_for_forever(
    place: tuple[str, ...], laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    train = train_with(["sleep 5; touch ~/../silent; sleep 60"], place, laptop, source, tmp_path)
    assert (train.returncode, laptop.rented()) == (75, 1), train.stdout + train.stderr
    assert (
        train.stderr.count("do not answer: ssh: connect to host 10.0.0.2 port 22: Connection timed out") == 20
    )
    assert "costs: launch_tpu.sh delete a" in train.stdout


def train_with(
    endings: list[str],
    place: tuple[str, ...],
    laptop: Laptop,
    source: tuple[str, ...],
    tmp_path: Path,
    *flags: str,
) -> subprocess.CompletedProcess[str]:
    """Runs `train` to its end; the successive starts of the run end as `endings` says."""
    setup = setup_of(write_endings(endings, laptop, tmp_path))
    return laptop.launch("train", "a", *place, *source, *setup, *flags, *RUN)


def write_endings(endings: list[str], laptop: Laptop, tmp_path: Path) -> Path:
    """A program whose successive starts end as `endings` says."""
    for number, ending in enumerate(endings, start=1):
        (tmp_path / f"ending-{number}").write_text(f"echo the end\n{ending}\n")
    return write_program(
        tmp_path / "bert-jax", f"start=$(grep -cE '{START}' {laptop.cloud.calls}); . {tmp_path}/ending-$start"
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
    wait_until(lambda: laptop.launch("status", "a", *PLACE).stdout.count("run: finished") == 2)
    assert laptop.launch("logs", "a", *PLACE).stdout.count("corpora/big/text") == 4


@pytest.mark.parametrize(
    ("repository", "shown"),
    [("https://localhost:1/r.git",) * 2, ("ssh://me@localhost:1/r.git", "ssh://...@localhost:1/r.git")],
)
def test_a_repository_that_only_this_user_can_read_is_refused(
    repository: str, shown: str, laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    _, copy, *commit = source
    (tmp_path / ".gitconfig").write_text(f'[url "{copy}"]\ninsteadOf = https://localhost:1/r.git\n')
    laptop.env["GIT_CONFIG_GLOBAL"] = str(tmp_path / ".gitconfig")
    laptop.env["GIT_SSH_COMMAND"] = str(write_program(tmp_path / "ssh", f"git-upload-pack {copy}"))
    subprocess.run(["git", "ls-remote", "--quiet", repository], env=laptop.env, check=True)
    refused = laptop.launch("install", "a", *PLACE, "--repository", repository, *commit)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
    assert f"from '{shown}': push it; if the repository is private" in refused.stderr


@both_apis
def test_a_token_is_not_shown(place: tuple[str, ...], laptop: Laptop) -> None:
    words = (
        "install",
        "a",
        *place,
        "--repository",
        "https://me:$ecret@localhost:1/r.git",
        "--commit",
        "abc",
    )
    refused = laptop.launch(*words)
    assert refused.returncode == 2
    assert "the hosts cannot fetch abc from 'https://...@localhost:1/r.git': " in refused.stderr
    dry = laptop.launch(*words, "--dry-run")
    assert "https://...@localhost:1/r.git abc" in dry.stdout.replace("\\", "")
    assert "ecret" not in refused.stdout + refused.stderr + dry.stdout + dry.stderr


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


@pytest.mark.slow
@both_apis
def test_ctrl_c_leaves_the_run_and_says_how_to_end_it(
    place: tuple[str, ...], laptop: Laptop, source: tuple[str, ...], tmp_path: Path
) -> None:
    program = write_program(
        tmp_path / "bert-jax", "trap 'echo saved; exit 75' TERM; while true; do sleep 0.1; done"
    )
    setup = setup_of(program)
    train = laptop.start("train", "a", *place, *source, *setup, *RUN)
    wait_until(lambda: laptop.launch("status", "a", *place).stdout.count("run: going") == 2)
    os.killpg(train.pid, signal.SIGINT)
    said, _ = train.communicate(timeout=PATIENCE_SECONDS)
    assert train.returncode == 130
    assert f"launch_tpu.sh delete a --type {place[-1]} --zone us-west4-a --project mine" in said
    assert laptop.launch("status", "a", *place).stdout.count("run: going") == 2
    assert laptop.launch("run", "a", *place, *RUN).returncode == 2, "two runs on a host"
    assert laptop.launch("stop", "a", *place).returncode == 0
    wait_until(lambda: laptop.launch("status", "a", *place).stdout.count("run: ended") == 2)
    assert "t1v-n-a-w-0: saved" in laptop.launch("logs", "a", *place).stdout
    assert laptop.launch("delete", "a", *place).returncode == 0
    assert laptop.left_over() == []


def test_a_queued_slice_is_waited_for_and_deleted_with_its_request(laptop: Laptop) -> None:
    flags = ("--queued", "--spot", "--create-flags", "--network=n --internal-ips", "--poll-seconds", "1")
    queued = laptop.launch("create", "a", *PLACE, *flags)
    assert (queued.returncode, laptop.cloud.state("a")) == (0, "READY"), queued.stderr
    assert "a is PROVISIONING" in queued.stdout
    assert "slice a: READY" in laptop.launch("status", "a", *PLACE).stdout
    (asked,) = laptop.calls("compute tpus queued-resources create")
    assert "--network=n --internal-ips" in asked
    assert "--spot" in asked.split()
    assert laptop.launch("create", "a", *PLACE).returncode == 2, "the request has the name"
    assert laptop.launch("delete", "a", *PLACE).returncode == 0
    assert (laptop.cloud.state("a"), list(laptop.cloud.queue.iterdir())) == (None, [])


@pytest.mark.slow
def test_a_request_that_waits_is_seen_and_one_that_vanishes_is_not_waited_for(laptop: Laptop) -> None:
    laptop.cloud.queue.mkdir()
    (laptop.cloud.queue / "a").write_text("WAITING_FOR_RESOURCES")
    assert "slice a: WAITING_FOR" in laptop.launch("status", "a", *PLACE).stdout

    create = laptop.start("create", "b", *PLACE, "--queued", "--poll-seconds", "4")
    assert create.stdout is not None
    said = [create.stdout.readline() for _ in range(2)]
    assert said[1] == "launch_tpu.sh: b is WAITING_FOR_RESOURCES\n"
    laptop.cloud.fail("compute tpus queued-resources list", times=1)
    (laptop.cloud.queue / "b").unlink()
    said = create.stdout.readlines()
    assert create.wait() == 1
    assert said == ["launch_tpu.sh: b is WAITING for gcloud\n", "launch_tpu.sh: b is gone\n"]


def test_the_commands_of_the_documentation_are_understood(laptop: Laptop, tmp_path: Path) -> None:
    for directory in ("corpora/mine", "corpora/more", "bert-base-uncased", "glue", "squad"):
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
            here = ("bert-jax", "eval", "git", "pip", "ssh-add", "ssh-keygen", "sudo", "tensorboard", "tmux")
            assert program in (*here, *on_a_host), command
            continue
        assert done.returncode == 0, (command, done.stderr)
        if "buckets add-iam-policy-binding" in command:
            run = laptop.cloud.bucket("gs://my-bucket/runs/mine")
            (run / "tensorboard").mkdir(parents=True)
            (run / "metrics.jsonl").touch()
    verbs = {shlex.split(command)[1] for command in commands if command.startswith("./launch_tpu.sh")}
    assert verbs == set(VERBS.split())


STUDY = shlex.split(
    "--workdir gs://bucket/studies/a --corpus gs://bucket/corpora/a --tasks gs://bucket/tasks "
    "--poll-seconds 1 -- table5 --scale small"
)


@pytest.fixture
def inputs(laptop: Laptop) -> None:
    """The corpus and the tasks of a study in the bucket."""
    for directory in ("corpora/a", "tasks/sick"):
        (laptop.cloud.bucket("gs://bucket") / directory).mkdir(parents=True)


def note_progress(laptop: Laptop, command: str, left: int, failed: int = 0) -> None:
    """Leaves the file that the workers of a study write."""
    directory = laptop.cloud.bucket("gs://bucket/studies/a")
    directory.mkdir(parents=True, exist_ok=True)
    command = f"{command} --output gs/bucket/studies/a"
    progress = {"command": command, "jobs": 9, "failed": failed, "left": left}
    write_json(directory / "progress.json", progress)


@pytest.mark.slow
def test_ctrl_c_leaves_the_study_on_all_slices_and_says_how_to_end_them(
    laptop: Laptop, source: tuple[str, ...], inputs: None, tmp_path: Path
) -> None:
    program = write_program(tmp_path / "bert-jax", "trap 'exit 75' TERM; while true; do sleep 0.1; done")

    def going() -> int:
        return laptop.launch("status", "a", *PLACE, "--slices", "2").stdout.count("run: going")

    study = laptop.start("study", "a", *PLACE, *source, *setup_of(program), "--slices", "2", *STUDY)
    wait_until(lambda: going() == 4)
    os.killpg(study.pid, signal.SIGINT)
    said, _ = study.communicate(timeout=PATIENCE_SECONDS)
    assert study.returncode == 130, said
    assert "--project mine --slices 2" in said
    assert going() == 4
    assert laptop.launch("delete", "a", *PLACE, "--slices", "2").returncode == 0
    assert laptop.left_over() == []


@pytest.mark.slow
@both_apis
def test_each_slice_works_on_the_study_and_is_given_back(
    place: tuple[str, ...], laptop: Laptop, source: tuple[str, ...], inputs: None, tmp_path: Path
) -> None:
    program = write_program(
        tmp_path / "bert-jax",
        f'echo "$@" > {tmp_path}/$HOSTNAME.words; ls corpora/a tasks/tasks > {tmp_path}/$HOSTNAME.copied',
    )
    study = laptop.launch("study", "a", *place, *source, *setup_of(program), "--slices", "2", *STUDY)
    assert (study.returncode, laptop.rented()) == (0, 2), study.stdout + study.stderr
    assert laptop.left_over() == []
    for number in (1, 2):
        words = (tmp_path / f"t1v-n-a-{number}-w-1.words").read_text().split()
        assert words[:4] == ["study", "table5", "--scale", "small"]
        assert words[4:] == [
            *("--output", "gs/bucket/studies/a", "--corpus", "corpora/a", "--tasks", "tasks/tasks"),
            *("--leave-when-idle", "--distributed"),
        ]
        assert "sick" in (tmp_path / f"t1v-n-a-{number}-w-0.copied").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "left", "failed", "words", "slices"),
    [
        ("table5 --scale small", 0, 0, [], 0),
        ("table5 --scale small", 1, 0, [], 1),
        ("table5 --scale small --seeds 5", 0, 0, [], 1),
        ("table5 --scale paper", 0, 0, [], 1),
        ("table5 --scale small --retry", 0, 2, ["--retry"], 1),
    ],
)
@both_apis
def test_no_slice_is_rented_if_nothing_is_left_of_the_same_study(
    place: tuple[str, ...],
    command: str,
    left: int,
    failed: int,
    words: list[str],
    slices: int,
    laptop: Laptop,
    source: tuple[str, ...],
    inputs: None,
    tmp_path: Path,
) -> None:
    note_progress(laptop, command, left, failed)
    setup = setup_of(write_program(tmp_path / "bert-jax", "exit 0"))
    study = laptop.launch("study", "a", *place, *source, *setup, *STUDY, *words)
    assert (study.returncode, laptop.cloud.rented.exists()) == (0, slices == 1), study.stdout + study.stderr
    assert ("nothing is left to do of: table5 --scale small" in study.stdout) == (slices == 0)


def test_a_study_whose_jobs_failed_rents_nothing_and_says_so(
    laptop: Laptop, source: tuple[str, ...], inputs: None
) -> None:
    note_progress(laptop, "table5 --scale small", 0, failed=2)
    study = laptop.launch("study", "a", *PLACE, *source, *STUDY)
    assert (study.returncode, laptop.cloud.rented.exists()) == (1, False), study.stdout + study.stderr
    assert "2 jobs failed and nothing else is left; --retry runs them again" in study.stdout


@pytest.mark.slow
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
    study = laptop.launch("study", "a", *PLACE, *source, *setup_of(program), *STUDY)
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
@both_apis
def test_a_preempted_run_goes_on_elsewhere_and_ends_like_an_undisturbed_one(
    place: tuple[str, ...], laptop: Laptop, source: tuple[str, ...]
) -> None:
    bucket = laptop.cloud.bucket("gs://bucket")
    write_corpus(bucket / "corpora" / "tiny")
    link_packages(Path(laptop.env["STAND_IN_PACKAGES"]))
    from_here = (*source, "--setup", INSTALLED_IMAGE)
    # The slices are said to have 16 devices, and the hosts that stand in for them have fewer.
    tiny = {**FLAGS, "--num-train-steps": 80, "--eval-every": 40, "--global-batch-size": 16}
    overrides = [word for flag, value in tiny.items() for word in (flag, str(value))]

    def run(name: str) -> tuple[str, ...]:
        directories = ("--workdir", f"gs://bucket/runs/{name}", "--corpus", "gs://bucket/corpora/tiny/")
        return (*directories, "--poll-seconds", "2", "--", "quickstart_bert", *overrides)

    watch = (*from_here, *run("undisturbed"))
    for verb, flags in {
        "create": (),
        "install": from_here,
        "run": run("undisturbed"),
        "watch": watch,
    }.items():
        done = laptop.launch(verb, "undisturbed", *place, *flags)
        assert done.returncode == 0, done.stdout + done.stderr

    train = laptop.start("train", "disturbed", *place, "--spot", *from_here, *run("disturbed"))
    disturbed = bucket / "runs" / "disturbed"
    wait_until(lambda: bool(saved_steps(disturbed)))
    laptop.cloud.preempt("disturbed")
    interrupted_at = saved_steps(disturbed)[-1]
    said = train.communicate(timeout=PATIENCE_SECONDS)
    assert (train.returncode, laptop.rented()) == (0, 3), said
    assert "slice 2 of at most 20" in said[0]
    assert interrupted_at < 80, "the run ended before its slice was taken away"
    assert laptop.left_over() == [], "a slice is left over, and costs"

    assert_same_run(disturbed, bucket / "runs" / "undisturbed")


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
