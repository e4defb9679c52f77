"""Check a crash state's disk in a fresh guest: ``python -m ...guest_state WRITER IMAGE``.

The image is copied (a recovery writes), its file system mounted, which recovers its journal, what
the writer left is read, and the file system is checked by its own tool. Exit codes and promises
as in ``command``. Before the first promise nothing is asked of a state.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from diskproof.crash.writers import guest_pool, postgres, postgres_guest, sqlite
from diskproof.crash.writers import promised_rows as rows
from diskproof.crash.writers.command import USAGE, fail, read_acks, tell
from diskproof.crash.writers.guest_disk import (
    LEDGER,
    MOUNT_POINT,
    load_modules,
    mount,
    state_machine,
)
from diskproof.crash.writers.promised_rows import CORRUPTS, KEEPS, LOSES, Found
from diskproof.crash.writers.sqlite_guest import DATABASE
from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import Guest, start_guest
from diskproof.guest.ours.build import require_guest
from diskproof.process.owner import admit, hand_over
from diskproof.process.scratch import start_scratch_dir
from diskproof.process.start import run
from diskproof.study.crash import guest_extra

FSCK: Mapping[str, tuple[str, ...]] = {
    "ext4": ("e2fsck", "-f", "-n"),
    "xfs": ("xfs_repair", "-n"),
    "btrfs": ("btrfs", "check", "--readonly"),
    **guest_pool.FSCK,
}
_ACKS = "/tmp/acks"
_SECONDS = 120.0
_LEDGER_LINE = re.compile(r"ledger [0-9a-f]{16} \d{1,20}( \d{1,20} \d{1,20} [0-9a-f]{16})?")


def check_state(
    image: Path, form: str, file_system: str, writer: str, acks: Sequence[str], accel: str = "tcg"
) -> Found:
    """The verdict on an image. Raises RunFailure ``guest`` or ``qemu`` when no guest runs."""
    promises = _PROMISES[writer](acks)
    if not promises:
        return Found(KEEPS)
    if not image.is_file():
        return rows.all_lost(int(promises[-1].split()[-1]), f"{image} is not there")
    with (
        copied_image(image) as copy,
        start_scratch_dir() as room,
    ):
        machine = state_machine(copy.name, form, accel)
        files = require_guest(guest_extra(writer, file_system))
        folder = copy.parent
        with start_guest(files, machine, run_dir=room, disk_folder=folder) as guest:
            found = _look(guest, file_system, writer, promises)
            guest.power_off()
            return found


@contextmanager
def copied_image(image: Path) -> Iterator[Path]:
    """A copy with the same holes that QEMU's user may write, removed at the end."""
    with start_scratch_dir(large=True) as room:
        copy = room / "copy" / image.name
        copy.parent.mkdir()
        admit(copy.parent)
        argv = ["cp", "--reflink=auto", "--sparse=always", "--", str(image.absolute()), str(copy)]
        run(argv, timeout=_SECONDS)
        hand_over(copy)
        yield copy


def _look(guest: Guest, file_system: str, writer: str, promises: Sequence[str]) -> Found:
    disk = guest.started.disk
    if disk is None:
        raise RunFailure("guest", "the guest names no disk under test")
    load_modules(guest, file_system)
    try:
        mount(guest, disk.device, file_system)
    except RunFailure as failure:
        return Found(CORRUPTS, why=f"it cannot be mounted: {failure.why}")
    found = _LOOKS[writer](guest, promises)
    unmounted = guest.channel.exec(["umount", MOUNT_POINT], timeout=_SECONDS)
    if unmounted.exit.code != 0:
        return Found(CORRUPTS, why=f"it cannot be unmounted: {unmounted.stderr.decode()[:300]}")
    checked = guest.channel.exec([*FSCK[file_system], disk.device], timeout=_SECONDS)
    if checked.exit.code != 0:
        said = (checked.stdout + checked.stderr).decode("utf-8", "replace").strip()
        return Found(CORRUPTS, why=f"{FSCK[file_system][0]}: {said[-500:]}")
    return found


