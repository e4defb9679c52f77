"""A directory of the host's file systems."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from diskproof.backings.place import Place, explained
from diskproof.records import BackingSpec


class DirectoryBacking:
    """``kind = "directory"``, option ``path``; made when missing, and what was made for it goes
    again while it is empty."""

    @contextmanager
    def start(self, spec: BackingSpec, base: Place | None) -> Iterator[Place]:
        folder = Path(spec.option("path")).absolute()
        made: list[Path] = []
        with explained(folder):
            _make_folder(folder, made)
        try:
            yield Place(folder)
        finally:
            with suppress(OSError):
                for path in made:
                    path.rmdir()


BACKING = DirectoryBacking()


def _make_folder(folder: Path, made: list[Path]) -> None:
    """Make a folder and those above; ``made`` lists what was not there, the innermost first."""
    for path in (folder, *folder.parents):
        if path.exists():
            break
        made.append(path)
    for path in reversed(made):
        path.mkdir(exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
