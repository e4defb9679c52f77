"""How much memory there is to give: what the kernel calls available, and the limits of control
groups (proc_meminfo(5); the kernel's admin-guide/cgroup-v2 and cgroup-v1/memory)."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import HostError

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Version:
    """Where a version of control groups keeps its hierarchy, and the names of its files."""

    folder: str
    limit: str
    usage: str
    cache: tuple[str, ...]
    no_swap: str


SECOND = Version(
    "", "memory.max", "memory.current", ("inactive_file", "active_file"), "memory.swap.max"
)
FIRST = Version(
    "memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
    "memory.swappiness",
)


def read_available_bytes(proc: Path = PROC, groups: Path = GROUPS) -> int:
    """Bytes that new processes can have without swapping. Raises HostError."""
    text = (proc / "meminfo").read_text()
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    if found is None:
        raise HostError("this host does not tell what memory is available", f"{proc}/meminfo")
    return max(0, min([int(found[1]) << 10, *_group_rooms(proc, groups)]))


def _group_rooms(proc: Path, groups: Path) -> Iterator[int]:
    """What the limits of our control group and those above it leave us, in bytes."""
    for version, group, top in find_groups(proc, groups):
        for folder in (group, *group.parents):
            if folder.is_relative_to(top) and (room := _find_room(folder, version)) is not None:
                yield room


def find_groups(proc: Path, groups: Path) -> Iterator[tuple[Version, Path, Path]]:
    """Our control groups that may bound memory, each with the top of its hierarchy. In a container
    the path may be the host's, where there is nothing for us to see."""
    for line in (proc / "self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            version = SECOND
        elif "memory" in controllers.split(","):
            version = FIRST
        else:
            continue
        top = groups / version.folder
        yield version, top / path.lstrip("/"), top


def _find_room(folder: Path, version: Version) -> int | None:
    """None where there is no limit. The page cache of files gives way."""
    with suppress(OSError, ValueError):
        limit = int((folder / version.limit).read_text())  # "max" is none
        used = int((folder / version.usage).read_text())
        lines = (folder / "memory.stat").read_text().splitlines()
        stat = dict(line.split(maxsplit=1) for line in lines)
        return limit - used + sum(int(stat.get(name, 0)) for name in version.cache)
    return None
