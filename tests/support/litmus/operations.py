"""A litmus program is a list of operations, each a JSON object; this runs it in a folder.

Every operation opens what it works on, does one thing and closes it. Each write fills its bytes
with a letter of its own, so that content says which writes it came from.
"""

import ctypes
import fcntl
import json
import mmap
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from diskproof.recording.folder import ACK_FILE
from support.litmus.slow_source import write_slowly
from support.litmus.writeback import DRAWN, PAGE, Kernel, opened, require, sync_file_system

Operation = dict[str, Any]
"""``do`` and ``path``; with some ``to``, ``size``, ``offset``, ``bytes``, ``fill``, ``mode``,
``name``, ``value``. The path of the folder itself is ``.``."""
MODES = {"": 0, "keep": 1, "punch": 2, "zero": 16}
"""Words of ``mode`` of fallocate(2), by commas: linux/falloc.h."""
NOTE_SYNC = 0x40046419
"""ioctl(2) by which the recorder is told of a sync (native ``crash_log::NOTE_SYNC``)."""
_Turn = Callable[[Mapping[int, int]], None]
"""Done while a write is under way, with the descriptors that it has, by inode."""
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
    folders: Sequence[Path],
    acknowledge: Callable[[str], None],
    writeback: str = "",
) -> None:
    """Do them one after the other, each in all the folders, which lie side by side; it is
    acknowledged by its number, from 1, when it has returned in all, and where the kernel has
    written back what is drawn the last number once more. Without ``writeback`` the recorder of the
    folder is told of a sync: no kernel tells a FUSE file system. Raises OSError."""
    kernel = Kernel(writeback, folders, operations, acknowledge)
    for number, operation in enumerate(operations, 1):
        at_once = _AT_ONCE.get(operation["do"], {}).get(writeback)
        if at_once:
            at_once(operation, folders, kernel.turn)
        else:
            for folder in folders:
                _do(operation, folder, is_whole=bool(writeback))
        kernel.after(operation, str(number))
    kernel.finish()


def _do(operation: Operation, folder: Path, is_whole: bool) -> None:
    if operation["do"] == "sync":
        (sync_file_system if is_whole else _note_sync)(folder)
    else:
        _DEEDS[operation["do"]](folder / operation["path"], operation, folder)


def _note_sync(folder: Path) -> None:
    # Stores to mapped pages have come to the recorder: nothing stays mapped.
    mount = next(each for each in (folder, *folder.parents) if each.is_mount())
    with opened(mount / ACK_FILE, os.O_WRONLY) as handle:
        fcntl.ioctl(handle, NOTE_SYNC, struct.pack("I", 0))


def _creat(path: Path, operation: Operation, folder: Path) -> None:
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL):
        pass


def _write(path: Path, operation: Operation, folder: Path) -> None:
    with opened(path, _write_flags(operation)) as handle:
        _write_whole(handle, _content(operation), operation["offset"])


def _write_at_once(operation: Operation, folders: Sequence[Path], turn: _Turn) -> None:
    with ExitStack() as stack:
        paths = [folder / operation["path"] for folder in folders]
        handles = [stack.enter_context(opened(path, _write_flags(operation))) for path in paths]
        held = {os.fstat(handle).st_ino: handle for handle in handles}
        write_slowly(handles, _content(operation), operation["offset"], lambda: turn(held))


def _write_by_pages(operation: Operation, folders: Sequence[Path], turn: _Turn) -> None:
    """As a kernel does it that has no larger folios at hand."""
    content, offset = _content(operation), operation["offset"]
    ends = [*range(PAGE - offset % PAGE, len(content), PAGE), len(content)]
    with ExitStack() as stack:
        paths = [folder / operation["path"] for folder in folders]
        handles = [stack.enter_context(opened(path, _write_flags(operation))) for path in paths]
        for begin, end in pairwise([0, *ends]):
            if begin:
                turn({})
            for handle in handles:
                _write_whole(handle, content[begin:end], offset + begin)


def _write_flags(operation: Operation) -> int:
    # ext4 writes a file that it has seen truncated when the same descriptor is closed: a program
    # that replaces a file in place has both in one.
    return os.O_WRONLY | (os.O_TRUNC if operation.get("truncate") else 0)


def _dwrite(path: Path, operation: Operation, folder: Path) -> None:
    with (
        opened(path, os.O_WRONLY | os.O_DIRECT) as handle,
        mmap.mmap(-1, operation["bytes"]) as aligned,
    ):
        aligned[:] = _content(operation)
        done = os.pwritev(handle, [aligned], operation["offset"])
    if done != operation["bytes"]:
        raise OSError(f"{path}: {done} bytes were written directly")


def _mmapwrite_at_once(operation: Operation, folders: Sequence[Path], turn: _Turn) -> None:
    """msync once all have it in memory."""
    begin, end = operation["offset"], operation["offset"] + operation["bytes"]
    with ExitStack() as stack:
        maps = []
        for folder in folders:
            handle = stack.enter_context(opened(folder / operation["path"], os.O_RDWR))
            maps.append(stack.enter_context(mmap.mmap(handle, end)))
            maps[-1][begin:end] = _content(operation)
        turn({})
        for mapped in maps:
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
    with opened(path, os.O_RDWR) as handle:
        offset, length = (ctypes.c_int64(operation[each]) for each in ("offset", "bytes"))
        require(_libc.fallocate64(handle, mode, offset, length), path)


def _flush(path: Path, operation: Operation, folder: Path) -> None:
    with opened(path, os.O_RDONLY) as handle:
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
    "mmapwrite": lambda path, each, folder: _mmapwrite_at_once(each, [folder], lambda held: None),
    "fallocate": _fallocate,
    "setxattr": _setxattr,
    "removexattr": lambda path, operation, folder: os.removexattr(path, operation["name"]),
    "fsync": _flush,
    "fdatasync": _flush,
}
_AT_ONCE: dict[str, dict[str, Callable[[Operation, Sequence[Path], _Turn], None]]] = {
    "write": dict.fromkeys(DRAWN, _write_by_pages) | {DRAWN[0]: _write_at_once},
    "mmapwrite": dict.fromkeys(DRAWN, _mmapwrite_at_once),
}
"""In many folders, with something done while they are under way."""
