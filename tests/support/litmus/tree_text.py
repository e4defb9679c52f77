"""What a folder holds as text, in one form for folders of every origin: two that a program cannot
tell apart by names, links, content, symlinks or attributes have the same.

No times, owners or modes; of directories no size and no links, which each file system counts in
its own way.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

_RUN = re.compile(rb"(.)\1*", re.DOTALL)
_LARGEST = 1 << 24


def tree_text(folder: Path) -> str:
    """A line for each name below the folder, sorted."""
    first: dict[tuple[int, int], str] = {}
    return "\n".join(_line(folder, name, first) for name in sorted(_names(folder, "")))


def _names(folder: Path, prefix: str) -> Iterator[str]:
    with os.scandir(folder / prefix) as entries:
        for entry in entries:
            name = prefix + entry.name
            yield name
            if entry.is_dir(follow_symlinks=False):
                yield from _names(folder, name + "/")


def _line(folder: Path, name: str, first: dict[tuple[int, int], str]) -> str:
    path = folder / name
    found = path.lstat()
    attributes = "".join(
        f" {each}={_runs(os.getxattr(path, each, follow_symlinks=False))}"
        for each in sorted(os.listxattr(path, follow_symlinks=False))
        if each.startswith("user.")
    )
    if stat.S_ISDIR(found.st_mode):
        return f"{name} directory{attributes}"
    other = first.setdefault((found.st_dev, found.st_ino), name)
    same = f" same={other}" if other != name else ""
    links = f"links={found.st_nlink}{same}"
    if stat.S_ISLNK(found.st_mode):
        return f"{name} symlink {links} to={path.readlink()}{attributes}"
    if not stat.S_ISREG(found.st_mode):
        return f"{name} special:{stat.S_IFMT(found.st_mode):o} {links}{attributes}"
    text = _content(path) if found.st_size <= _LARGEST else "too large"
    return f"{name} file {links} size={found.st_size} {text or '-'}{attributes}"


def _content(path: Path) -> str:
    """A file system with checksums refuses what it has not written so."""
    try:
        return _runs(path.read_bytes())
    except OSError as error:
        return f"unreadable: {error.strerror}"


def _runs(content: bytes) -> str:
    """``A*4096,0*4096``: bytes with how often they follow themselves; 0 is the byte 0."""
    return ",".join(
        f"{_letter(each[1])}*{each.end() - each.start()}" for each in _RUN.finditer(content)
    )


def _letter(byte: bytes) -> str:
    if byte == b"\0":
        return "0"
    return byte.decode() if byte.isalpha() else f"x{byte.hex()}"
