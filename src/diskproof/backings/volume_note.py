"""What a study makes that outlives it is noted, before it is made, in a run's folder: whoever
finds the folder of a dead owner knows what else was its own."""

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.backings.place import Place
from diskproof.backings.run_dir import start_run_dir

NOTE = "volume"
_MAX_BYTES = 1 << 16
_NAME = re.compile(r"diskproof_[0-9a-f]{16}")
_KINDS = ("lvm", "md", "zfs", "lio")


@dataclass(frozen=True)
class Volume:
    """A volume group, array, pool or target of that ``name``, on ``devices`` (or files)."""

    kind: str
    name: str
    devices: tuple[Path, ...]


def new_name() -> str:
    """One that nobody else has."""
    return f"diskproof_{secrets.token_hex(8)}"


@contextmanager
def start_note(base: Place) -> Iterator[Path]:
    """A run's folder where the janitor looks, whatever the place is made of; for the note."""
    with start_run_dir(Place(base.home)) as folder:
        yield folder


def write_note(folder: Path, volume: Volume) -> None:
    """Before the volume is made."""
    with (folder / NOTE).open("xb") as stream:
        paths = [str(path).encode("utf-8", "surrogateescape") for path in volume.devices]
        stream.write(b"\0".join([volume.kind.encode(), volume.name.encode(), *paths]))


def read_note(folder: Path) -> Volume | None:
    """None where there is none, or what is there is not ours."""
    try:
        handle = os.open(folder / NOTE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as stream:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
            return None
        text = stream.read(_MAX_BYTES).decode("utf-8", "surrogateescape")
    kind, _, rest = text.partition("\0")
    name, *paths = rest.split("\0")
    if kind not in _KINDS or not _NAME.fullmatch(name):
        return None
    return Volume(kind, name, tuple(Path(path) for path in paths if path.startswith("/")))
