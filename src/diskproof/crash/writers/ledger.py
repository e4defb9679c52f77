"""Numbered records on the disk itself: ``diskproof-ledger``, see docs/ledger.md."""

from pathlib import Path

from diskproof.crash.writers import WriterContext
from diskproof.crash.writers.guest_disk import find_guest_drive, ledger_argv, write_in_guest
from diskproof.crash.writers.program_end import require_written
from diskproof.process.native import require_native
from diskproof.qemu.disk import image_format
from diskproof.recording.folder import ACK_FILE
from diskproof.records import Cell, WorkloadSpec

_SLOT = 4096


class LedgerWriter:
    """The writer ``ledger``: on the host, behind the daemon, in the guest."""

    def prepare(self, cell: Cell, folder: Path) -> None:
        """Nothing: all of it is made under record."""

    def write(self, context: WriterContext) -> None:
        """Raises RunFailure ``workload`` or ``space`` when the disk fails it."""
        spec, size = context.cell.workload, context.drive.facts.size
        guest = find_guest_drive(context.drive)
        if guest is not None:
            argv = ledger_argv("write", guest.disk.device, *disk_args(spec, size))
            write_in_guest(guest, argv, context)
            return
        options = context.drive.facts.fio
        target = options.get("uri") or context.drive.facts.disk
        buffered = ["--buffered"] if options.get("direct", "1") == "0" else []
        acks = ["--acks", str(context.recording.folder / ACK_FILE)]
        argv = [str(require_native("diskproof-ledger")), "write", target, *buffered]
        done = context.drive.execute(
            [*argv, *disk_args(spec, size), *acks], timeout=context.seconds
        )
        require_written("ledger", done.returncode, done.stderr)

    def check(self, cell: Cell) -> dict[str, object]:
        form = image_format(cell)
        return {"kind": "ledger", "target": f"disk.{form}", "format": form}


WRITER = LedgerWriter()


def ledger_args(spec: WorkloadSpec) -> list[str]:
    """How to write, from the options of a crash cell.

    Half as many slots as records: the first half of them is written to places that were never
    written, the second replaces the first.
    """
    records = int(spec.option("records"))
    return [
        *("--records", str(records), "--seconds", spec.option("seconds")),
        *("--depth", spec.option("depth"), "--flush-every", spec.option("flush_every")),
        *("--durable", spec.option("durable"), "--slots", str(max(1, records // 2))),
    ]


def disk_args(spec: WorkloadSpec, size: int) -> list[str]:
    """The same for a disk of ``size`` bytes: records are scattered and fit it."""
    args = ledger_args(spec)
    at = args.index("--slots") + 1
    args[at] = str(min(int(args[at]), size // _SLOT))
    return [*args, "--seed", str(1 + int(spec.option("seed", "0")))]
