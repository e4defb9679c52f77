"""A machine that boots from the disk under test: each command is one whole boot.

``execute(["boot", KIND])`` starts QEMU, has the guest do what KIND says and switch itself off;
its ``seconds`` are from QEMU's start to its end. The set-up boot comes first, by ``start``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from diskproof.drive import Drive, Execution, FioTarget, Machine, RunContext
from diskproof.errors import RunFailure
from diskproof.frontends.effective import make_check, read_disk
from diskproof.frontends.guest import (
    ARGV,
    CONSOLE,
    check_device,
    check_machine,
    guest_machine,
    keep_argv,
    kept_files,
)
from diskproof.guest.boot_report import BootReport
from diskproof.guest.boots import Boot, boot_once, boot_parameters
from diskproof.guest.system import SystemFiles, require_system
from diskproof.host.cache import drop_cache
from diskproof.qemu.disk import bus, cache_mode
from diskproof.qemu.machine import GuestMachine
from diskproof.qemu.qmp import Qmp
from diskproof.records import Artefact, Cell, Check
from diskproof.study.boots import block_bytes, parse_scale

SETUP = "setup"
KINDS = (SETUP, "read", "write")


@dataclass
class BootsDrive:
    """The system disk of a machine that is off between commands; ``pids`` change with each."""

    context: RunContext
    system: SystemFiles
    pids: Sequence[int] = ()
    machine: Machine | None = None
    source: str = ""
    size: int = field(init=False)
    checks: tuple[Check, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self.size = self.context.image.size

    def fio_target(self) -> FioTarget:
        raise RunFailure("workload", "fio cannot reach the system disk of a machine that is off")

    def execute(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        files: Mapping[str, bytes] | None = None,
        collect: Sequence[str] = (),
    ) -> Execution:
        if len(argv) != 2 or argv[0] != "boot" or argv[1] not in KINDS or files or collect:
            raise ValueError(f"a boot is all that can be asked for, not {argv}")
        boot = self.boot(argv[1], timeout)
        return Execution(0, boot.said, b"", boot.seconds)

    def boot(self, kind: str, timeout: float) -> Boot:
        """One boot. Raises RunFailure when a setting is not in force or a step did not work."""
        context = self.context
        if context.cell.workload.option("cold") == "on":
            drop_cache(context.image.path)  # raises when pages stay
        machine = self._machine(kind)
        boot = boot_once(
            self.system,
            machine,
            run_dir=context.run_dir,
            disk_folder=context.image.path.parent,
            deadline=timeout,
            read_back=lambda qmp, pid: self._read_back(qmp, pid, machine),
        )
        with (context.run_dir / CONSOLE).open("ab") as stream:
            stream.write(b"== %s\n%s\n" % (kind.encode(), boot.console))
        self.checks = (*boot.checks, *check_view(boot.report, context.cell, self.size))
        _require_right(self.checks, boot.report)
        return boot

    def _machine(self, kind: str) -> GuestMachine:
        cell = self.context.cell
        block = block_bytes(parse_scale(cell.workload.option("scale")))
        name = cell.level("bus", "virtio-blk")
        parameters = boot_parameters(name, self.system.drivers[name], kind, block)
        return guest_machine(self.context, parameters)

    def _read_back(self, qmp: Qmp, pid: int, machine: GuestMachine) -> tuple[Check, ...]:
        context = self.context
        keep_argv(pid, context.run_dir / ARGV)
        return (
            *read_disk(qmp, pid, context.cell, context.image),
            check_device(qmp, context.cell),
            *check_machine(qmp, machine),
        )

    def read_back(self) -> tuple[Check, ...]:
        """Of the last boot; every boot is checked as it happens."""
        return self.checks


def _require_right(checks: Sequence[Check], report: BootReport) -> None:
    if wrong := [check for check in checks if not check.ok]:
        raise RunFailure(
            "mismatch",
            f"{', '.join(check.name for check in wrong)}: not what was asked for",
            "\n".join(f"{c.name}: asked {c.requested}, in force {c.effective}" for c in wrong),
        )
    if report.failed:
        raise RunFailure("workload", "a step of the boot failed in the guest", report.failed)


def check_view(report: BootReport, cell: Cell, size: int) -> tuple[Check, ...]:
    """What the guest's own kernel says of the disk that it booted from."""
    source = "the guest's sysfs"
    checks = [make_check("guest: size", size, report.size, source)]
    if bus(cell.level("bus", "virtio-blk")).reports_write_cache:
        wanted = "write through" if cache_mode(cell).write_through else "write back"
        checks.append(make_check("guest: write_cache", wanted, report.write_cache, source))
    return tuple(checks)


class BootsFrontend:
    """Stands in for the frontend ``guest`` where the disk holds the system."""

    name = "boots"

    @contextmanager
    def start(self, context: RunContext) -> Iterator[Drive]:
        drive = BootsDrive(context, require_system(context.cell.workload))
        first = drive.boot(SETUP, context.deadline_seconds)
        _require_first(first.report)
        notes = {"base": drive.system.id, "kernel": first.report.kernel, "seconds": first.seconds}
        (context.run_dir / SETUP_NOTES).write_text(json.dumps(notes, indent=1))
        yield drive

    def artefacts(self, context: RunContext) -> tuple[Artefact, ...]:
        return kept_files(context.run_dir, {SETUP_NOTES: "application/json"})


SETUP_NOTES = "setup-boot.json"


def _require_first(report: BootReport) -> None:
    if report.boots != 1:
        why = f"the guest counts {report.boots} boots of a fresh clone"
        raise RunFailure("guest", "the disk is not a fresh clone", why)


FRONTEND = BootsFrontend()
