"""Numbered records as files in a guest: made, synced, renamed, their directory synced."""

from pathlib import Path

from diskproof.crash.writers import WriterContext
from diskproof.crash.writers.command import PYTHON
from diskproof.crash.writers.guest_disk import (
    MOUNT_POINT,
    ledger_argv,
    make_file_system,
    require_guest_drive,
    write_in_guest,
)
from diskproof.crash.writers.ledger import ledger_args
from diskproof.qemu.disk import image_format
from diskproof.records import Cell

CHECK_SECONDS = 300.0
_DEFAULT = "ext4"


class LedgerFsWriter:
    """The writer ``ledger-fs``; the cell's options ``filesystem`` and ``mount`` say on what."""

    def prepare(self, cell: Cell, folder: Path) -> None:
        """Nothing: all of it is made under record."""

    def write(self, context: WriterContext) -> None:
        """Raises RunFailure ``guest``, ``workload`` or ``space``."""
        spec = context.cell.workload
        drive = require_guest_drive(context.drive, spec.name)
        kind = spec.option("filesystem", _DEFAULT)
        make_file_system(drive.guest, drive.disk.device, kind, spec.option("mount"))
        argv = ledger_argv("write-files", MOUNT_POINT, *ledger_args(spec))
        write_in_guest(drive, argv, context)

    def check(self, cell: Cell) -> dict[str, object]:
        """Mounted in a fresh guest, which recovers the journal, read there, and fsck."""
        return guest_check(cell, "ledger-fs")


WRITER = LedgerFsWriter()


def guest_check(cell: Cell, writer: str) -> dict[str, object]:
    """The check of a state's image in a guest, as a command that stays."""
    form, file_system = image_format(cell), cell.workload.option("filesystem", _DEFAULT)
    argv = [
        *(*PYTHON, "diskproof.crash.writers.guest_state", writer),
        *(f"disk.{form}", "--format", form, "--filesystem", file_system),
    ]
    return {"kind": "command", "argv": argv, "timeout_seconds": CHECK_SECONDS, "stays": True}
