"""The workloads that are not one fio job, by name, as data: each has steps of its own, in
``workloads/KIND.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from diskproof.study.factors import FRONTENDS
from diskproof.study.keys import Option, one_of
from diskproof.units import SCALE


@dataclass(frozen=True)
class Program:
    """``name`` stands in a study, ``kind`` names the module. ``options`` are the keys that its
    table takes beside the common ones (size, runtime), ``fixed`` what the name says. It works with
    the given ``frontends`` and ``levels`` (factor -> levels) only. ``fill``: the disk is written
    once before. ``own_backing``: it needs one that the study makes, for it fills it up.
    ``own_system``: the disk holds an operating system, which boots from it."""

    name: str
    kind: str
    help: str
    options: Mapping[str, Option] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    frontends: tuple[str, ...] = FRONTENDS
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fill: bool = False
    own_backing: bool = False
    own_system: bool = False


COMMAND = "command"
_FILES = ("host", "container", "guest")
"""Where a disk has a name that any program can open."""
_DD = {"bs": Option("1M", size=True), "direct": one_of("off", "on")}
_IOZONE = {
    "tests": Option("0,1,2,8", r"[0128](,[0128])*", help="numbers of iozone's tests: 0,1,2,8"),
    "min_file": Option("64K", size=True),
    "max_file": Option("4M", size=True),
    "min_record": Option("4K", size=True),
    "max_record": Option("16M", size=True),
    "threads": Option("1", r"[1-9][0-9]?", help="1 to 99 threads"),
    "direct": one_of("off", "on"),
}
_TREE = {
    "files": Option("10000", r"[1-9][0-9]{0,5}", help="1 to 999999 files"),
    "bytes": Option("1G", size=True),
    "depth": Option("5", r"[1-9]|[12][0-9]|3[0-2]", help="1 to 32 levels of folders"),
    "scale": Option("1/20", SCALE, help="a share of the full tree: 1 or 1/N"),
    "filesystem": one_of("ext4", "xfs", "btrfs"),
    "source": one_of("disk", "memory"),
    "source_on": Option("", help="the name of a backing"),
}
_BOOTS = {
    "reads": Option("5", r"\d{1,2}", help="0 to 99 boots"),
    "writes": Option("5", r"\d{1,2}", help="0 to 99 boots"),
    "scale": Option("1/32", SCALE, help="a share of the published size: 1 or 1/N"),
    "cold": one_of("off", "on"),
}
_COMMAND = {
    COMMAND: Option(None, r'\["[^\x00-\x1f]+\]', help="a list: a program and its arguments"),
    "pattern": Option("", r"[^\x00-\x1f]{0,1000}", regex=True),
    "json": Option("", r"([A-Za-z0-9_ %/+-]+(\.[A-Za-z0-9_ %/+-]+){0,15})?", help="like a.0.b"),
    "figure": Option("figure", r"[a-z][a-z0-9_]{0,39}", help="a name like write_speed"),
    "unit": Option("1", r"[A-Za-z0-9/%*^. -]{1,20}", help="a unit of at most 20 letters"),
    "better": one_of("higher", "lower"),
}

PROGRAMS = (
    Program(
        COMMAND,
        "command",
        "a command of your own; {disk} in it is the disk under test",
        _COMMAND,
        frontends=(*_FILES, "own-guest"),
    ),
    Program(
        "dd-write",
        "dd",
        "dd from /dev/zero over the whole disk, through the page cache, fsync in the time",
        _DD,
        {"rw": "write"},
        frontends=_FILES,
    ),
    Program(
        "dd-read",
        "dd",
        "dd of the whole disk to /dev/null, through the page cache",
        _DD,
        {"rw": "read"},
        frontends=_FILES,
        fill=True,
    ),
    Program(
        "iozone",
        "iozone",
        "record size by file size: write, rewrite, read, reread, random, mixed; flush in the time",
        _IOZONE,
        frontends=_FILES,
    ),
    Program(
        "tree-copy",
        "tree_copy",
        "a tree of many small and few big files, copied with cp -a, the sync in the time",
        _TREE,
        frontends=("host", "guest"),
    ),
    Program(
        "first-write",
        "first_write",
        "the disk written twice, part by part: what allocating costs, over the share touched",
        {
            "rw": one_of("write", "randwrite"),
            "bs": Option("64K", size=True),
            "iodepth": Option("1", r"[1-9][0-9]{0,2}", help="a queue depth up to 999"),
            "parts": Option("10", r"[1-9][0-9]?|100", help="1 to 100 parts"),
        },
    ),
    Program(
        "cache-life",
        "cache_life",
        "what of the disk stays in the host's page cache after a guest's reset and QEMU's end",
        {"settle": Option("3s", time=True)},
        frontends=("guest",),
        fill=True,
    ),
    Program(
        "out-of-space",
        "out_of_space",
        "the host runs out of space under a guest: it must pause, and go on when there is room",
        {"free": one_of("on", "off")},
        {"werror": "enospc"},
        frontends=("guest",),
        levels={"preallocation": ("off", "metadata")},
        own_backing=True,
    ),
    Program(
        "boots",
        "boots",
        "whole boots of a Debian from the disk under test, QEMU's start to its end",
        _BOOTS,
        frontends=("guest",),
        own_system=True,
    ),
)

PROGRAM_BY_NAME = {program.name: program for program in PROGRAMS}
PROGRAM_BY_KIND = {program.kind: program for program in PROGRAMS}
"""Programs of one kind have the same needs."""


def has_own_system(kind: str) -> bool:
    """Whether disks under this kind of workload hold an operating system of their own."""
    return kind in PROGRAM_BY_KIND and PROGRAM_BY_KIND[kind].own_system
