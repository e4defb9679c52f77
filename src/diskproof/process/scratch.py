"""A private folder that is locked while its owner lives, and gone after it.

The kernel drops the lock with the owner, however it ends: the janitor removes the folders whose
lock nobody holds any more.
"""

import fcntl
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from diskproof.errors import HostError
from diskproof.process.owner import admit
from diskproof.process.run_user import PRIVATE_HOME, require_private_home
from diskproof.process.signals import signals_wait

PREFIX = "diskproof-run-"
LOCK_NAME = "lock"
_SECONDS = 5.0
_PAUSE = 0.01


def scratch_homes() -> tuple[Path, ...]:
    """Where folders for work beside the runs may be."""
    return (*([PRIVATE_HOME] if os.geteuid() == 0 else []), Path(tempfile.gettempdir()))


@contextmanager
def start_scratch_dir(*, large: bool = False) -> Iterator[Path]:
    """A locked folder for work beside the runs: root's is in ``PRIVATE_HOME`` unless TMPDIR names
    another one, or what is to lie there is ``large``. Raises HostError."""
    home = Path(tempfile.gettempdir())
    with ExitStack() as stack:
        try:
            if os.geteuid() == 0 and not large and "TMPDIR" not in os.environ:
                home = require_private_home()
            path = stack.enter_context(start_locked_dir(home))
        except OSError as error:
            hint = "make room, or name another folder: TMPDIR=DIR"
            what = f"no temporary folder can be made in {home}"
            raise HostError(what, error.strerror or str(error), hint) from error
        yield path


@contextmanager
def start_locked_dir(parent: Path) -> Iterator[Path]:
    """Ours, and QEMU's user may enter it; ``lock`` in it is held for its life. A signal does not
    come between what makes it, nor what takes it away. Raises OSError."""
    made: tuple[Path, int] | None = None
    try:
        with signals_wait():
            made = _make(parent)
        yield made[0]
    finally:
        if made:
            with signals_wait():
                _remove(made[0])
                os.close(made[1])


def _make(parent: Path) -> tuple[Path, int]:
    """The folder and its lock. A sweep may take a folder away before it is locked: the next one
    is made. The parent's own lock keeps sweeps out; anyone can hold that one, so it is no must."""
    handle = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            with suppress(FileNotFoundError, BlockingIOError):
                return _make_locked(parent)
            time.sleep(random.uniform(0, _PAUSE))  # else in step with who sweeps all the time
        raise BlockingIOError(f"for {_SECONDS:g} s each folder was taken away at once")
    finally:
        os.close(handle)


def _make_locked(parent: Path) -> tuple[Path, int]:
    with ExitStack() as undo:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        undo.callback(_remove, path)
        lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        undo.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # QEMU may enter and open its image, no more. The folder stays ours: the janitor leaves
        # others' alone, and nobody else can put a link where we write.
        admit(path)
        undo.pop_all()
    return path, lock


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
