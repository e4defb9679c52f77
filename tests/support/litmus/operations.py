"""A litmus program is a list of operations, each a JSON object; this runs it in a folder.

Every operation opens what it works on, does one thing and closes it. Each write fills its bytes
with a letter of its own, so that content says which writes it came from.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Operation = dict[str, Any]
"""``do`` and ``path``; with some ``to``, ``size``, ``offset``, ``bytes``, ``fill``, ``mode``,
``name``, ``value``. The path of the folder itself is ``.``."""
MODES = {"": 0, "keep": 1, "punch": 2, "zero": 16}
"""Words of ``mode`` of fallocate(2), by commas: linux/falloc.h."""
WRITEBACKS = ("end", "each", "front", "back")
"""What the kernel writes of what nobody asked to be flushed, which it may at any time: everything
after the last operation, everything after each, or the first or the last page of each write, with
what is committed meanwhile, and then; in the last two also after each other operation."""
_PARTS = ("front", "back")
WRITTEN_BACK = ("write", "mmapwrite")
"""Operations that leave pages to be written back."""
_PAGE = 4096
_BEGIN, _FINISH = 2, 7
"""linux/fs.h: SYNC_FILE_RANGE_*. Write; wait, write and wait."""
_BTRFS_START_SYNC, _BTRFS_WAIT_SYNC = 0x80089418, 0x40089416
"""linux/btrfs.h: BTRFS_IOC_*. Commits, and nothing is written back before."""
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Litmus:
    """``setup`` is done, and durable, before anything is recorded."""

    name: str
    operations: tuple[Operation, ...]
    setup: tuple[Operation, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def perform(
    operations: Sequence[Operation],
    folder: Path,
    acknowledge: Callable[[str], None],
    writeback: str = "",
) -> None:
    """Do them one after the other; each is acknowledged by its number, from 1, when it has
    returned. Without ``writeback`` sync is an fsync of everything: sync(2) and syncfs(2) do not
    reach who records a folder (FUSE). Raises OSError."""
    for number, operation in enumerate(operations, 1):
        if operation["do"] == "sync":
            (sync_file_system if writeback else _flush_each)(folder)
        else:
            _DEEDS[operation["do"]](folder / operation["path"], operation, folder)
        acknowledge(str(number))
        if writeback == "each":
            sync_file_system(folder)
        elif writeback in _PARTS and operation["do"] not in WRITTEN_BACK:
            _commit(folder)
        elif writeback in _PARTS:
            for how in (_BEGIN, _FINISH):
                _write_page(folder / operation["path"], operation, writeback, how)
                _commit(folder)
    if writeback:
        sync_file_system(folder)


def writebacks_of(program: Litmus, wanted: Sequence[str]) -> tuple[str, ...]:
    """Those of the wanted that differ for this program: one without writes has no parts of any."""
    writes = any(operation["do"] in WRITTEN_BACK for operation in program.operations)
    some = tuple(each for each in wanted if writes or each not in _PARTS)
    return some or tuple(wanted[:1])


def sync_file_system(folder: Path) -> None:
    """All that is there goes to the disk, and no other file system has to."""
    with _opened(folder, os.O_RDONLY) as handle:
        _require(_libc.syncfs(handle), folder)


def _flush_each(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            with _opened(path, os.O_RDONLY) as handle:
                os.fsync(handle)


def _write_page(path: Path, operation: Operation, which: str, how: int) -> None:
    """The first or last page of what was written goes to its place, and nothing else."""
    last = operation["offset"] + operation["bytes"] - 1
    begin = (operation["offset"] if which == "front" else last) // _PAGE * _PAGE
    with _opened(path, os.O_WRONLY) as handle:
        span = ctypes.c_int64(begin), ctypes.c_int64(_PAGE)
        _require(_libc.sync_file_range(handle, *span, how), path)


def _commit(folder: Path) -> None:
    """Another program's fsync, of a file beside the folder; and where that writes a log of single
    files, the transaction, which the kernel commits by itself each 30 s."""
    with _opened(folder.parent / "other", os.O_WRONLY | os.O_CREAT) as handle:
        _write_whole(handle, b"x", 0)
        os.fsync(handle)
        _commit_transaction(handle)


def _commit_transaction(handle: int) -> None:
    try:
        number = fcntl.ioctl(handle, _BTRFS_START_SYNC, bytes(8))
        fcntl.ioctl(handle, _BTRFS_WAIT_SYNC, number)
    except OSError as error:
        if error.errno != errno.ENOTTY:
            raise


def _require(answer: int, path: Path) -> None:
    if answer:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    handle = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        yield handle
    finally:
        os.close(handle)


def _creat(path: Path, operation: Operation, folder: Path) -> None:
    with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL):
        pass


def _write(path: Path, operation: Operation, folder: Path) -> None:
    # ext4 writes a file that it has seen truncated when the same descriptor is closed: a program
    # that replaces a file in place has both in one.
    flags = os.O_WRONLY | (os.O_TRUNC if operation.get("truncate") else 0)
    with _opened(path, flags) as handle:
        _write_whole(handle, _content(operation), operation["offset"])


def _dwrite(path: Path, operation: Operation, folder: Path) -> None:
    with (
        _opened(path, os.O_WRONLY | os.O_DIRECT) as handle,
        mmap.mmap(-1, operation["bytes"]) as aligned,
    ):
        aligned[:] = _content(operation)
        done = os.pwritev(handle, [aligned], operation["offset"])
    if done != operation["bytes"]:
        raise OSError(f"{path}: {done} bytes were written directly")


def _mmapwrite(path: Path, operation: Operation, folder: Path) -> None:
    begin, end = operation["offset"], operation["offset"] + operation["bytes"]
    with _opened(path, os.O_RDWR) as handle, mmap.mmap(handle, end) as mapped:
        mapped[begin:end] = _content(operation)
        mapped.flush()


def _content(operation: Operation) -> bytes:
    length: int = operation["bytes"]
    return bytes(operation["fill"], "ascii") * length


def _write_whole(handle: int, content: bytes, offset: int) -> None:
    done = os.pwrite(handle, content, offset)
    if done != len(content):
        raise OSError(f"{done} bytes of {len(content)} were written")


def _fallocate(path: Path, operation: Operation, folder: Path) -> None:
    mode = sum(MODES[word] for word in operation["mode"].split(","))
    with _opened(path, os.O_RDWR) as handle:
        offset, length = (ctypes.c_int64(operation[each]) for each in ("offset", "bytes"))
        _require(_libc.fallocate64(handle, mode, offset, length), path)


def _flush(path: Path, operation: Operation, folder: Path) -> None:
    with _opened(path, os.O_RDONLY) as handle:
        (os.fdatasync if operation["do"] == "fdatasync" else os.fsync)(handle)


def _setxattr(path: Path, operation: Operation, folder: Path) -> None:
    os.setxattr(path, operation["name"], operation["value"].encode())


def _rename(path: Path, operation: Operation, folder: Path) -> None:
    path.rename(folder / operation["to"])


_DEEDS: dict[str, Callable[[Path, Operation, Path], None]] = {
    "creat": _creat,
    "mkdir": lambda path, operation, folder: path.mkdir(),
    "symlink": lambda path, operation, folder: path.symlink_to(operation["to"]),
    "link": lambda path, operation, folder: os.link(path, folder / operation["to"]),
    "rename": _rename,
    "unlink": lambda path, operation, folder: path.unlink(),
    "rmdir": lambda path, operation, folder: path.rmdir(),
    "truncate": lambda path, operation, folder: os.truncate(path, operation["size"]),
    "write": _write,
    "dwrite": _dwrite,
    "mmapwrite": _mmapwrite,
    "fallocate": _fallocate,
    "setxattr": _setxattr,
    "removexattr": lambda path, operation, folder: os.removexattr(path, operation["name"]),
    "fsync": _flush,
    "fdatasync": _flush,
}
