"""Anybody's program as a writer in a guest: the study's ``[crash.program]``."""

import hashlib
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from diskproof.study import keys
from diskproof.study.guest_root import MAX_PACKAGES, name_root
from diskproof.units import MIB, render_bytes

NAME = "program"
"""The writer; what tables call a program that has no name of its own."""
MAX_FOLDER = 32 * MIB
"""What is brought into a guest passes through its memory."""
_MAX_FILES = 10_000
_TIMES = 4
"""A program may make so much of what it finds."""
ROOTS = ("postgres", "servers", "storage")
"""What the guest can have beyond the ordinary one, by its name in ``guest.packages``."""


@dataclass(frozen=True)
class GuestProgram:
    """``folder`` is copied into the guest's file system; ``prepare`` (or nothing), ``writer`` and
    ``check`` are commands that run there, in the copy. ``root`` is a word of ``guest_root.py``;
    ``content`` tells one content of the folder from others, ``name`` is what tables call it."""

    folder: str
    writer: str
    check: str
    root: str = ""
    content: str = ""
    room_bytes: int = 0
    prepare: str = ""
    name: str = NAME

    def options(self) -> dict[str, object]:
        """Those of its crash cell; what a program need not have is left out without."""
        values = {key: value for key, value in asdict(self).items() if key != "name"}
        return values if self.prepare else {k: v for k, v in values.items() if k != "prepare"}


@dataclass(frozen=True)
class ProgramTable:
    """As it is written."""

    folder: str = keys.field("", keys.text(), required=True)
    writer: str = keys.field("", lambda value: _read_command(value), required=True)
    check: str = keys.field("", lambda value: _read_command(value), required=True)
    prepare: str = keys.field("", lambda value: _read_command(value))
    root: str = keys.field("", keys.choice(*ROOTS))
    packages: tuple[str, ...] = keys.field((), lambda value: _read_packages(value))
    name: str = keys.field(NAME, keys.name)


def read_program(crash: object, folder: Path, mistakes: keys.Mistakes) -> GuestProgram | None:
    """The table of a study in ``folder``, if its ``[crash]`` has one; mistakes are noted."""
    if not isinstance(crash, dict) or "program" not in crash:
        return None
    place = ("crash", "program")
    table = keys.read_table(ProgramTable, crash["program"], place, mistakes)
    source = (folder / table.folder).resolve()
    content, size = "", 0
    if table.folder:
        with mistakes.noting((*place, "folder"), table.folder):
            content, size = measure_folder(source)
    commands, root = (table.writer, table.check), name_root(table.root, table.packages)
    return GuestProgram(
        str(source), *commands, root, content, size, prepare=table.prepare, name=table.name
    )


def _read_packages(value: object) -> tuple[str, ...]:
    names = keys.one_or_some(keys.text(), MAX_PACKAGES)(value)
    name_root("", names)
    return names


def _read_command(value: object) -> str:
    text = keys.text(least=1)(value)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{text!r} cannot be read: {error}") from None
    if not words or any("\0" in word for word in words):
        raise ValueError(f"{text!r} is no command")
    return text


def measure_folder(folder: Path) -> tuple[str, int]:
    """What tells the folder's content from others, and the bytes that a program has on a disk.
    Raises ValueError."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder")
    digest, size = hashlib.sha256(), 0
    for path in _files_of(folder):
        status = path.lstat()
        digest.update(f"{path.relative_to(folder)}\0{status.st_mode:o}\0".encode(errors="replace"))
        if path.is_symlink():
            digest.update(str(path.readlink()).encode(errors="replace"))
        elif path.is_file():
            size += status.st_size
            if size > MAX_FOLDER:
                most = render_bytes(MAX_FOLDER)
                raise ValueError(f"{folder} holds more than {most}, too much to bring into a guest")
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12], _TIMES * -(-size // MIB) * MIB


def _files_of(folder: Path) -> Iterator[Path]:
    for number, path in enumerate(sorted(folder.rglob("*"))):
        if number >= _MAX_FILES:
            raise ValueError(f"{folder} has more than {_MAX_FILES:,} files")
        yield path
