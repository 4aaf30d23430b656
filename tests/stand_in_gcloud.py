"""A stand-in for `gcloud`: a slice is a directory, and its two hosts are homes for local processes.

It knows the commands and flags that launch_tpu.sh uses and refuses all others, as gcloud does. Slices of the
Cloud TPU API and of Compute Engine are kept alike; hosts of the latter are the VMs NAME-0 and NAME-1.
"""

import argparse
import contextlib
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HOSTS = 2
OFFERED = {"us-west4-a": ("v5litepod-8", "v5litepod-16"), "us-central2-b": ("v4-8", "v4-16", "v4-32")}
MACHINES = ("ct5p-hightpu-4t", "ct6e-standard-1t", "ct6e-standard-4t", "tpu7x-standard-4t")
QUEUE = ("WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE")
"""States of a queued request; each time that it is listed it shows the next one."""


_PORTS = range(20_000, 30_000)
"""Of coordinators: not those that the system gives to outgoing connections."""


def free_port(ports: range) -> int:
    """A port on which no program of this machine listens, or which it holds to listen on later."""
    while True:
        port = random.SystemRandom().choice(ports)
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::", port))
            return port


class GcloudError(Exception):
    """What gcloud would print after `ERROR: `."""


class Cloud:
    """A project's state, kept in a directory."""

    def __init__(self, root: Path) -> None:
        self.account, self.calls = root / "account", root / "calls"
        self.full = root / "full"  # if it exists: how many of the next creations find no capacity
        self.unseen = root / "unseen"  # how many slices are made although gcloud reports a failure
        self.rented = root / "rented"  # a line for each slice that was created
        self.failing = root / "failing"  # a file for each command: how many of its next calls fail
        self.slices, self.queue, self.buckets = root / "slices", root / "queue", root / "buckets"
        self.templates, self.policies = root / "templates", root / "policies"  # of Compute Engine

    def state(self, name: str) -> str | None:
        """READY, PREEMPTED, STOPPED, CREATING, or None if there is no such slice."""
        file = self.slices / name / "state"
        return file.read_text() if file.exists() else None

    def is_silent(self, name: str) -> bool:
        """Whether the slice's hosts do not answer, as the file `silent` says."""
        return (self.slices / name / "silent").exists()

    def homes(self, name: str) -> list[Path]:
        """The home directories of a slice's hosts."""
        return [self.slices / name / f"host-{index}" for index in range(HOSTS)]

    def add_slice(self, name: str, state: str = "READY") -> None:
        """Creates a slice, with a home directory for each of its hosts."""
        if count_down(self.full):
            raise GcloudError("RESOURCE_EXHAUSTED: There is no more capacity in the zone")
        if self.state(name):
            raise GcloudError(f"ALREADY_EXISTS: Resource '{name}' already exists")
        for home in self.homes(name):
            home.mkdir(parents=True)
        (self.slices / name / "port").write_text(str(free_port(_PORTS)))
        (self.slices / name / "state").write_text(state)
        with self.rented.open("a") as rented:
            rented.write(f"{name}\n")
        if count_down(self.unseen):
            raise GcloudError("The operation's state cannot be read: connection reset")

    def fail(self, command: str, times: int) -> None:
        """Makes the next calls of a command fail, as with an expired login or no network."""
        self.failing.mkdir(exist_ok=True)
        (self.failing / command).write_text(str(times))

    def preempt(self, name: str) -> None:
        """Kills one host's processes, then sets the state PREEMPTED, then kills the other hosts'."""
        first, *others = reversed(self.homes(name))
        kill_processes_of(first)
        (self.slices / name / "state").write_text("PREEMPTED")
        for home in others:
            kill_processes_of(home)

    def remove_slice(self, name: str) -> None:
        """Kills whatever runs on the hosts, and removes their disks."""
        if not self.state(name):
            raise GcloudError(f"NOT_FOUND: Resource '{name}' was not found")
        for home in self.homes(name):
            kill_processes_of(home)
        shutil.rmtree(self.slices / name)

    def bucket(self, url: str) -> Path:
        """The directory that stands for a gs:// address."""
        name, _, path = url.removeprefix("gs://").partition("/")
        if not (self.buckets / name).is_dir():
            raise GcloudError(f"(gcloud.storage) [me] does not have permission to access b instance [{name}]")
        return self.buckets / name / path


def count_down(file: Path) -> bool:
    """Whether the file exists. If so, lowers the number in it by one, or removes the file at 0."""
    if not file.exists():
        return False
    left = int(file.read_text()) - 1
    file.write_text(str(left)) if left else file.unlink()
    return True