def ledger_promises(acks: Sequence[str]) -> list[str]:
    """The line that begins the ledger and the last one; none without a promise."""
    lines = [line for line in acks if _LEDGER_LINE.fullmatch(line)]
    begins = [line for line in lines if line.count(" ") == 5]
    promised = [line for line in lines if line.count(" ") == 2]
    return [begins[-1], promised[-1]] if begins and promised else []


def _look_ledger(guest: Guest, promises: Sequence[str]) -> Found:
    guest.channel.write_file(_ACKS, "".join(f"{line}\n" for line in promises).encode())
    argv = [LEDGER, "verify-files", MOUNT_POINT, "--acks", _ACKS]
    done = guest.channel.exec(argv, timeout=_SECONDS)
    lost, why = done.stdout.decode().strip(), done.stderr.decode("utf-8", "replace")[:300]
    if done.exit.code == LOSES and lost.isdigit():
        return Found(LOSES, int(lost), f"{lost} files of the ledger are lost")
    return Found(KEEPS) if done.exit.code == KEEPS else Found(CORRUPTS, why=why)


def sqlite_promises(acks: Sequence[str]) -> list[str]:
    return _last_promise(acks, sqlite.NAME)


def postgres_promises(acks: Sequence[str]) -> list[str]:
    return _last_promise(acks, postgres.NAME)


def _last_promise(acks: Sequence[str], writer: str) -> list[str]:
    promised = rows.read_promised(acks, writer)
    return [rows.promise_line(writer, promised)] if promised else []


def _look_sqlite(guest: Guest, promises: Sequence[str]) -> Found:
    """The guest's own program recovers and checks; we count its rows."""
    promised = rows.read_promised(promises, sqlite.NAME)
    if guest.channel.exec(["test", "-s", DATABASE], timeout=_SECONDS).exit.code != 0:
        return rows.all_lost(promised, f"{DATABASE} is not there")
    script = f"PRAGMA integrity_check;\n{rows.SELECT};\n"
    argv = ["sqlite3", "-batch", "-bail", DATABASE]
    done = guest.channel.exec(argv, timeout=_SECONDS, stdin=script.encode())
    text, why = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    said, _, table = text.partition("\n")
    if said == "ok" and "no such table" in why:
        return rows.all_lost(promised, "the table is not there")
    if done.exit.code != 0 or said != "ok":
        return Found(CORRUPTS, why=f"integrity_check: {said[:300]} {why[:300]}")
    left = re.findall(r"^(\d{1,18})\|(.*)$", table, re.ASCII | re.MULTILINE)
    return rows.judge_rows({int(number): content for number, content in left}, promised)


_PROMISES: Mapping[str, Callable[[Sequence[str]], list[str]]] = {
    "ledger-fs": ledger_promises,
    "sqlite": sqlite_promises,
    "postgres": postgres_promises,
}
_LOOKS: Mapping[str, Callable[[Guest, Sequence[str]], Found]] = {
    "ledger-fs": _look_ledger,
    "sqlite": _look_sqlite,
    "postgres": postgres_guest.look,
}


def main(arguments: Sequence[str]) -> int:
    """The program; gives its exit code."""
    parser = argparse.ArgumentParser(prog="guest_state")
    parser.add_argument("writer", choices=_LOOKS)
    parser.add_argument("image", type=Path)
    parser.add_argument("--format", default="raw")
    parser.add_argument("--filesystem", choices=FSCK, default="ext4")
    parser.add_argument("--accel", default="tcg")
    parser.add_argument("--acks", type=Path)
    try:
        options = parser.parse_args(arguments)
    except SystemExit as end:
        return USAGE if end.code else 0
    try:
        acks = read_acks(options.acks)
        where = (options.image, options.format, options.filesystem)
        return tell(check_state(*where, options.writer, acks, options.accel))
    except Exception as error:  # noqa: BLE001 - Python's own exit code 1 would say: lost
        return fail(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
