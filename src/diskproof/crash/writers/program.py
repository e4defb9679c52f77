"""Anybody's program in a guest: a folder of its own on the disk under test, and its own check."""

import io
import shlex
import tarfile
from pathlib import Path

from diskproof.crash.writers import WriterContext, guest_disk
from diskproof.crash.writers.ledger_fs import guest_check
from diskproof.crash.writers.program_end import require_written
from diskproof.crash.writers.program_look import FOLDER, NAME
from diskproof.guest.ours.boot import Guest
from diskproof.records import Cell

_BROUGHT = "/tmp/brought.tar"
_PIECE = 512 << 10
"""A request of the guest's channel takes a little more."""
_PROMISING = ("sh", "-c", 'exec "$@" >&3', "sh")
"""Descriptor 3 is where the agent takes promises."""


class ProgramWriter:
    """The writer ``program``: the cell's options ``folder``, ``writer``, ``check`` and ``root``."""

    def prepare(self, cell: Cell, folder: Path) -> None:
        """Nothing: all of it is made under record."""

    def write(self, context: WriterContext) -> None:
        """What still writes when its time is over is killed. Raises RunFailure ``guest``,
        ``workload`` or ``space``."""
        spec = context.cell.workload
        guest = (drive := guest_disk.require_guest_drive(context.drive, spec.name)).guest
        kind, options = spec.option("filesystem"), spec.option("mount")
        guest_disk.make_file_system(guest, drive.disk.device, kind, options)
        bring_folder(guest, Path(spec.option("folder")))
        done = guest.channel.exec(
            [*_PROMISING, *shlex.split(spec.option("writer"))],
            timeout=min(float(spec.option("seconds")), context.seconds),
            cwd=FOLDER,
            acks=True,
            on_ack=guest_disk.promise_to(context.recording),
        )
        if not done.exit.timed_out:
            status = done.exit.code if done.exit.code is not None else -(done.exit.signal or 0)
            require_written(NAME, status, done.stderr)

    def check(self, cell: Cell) -> dict[str, object]:
        """Mounted in a fresh guest, which recovers the journal; the program's own check there, and
        fsck."""
        asked, option = guest_check(cell, NAME), cell.workload.option
        more = ["--root", option("root"), "--check", option("check")]
        return {**asked, "argv": [*_words(asked["argv"]), *more]}


WRITER = ProgramWriter()


def _words(argv: object) -> list[str]:
    assert isinstance(argv, list)
    return argv


def bring_folder(guest: Guest, folder: Path) -> None:
    """A durable copy of a folder of this host on the mounted disk. Raises RunFailure ``guest``."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(folder, ".")
    content = packed.getvalue()
    for start in range(0, len(content), _PIECE):
        piece = content[start : start + _PIECE]
        guest_disk.require_done(guest, ["sh", "-c", f"cat >> {_BROUGHT}"], stdin=piece)
    guest_disk.require_done(guest, ["mkdir", FOLDER])
    guest_disk.require_done(guest, ["tar", "-xpf", _BROUGHT, "-C", FOLDER, "--no-same-owner"])
    guest_disk.require_done(guest, ["rm", _BROUGHT])
    guest_disk.require_done(guest, ["sync"])
