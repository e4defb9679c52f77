"""Anybody's program in a guest: a folder of its own on the disk under test, and its own check."""

import io
import shlex
import tarfile
from collections.abc import Sequence
from pathlib import Path

from diskproof.crash.real_fs import NEIGHBOUR, between_args
from diskproof.crash.writers import WriterContext, guest_disk
from diskproof.crash.writers.guest_disk import MOUNT_POINT
from diskproof.crash.writers.ledger_fs import guest_check
from diskproof.crash.writers.program_look import FOLDER, NAME, VARIABLES, is_startable
from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import Guest
from diskproof.records import Cell
from diskproof.study.crash import BESIDE

_BROUGHT = "/tmp/brought.tar"
_PIECE = 512 << 10
"""A request of the guest's channel takes a little more."""
_PREPARE_SECONDS = 300.0
_PAUSE = "100"
"""Milliseconds: in an emulated guest a program takes as long from one operation to the next as on
the host only where it waits."""
_MAKE_NEIGHBOUR = f"""touch {MOUNT_POINT}/{NEIGHBOUR}
chmod 0400 {MOUNT_POINT}/{NEIGHBOUR}
ln {MOUNT_POINT}/{NEIGHBOUR} {MOUNT_POINT}/{NEIGHBOUR}-too
"""
"""With two names, for f2fs: its fsync of such a file is a checkpoint, of any other a record of that
file alone."""


class ProgramWriter:
    """The writer ``program``: the cell's options ``folder``, ``prepare``, ``writer``, ``check`` and
    ``root``."""

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
        argv = shlex.split(spec.option("writer"))
        require_startable(guest, argv[0], shlex.split(spec.option("check"))[0])
        prepare_folder(guest, shlex.split(spec.option("prepare")), spec.name)
        if context.cell.level(BESIDE):
            between = between_args(guest_disk.WRITEBACK, context.cell, "--pause", _PAUSE)
            argv = [*between, *argv]
        seconds = min(float(spec.option("seconds")), context.seconds)
        done = guest_disk.run_promising(drive, argv, seconds, cwd=FOLDER, env=VARIABLES)
        if not done.exit.timed_out:
            guest_disk.require_ended(context, done)

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
    """A copy of a folder of this host on the mounted disk. Raises RunFailure ``guest``."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(folder, ".")
    content = packed.getvalue()
    for start in range(0, len(content), _PIECE):
        piece = content[start : start + _PIECE]
        guest_disk.require_done(guest, ["sh", "-c", f"cat >> {_BROUGHT}"], stdin=piece)
    guest_disk.require_done(guest, ["mkdir", FOLDER])
    guest_disk.require_done(guest, ["sh", "-euc", _MAKE_NEIGHBOUR])
    guest_disk.require_done(guest, ["tar", "-xpf", _BROUGHT, "-C", FOLDER, "--no-same-owner"])
    guest_disk.require_done(guest, ["rm", _BROUGHT])


def require_startable(guest: Guest, *programs: str) -> None:
    """Raises RunFailure ``workload`` for what is no program in the guest, from the folder on."""
    for program in programs:
        if not is_startable(guest, program):
            why = "neither the folder nor the guest's packages have it as an executable"
            hint = "put it into the folder, or name the package that has it: --packages"
            raise RunFailure("workload", f"the guest has no program {program}", why, hint)


def prepare_folder(guest: Guest, argv: Sequence[str], name: str) -> None:
    """What is there before the first promise is durable. Raises RunFailure ``workload``."""
    if argv:
        done = guest.channel.exec(argv, timeout=_PREPARE_SECONDS, cwd=FOLDER, env=VARIABLES)
        if done.exit.code != 0:
            why = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-500:]
            raise RunFailure("workload", f"{name} cannot be prepared in the guest", why)
    guest_disk.require_done(guest, ["sync"])
