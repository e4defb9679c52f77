"""The user without rights that runs what root has started: an unused one, drawn for each run, and
for what a process of diskproof does beside its runs.

No account has it, no other process, and no other run: its number is locked in a folder of root's as
long as it is used. `nobody` would not do, for other services run as that: they could write
the disk under test and signal what serves it. The group has the same number.
"""

import fcntl
import grp
import os
import pwd
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import HostError

PRIVATE_HOME = Path("/run/diskproof")
"""Root's own: nobody else lists it or locks it. It is memory on most hosts."""
OURS = range(2_100_000_000, 2_100_065_536)
"""Above what systemd, shadow, FreeIPA and SSSD give to users and containers, below 2^31."""
FOR_SERVICES = range(61_184, 65_520)
"""What systemd draws users of services from; for containers that have 65,536 ids and no more."""
FORMER = 65_534
"""nobody: whom versions before 2026-12 ran as; what they left is still theirs."""
_TRIES = 64
_DRAWING = threading.Lock()


@dataclass(frozen=True)
class _Ids:
    """Of one process: its number, its parent's, all its user and all its group ids."""

    pid: int
    parent: int
    users: frozenset[int]
    groups: frozenset[int]

    def has(self, number: int) -> bool:
        return number in self.users or number in self.groups


@dataclass(frozen=True)
class _Drawn:
    """A number, and the lock that makes it ours: nothing if it is another process's."""

    number: int
    lock: int | None = None


_drawn: _Drawn | None = None


def require_run_user() -> int:
    """The number of user and group; ours where we are not root. Raises HostError where none can
    be had."""
    global _drawn
    if os.geteuid() != 0:
        return os.geteuid()
    with _DRAWING:
        if _drawn is None:
            _drawn = _draw()
        return _drawn.number


@contextmanager
def start_run_user() -> Iterator[None]:
    """For the length of a block there is another user, drawn when it is first asked for: whatever
    an earlier run has left behind is another's."""
    before = _put(None)
    try:
        yield
    finally:
        ours = _put(before)
        if ours and ours.lock is not None:
            os.close(ours.lock)


def _put(drawn: _Drawn | None) -> _Drawn | None:
    """Have another user from now on; gives the one before."""
    global _drawn
    with _DRAWING:
        before, _drawn = _drawn, drawn
    return before


def adopt_run_user(number: int) -> None:
    """Be one with the process that has drawn ``number`` and waits for us: who made the files that
    we work on. Raises HostError when that is no such number."""
    global _drawn
    if os.geteuid() == 0:
        if not is_run_user(number):
            raise HostError(
                f"user {number} is not one of diskproof's", "it was not drawn for a run"
            )
        _drawn = _Drawn(number)


def is_run_user(number: int) -> bool:
    """Whether a number is, or was, drawn by some diskproof of root's."""
    return number in OURS or number in FOR_SERVICES or number == FORMER


def require_alone() -> None:
    """Raises HostError when a process that is not ours has our user or group: it could read and
    write the disk under test, and signal what serves it."""
    if os.geteuid() != 0:
        return
    number = require_run_user()
    seen = list(_processes())
    family = {each.pid: each.parent for each in seen}
    foreign = [each.pid for each in seen if each.has(number) and not _is_ours(each.pid, family)]
    if foreign:
        why = f"process {foreign[0]} runs as {number}, and could change the disk under test"
        raise HostError("the user of this run is not alone", why, f"see: ps {foreign[0]}")


def _is_ours(pid: int, family: dict[int, int]) -> bool:
    """Whether we are above a process."""
    seen = set[int]()
    while pid in family and pid not in seen:
        if pid == os.getpid():
            return True
        seen.add(pid)
        pid = family[pid]
    return False


def require_private_home() -> Path:
    """Root's own folder, made if need be; others may pass it, no more, for who runs without rights
    finds its files there by name. Raises HostError when it is somebody else's, and OSError."""
    return _require_folder(PRIVATE_HOME, 0o711)


def _require_folder(folder: Path, mode: int) -> Path:
    folder.mkdir(mode=mode, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(handle).st_uid != 0:
            hint = f"see who made it: ls -ld {folder}"
            raise HostError(f"{folder} cannot be used", "it is not root's", hint)
        os.fchmod(handle, mode)
    finally:
        os.close(handle)
    return folder


def _draw() -> _Drawn:
    what = "no user without rights can be had"
    numbers = _mapped(OURS) or _mapped(FOR_SERVICES)
    if not numbers:
        why = "this user namespace has no numbers for it"
        raise HostError(what, why, "start the container with 65,536 ids, or outside of one")
    try:
        folder = _require_folder(require_private_home() / "users", 0o700)
        _remove_unlocked(folder)
        taken = list(_processes())
        for number in random.SystemRandom().sample(numbers, _TRIES):
            if any(each.has(number) for each in taken) or _is_account(number):
                continue
            if (lock := _lock(folder / str(number))) is not None:  # until the user is nobody's
                return _Drawn(number, lock)
    except OSError as error:
        why = f"{error.filename or PRIVATE_HOME}: {error.strerror}"
        raise HostError(what, why, f"root needs to write in {PRIVATE_HOME.parent}") from error
    raise HostError(what, f"{_TRIES} of {len(numbers)} numbers were all in use")


def _mapped(numbers: range) -> range:
    """The numbers, if users and groups of this namespace have them all; else none."""
    for name in ("uid_map", "gid_map"):
        lines = Path(f"/proc/self/{name}").read_text().splitlines()
        parts = [(int(first), int(count)) for first, _, count in map(str.split, lines)]
        if not any(first <= numbers[0] and numbers[-1] < first + count for first, count in parts):
            return range(0)
    return numbers


def _is_account(number: int) -> bool:
    with suppress(KeyError):
        pwd.getpwuid(number)
        return True
    with suppress(KeyError):
        grp.getgrgid(number)
        return True
    return False


def _lock(path: Path) -> int | None:
    """A locked descriptor, or None where somebody else has the file, or takes it away."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, 0o600)
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), path.stat()):
            return handle
    os.close(handle)
    return None


def _remove_unlocked(folder: Path) -> None:
    """Those of the dead go, each while it is locked."""
    for path in folder.iterdir():
        if (handle := _lock(path)) is not None:
            path.unlink()
            os.close(handle)


def _processes() -> Iterator[_Ids]:
    """All processes that can be seen (proc_pid_status(5)); one that ends meanwhile is left out, and
    so is a dead one that nobody has waited for: init may take its time over orphans."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError, KeyError, ValueError):
            text = (entry / "status").read_text(errors="replace")
            lines = (line.partition(":") for line in text.splitlines())
            told = {name: rest.split() for name, _, rest in lines}
            if told["State"][0] in "ZX" and int(told["Threads"][0]) < 2:
                continue
            groups = frozenset(map(int, (*told["Gid"], *told["Groups"])))
            yield _Ids(
                int(entry.name), int(told["PPid"][0]), frozenset(map(int, told["Uid"])), groups
            )
