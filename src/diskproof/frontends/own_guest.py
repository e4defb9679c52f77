"""A virtual machine of the user's own, driven through QEMU's guest agent."""

import re
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from diskproof import drive
from diskproof.errors import RunFailure
from diskproof.frontends.effective import check_view, read_guest
from diskproof.frontends.guest import ARGV, CONSOLE, guest_machine, keep_argv, kept_files
from diskproof.frontends.host import libaio_options
from diskproof.guest.own.image import open_own_image
from diskproof.guest.own.qemu_agent import QemuAgent
from diskproof.guest.own.vm import OwnRunning, start_own_guest
from diskproof.process.owner import write_private
from diskproof.qemu.machine import DISK_SERIAL, GuestMachine
from diskproof.records import Artefact, Check
from diskproof.study.guest import OwnGuest

_SCRATCH = "/tmp/diskproof"
_BY_ID = "/dev/disk/by-id"
_SHORT = 60.0  # seconds for a small program, under emulation on a busy host
_LOOK_AGAIN = 0.5
_DRIVE = re.compile(r"\\\\\.\\PhysicalDrive(\d{1,3})", re.IGNORECASE)
# Constant; what it is to do comes as arguments. The agent starts programs in no folder of ours.
_IN_FOLDER = 'cd "$0" && exec "$@"'


@dataclass
class OwnGuestDrive(drive.Drive):
    """The disk inside the user's guest; ``device`` is its name there."""

    context: drive.RunContext
    running: OwnRunning
    own: OwnGuest
    vm: GuestMachine
    device: str
    _executions: int = field(default=0, init=False)

    def run(self, command: drive.Command) -> drive.Execution:
        argv, timeout, given = command.argv, command.timeout, command.files
        agent = self.running.agent
        agent.end_within(command.left)
        if self.own.os == "windows":
            if given or command.collect:
                raise RunFailure("workload", "in a Windows guest a workload is a command")
            return _run(agent, argv, timeout)
        self._executions += 1
        scratch = f"{_SCRATCH}-{self._executions}"
        folders = dict.fromkeys(f"{scratch}/{name}".rpartition("/")[0] for name in (*given, "x"))
        made = _run(agent, ["mkdir", "-p", *folders], _SHORT)
        if made.returncode != 0:
            why = made.stderr.decode("utf-8", "replace")[:300]
            raise RunFailure("guest", f"{scratch} cannot be made in the guest", why)
        for name, content in given.items():
            agent.write_file(f"{scratch}/{name}", content)
        done = _run(agent, ["/bin/sh", "-c", _IN_FOLDER, scratch, *argv], timeout)
        brought = {
            name: agent.read_file(f"{scratch}/{name}", drive.MAX_COLLECTED)
            for name in command.collect
            if self._succeeds("test", "-f", f"{scratch}/{name}")
        }
        self._succeeds("rm", "-r", scratch)
        return drive.Execution(done.returncode, done.stdout, done.stderr, done.seconds, brought)

    def _succeeds(self, *argv: str) -> bool:
        return _run(self.running.agent, argv, _SHORT).returncode == 0

    def read_back(self) -> tuple[Check, ...]:
        context, qmp = self.context, self.running.qmp
        return (
            *read_guest(qmp, self.running.process.pid, context.cell, context.image, self.vm),
            *self._check_view(),
            Check("guest agent", "answers", self.running.version, "guest-info", True),
        )

    def _check_view(self) -> tuple[Check, ...]:
        """What the guest's own kernel says of the disk; Windows is not asked."""
        if self.own.os == "windows":
            return ()
        folder = f"/sys/class/block/{self.device.removeprefix('/dev/')}"
        size = self._read_line(f"{folder}/size")
        sectors = int(size) if size.isdigit() and len(size) < 18 else -1
        write_cache = self._read_line(f"{folder}/queue/write_cache")
        return check_view(self.context.cell, self.context.image, sectors * 512, write_cache)

    def _read_line(self, path: str) -> str:
        done = _run(self.running.agent, ["cat", path], _SHORT)
        return done.stdout.decode("utf-8", "replace").strip()[:100]


def _no_modules(names: Sequence[str]) -> None:
    """The user's guest loads modules by itself."""


