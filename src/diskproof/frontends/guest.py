"""A real Linux guest: the disk as a virtual machine sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from diskproof.drive import Drive, Execution, FioTarget, Machine, RunContext
from diskproof.errors import RunFailure
from diskproof.frontends.commands import MAX_COLLECTED, scratch_names
from diskproof.frontends.effective import (
    make_check,
    read_disk,
    render_level,
    require_field,
    require_objects,
)
from diskproof.frontends.source_disk import check_source, find_source, with_source
from diskproof.guest.boot import Guest, start_guest
from diskproof.guest.build import require_guest
from diskproof.guest.events import GuestDisk
from diskproof.qemu.disk import DEVICE_ID, bus, cache_mode, guest_disk_args
from diskproof.qemu.machine import BUS_DRIVERS, GuestMachine
from diskproof.qemu.qmp import Qmp
from diskproof.records import Artefact, Cell, Check
from diskproof.units import parse_bytes

LOG = "qemu.log"
ARGV = "qemu.argv.json"
CONSOLE = "console.log"
_MEDIA = {ARGV: "application/json", LOG: "text/plain", CONSOLE: "text/plain"}
_SCRATCH = "/tmp/diskproof"  # in the guest: on a tmpfs
_SHORT = 60.0  # seconds for a small program, under emulation on a busy host


@dataclass
class GuestDrive:
    """The disk inside a running guest."""

    context: RunContext
    guest: Guest
    disk: GuestDisk
    size: int
    pids: Sequence[int]
    source: str = ""
    _executions: int = field(default=0, init=False)

    @property
    def machine(self) -> Machine:
        return Machine(self.guest.qmp, self.context.image, self.guest.load_modules)

    def fio_target(self) -> FioTarget:
        return FioTarget({"ioengine": "libaio", "filename": self.disk.device, "direct": "1"})

    def execute(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        files: Mapping[str, bytes] | None = None,
        collect: Sequence[str] = (),
    ) -> Execution:
        scratch_names([*(files or {}), *collect])
        self._executions += 1
        scratch = f"{_SCRATCH}/{self._executions}"
        self._put_files(scratch, files or {})
        done = self.guest.channel.exec(argv, timeout=timeout, cwd=scratch)
        end = done.exit
        if end.timed_out:
            raise RunFailure(
                "timeout",
                f"{argv[0]} did not end in the guest within {timeout:.0f} s",
                evidence=(("stdout", done.stdout), ("stderr", done.stderr)),
            )
        brought = {
            name: self.guest.channel.read_file(f"{scratch}/{name}", MAX_COLLECTED)
            for name in collect
            if self._succeeds("test", "-f", f"{scratch}/{name}")
        }
        self._succeeds("rm", "-r", scratch)
        status = end.code if end.code is not None else -(end.signal or 0)
        return Execution(status, done.stdout, done.stderr, end.elapsed_ns / 1e9, brought)

    def _put_files(self, scratch: str, files: Mapping[str, bytes]) -> None:
        folders = dict.fromkeys([scratch, *(str(Path(scratch, name).parent) for name in files)])
        if not self._succeeds("mkdir", "-p", *folders):
            raise RunFailure("guest", f"{scratch} cannot be made in the guest")
        for name, content in files.items():
            self.guest.channel.write_file(f"{scratch}/{name}", content)

    def _succeeds(self, *argv: str) -> bool:
        return self.guest.channel.exec(argv, timeout=_SHORT).exit.code == 0

    def read_back(self) -> tuple[Check, ...]:
        context, qmp = self.context, self.guest.qmp
        return (
            *read_disk(qmp, self.guest.process.pid, context.cell, context.image),
            check_device(qmp, context.cell),
            *check_view(self.disk, context.cell, self.size),
            *check_machine(qmp, self.guest.machine),
            *check_source(qmp, context.source),
        )


class GuestFrontend:
    """The frontend ``guest``."""

    name = "guest"

    @contextmanager
    def start(self, context: RunContext) -> Iterator[Drive]:
        image = context.image
        with ExitStack() as stack:
            starting = start_guest(
                require_guest(context.guest_extra),
                with_source(stack, guest_machine(context), context.source),
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
                source = find_source(guest) if context.source else ""
                yield GuestDrive(context, guest, disk, image.size, pids, source)
            finally:
                with suppress(OSError):  # a full disk must not hide why the run failed
                    (context.run_dir / CONSOLE).write_bytes(guest.booted.console.read())

    def artefacts(self, context: RunContext) -> tuple[Artefact, ...]:
        return kept_files(context.run_dir)


def kept_files(run_dir: Path, more: Mapping[str, str] | None = None) -> tuple[Artefact, ...]:
    """Logs and command line of a guest as far as they are there; ``more``: name to media type."""
    return tuple(
        Artefact(name, media, (run_dir / name).read_bytes()[-(1 << 20) :])
        for name, media in {**_MEDIA, **(more or {})}.items()
        if (run_dir / name).is_file()
    )


def guest_machine(context: RunContext, parameters: tuple[str, ...] = ()) -> GuestMachine:
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
    )


def keep_argv(pid: int, path: Path) -> None:
    """The command line of a running process, as JSON."""
    argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    path.write_text(json.dumps(argv[:-1], indent=1))


def check_device(qmp: Qmp, cell: Cell) -> Check:
    """Write-through of the device's own backend, as the guest's driver left it."""
    source = "QMP query-block"
    for item in require_objects(qmp.execute("query-block"), source):
        if DEVICE_ID in str(item.get("qdev")):
            write_back = require_field(item, "inserted.cache.writeback", source)
            wanted = cache_mode(cell).write_through
            return make_check("write-through", wanted, write_back is False, source)
    raise RunFailure("qemu", f"{source} does not name the disk under test")


def check_view(disk: GuestDisk, cell: Cell, size: int) -> tuple[Check, ...]:
    """What the guest's own kernel says of the disk."""
    name = cell.level("bus", "virtio-blk")
    driver = BUS_DRIVERS[name][0]
    seen = ", ".join(disk.drivers)
    source = "the guest's sysfs"
    checks = [
        make_check("guest: size", size, disk.size, source),
        Check("guest: driver", driver, seen, source, driver in disk.drivers),
    ]
    if bus(name).reports_write_cache:
        wanted = "write through" if cache_mode(cell).write_through else "write back"
        checks.append(make_check("guest: write_cache", wanted, disk.write_cache, source))
    return tuple(checks)


def check_machine(qmp: Qmp, machine: GuestMachine) -> tuple[Check, ...]:
    """The accelerator in force, processors and memory."""
    kvm = qmp.execute("query-kvm")
    enabled = require_field(kvm if isinstance(kvm, dict) else {}, "enabled", "QMP query-kvm")
    cpus = require_objects(qmp.execute("query-cpus-fast"), "QMP query-cpus-fast")
    memory = qmp.execute("query-memory-size-summary")
    source = "QMP query-memory-size-summary"
    size = require_field(memory if isinstance(memory, dict) else {}, "base-memory", source)
    return (
        make_check("accel", machine.accel, "kvm" if enabled is True else "tcg", "QMP query-kvm"),
        make_check("vcpus", machine.vcpus, len(cpus), "QMP query-cpus-fast"),
        make_check("memory", render_level(machine.memory_bytes), size, source),
    )


FRONTEND = GuestFrontend()
