"""A real Linux guest: the disk as a virtual machine sees it."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from diskproof import drive
from diskproof.errors import RunFailure
from diskproof.frontends import effective
from diskproof.frontends.host import find_direct_obstacle, libaio_options
from diskproof.guest.ours.boot import Guest, start_guest
from diskproof.guest.ours.build import require_guest
from diskproof.guest.ours.wire import GuestDisk
from diskproof.process.owner import write_private
from diskproof.qemu.disk import SECOND_NODE, SECOND_SERIAL, guest_disk_args, second_disk_args
from diskproof.qemu.machine import BUS_DRIVERS, GuestMachine
from diskproof.qemu.qmp import Qmp
from diskproof.records import Artefact, Cell, Check
from diskproof.units import parse_bytes

LOG = "qemu.log"
ARGV = "qemu.argv.json"
CONSOLE = "console.log"
_MEDIA = {ARGV: "application/json", LOG: "text/plain", CONSOLE: "text/plain"}
_SCRATCH = "/tmp/diskproof"  # in the guest: on a tmpfs
_FIND_SERIAL = """for disk in /sys/block/*; do
[ ! -e $disk/serial ] || [ "$(cat $disk/serial)" != "$1" ] || echo /dev/${disk##*/}
done"""
_SHORT = 60.0  # seconds for a small program, under emulation on a busy host


@dataclass
class GuestDrive(drive.Drive):
    """The disk inside a running guest."""

    context: drive.RunContext
    guest: Guest
    disk: GuestDisk
    _executions: int = field(default=0, init=False)

    def run(self, command: drive.Command) -> drive.Execution:
        argv, timeout = command.argv, command.timeout
        self._executions += 1
        scratch = f"{_SCRATCH}/{self._executions}"
        self._put_files(scratch, command.files)
        done = self.guest.channel.exec(argv, timeout=timeout, cwd=scratch)
        end = done.exit
        if end.timed_out:
            raise RunFailure(
                "timeout",
                f"{argv[0]} did not end in the guest within {timeout:.0f} s",
                evidence=(("stdout", done.stdout), ("stderr", done.stderr)),
            )
        brought = {
            name: self.guest.channel.read_file(f"{scratch}/{name}", drive.MAX_COLLECTED)
            for name in command.collect
            if self._succeeds("test", "-f", f"{scratch}/{name}")
        }
        self._succeeds("rm", "-r", scratch)
        status = end.code if end.code is not None else -(end.signal or 0)
        return drive.Execution(status, done.stdout, done.stderr, end.elapsed_ns / 1e9, brought)

    def _put_files(self, scratch: str, files: Mapping[str, bytes]) -> None:
        folders = dict.fromkeys([scratch, *(str(Path(scratch, name).parent) for name in files)])
        if not self._succeeds("mkdir", "-p", *folders):
            raise RunFailure("guest", f"{scratch} cannot be made in the guest")
        for name, content in files.items():
            self.guest.channel.write_file(f"{scratch}/{name}", content)

    def _succeeds(self, *argv: str) -> bool:
        return self.guest.channel.exec(argv, timeout=_SHORT).exit.code == 0

    def read_back(self) -> tuple[Check, ...]:
        cell, image, qmp = self.context.cell, self.context.image, self.guest.qmp
        return (
            *effective.read_guest(qmp, self.guest.process.pid, cell, image, self.guest.machine),
            *check_disk(self.disk, cell, image),
            *check_second_disk(qmp, self.context.second_disk),
        )


def with_second_disk(
    stack: ExitStack, machine: GuestMachine, disk: drive.DiskImage | None
) -> GuestMachine:
    """The machine with a second disk, if there is one, which ``stack`` closes."""
    if disk is None:
        return machine
    handle = stack.enter_context(disk.path.open("r+b", buffering=0)).fileno()
    direct = not find_direct_obstacle(disk.path)
    args = second_disk_args(handle, device=disk.device, direct=direct)
    return replace(
        machine, disk_args=(*machine.disk_args, *args), disk_fds=(*machine.disk_fds, handle)
    )


def find_second_disk(guest: Guest) -> str:
    """The second disk's name in the guest. Raises RunFailure ``guest``."""
    argv = ["sh", "-c", _FIND_SERIAL, "sh", SECOND_SERIAL]
    told = guest.channel.exec(argv, timeout=_SHORT).stdout.decode("utf-8", "replace").strip()
    if not re.fullmatch(r"/dev/[a-z0-9]{1,30}", told):
        raise RunFailure("guest", "the guest does not see the disk that data is copied from", told)
    return told