def _run(agent: QemuAgent, argv: Sequence[str], timeout: float) -> drive.Execution:
    """Raises RunFailure ``workload`` for output that the agent has cut."""
    done = agent.run(argv, timeout=timeout)
    if done.truncated:
        raise RunFailure(
            "workload",
            f"{shlex.join(argv)[:200]} printed too much",
            "the guest agent keeps 16 MiB of each output and drops the rest",
            "have it write into a file, or print less",
            (("stdout", done.stdout[: 1 << 20]), ("stderr", done.stderr[: 1 << 20])),
        )
    return drive.Execution(done.status, done.stdout, done.stderr, done.seconds)


def find_disk(agent: QemuAgent, own: OwnGuest, deadline: float) -> str:
    """The guest's name of the disk under test, by its serial number: a path on Linux, the number
    of a physical drive on Windows. Raises RunFailure ``guest`` when it is not there in time."""
    look = _find_on_windows if own.os == "windows" else _find_on_linux
    end = time.monotonic() + deadline
    while True:
        found, seen = look(agent)
        if found:
            return found
        if time.monotonic() >= end:
            raise RunFailure(
                "guest",
                f"the guest has no disk with the serial number {DISK_SERIAL}",
                f"it has: {', '.join(seen)[:500] or 'none'}",
                "install the driver of the bus in the image, or choose another bus; on Linux udev "
                f"has to make {_BY_ID}",
            )
        time.sleep(_LOOK_AGAIN)


def _find_on_linux(agent: QemuAgent) -> tuple[str, list[str]]:
    """udev's links, as ``virtio-SERIAL``, ``ata-MODEL_SERIAL``, ``nvme-MODEL_SERIAL``."""
    listed = _run(agent, ["ls", "-1", _BY_ID], _SHORT).stdout.decode("utf-8", "replace")
    names = listed.split()[:1000]
    for name in names:
        if re.fullmatch(rf"\S*[-_]{re.escape(DISK_SERIAL)}(_1)?", name):
            done = _run(agent, ["readlink", "-f", f"{_BY_ID}/{name}"], _SHORT)
            device = done.stdout.decode("utf-8", "replace").strip()
            if re.fullmatch(r"/dev/[A-Za-z0-9]{1,32}", device):
                return device, names
    return "", names


def _find_on_windows(agent: QemuAgent) -> tuple[str, list[str]]:
    """The agent's own list of disks: it names drives as ``\\\\.\\PhysicalDriveN``."""
    disks = agent.execute("guest-get-disks")
    names = []
    for disk in disks if isinstance(disks, list) else []:
        name, where = (disk.get("name"), disk.get("address")) if isinstance(disk, dict) else ("", 0)
        serial = str(where.get("serial", "")).strip() if isinstance(where, dict) else ""
        names.append(f"{name} ({serial})")
        if serial == DISK_SERIAL and (number := _DRIVE.fullmatch(str(name))):
            return number[1], names
    return "", names


class OwnGuestFrontend:
    """The frontend ``own-guest``."""

    name = "own-guest"

    @contextmanager
    def start(self, context: drive.RunContext) -> Iterator[drive.Drive]:
        own, image, vm = context.own_guest, context.image, guest_machine(context)
        if own is None:
            raise ValueError("this frontend needs the study's [guest]")
        places = {"run_dir": context.run_dir, "folder": image.path.parent}
        with (
            open_own_image(own) as system,
            start_own_guest(
                own, vm, system, **places, deadline=context.deadline_seconds
            ) as running,
        ):
            try:
                keep_argv(running.process.pid, context.run_dir / ARGV)
                left = max(_SHORT, context.deadline_seconds - running.seconds)
                device = find_disk(running.agent, own, left)
                time.sleep(own.settle)
                pids = (running.process.pid,)
                steered = drive.SteeredMachine(running.qmp, image, _no_modules)
                facts = drive.DriveFacts(image.size, libaio_options(device), pids, steered)
                yield OwnGuestDrive(facts, context, running, own, vm, device)
            finally:
                with suppress(OSError):  # a full disk must not hide why the run failed
                    write_private(context.run_dir / CONSOLE, running.console.read())

    def artefacts(self, context: drive.RunContext) -> tuple[Artefact, ...]:
        return kept_files(context.run_dir)


FRONTEND = OwnGuestFrontend()
