"""Writers inside a guest: the disk, a file system on it, promises over the agent's channel."""

from collections.abc import Callable, Sequence
from functools import partial

from diskproof.crash.writers import WriterContext, guest_pool
from diskproof.crash.writers.program_end import require_written
from diskproof.drive import Drive
from diskproof.errors import RunFailure
from diskproof.frontends.guest import GuestDrive
from diskproof.guest.ours.boot import Guest
from diskproof.guest.ours.build import PROGRAM_FOLDER
from diskproof.guest.ours.jobs import ArrivedAck
from diskproof.guest.ours.root import MAKE_FILE_SYSTEM
from diskproof.lab.deadline import BoundedDrive
from diskproof.recording.folder import Recording
from diskproof.records import Cell, WorkloadSpec

LEDGER = f"{PROGRAM_FOLDER}/diskproof-ledger"
MOUNT_POINT = "/mnt"
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
    """Run a writer in the guest; each line that it writes to descriptor 3 is a promise.

    See ``promise_to`` for when it counts.
    """
    channel, on_ack = drive.guest.channel, promise_to(context.recording)
    done = channel.exec(argv, timeout=context.seconds, acks=True, on_ack=on_ack, stdin=stdin)
    if done.exit.timed_out:
        raise RunFailure("timeout", f"{argv[0]} did not end in the guest within its time")
    status = done.exit.code if done.exit.code is not None else -(done.exit.signal or 0)
    require_written(context.cell.workload.name, status, done.stderr)


def promise_to(recording: Recording) -> Callable[[ArrivedAck], None]:
    """A promise counts from when the host has logged it, which is later than the guest heard it: of
    the last milliseconds a loss may go unnoticed, none is made up.
    """

    def promise(ack: ArrivedAck) -> None:
        recording.acknowledge(ack.line)

    return promise


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
