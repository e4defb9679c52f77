"""Anybody's check of its program's folder, in the guest that has mounted a state."""

import signal
from collections.abc import Sequence

from diskproof.crash.writers.command import ACKNOWLEDGED
from diskproof.crash.writers.guest_disk import MOUNT_POINT
from diskproof.crash.writers.program_end import CRASHES
from diskproof.crash.writers.promised_rows import CORRUPTS, KEEPS, LOSES, Found
from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import Guest
from diskproof.guest.ours.channel import GuestGone
from diskproof.guest.ours.jobs import GuestExecution

NAME = "program"
FOLDER = f"{MOUNT_POINT}/data"
_ACKS = "/tmp/acknowledged"
_SECONDS = 120.0
_FIND = 'case $1 in */*) test -s "$1" && test -x "$1" ;; *) command -v -- "$1" ;; esac'
VARIABLES = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "PAGER": "cat",
    "TERM": "dumb",
}


def look(argv: Sequence[str], guest: Guest, promises: Sequence[str]) -> Found:
    """What the check says of the folder. Raises RunFailure ``tool`` when it fails."""
    if guest.channel.exec(["test", "-d", FOLDER], timeout=_SECONDS).exit.code != 0:
        return Found(CORRUPTS, why=f"{FOLDER} is not there")
    guest.channel.write_file(_ACKS, "".join(f"{line}\n" for line in promises).encode())
    variables = {ACKNOWLEDGED: _ACKS, **VARIABLES}
    try:
        return _read(guest.channel.exec(argv, timeout=_SECONDS, cwd=FOLDER, env=variables))
    except GuestGone:
        raise
    except RunFailure:
        if is_startable(guest, argv[0]):
            raise
        # The writer's guest had it, durable, before the first promise.
        return Found(CORRUPTS, why=f"{argv[0]} is not there as it was brought")


def is_startable(guest: Guest, program: str) -> bool:
    """Whether the guest has a program, from the folder on."""
    argv = ["sh", "-c", _FIND, "sh", program]
    return guest.channel.exec(argv, timeout=_SECONDS, cwd=FOLDER, env=VARIABLES).exit.code == 0


def _read(done: GuestExecution) -> Found:
    """As for checks on the host: 0 keeps, 1 loses with a count (nothing said: one), 2 or a crash of
    its own corrupts; all else fails."""
    said = done.stdout.decode("utf-8", "replace").strip()
    why = (done.stderr.decode("utf-8", "replace").strip() or said)[-500:]
    number = done.exit.signal or 0
    if number in CRASHES:
        return Found(CORRUPTS, why=f"the check crashed with {signal.Signals(number).name}\n{why}")
    if done.exit.code == KEEPS:
        return Found(KEEPS)
    if done.exit.code == CORRUPTS:
        return Found(CORRUPTS, why=why)
    count = said.split()[0] if said else "" if why else "1"
    if done.exit.code == LOSES and count.isdecimal() and len(count) < 19:
        return Found(LOSES, int(count), why)
    if done.exit.timed_out:
        raise RunFailure("tool", f"the check did not end within {_SECONDS:.0f} s")
    how = f"signal {number}" if number else f"status {done.exit.code}"
    raise RunFailure("tool", f"the check ended with {how}", why)
