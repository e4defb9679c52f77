"""What the kernel writes of what nobody asked to be flushed, which it may at any time.

``end``: everything after the last operation; ``each``: everything after each; ``front`` and
``back``: the first or the last page of each write, with what is committed meanwhile, and then, and
after each other operation; ``drawn-N``: some pages of some files, and mostly what is committed
then, after each operation, while a write is under way (which is made page by page, but in the
first), and several times after the last. That differs for each of several copies of one program,
which run side by side, so that one disk has as many trees.
"""

import ctypes
import fcntl
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from errno import ENOTTY
from pathlib import Path
from typing import Any

DRAWN = ("drawn-1", "drawn-2", "drawn-3")
WRITEBACKS = ("end", "each", "front", "back", *DRAWN)
WRITTEN_BACK = ("write", "mmapwrite")
"""Operations that leave pages to be written back."""
_PARTS = ("front", "back")
_LAST_TURNS = 8
_EAGERNESS = (0.0, 0.3, 0.8)
PAGE = 4096
_BEGIN, _FINISH = 2, 7
"""linux/fs.h: SYNC_FILE_RANGE_*. Write; wait, write and wait."""
_BTRFS_START_SYNC, _BTRFS_WAIT_SYNC = 0x80089418, 0x40089416
"""linux/btrfs.h: BTRFS_IOC_*. Commits, and nothing is written back before."""
_F2FS_WRITE_CHECKPOINT = 0xF507
"""linux/f2fs.h: F2FS_IOC_*. As that of btrfs."""
Deed = Mapping[str, Any]
_libc = ctypes.CDLL(None, use_errno=True)


class Kernel:
    """Writes back below folders that lie side by side in one of the ways, ``""`` for never. Draws
    by a seed that the way and the operations are. All raise OSError."""

    def __init__(
        self,
        way: str,
        folders: Sequence[Path],
        operations: Sequence[Deed],
        acknowledge: Callable[[str], None],
    ) -> None:
        self._way, self._folders = way, folders
        self._acknowledge, self._last = acknowledge, "0"
        self._random = random.Random(way + json.dumps(operations))
        self._eagerness: dict[int, float] = {}

    def after(self, operation: Deed, number: str) -> None:
        """An operation has returned, which is acknowledged."""
        self._last = number
        self._acknowledge(number)
        if self._way == "each":
            sync_file_system(self._folders[0])
        elif self._way in _PARTS:
            for folder in self._folders:
                self._part_of(operation, folder)
        elif self._way in DRAWN:
            self.turn({})

    def finish(self) -> None:
        """Everything that is left."""
        for _ in range(_LAST_TURNS if self._way in DRAWN else 0):
            self.turn({})
        if self._way:
            sync_file_system(self._folders[0])

    def _part_of(self, operation: Deed, folder: Path) -> None:
        if operation["do"] not in WRITTEN_BACK:
            self._commit()
            return
        last = operation["offset"] + operation["bytes"] - 1
        page = (operation["offset"] if self._way == "front" else last) // PAGE
        for how in (_BEGIN, _FINISH):
            _write_page(folder / operation["path"], page, how, {})
            self._commit()

    def turn(self, held: Mapping[int, int]) -> None:
        """Some files are written back at once, some seldom, some not before the end; and mostly
        all is committed, while some of that is still on its way. ``held``, by inode, are open
        and written to: f2fs opens such a file only when that has ended."""
        begun = []
        for path in self._files():
            found = path.stat()
            eager = self._eagerness.setdefault(found.st_ino, self._random.choice(_EAGERNESS))
            if self._random.random() >= eager:
                continue
            pages = self._some_of(-(-found.st_size // PAGE))
            if self._random.random() < 0.5:
                begun += [(path, page) for page in pages]
            else:
                for page in pages:
                    _write_page(path, page, _FINISH, held)
        for path, page in begun:
            _write_page(path, page, _BEGIN, held)
        if self._random.random() < 0.7:
            self._commit()
        self._acknowledge(self._last)

    def _files(self) -> Iterator[Path]:
        for folder in self._folders:
            found = sorted(folder.rglob("*"))
            yield from (path for path in found if path.is_file() and not path.is_symlink())

    def _some_of(self, pages: int) -> Sequence[int]:
        return self._random.sample(range(pages), self._random.randint(0, pages))

    def _commit(self) -> None:
        """Another program's fsync, of a file beside the folder, of which it brings no data, so that
        it waits for none; and where that writes a log of single files, all metadata, which the
        kernel commits by itself each 30 s (btrfs) or 60 s (f2fs)."""
        with opened(self._folders[0].parent / "other", os.O_WRONLY | os.O_CREAT) as handle:
            os.utime(handle)
            os.fsync(handle)
            for commit in (_commit_btrfs, _checkpoint_f2fs):
                try:
                    commit(handle)
                except OSError as error:
                    if error.errno != ENOTTY:
                        raise


def _commit_btrfs(handle: int) -> None:
    number = fcntl.ioctl(handle, _BTRFS_START_SYNC, bytes(8))
    fcntl.ioctl(handle, _BTRFS_WAIT_SYNC, number)


def _checkpoint_f2fs(handle: int) -> None:
    fcntl.ioctl(handle, _F2FS_WRITE_CHECKPOINT)


def writebacks_of(operations: Sequence[Deed], wanted: Sequence[str]) -> tuple[str, ...]:
    """Those of the wanted that differ for a program: one without writes has no parts of any."""
    writes = any(operation["do"] in WRITTEN_BACK for operation in operations)
    some = tuple(each for each in wanted if writes or each not in (*_PARTS, *DRAWN))
    return some or tuple(wanted[:1])


def sync_file_system(folder: Path) -> None:
    """All that is there goes to the disk, and no other file system has to."""
    with opened(folder, os.O_RDONLY) as handle:
        require(_libc.syncfs(handle), folder)


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    handle = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        yield handle
    finally:
        os.close(handle)


def require(answer: int, path: Path) -> None:
    """Raises OSError for what a function of C did not do."""
    if answer:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))


def _write_page(path: Path, page: int, how: int, held: Mapping[int, int]) -> None:
    """It goes to its place, and nothing else."""
    own = held.get(path.stat().st_ino)
    with opened(path, os.O_WRONLY) if own is None else nullcontext(own) as handle:
        span = ctypes.c_int64(page * PAGE), ctypes.c_int64(PAGE)
        require(_libc.sync_file_range(handle, *span, how), path)