def kill_processes_of(home: Path) -> None:
    """Sends SIGKILL to the processes that were started with this home directory."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"HOME={home}".encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)


def ssh(cloud: Cloud, args: argparse.Namespace) -> int:
    """Runs the command on the workers at once; the status is that of the first host that failed.

    When a login ends, its remaining processes get SIGHUP.
    """
    if cloud.state(args.name) != "READY":
        raise GcloudError(f'This TPU has terminal state "{cloud.state(args.name)}", so it cannot be used')
    if cloud.is_silent(args.name):
        print("SSH: Attempting to connect to worker 0...", file=sys.stderr)
        print("ssh: connect to host 10.0.0.2 port 22: Connection timed out", file=sys.stderr)
        raise GcloudError("[/usr/bin/ssh] exited with return code [255].")
    workers = range(HOSTS) if args.worker == "all" else [int(args.worker)]
    logins = [log_in(cloud, args.name, worker, args.command) for worker in workers]
    statuses = [login.wait() for login in logins]
    for login in logins:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(login.pid, signal.SIGHUP)
    return next((status for status in statuses if status), 0)


def log_in(cloud: Cloud, name: str, worker: int, command: str) -> subprocess.Popen[bytes]:
    """Starts the command on one host."""
    return subprocess.Popen(
        ["bash", "-c", command],
        cwd=cloud.homes(name)[worker],
        env=host_environment(cloud, name, worker),
        process_group=0,
    )


def ssh_to_vm(cloud: Cloud, args: argparse.Namespace) -> int:
    """Runs the command on one VM of a group; on any other machine nothing."""
    args.name, _, args.worker = args.name.rpartition("-")
    return ssh(cloud, args) if args.worker.isdigit() else 0


def create_template(cloud: Cloud, args: argparse.Namespace) -> None:
    if args.machine_type not in MACHINES:
        raise GcloudError(f"Invalid value for field 'resource.properties.machineType': '{args.machine_type}'")
    if args.provisioning_model == "FLEX_START" and not args.max_run_duration:
        raise GcloudError("FLEX_START needs a maximum run duration")
    # What is to be done at the end can be said only of what ends.
    if args.instance_termination_action and not (args.max_run_duration or args.provisioning_model):
        raise GcloudError("Invalid value for field 'instanceTerminationAction'")
    add_file(cloud.templates / args.name, args.provisioning_model or "")


def create_policy(cloud: Cloud, args: argparse.Namespace) -> None:
    add_file(cloud.policies / args.name, args.accelerator_topology)


def add_file(file: Path, text: str) -> None:
    file.parent.mkdir(exist_ok=True)
    if file.exists():
        raise GcloudError(f"The resource '{file.name}' already exists")
    file.write_text(text)


def create_group(cloud: Cloud, args: argparse.Namespace) -> None:
    policy = args.workload_policy.rpartition("/")[2]
    if not (cloud.templates / args.template).exists() or not (cloud.policies / policy).exists():
        raise GcloudError("The resource was not found")
    if int(args.size) != HOSTS or args.target_size_policy_mode != "bulk":
        raise GcloudError("MIGs with TPU accelerator topology require BULK mode in target size policy")
    cloud.add_slice(args.name, "CREATING")


def list_groups(cloud: Cloud, args: argparse.Namespace) -> None:
    name = (args.filter or "").removeprefix("name=")
    print(name if cloud.state(name) else "")


def list_vms(cloud: Cloud, args: argparse.Namespace) -> None:
    """Lists the VMs of a group. One that is being created is ready when it is listed again."""
    state = cloud.state(args.name)
    if args.format == "value(name)":
        print("\n".join(f"{args.name}-{index}" for index in range(HOSTS)))
    elif state == "CREATING":
        print("\tCREATING\tZONE_RESOURCE_POOL_EXHAUSTED\n" * HOSTS)
        (cloud.slices / args.name / "state").write_text("READY")
    elif state == "PREEMPTED":  # Google has deleted the VM
        print("RUNNING\tNONE\t")
    else:
        print(f"{'RUNNING' if state == 'READY' else 'TERMINATED'}\tNONE\t\n" * HOSTS)


def delete_template(cloud: Cloud, args: argparse.Namespace) -> None:
    (cloud.templates / args.name).unlink()


def delete_policy(cloud: Cloud, args: argparse.Namespace) -> None:
    (cloud.policies / args.name).unlink()


def list_machines(cloud: Cloud, args: argparse.Namespace) -> None:
    offered(args.zones)
    print("\n".join(MACHINES))


def host_environment(cloud: Cloud, name: str, index: int) -> dict[str, str]:
    """A login on a host: its home, the image's packages, and what JAX learns from a TPU's metadata."""
    return {
        **{key: value for key, value in os.environ.items() if key.startswith(("JAX_", "XLA_", "STAND_IN_"))},
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ["STAND_IN_PACKAGES"],
        "HOME": str(cloud.homes(name)[index]),
        "HOSTNAME": f"t1v-n-{name}-w-{index}",
        "JAX_COORDINATOR_ADDRESS": f"localhost:{(cloud.slices / name / 'port').read_text()}",
        "JAX_NUM_PROCESSES": str(HOSTS),
        "JAX_PROCESS_ID": str(index),
    }


def create(cloud: Cloud, args: argparse.Namespace) -> None:
    if args.accelerator_type not in offered(args.zone):
        raise GcloudError(f"INVALID_ARGUMENT: Accelerator {args.accelerator_type} is not available")
    cloud.add_slice(args.name)


def enqueue(cloud: Cloud, args: argparse.Namespace) -> None:
    cloud.queue.mkdir(exist_ok=True)
    (cloud.queue / args.name).write_text(QUEUE[0])


def list_queue(cloud: Cloud, args: argparse.Namespace) -> None:
    for request in listed(cloud.queue, "queuedResources", args):
        print(request.read_text())
        following = QUEUE[QUEUE.index(request.read_text()) :][1:2]
        for state in following:
            request.write_text(state)
            if state == "ACTIVE":
                cloud.add_slice(request.name)


def dequeue(cloud: Cloud, args: argparse.Namespace) -> None:
    (cloud.queue / args.name).unlink()
    if cloud.state(args.name):
        cloud.remove_slice(args.name)


def list_slices(cloud: Cloud, args: argparse.Namespace) -> None:
    for found in listed(cloud.slices, "nodes", args):
        print(cloud.state(found.name) or "")


def listed(directory: Path, collection: str, args: argparse.Namespace) -> list[Path]:
    """The entries of a directory whose full resource names match the filter `name ~ EXPRESSION`."""
    key, _, expression = (args.filter or "name ~ ").partition(" ~ ")
    if key != "name":
        raise GcloudError(f"the stand-in knows no filter {args.filter}")
    place = f"projects/{args.project}/locations/{args.zone}/{collection}"
    return [path for path in sorted(directory.glob("*")) if re.search(expression, f"{place}/{path.name}")]


def list_accounts(cloud: Cloud, args: argparse.Namespace) -> None:
    print(cloud.account.read_text() if cloud.account.exists() else "")


def list_types(cloud: Cloud, args: argparse.Namespace) -> None:
    print("\n".join(offered(args.zone)))


def offered(zone: str) -> tuple[str, ...]:
    if zone not in OFFERED:
        raise GcloudError(f"PERMISSION_DENIED: Permission denied on 'locations/{zone}' (or it may not exist)")
    return OFFERED[zone]


def list_objects(cloud: Cloud, args: argparse.Namespace) -> None:
    """Lists what matches the addresses; of a directory without a pattern, what is in it."""
    found = []
    for source in args.sources:
        bucket, _, pattern = source.removeprefix("gs://").partition("/")
        root = cloud.bucket(f"gs://{bucket}")
        inside = "*" in pattern or (root / pattern).is_file()
        found += sorted(root.glob(pattern) if inside else (root / pattern).glob("*"))
        if not inside and not (root / pattern).is_dir():
            raise GcloudError("One or more URLs matched no objects.")
    for path in found:
        print(f"gs://{path.relative_to(cloud.buckets)}{'/' if path.is_dir() else ''}")
    if not found and any("*" in source for source in args.sources):
        raise GcloudError("One or more URLs matched no objects.")


def find_object(cloud: Cloud, args: argparse.Namespace) -> None:
    if cloud.bucket(args.source).is_file():
        print(args.source.removeprefix("gs://").partition("/")[2])
    else:
        print("Listed 0 items.", file=sys.stderr)


def rsync(cloud: Cloud, args: argparse.Namespace) -> None:
    source, destination = (
        cloud.bucket(place) if place.startswith("gs://") else Path(place)
        for place in (args.source, args.destination)
    )
    if "STAND_IN_SLOW_COPY" in os.environ:
        time.sleep(3 * int(os.environ["JAX_PROCESS_ID"]))  # one host after the other
    shutil.copytree(source, destination, dirs_exist_ok=True)


def delete(cloud: Cloud, args: argparse.Namespace) -> None:
    cloud.remove_slice(args.name)


def create_bucket(cloud: Cloud, args: argparse.Namespace) -> None:
    (cloud.buckets / args.name.removeprefix("gs://")).mkdir()


def cat(cloud: Cloud, args: argparse.Namespace) -> None:
    file = cloud.bucket(args.source)
    if not file.exists():
        raise GcloudError(f"The following URLs matched no objects or files:\n{args.source}")
    print(file.read_text())


def accept(cloud: Cloud, args: argparse.Namespace) -> None:
    """Does nothing: for commands that change what the stand-in does not keep, such as service accounts."""


WHERE = "--zone! --project!"
NETWORK = "--network= --subnetwork= --internal-ips --service-account="
COMMANDS = {
    "auth list": (list_accounts, "--filter= --format="),
    "auth login": (accept, ""),
    "billing projects link": (accept, "name --billing-account!"),
    "compute instances create": (accept, f"name {WHERE} --machine-type= --scopes="),
    "compute instances delete": (accept, f"name {WHERE}"),
    "compute ssh": (ssh_to_vm, f"name {WHERE} --command= --internal-ip --ssh-flag="),
    "compute machine-types list": (list_machines, "--zones! --project! --filter= --format="),
    "compute instance-templates create": (
        create_template,
        "name --project! --machine-type! --image-project! --image-family! --boot-disk-size! --scopes! "
        "--maintenance-policy! --provisioning-model= --reservation-affinity= --instance-termination-action= "
        f"--max-run-duration= {NETWORK}",
    ),
    "compute instance-templates delete": (delete_template, "name --project! --quiet"),
    "compute resource-policies create workload-policy": (
        create_policy,
        "name --project! --region! --type! --accelerator-topology!",
    ),
    "compute resource-policies delete": (delete_policy, "name --project! --region! --quiet"),
    "compute instance-groups managed create": (
        create_group,
        f"name {WHERE} --size! --template! --default-action-on-vm-failure! --workload-policy! "
        "--target-size-policy-mode!",
    ),
    "compute instance-groups managed delete": (delete, f"name {WHERE} --quiet"),
    "compute instance-groups managed list": (list_groups, "--zones! --project! --filter= --format="),
    "compute instance-groups managed list-instances": (list_vms, f"name {WHERE} --format="),
    "projects add-iam-policy-binding": (accept, "name --member! --role!"),
    "projects create": (accept, "name"),
    "projects describe": (accept, "name --format="),
    "services enable": (accept, "names --project!"),
    "storage buckets add-iam-policy-binding": (accept, "name --member! --role!"),
    "storage buckets create": (
        create_bucket,
        "name --location! --project! --uniform-bucket-level-access --enable-hierarchical-namespace",
    ),
    "storage cat": (cat, "source"),
    "storage cp": (accept, "source destination"),
    "storage ls": (list_objects, "sources"),
    "storage objects list": (find_object, "source --format="),
    "storage rsync": (rsync, "source destination --recursive --delete-unmatched-destination-objects"),
    "compute tpus tpu-vm accelerator-types list": (list_types, f"{WHERE} --format="),
    "compute tpus tpu-vm create": (create, f"name {WHERE} --accelerator-type! --version! --spot {NETWORK}"),
    "compute tpus tpu-vm delete": (delete, f"name {WHERE} --quiet"),
    "compute tpus tpu-vm list": (list_slices, f"{WHERE} --filter= --format="),
    "compute tpus tpu-vm ssh": (ssh, f"name {WHERE} --worker! --command! --internal-ip --ssh-flag="),
    "compute tpus queued-resources create": (
        enqueue,
        f"name --node-id! {WHERE} --accelerator-type! --runtime-version! --spot {NETWORK}",
    ),
    "compute tpus queued-resources delete": (dequeue, f"name {WHERE} --force --quiet"),
    "compute tpus queued-resources list": (list_queue, f"{WHERE} --filter= --format="),
}
"""Command -> (function, arguments). Flags that end in = or ! take a value; those with ! are required."""


def main(argv: list[str]) -> int:
    cloud = Cloud(Path(os.environ["STAND_IN_CLOUD"]))
    with cloud.calls.open("a") as calls:
        calls.write(shlex.join(argv) + "\n")
    depth = next((at for at, word in enumerate(argv) if " ".join(argv[: at + 1]) in COMMANDS), 0) + 1
    command = " ".join(argv[:depth])
    if command not in COMMANDS:
        print(f"ERROR: (gcloud) Invalid choice: {shlex.join(argv)}", file=sys.stderr)
        return 2
    action, arguments = COMMANDS[command]
    parser = argparse.ArgumentParser(f"gcloud {command}", allow_abbrev=False)
    for argument in arguments.split():
        if argument.endswith(("=", "!")):
            parser.add_argument(argument[:-1], required=argument.endswith("!"))
        elif argument.startswith("--"):
            parser.add_argument(argument, action="store_true")
        else:
            parser.add_argument(argument, nargs="+" if argument in ("names", "sources") else None)
    try:
        if count_down(cloud.failing / command):
            raise GcloudError("There was a problem refreshing your current auth tokens")
        return action(cloud, parser.parse_args(argv[depth:])) or 0
    except GcloudError as error:
        print(f"ERROR: (gcloud.{command.replace(' ', '.')}) {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