def check_second_disk(qmp: Qmp, disk: drive.DiskImage | None) -> tuple[Check, ...]:
    """Whether the host caches the second disk, if there is one: not where that can be helped."""
    if disk is None:
        return ()
    told = "QMP query-named-block-nodes"
    found = effective.require_field(
        effective.read_nodes(qmp).get(SECOND_NODE, {}), "cache.direct", told
    )
    return (
        effective.make_check(
            "source: cache.direct", not find_direct_obstacle(disk.path), found, told
        ),
    )


class GuestFrontend:
    """The frontend ``guest``."""

    name = "guest"

    @contextmanager
    def start(self, context: drive.RunContext) -> Iterator[drive.Drive]:
        image = context.image
        with ExitStack() as stack:
            starting = start_guest(
                require_guest(context.guest_extra),
                with_second_disk(stack, guest_machine(context), context.second_disk),
                run_dir=context.run_dir,
                disk_folder=image.path.parent,
                deadline=context.deadline_seconds,
            )
            guest = stack.enter_context(starting)
            try:
                keep_argv(guest.process.pid, context.run_dir / ARGV)
                disk = guest.started.disk
                if disk is None:
                    raise RunFailure("guest", "the guest names no disk under test")
                pids = (guest.process.pid, *image.server_pids)
                second = find_second_disk(guest) if context.second_disk else ""
                steered = drive.SteeredMachine(guest.qmp, image, guest.load_modules)
                facts = drive.DriveFacts(
                    image.size, libaio_options(disk.device), pids, steered, second
                )
                yield GuestDrive(facts, context, guest, disk)
            finally:
                with suppress(OSError):  # a full disk must not hide why the run failed
                    write_private(context.run_dir / CONSOLE, guest.booted.console.read())

    def artefacts(self, context: drive.RunContext) -> tuple[Artefact, ...]:
        return kept_files(context.run_dir)


def kept_files(run_dir: Path, more: Mapping[str, str] | None = None) -> tuple[Artefact, ...]:
    """Logs and command line of a guest as far as they are there; ``more``: name to media type."""
    return tuple(
        Artefact(name, media, (run_dir / name).read_bytes()[-(1 << 20) :])
        for name, media in {**_MEDIA, **(more or {})}.items()
        if (run_dir / name).is_file()
    )


def guest_machine(context: drive.RunContext, parameters: tuple[str, ...] = ()) -> GuestMachine:
    """The guest that a cell asks for; ``parameters`` are further ones of its kernel."""
    cell = context.cell
    return GuestMachine(
        accel=context.accel,
        vcpus=int(cell.level("vcpus", "1")),
        memory_bytes=parse_bytes(cell.level("memory", "512M")),
        bus=cell.level("bus", "virtio-blk"),
        disk_args=tuple(guest_disk_args(cell, context.image)),
        parameters=parameters,
        namespace=context.image.namespace,
        promises=context.promises,
    )


def keep_argv(pid: int, path: Path) -> None:
    """The command line of a running process, as JSON."""
    argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    write_private(path, json.dumps(argv[:-1], indent=1).encode())


def check_disk(disk: GuestDisk, cell: Cell, image: drive.DiskImage) -> tuple[Check, ...]:
    """What our guest says of the disk, and of its own driver for it."""
    driver, seen = BUS_DRIVERS[cell.level("bus", "virtio-blk")][0], ", ".join(disk.drivers)
    named = Check("guest: driver", driver, seen, "the guest's sysfs", driver in disk.drivers)
    return (*effective.check_view(cell, image, disk.size, disk.write_cache), named)


FRONTEND = GuestFrontend()
