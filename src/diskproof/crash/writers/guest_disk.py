"""Writers inside a guest: the disk, a file system on it, promises on a console of the guest."""

from collections.abc import Sequence
from functools import partial
from typing import Unpack

from diskproof.crash.writers import WriterContext, guest_pool
from diskproof.crash.writers.program_end import require_written
from diskproof.drive import Drive
from diskproof.errors import RunFailure
from diskproof.frontends.guest import GuestDrive
from diskproof.guest.ours.boot import Guest
from diskproof.guest.ours.build import PROGRAM_FOLDER
from diskproof.guest.ours.jobs import ExecOptions, GuestExecution
from diskproof.guest.ours.root import MAKE_FILE_SYSTEM
from diskproof.lab.deadline import BoundedDrive
from diskproof.recording.folder import Promises
from diskproof.records import Cell, WorkloadSpec

LEDGER = f"{PROGRAM_FOLDER}/diskproof-ledger"
WRITEBACK = f"{PROGRAM_FOLDER}/diskproof-writeback"
MOUNT_POINT = "/mnt"
PROMISING = """exec > /dev/hvc0
stty -F /dev/hvc0 raw -echo
exec "$@"
"""
"""A write to the console returns when the line is in the log. It forgets its settings when nobody
has it open."""
_LEDGER_PROMISES = 'exec "$@" --acks 3 3>&1 > /dev/null'
"""The ledger's own stdout ends with a report, which is no promise."""
_SETUP_SECONDS = 120.0  # mkfs and mount under emulation on a busy host


def find_guest_drive(drive: Drive) -> GuestDrive | None:
    """The drive as one inside a guest, if it is."""
    inner = drive.drive if isinstance(drive, BoundedDrive) else drive
    return inner if isinstance(inner, GuestDrive) else None


def require_guest_drive(drive: Drive, writer: str) -> GuestDrive:
    found = find_guest_drive(drive)
    if found is None:
        raise RunFailure("workload", f"the writer {writer} works in a guest only")
    return found


def write_in_guest(
    drive: GuestDrive, argv: Sequence[str], context: WriterContext, stdin: bytes = b""
) -> None:
    """Run a writer in the guest to its end; each line on its stdout is a promise."""
    done = run_promising(drive, argv, context.seconds, stdin=stdin)
    if done.exit.timed_out:
        name = context.cell.workload.name
        raise RunFailure("timeout", f"the writer {name} did not end in the guest within its time")
    require_ended(context, done)


def run_promising(
    drive: GuestDrive, argv: Sequence[str], seconds: float, **options: Unpack[ExecOptions]
) -> GuestExecution:
    """Run a program of the guest; each line on its stdout is in the log when its write(2) returns.
    Of one that is killed when its time is over, or with its guest, half a line is no promise."""
    assert drive.context.promises is not None
    promises, ended = Promises(drive.context.promises), False
    try:
        argv = ["sh", "-euc", PROMISING, "sh", *argv]
        done = drive.guest.channel.exec(argv, timeout=seconds, **options)
        ended = not done.exit.timed_out
    finally:
        promises.finish() if ended else promises.cut()
    return done


def require_ended(context: WriterContext, done: GuestExecution) -> None:
    """Raises RunFailure ``space`` or ``workload`` when a writer did not end well."""
    status = done.exit.code if done.exit.code is not None else -(done.exit.signal or 0)
    require_written(context.cell.workload.name, status, done.stderr)


def ledger_argv(*arguments: str) -> list[str]:
    """The ledger in a guest, with its promises alone on stdout."""
    return ["sh", "-euc", _LEDGER_PROMISES, "sh", LEDGER, *arguments]


def make_file_system(guest: Guest, device: str, kind: str, options: str = "") -> None:
    """Make a file system on a disk of the guest and mount it; the options of ZFS are properties.
    Raises RunFailure ``guest``."""
    if kind in guest_pool.KINDS:
        load_modules(guest, kind)
        guest_pool.make_pool(partial(require_done, guest), kind, device, options)
        mount(guest, device, kind)
        return
    if kind not in MAKE_FILE_SYSTEM:
        raise RunFailure("workload", f"unknown file system {kind!r}", ", ".join(MAKE_FILE_SYSTEM))
    guest.load_modules([kind])
    require_done(guest, [*MAKE_FILE_SYSTEM[kind], device])
    mount(guest, device, kind, options)


def load_modules(guest: Guest, kind: str) -> None:
    """What a file system takes."""
    guest.load_modules(guest_pool.MODULES.get(kind, (kind,)))


def mount(guest: Guest, device: str, kind: str, options: str = "") -> None:
    extra = ["-o", options] if options else []
    if kind in guest_pool.KINDS:
        kind, device = guest_pool.import_pool(partial(require_done, guest), kind, device)
    require_done(guest, ["mount", "-t", kind, *extra, device, MOUNT_POINT])


def require_done(
    guest: Guest, argv: Sequence[str], seconds: float = _SETUP_SECONDS, stdin: bytes = b""
) -> bytes:
    """What a program of the guest printed. Raises RunFailure ``guest`` unless it ended well,
    ``timeout`` when it did not end in its time."""
    done = guest.channel.exec(argv, timeout=seconds, stdin=stdin)
    if done.exit.timed_out:
        raise RunFailure("timeout", f"{argv[0]} did not end in the guest within its time")
    if done.exit.code != 0:
        why = done.stderr.decode("utf-8", "replace").strip()[:500]
        raise RunFailure("guest", f"{argv[0]} failed in the guest", why)
    return done.stdout


def throwaway_cell(form: str, bus: str) -> Cell:
    """A disk of which nothing is worth a flush."""
    levels = (("bus", bus), ("cache", "unsafe"), ("format", form))
    return Cell(levels, WorkloadSpec("check", "crash"))
