"""Clean up after the dead: run folders that nobody owns any more, what stands on them, and the
settings of the host that are noted in them.

A run folder (``scratch.start_locked_dir``) is a private folder ``diskproof-run-*`` with a file
``lock`` that its owner keeps flock(2)ed while it lives. What does not look exactly so is not ours
and stays. A directory that somebody else has flocked (an owner between making a folder and locking
it, another sweep) is left to the next sweep.
"""

import errno
import fcntl
import os
import re
import select
import shutil
import signal
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from diskproof.backings.leftovers import remove_leftovers
from diskproof.errors import DiskproofError
from diskproof.host.ksm import restore_held_ksm
from diskproof.process.run_user import FORMER, is_run_user
from diskproof.process.scratch import LOCK_NAME, PREFIX
from diskproof.process.start import run

KILL_SECONDS = 5.0
FUSE_SOURCE = b"diskproof-"
"""How the sources of the mounts that our native programs make begin."""


@dataclass(frozen=True)
class Swept:
    """One folder of a dead owner. ``kept`` says why it is still there (empty: it is gone).

    ``killed`` are the processes that still worked in it.
    """

    path: Path
    kept: str = ""
    killed: tuple[int, ...] = ()


def sweep(directories: Iterable[Path]) -> tuple[Swept, ...]:
    """Remove the run folders of dead owners; says for each what became of it.

    A directory that is not there or cannot be read has nothing to sweep. Folders of living
    owners, other users' folders and symbolic links are not touched and not named.
    """
    return tuple(
        swept
        for directory in dict.fromkeys(directory.absolute() for directory in directories)
        for swept in _sweep_directory(directory)
    )


def _sweep_directory(directory: Path) -> list[Swept]:
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = [_sweep_one(directory, name) for name in _candidates(directory)]
        return [swept for swept in found if swept]
    except BlockingIOError:
        return []
    finally:
        os.close(handle)


def _candidates(directory: Path) -> list[str]:
    with suppress(OSError), os.scandir(directory) as entries:
        return sorted(
            entry.name
            for entry in entries
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False)
        )
    return []


def _sweep_one(directory: Path, name: str) -> Swept | None:
    path = directory / name
    try:
        with _open_at(None, str(path), os.O_RDONLY | os.O_DIRECTORY) as folder:
            if not _is_our_folder(os.fstat(folder).st_uid):
                return None
            with os.scandir(folder) as entries:
                empty = not any(entries)
            if empty:
                return _remove_empty(path)
            with _dead_owners_lock(folder) as dead:
                return _remove(path, folder) if dead else None
    except OSError as error:
        # Another sweep was faster, or it became something else: either way not ours to judge.
        gone = isinstance(error, FileNotFoundError | NotADirectoryError)
        return None if gone else Swept(path, f"it cannot be removed: {error.strerror}")


def _is_our_folder(owner: int) -> bool:
    """Ours; early versions gave root's folders away."""
    return owner == os.geteuid() or (os.geteuid() == 0 and owner == FORMER)


def _is_our_user(uid: int) -> bool:
    """We, or a user without rights that runs what root has started."""
    return uid == os.geteuid() or (os.geteuid() == 0 and is_run_user(uid))


@contextmanager
def _open_at(folder: int | None, name: str, flags: int) -> Iterator[int]:
    fd = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _dead_owners_lock(folder: int) -> Iterator[bool]:
    """True with the lock in our hand when nobody else holds it: then the owner is dead.

    A folder with other things and without a lock is not ours.
    """
    try:
        info = os.stat(LOCK_NAME, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        yield False
        return
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
        yield False
        return
    with _open_at(folder, LOCK_NAME, os.O_RDWR | os.O_NONBLOCK) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _remove_empty(path: Path) -> Swept | None:
    """A folder whose owner died before it made the lock, or after it removed it. One that makes
    the lock now keeps its folder, or makes another one."""
    try:
        path.rmdir()
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            return None
        raise
    return Swept(path)


def _remove(path: Path, folder: int) -> Swept:
    killed = tuple(pid for pid in _pids_inside(path) if _kill(pid, path))
    inside = path.resolve()
    for mount in reversed([each for each in _mounts() if each.point.is_relative_to(inside)]):
        if not (mount.is_ours and _detach(mount.point)):
            return Swept(path, f"{mount.point} is mounted; unmount it first", killed)
    if left := remove_leftovers(path) or restore_held_ksm(path):
        return Swept(path, left, killed)
    with _open_at(None, str(path.parent), os.O_RDONLY | os.O_DIRECTORY) as parent:
        seen = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
        if not os.path.samestat(seen, os.fstat(folder)):
            return Swept(path, "it was replaced while it was looked at", killed)
        _empty_all_but_lock(folder)
        shutil.rmtree(path.name, dir_fd=parent)
    return Swept(path, killed=killed)


def _empty_all_but_lock(folder: int) -> None:
    """A sweep that is killed leaves the lock: without it the rest would be nobody's for ever."""
    with os.scandir(folder) as entries:
        for entry in [each for each in entries if each.name != LOCK_NAME]:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.name, dir_fd=folder)
            else:
                os.unlink(entry.name, dir_fd=folder)


@dataclass(frozen=True)
class _Mount:
    """``is_ours``: a FUSE file system that one of our native programs served."""

    point: Path
    is_ours: bool


def _mounts() -> Iterator[_Mount]:
    """Mounts of this process, outer ones first (proc_pid_mountinfo(5): field 5 is the mount point
    with octal escapes; after the dash come type and source)."""
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        fields, _, rest = line.partition(b" - ")
        escaped = fields.split(b" ")[4]
        point = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), escaped)
        kind, source = rest.split(b" ")[:2]
        ours = kind.startswith(b"fuse") and source.startswith(FUSE_SOURCE)
        yield _Mount(Path(os.fsdecode(point)), ours)


def _detach(point: Path) -> bool:
    """Take a mount away whose server is dead or dies with us; who is in it keeps what it has."""
    argv = ["umount", "--lazy"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
    with suppress(DiskproofError):
        return run([*argv, "--", str(point)], timeout=KILL_SECONDS, check=False).returncode == 0
    return False


# -- processes of a dead owner --------------------------------------------------------------


def _pids_inside(path: Path) -> list[int]:
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal() and _is_ours_inside(int(entry.name), path)
    ]


def _is_ours_inside(pid: int, path: Path) -> bool:
    """A process that works in the folder, as our user or the confined one, with no terminal.
    One of the confined user's need only have a file there open: qemu-nbd leaves its folder.

    All that ``process`` starts has a session of its own and hence no terminal; a person's shell
    that looks into the folder has one and is left alone.
    """
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
        if not _is_our_user(uid):
            return False
        links = [Path(f"/proc/{pid}/cwd")]
        if uid != os.geteuid():
            links += Path(f"/proc/{pid}/fd").iterdir()
        inside = any(_leads_into(link, path.resolve()) for link in links)
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:  # it ended, or is another user's
        return False
    terminal = int(fields[4])  # tty_nr, proc_pid_stat(5)
    return inside and terminal == 0 and pid != os.getpid()


def _leads_into(link: Path, folder: Path) -> bool:
    with suppress(OSError):  # a descriptor that was closed meanwhile
        return link.readlink().is_relative_to(folder)
    return False


def _kill(pid: int, path: Path) -> bool:
    """End one process; the descriptor makes sure that it is still the one that was looked at."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            if not _is_ours_inside(pid, path):
                return False
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            return bool(select.select([handle], [], [], KILL_SECONDS)[0])
        finally:
            os.close(handle)
    return False
