"""What the host's caches hold of a disk, and how many reads they did not answer: the page cache,
and ZFS's own (ARC), whose figures are those of all pools."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from diskproof.host.cache import count_resident, filesystem_magic

ARC = Path("/proc/spl/kstat/zfs/arcstats")
"""Is there while ZFS is loaded."""
_ZFS = 0x2FC12FC1
_DEVICES = Path("/sys/dev/block")
_MISSES = ("demand_data_misses", "prefetch_data_misses")
_READS = 0  # of the fields in a block device's stat


@dataclass(frozen=True)
class ReadCounter:
    """Counts the reads that reach what lies below a disk's file or device; ``name`` says where."""

    name: str
    file: Path

    @property
    def is_arc(self) -> bool:
        return self.file == ARC

    def read(self) -> int:
        """Raises OSError, ValueError."""
        if self.is_arc:
            numbers = parse_arc(self.file.read_text())
            return sum(numbers[name] for name in _MISSES)
        return int(self.file.read_text().split()[_READS])


def find_counter(path: Path) -> ReadCounter | None:
    """Where a disk lies in memory, or on several devices at once, there is none."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        device = status.st_rdev or status.st_dev
        entry = _DEVICES / f"{os.major(device)}:{os.minor(device)}"
        is_zvol = entry.resolve().name.startswith("zd")
        if is_zvol or filesystem_magic(handle) == _ZFS:
            return ReadCounter("misses of data in ZFS's ARC", ARC)
    finally:
        os.close(handle)
    if not (entry / "stat").is_file():
        return None
    return ReadCounter(f"reads of {entry.resolve().name}", entry / "stat")


def parse_arc(text: str) -> Mapping[str, int]:
    """The numbers of arcstats by their names: ``name type value``, behind two lines of head."""
    rows = [line.split() for line in text.splitlines()[2:]]
    return {row[0]: int(row[2]) for row in rows if len(row) == 3}


def read_arc_data() -> int:
    """Bytes of data, not metadata, in ZFS's cache."""
    return parse_arc(ARC.read_text())["data_size"]


def count_pages(path: Path) -> int:
    """Bytes of a file or device in the host's page cache. The last close of a device drops its
    pages, so it is open no longer than this takes."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return count_resident(handle)
    finally:
        os.close(handle)
