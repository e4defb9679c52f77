"""Check crash states of a disk in guests: ``python -m ...guest_state WRITER NAME``.

A check that stays: a line for each state in, its verdict out; which guest judges it is told in
``state_guests``. The file system of the image NAME is mounted, which recovers its journal, what the
writer left is read, and the file system is checked by its own tool. Before the first promise
nothing is asked of a state.
"""

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from diskproof.crash.writers import guest_pool, postgres, postgres_guest, program_look, sqlite
from diskproof.crash.writers import promised_rows as rows
from diskproof.crash.writers.command import USAGE, answer_lines, fail, read_acks
from diskproof.crash.writers.guest_disk import LEDGER, MOUNT_POINT, mount
from diskproof.crash.writers.promised_rows import CORRUPTS, KEEPS, LOSES, Found
from diskproof.crash.writers.sqlite_guest import DATABASE
from diskproof.crash.writers.state_guests import Disk, StateGuests, start_state_guests
from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import Guest
from diskproof.study.crash import guest_extra

FSCK: Mapping[str, tuple[str, ...]] = {
    "ext4": ("e2fsck", "-f", "-n"),
    "xfs": ("xfs_repair", "-n"),
    "btrfs": ("btrfs", "check", "--readonly"),
    "f2fs": ("fsck.f2fs", "-f", "--dry-run"),
    **guest_pool.FSCK,
}
_ACKS = "/tmp/acks"
_SECONDS = 120.0
_LEDGER_LINE = re.compile(r"ledger [0-9a-f]{16} \d{1,20}( \d{1,20} \d{1,20} [0-9a-f]{16})?")


class Judge(NamedTuple):
    """``promises`` chooses what the check in a guest needs of them; the last word of the last tells
    how many there were. ``look`` judges a mounted file system by them, in a guest with ``extra``;
    one that ``stays`` leaves nothing in the guest that the next could see.
    """

    promises: Callable[[Sequence[str]], list[str]]
    look: Callable[[Guest, Sequence[str]], Found]
    extra: str = ""
    stays: bool = True


def check_state(
    image: Path, file_system: str, judge: Judge, acks: Sequence[str], guests: StateGuests
) -> Found:
    """The verdict on an image. Raises RunFailure ``guest`` or ``qemu`` when no guest runs."""
    promises = judge.promises(acks)
    if not promises:
        return Found(KEEPS)
    if not image.is_file():
        last = promises[-1].split()[-1:]
        lost = int(last[0]) if last and last[0].isdecimal() else len(promises)
        return rows.all_lost(lost, f"{image} is not there")
    return guests.judge(image, partial(_look, file_system, judge, promises))


def _look(
    file_system: str, judge: Judge, promises: Sequence[str], guest: Guest, device: str
) -> Found:
    try:
        mount(guest, device, file_system)
    except RunFailure as failure:
        return Found(CORRUPTS, why=f"it cannot be mounted: {failure.why}")
    found = judge.look(guest, promises)
    unmounted = guest.channel.exec(["umount", MOUNT_POINT], timeout=_SECONDS)
    if unmounted.exit.code != 0:
        return Found(CORRUPTS, why=f"it cannot be unmounted: {unmounted.stderr.decode()[:300]}")
    checked = guest.channel.exec([*FSCK[file_system], device], timeout=_SECONDS)
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


_JUDGES: Mapping[str, Judge] = {
    "ledger-fs": Judge(ledger_promises, _look_ledger),
    "sqlite": Judge(sqlite_promises, _look_sqlite),
    "postgres": Judge(postgres_promises, postgres_guest.look, guest_extra("postgres", "")),
}


def main(arguments: Sequence[str]) -> int:
    """The program; gives its exit code."""
    parser = argparse.ArgumentParser(prog="guest_state")
    parser.add_argument("writer", choices=(*_JUDGES, program_look.NAME))
    parser.add_argument("image")
    parser.add_argument("--format", default="raw")
    parser.add_argument("--filesystem", choices=FSCK, default="ext4")
    parser.add_argument("--accel", default="tcg")
    parser.add_argument("--root", default="")
    parser.add_argument("--check", default="")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as end:
        return USAGE if end.code else 0
    try:
        look = partial(program_look.look, shlex.split(options.check))
        judge = _JUDGES.get(options.writer, Judge(list, look, options.root, stays=False))
        kind = options.filesystem
        extra = guest_extra("", kind, judge.extra)
        disk = Disk(options.format, kind, options.accel, extra, judge.stays)
        with start_state_guests(disk) as guests:
            answer_lines(
                lambda folder, acks: check_state(
                    folder / options.image, kind, judge, read_acks(acks), guests
                )
            )
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no verdict
        return fail(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
