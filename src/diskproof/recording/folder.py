"""A folder under record: the native recorder as a context manager."""

import errno
import os
import select
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import HostError, RunFailure, tells_no_space
from diskproof.process.native import require_native
from diskproof.process.start import Process, start_process

FUSE_DEVICE = Path("/dev/fuse")
MOUNT_SECONDS = 20.0
ACK_FILE = ".diskproof-ack"
"""In the root of every recorded folder: each line written to it is an acknowledgement."""
LOG = "crash.log"
RECORDER_LOG = "recordfs.log"
_MAX_LINE = 2048
_LARGEST_WRITE = 1 << 20
"""Bytes that the kernel gives a recorder at once."""


@dataclass(frozen=True)
class Promises:
    """A descriptor of the file of acknowledgements, for a writer to write to."""

    descriptor: int

    def finish(self) -> None:
        """The writer has ended by itself: a last line counts without its newline too."""
        with suppress(OSError):  # of a recorder that has died, which is asked for elsewhere
            os.fsync(self.descriptor)

    def cut(self) -> None:
        """The writer was killed: what it had written of a line does not count."""
        with suppress(OSError):
            os.ftruncate(self.descriptor, 0)


@dataclass
class Recording:
    """A folder that is being recorded. ``folder`` is where it is used, ``log`` what is kept."""

    folder: Path
    log: Path
    process: Process
    _acks: int

    def acknowledge(self, line: str) -> None:
        """Put a writer's promise into the log, on its clock; it is there when this returns.

        Raises RunFailure ``log`` when the recorder has died.
        """
        text = line.encode("utf-8", "replace").replace(b"\n", b" ")[:_MAX_LINE]
        try:
            os.write(self._acks, text + b"\n")
        except OSError as error:
            raise self.failure(error.strerror or "") from None

    @contextmanager
    def open_promises(self) -> Iterator[Promises]:
        """Where a writer writes its promises itself: each is in the log when its write(2) returns.

        Raises RunFailure ``log`` when the recorder has died.
        """
        try:
            lines = os.open(self.folder / ACK_FILE, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            raise self.failure(error.strerror or "") from None
        try:
            yield Promises(lines)
        finally:
            os.close(lines)

    def hearing_syncs(self) -> list[str]:
        """The argv prefix by which a program's sync(2) and syncfs(2) are in the log, too."""
        return [str(require_native("diskproof-syncs")), "--folder", str(self.folder), "--"]

    def require_alive(self) -> None:
        """Raises RunFailure ``log`` when the recorder has died."""
        if self.process.poll() is not None:
            raise self.failure("it ended before it was told to")

    def require_room(self) -> None:
        """Raises RunFailure ``space`` when there is no more for what is written: the recorder or
        the kernel then refuses it."""
        room = os.statvfs(self.log.parent)
        if room.f_bavail * room.f_frsize < _LARGEST_WRITE:
            where = "its disk is full: " + os.strerror(errno.ENOSPC)
            raise RunFailure("space", "the recording of the disk's folder broke off", where)
        if tells_no_space(self.process.read_log(2000).decode("utf-8", "replace")):
            raise self.failure("")

    def failure(self, why: str) -> RunFailure:
        tail = self.process.read_log(2000).decode("utf-8", "replace").strip()
        text = "\n".join(filter(None, (why, *tail.splitlines()[-3:])))
        kind = "space" if tells_no_space(text) else "log"
        return RunFailure(kind, "the recording of the disk's folder broke off", text)


def require_fuse() -> None:
    """Raises HostError where no file system of FUSE can be mounted."""
    if not FUSE_DEVICE.exists():
        why = f"{FUSE_DEVICE} is not there"
        raise HostError("nothing can be recorded on this host", why, "modprobe fuse")
    if not os.access(FUSE_DEVICE, os.R_OK | os.W_OK):
        hint = "run as root, or make yourself a member of its group"
        raise HostError("nothing can be recorded on this host", f"{FUSE_DEVICE} is denied", hint)


@contextmanager
def start_recording(files: Path, room: Path, *, callers: bool = False) -> Iterator[Recording]:
    """Record the folder ``files`` for the length of a ``with`` block.

    ``room`` is an existing folder on a file system with space for the log; mount point and log
    are made in it. With ``callers`` the log says who asked for each change, and where in
    its program. Raises HostError when
    the folder cannot be recorded.
    """
    require_fuse()
    folder, log = room / "recorded", room / LOG
    folder.mkdir()
    read_ready, ready = os.pipe()
    argv = [
        str(require_native("diskproof-recordfs")),
        *("--log", str(log), "--foreground", *(["--callers", "--stacks"] if callers else [])),
        *(str(files), str(folder)),
    ]
    with ExitStack() as stack:
        stack.callback(os.close, read_ready)
        with os.fdopen(ready, "wb") as stdout:
            starting = start_process(
                argv,
                name="diskproof-recordfs",
                log=room / RECORDER_LOG,
                cwd=room,
                stdout=stdout,
            )
            process = stack.enter_context(starting)
        _await_mount(read_ready, process, files)
        acks = os.open(folder / ACK_FILE, os.O_WRONLY | os.O_CLOEXEC)
        stack.callback(os.close, acks)
        recording = Recording(folder, log, process, acks)
        yield recording
        recording.require_alive()
    _require_unmounted(folder)


def _await_mount(stream: int, process: Process, files: Path) -> None:
    """Wait for the recorder's first line, which says that the folder is there."""
    deadline = time.monotonic() + MOUNT_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        if select.select([stream], [], [], left)[0]:
            if os.read(stream, 4096):
                return
            break
    process.wait(1.0)
    tail = process.read_log(2000).decode("utf-8", "replace").strip().splitlines()[-3:]
    why = "\n".join(tail) or f"it is not there after {MOUNT_SECONDS:.0f} s"
    raise HostError(f"the folder {files} cannot be recorded", why, "`diskproof doctor` tells more")


def _require_unmounted(folder: Path) -> None:
    if folder.is_mount():
        raise RunFailure("log", f"{folder} is still mounted", "its recorder is gone")
