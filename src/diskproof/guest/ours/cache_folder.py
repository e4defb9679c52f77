"""Where built guests are kept, and how one becomes visible only when it is whole."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from diskproof.errors import NO_SPACE, HostError
from diskproof.process.kept import cache_home
from diskproof.process.owner import AS_USUAL, start_umask
from diskproof.units import render_bytes

_UNFINISHED = "unfinished-"
MORE_SPACE = "free some, or set XDG_CACHE_HOME to a folder on a larger file system"


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/diskproof/guest``."""
    return cache_home() / "guest"


def require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise HostError(
            "there is no space for the guest",
            f"{folder} has {render_bytes(free)} free, it takes {render_bytes(needed)}",
            MORE_SPACE,
        )


@contextmanager
def full_disk_told(folder: Path) -> Iterator[None]:
    """What cannot be written inside the block is a HostError with a way out."""
    try:
        yield
    except OSError as error:
        hint = MORE_SPACE if error.errno in NO_SPACE else "name another: XDG_CACHE_HOME"
        raise HostError(f"cannot write in {folder}", error.strerror or "", hint) from None


@contextmanager
def build_lock(folder: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """One builder at a time. The kernel drops the lock of a builder that dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting: another build of the guest is under way")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove_unfinished(folder: Path) -> None:
    """Remove what killed builders left. Call it under the lock: then nobody is at work there."""
    for path in folder.glob(f"**/{_UNFINISHED}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to ``final`` when the block ends well, else removed."""
    temporary = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=final.parent))
    try:
        with start_umask(AS_USUAL):  # modes in a guest are the same, whoever builds it and when
            yield temporary
        for path in sorted(temporary.rglob("*")):
            _make_public(path)
            _settle(path)
        temporary.chmod(0o755)
        _settle(temporary)
        temporary.rename(final)
        _settle(final.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_file(final: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all."""
    handle, name = tempfile.mkstemp(prefix=_UNFINISHED, dir=final.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        _make_public(temporary)
        _settle(temporary)
        temporary.rename(final)
        _settle(final.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _make_public(path: Path) -> None:
    """QEMU opens these as another user, through descriptors of ours."""
    path.chmod(0o755 if path.is_dir() else 0o644)


def _settle(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
