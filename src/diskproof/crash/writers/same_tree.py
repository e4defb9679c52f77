"""Verdicts that mounted states share: after recovery most disks hold the same tree as another.

A check may also look at what is in no tree: so some states are checked all the same, and of one
that comes out otherwise the explorer is told: it begins anew, and asks for each state by itself.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

KEPT = "0"
FIRST, ONE_OF = 4, 20
"""The first states that could do without a check have one, and then one of so many."""
LARGEST = 256 << 20
"""Bytes of a folder that are still worth to be read for it."""
_PIECE = 1 << 20


class Verdicts:
    """What the check said of each tree, with what was promised; ``shares`` none of them where each
    state is to be judged by itself."""

    def __init__(self, *, shares: bool) -> None:
        self._said: dict[bytes, str] = {}
        self._asked = 0
        self.shares = shares

    def judge(self, folder: Path, promises: Path, check: Callable[[], str]) -> str:
        """The verdict on the folder, by a check unless one of the same has kept all: a loss is told
        of a check only. Begins with ``unsteady`` where the same had another."""
        key = find_key(folder, promises) if self.shares else None
        if key is None:
            return check()
        known = self._said.get(key)
        if known == KEPT:
            self._asked += 1
            if self._asked > FIRST and self._asked % ONE_OF:
                return known
        said = self._said[key] = check()
        if known is not None and _word(known) != _word(said):
            self.shares = False
            return f"unsteady {said}"
        return said


def _word(said: str) -> list[str]:
    """The verdict without its reason: of a loss how many."""
    return said.split()[: 2 if said.startswith("1") else 1]


def find_key(folder: Path, promises: Path) -> bytes | None:
    """A hash of all that a check can tell of a folder, but times of access; None where it cannot
    be read, or is large."""
    digest = hashlib.blake2b(promises.read_bytes())
    left = LARGEST
    try:
        for path in (folder, *sorted(folder.rglob("*"))):
            status = path.lstat()
            left -= status.st_size if stat.S_ISREG(status.st_mode) else 0
            if left < 0:
                return None
            digest.update(repr((str(path), *_told(status), _attributes(path))).encode())
            if stat.S_ISREG(status.st_mode):
                for piece in _content(path):
                    digest.update(piece)
            elif stat.S_ISLNK(status.st_mode):
                digest.update(os.fsencode(path.readlink()))
    except OSError:
        return None
    return digest.digest()


def _told(status: os.stat_result) -> tuple[int, ...]:
    who = status.st_mode, status.st_ino, status.st_nlink, status.st_uid, status.st_gid
    return (*who, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _attributes(path: Path) -> list[tuple[str, bytes]]:
    names = sorted(os.listxattr(path, follow_symlinks=False))
    return [(name, os.getxattr(path, name, follow_symlinks=False)) for name in names]


def _content(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as stream:
        while piece := stream.read(_PIECE):
            yield piece
