"""A private folder that is locked while its owner lives, and gone after it.

The kernel drops the lock with the owner, however it ends: the janitor removes the folders whose
lock nobody holds any more.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from diskproof.errors import HostError
from diskproof.process.owner import admit

PREFIX = "diskproof-run-"
LOCK_NAME = "lock"
_LOCK_SECONDS = 30.0  # longer than a sweep takes that kills what a dead owner has left
_PAUSE = 0.02


def scratch_home() -> Path:
    """Where temporary files are made."""
    return Path(tempfile.gettempdir())


@contextmanager
def start_scratch_dir() -> Iterator[Path]:
    """A locked folder for work beside the runs. Raises HostError."""
    home = scratch_home()
    with ExitStack() as stack:
        try:
            path = stack.enter_context(start_locked_dir(home))
        except OSError as error:
            hint = "make room, or name another folder: TMPDIR=DIR"
            what = f"no temporary folder can be made in {home}"
            raise HostError(what, error.strerror or str(error), hint) from error
        yield path


@contextmanager
def start_locked_dir(parent: Path) -> Iterator[Path]:
    """Ours, and QEMU's user may enter it; its file ``lock`` is held for its life.

    Raises OSError, and HostError when somebody else keeps ``parent`` locked.
    """
    path, lock = _make(parent)
    try:
        yield path
    finally:
        _remove(path)
        os.close(lock)


def _make(parent: Path) -> tuple[Path, int]:
    """The folder and its lock. The parent's own lock keeps the janitor out meanwhile."""
    handle = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with ExitStack() as undo:
        try:
            _lock_shared(handle, parent)
            path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            undo.callback(_remove, path)
            lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            undo.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(handle)
        # QEMU may enter and open its image, no more. The folder stays ours: the janitor leaves
        # others' alone, and nobody else can put a link where we write.
        admit(path)
        undo.pop_all()
    return path, lock


def _lock_shared(handle: int, folder: Path) -> None:
    """Anyone may lock the folder of temporary files: it is not waited for for ever."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                why = f"another program has kept it locked for {_LOCK_SECONDS:.0f} s"
                hint = "see which one: lslocks"
                raise HostError(f"{folder} cannot be used", why, hint) from None
            time.sleep(_PAUSE)


def _remove(path: Path) -> None:
    """The lock goes last: with it goes what tells the janitor that the rest is ours."""
    with suppress(OSError):
        for entry in path.iterdir():
            if entry.name == LOCK_NAME:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        if {entry.name for entry in path.iterdir()} <= {LOCK_NAME}:
            shutil.rmtree(path, ignore_errors=True)
