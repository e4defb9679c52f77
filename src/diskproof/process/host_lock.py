"""One measurement at a time on a host: a lock that lives in the kernel and in no file system.

It is flock(2) on the time namespace, which every process of a host has open to it
(/proc/self/ns/time, time_namespaces(7)) and practically all containers share, whatever else they
have of their own. There is no file that could be stale, removed or somebody else's; the lock is
gone with its holder, however that ends; and who has it tells the kernel (/proc/locks), not the
holder. ``DISKPROOF_LOCK=FILE`` names a file to lock instead: for storage that several hosts share.
"""

import fcntl
import os
import pwd
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from diskproof.errors import HostError
from diskproof.units import render_seconds

VARIABLE = "DISKPROOF_LOCK"
_NAMESPACES = ("/proc/self/ns/time", "/proc/self/ns/user")
"""Before Linux 5.6 there is no time namespace: containers with users of their own are not seen."""
_LOCKS = Path("/proc/locks")
_TELL_SECONDS = 60.0
_TRIES = 5
_MAX_COMMAND = 200

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Holder:
    """Who has the lock. ``since`` is when the process began, a Unix time; None, and the texts
    empty, where /proc does not show it to us."""

    pid: int
    user: str = ""
    command: str = ""
    since: float | None = None

    @property
    def text(self) -> str:
        known = [f"process {self.pid}"]
        if self.since is not None:
            ago = render_seconds(max(0.0, time.time() - self.since))
            known.append(f"of {self.user}, for {ago}")
        return " ".join(known) + (f": {self.command}" if self.command else "")


@contextmanager
def start_alone(wait: bool, tell: Tell) -> Iterator[None]:
    """No other measurement runs on this host until the block ends; with ``wait`` it is queued for,
    and ``tell`` hears behind whom. Raises HostError."""
    with _locked(fcntl.LOCK_EX, wait, tell):
        yield


@contextmanager
def start_beside(boot_id: str) -> Iterator[None]:
    """Work that would spoil a measurement, and may run beside its like: for a host with
    ``boot_id``, whose own lock covers it where that is this one. Raises HostError."""
    if boot_id == read_boot_id():
        yield
        return
    with _locked(fcntl.LOCK_SH, False, print):
        yield


def read_boot_id() -> str:
    """The same for all processes of a host until it boots again."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@contextmanager
def _locked(how: int, wait: bool, tell: Tell) -> Iterator[None]:
    handle = _open()
    try:
        if not _take(handle, how):
            if not wait:
                raise _refusal(find_holder(handle))
            _queue(handle, how, tell)
        yield
    finally:
        os.close(handle)


def _open() -> int:
    """What is locked. A file in /tmp may be another user's: then it can be opened, not made."""
    time_or_user = next(filter(os.path.exists, _NAMESPACES), _NAMESPACES[0])
    name = os.environ.get(VARIABLE) or time_or_user
    try:
        try:
            return os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            if name in _NAMESPACES:
                raise
            return os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        what = "whether something else measures on this host cannot be told"
        why = f"{name}: {error.strerror}"
        hint = f"name a file that all who measure here can read: {VARIABLE}=FILE"
        raise HostError(what, why, hint) from error


def _take(handle: int, how: int) -> bool:
    """Whether it is ours now. One that nobody is seen to have may just have been given back."""
    for _ in range(_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(handle, how | fcntl.LOCK_NB)
            return True
        if find_holder(handle):
            return False
        time.sleep(0.01)
    return False


def _queue(handle: int, how: int, tell: Tell) -> None:
    """Wait as the kernel has queued us, and tell now and then for whom and how long."""
    began, done = time.monotonic(), threading.Event()

    def keep_telling() -> None:
        while not done.wait(_TELL_SECONDS):
            waited = render_seconds(time.monotonic() - began)
            tell(f"waiting for {waited}, now for {_name(find_holder(handle))}")

    tell(f"waiting for {_name(find_holder(handle))}")
    teller = threading.Thread(target=keep_telling, daemon=True)
    teller.start()
    try:
        fcntl.flock(handle, how)
    finally:
        done.set()
        teller.join()
    tell(f"waited {render_seconds(time.monotonic() - began)}")


def find_holder(handle: int) -> Holder | None:
    """Who has the lock of an open file; None when nobody is seen to have it: /proc/locks leaves
    out who is in a container that we are not in. proc_locks(5)."""
    seen = os.fstat(handle)
    mine = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    for line in _LOCKS.read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and words[5] == mine:  # a waiter has an arrow there
            return _describe(int(words[4]))
    return None


def _describe(pid: int) -> Holder:
    try:
        process = psutil.Process(pid)
        user, argv = process.uids().real, process.cmdline()
        return Holder(pid, _user_name(user), _command(argv), process.create_time())
    except psutil.Error:
        return Holder(pid)


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _command(argv: list[str]) -> str:
    """As it was typed. Anybody may have started it: what could move a cursor is not shown."""
    names = [Path(word).name for word in argv[:4]]
    first = names.index("diskproof") if "diskproof" in names else 0
    text = " ".join([*names[first : first + 1], *argv[first + 1 :]])[:_MAX_COMMAND]
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _name(holder: Holder | None) -> str:
    return holder.text if holder else "a process that cannot be seen from here"


def _refusal(holder: Holder | None) -> HostError:
    what = f"this host is being measured already, by {_name(holder)}"
    why = "two measurements at a time would spoil each other, wherever they write to"
    if holder is None:
        why += "; another container has it, or it has just begun"
        return HostError(what, why, "--wait queues; the host itself sees who: cat /proc/locks")
    able = " or ".join(dict.fromkeys([holder.user or "its user", "root"]))
    who = "" if os.geteuid() == 0 else f" (as {able})"
    return HostError(what, why, f"--wait queues behind it; to end it: kill {holder.pid}{who}")
