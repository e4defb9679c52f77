"""A directory of the host's file systems."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from diskproof.errors import HostError
from diskproof.proc import CONFINED_UID
from diskproof.records import BackingFacts, BackingSpec

RUN_PREFIX = "diskproof-run-"
PROBE_PREFIX = "diskproof-probe-"
LOCK_NAME = "lock"
_BLOCK = 4096
_OTHER_PATH = "set another path in the study's [backings.NAME]"
_HINTS = {
    errno.EROFS: f"its file system is mounted read-only; {_OTHER_PATH}",
    errno.EACCES: f"you may not write there; {_OTHER_PATH}",
    errno.ENOTDIR: f"it must be a directory; {_OTHER_PATH}",
    errno.ENOSPC: "its file system is full; free some space there",
}


class DirectoryBacking:
    """``kind = "directory"``, option ``path``; made when missing."""

    def probe(self, spec: BackingSpec) -> BackingFacts:
        """Raises HostError when nothing can be written there."""
        with _ensured_folder(spec) as folder, _explained(folder):
            o_direct, reason = probe_direct(folder)
            stat = os.statvfs(folder)
            return BackingFacts(
                path=str(folder),
                filesystem=find_filesystem(folder),
                o_direct=o_direct,
                o_direct_reason=reason,
                free_bytes=stat.f_bavail * stat.f_frsize,
            )

    @contextmanager
    def start_run_dir(self, spec: BackingSpec) -> Iterator[Path]:
        """Ours, and QEMU's user may enter it; its lock is held for its life."""
        with _ensured_folder(spec) as folder:
            with _explained(folder):
                path, lock = _new_run_dir(folder)
            try:
                yield path
            finally:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


BACKING = DirectoryBacking()


def probe_direct(folder: Path) -> tuple[bool, str]:
    """Whether O_DIRECT works in a folder, by writing one aligned block, and if not, why."""
    try:
        # Anonymous memory is aligned to a page.
        with _probe_file(folder) as path, mmap.mmap(-1, _BLOCK) as block:
            handle = os.open(path, os.O_RDWR | os.O_DIRECT)
            try:
                os.pwrite(handle, block, 0)
            finally:
                os.close(handle)
        return True, ""
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        return False, f"{find_filesystem(folder)} on {folder} refuses it ({error.strerror})"


@contextmanager
def _probe_file(folder: Path) -> Iterator[str]:
    """A file to open; without a name, so that nothing is left of it when we are killed. File
    systems without O_TMPFILE give it one."""
    try:
        handle, name = os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600), ""
    except OSError:
        handle, name = tempfile.mkstemp(prefix=PROBE_PREFIX, dir=folder)
    try:
        yield name or f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
        if name:
            Path(name).unlink(missing_ok=True)


def find_filesystem(folder: Path) -> str:
    """The type of the file system that holds a folder: the last mount of its device.

    btrfs subvolumes have devices of their own; there the longest mount point above decides.
    """
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    best, best_length = "unknown", -1
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        fields, _, rest = line.partition(" - ")
        _, _, number, _, mount_point = fields.split()[:5]
        kind = rest.split()[0]
        if number == wanted:
            best, best_length = kind, 1 << 30
        elif _is_above(mount_point, folder) and len(mount_point) >= best_length:
            best, best_length = kind, len(mount_point)
    return best


def _is_above(mount_point: str, folder: Path) -> bool:
    """mountinfo writes space, tab, newline and backslash in octal."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        mount_point = mount_point.replace(code, char)
    return folder.is_relative_to(mount_point)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """An OSError as what the user can do about it."""
    try:
        yield
    except OSError as error:
        raise HostError(
            f"the disks under test cannot be kept in {folder}",
            error.strerror or str(error),
            _HINTS.get(error.errno or 0, _OTHER_PATH),
        ) from error


@contextmanager
def _ensured_folder(spec: BackingSpec) -> Iterator[Path]:
    """The backing's folder; what was made for it goes again while it is empty."""
    folder = Path(spec.option("path", "diskproof-images")).absolute()
    made = []
    with _explained(folder):
        for path in (folder, *folder.parents):
            if path.exists():
                break
            made.append(path)
        for path in reversed(made):
            path.mkdir(exist_ok=True)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    try:
        yield folder
    finally:
        with suppress(OSError):
            for path in made:
                path.rmdir()


def _new_run_dir(folder: Path) -> tuple[Path, int]:
    """The run's folder and its lock. The backing's own lock keeps the janitor out meanwhile."""
    backing = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(backing, fcntl.LOCK_SH)
        path = Path(tempfile.mkdtemp(prefix=RUN_PREFIX, dir=folder))
        lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(backing)
    if os.geteuid() == 0:
        # QEMU may enter and open its image, no more. The folder stays ours: the janitor leaves
        # others' alone, and nobody else can put a link where we write.
        os.chown(path, -1, CONFINED_UID)
        path.chmod(0o710)
    return path, lock
