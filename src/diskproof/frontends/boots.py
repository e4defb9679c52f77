"""A machine that boots from the disk under test: each command is one whole boot.

``execute(["boot", KIND])`` starts QEMU, has the guest do what KIND says and switch itself off;
its ``seconds`` are from QEMU's start to its end. The set-up boot comes first, by ``start``.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from diskproof.drive import Command, Drive, DriveFacts, Execution, RunContext
from diskproof.errors import RunFailure
from diskproof.frontends.effective import check_view, read_guest
from diskproof.frontends.guest import ARGV, CONSOLE, guest_machine, keep_argv, kept_files
from diskproof.guest.debian.one_boot import Boot, BootReport, boot_once, boot_parameters
from diskproof.guest.debian.system import SystemFiles, require_system
from diskproof.host.cache import drop_cache
from diskproof.process.owner import write_private
from diskproof.qemu.machine import GuestMachine
from diskproof.qemu.qmp import Qmp
from diskproof.records import Artefact, Check
from diskproof.study.boots import block_bytes, parse_scale

SETUP = "setup"
KINDS = (SETUP, "read", "write")


@dataclass
class BootsDrive(Drive):
    """The system disk of a machine that is off between commands; fio cannot reach it."""

    context: RunContext
    system: SystemFiles
    checks: tuple[Check, ...] = field(default=(), init=False)

    def run(self, command: Command) -> Execution:
        known = any(list(command.argv) == ["boot", kind] for kind in KINDS)
        if not known or command.files or command.collect:
            raise ValueError(f"a boot is all that can be asked for, not {command.argv}")
        boot = self.boot(command.argv[1], command.timeout)
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
        told = b"== %s\n%s\n" % (kind.encode(), boot.console)
        write_private(context.run_dir / CONSOLE, told, append=True)
        seen = boot.report.size, boot.report.write_cache
        self.checks = (*boot.checks, *check_view(context.cell, context.image, *seen))
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
        return read_guest(qmp, pid, context.cell, context.image, machine)

    def read_back(self) -> tuple[Check, ...]:
        """Give the checks of the last boot; every boot is checked as it happens."""
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


class BootsFrontend:
    """Stands in for the frontend ``guest`` where the disk holds the system."""

    name = "boots"

    @contextmanager
    def start(self, context: RunContext) -> Iterator[Drive]:
        facts = DriveFacts(context.image.size, fio={})
        drive = BootsDrive(facts, context, require_system(context.cell.workload))
        first = drive.boot(SETUP, context.deadline_seconds)
        _require_first(first.report)
        notes = {"base": drive.system.id, "kernel": first.report.kernel, "seconds": first.seconds}
        write_private(context.run_dir / SETUP_NOTES, json.dumps(notes, indent=1).encode())
        yield drive

    def artefacts(self, context: RunContext) -> tuple[Artefact, ...]:
        return kept_files(context.run_dir, {SETUP_NOTES: "application/json"})


SETUP_NOTES = "setup-boot.json"


def _require_first(report: BootReport) -> None:
    if report.boots != 1:
        why = f"the guest counts {report.boots} boots of a fresh clone"
        raise RunFailure("guest", "the disk is not a fresh clone", why)


FRONTEND = BootsFrontend()
