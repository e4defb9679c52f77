"""A directory of the host's file systems."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from diskproof.backings.place import Place, explained, find_filesystem
from diskproof.errors import HostError
from diskproof.records import BackingSpec


class DirectoryBacking:
    """``kind = "directory"``, option ``path``. Where it is not there it is made for those who said
    so, and goes again while it is empty: a mistyped path, or that of a disk that is not mounted,
    would be measured on the root disk under the wished name."""

    @contextmanager
    def start(self, spec: BackingSpec, base: Place | None) -> Iterator[Place]:
        folder = Path(spec.option("path")).absolute()
        made: list[Path] = []
        if not spec.make and not os.path.lexists(folder):
            raise _refusal(spec.name, folder)
        with explained(folder):
            _make_folder(folder, made)
        try:
            yield Place(folder)
        finally:
            with suppress(OSError):
                for path in made:
                    path.rmdir()


BACKING = DirectoryBacking()


def _refusal(name: str, folder: Path) -> HostError:
    above = next((path for path in folder.parents if path.exists()), folder)
    return HostError(
        f"backing {name}: {folder} is not there",
        f"mistyped, or its disk is not mounted; {above} is on {_name_disk(above)}",
        "correct the path, mount it, or make it there and measure that disk: --make",
    )


def _name_disk(folder: Path) -> str:
    with suppress(OSError):
        same = Path("/").stat().st_dev == folder.stat().st_dev
        kind = find_filesystem(folder)
        return f"the root file system ({kind})" if same else kind
    return "no file system that can be looked at"


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
