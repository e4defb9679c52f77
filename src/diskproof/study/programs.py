"""The workloads that are not one fio job, by name, as data: each has steps of its own, in
``workloads/KIND.py``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from diskproof.records import WorkloadSpec
from diskproof.study import keys
from diskproof.study.factors import FRONTENDS


@dataclass(frozen=True)
class Program:
    """``name`` stands in a study, ``kind`` names the module. ``options`` are the keys that its
    table takes beside the common ones (size, runtime), ``fixed`` what the name says. It works with
    the given ``frontends`` and ``levels`` (factor -> levels) only. ``fill``: the disk is written
    once before. ``own_backing``: it needs one that the study makes, for it fills it up.
    ``own_system``: the disk holds an operating system, which boots from it. ``in_guest``: what it
    starts or loads in a guest; ``{option}`` there is that option's value."""

    name: str
    kind: str
    help: str
    options: Mapping[str, keys.Option] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    frontends: tuple[str, ...] = FRONTENDS
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fill: bool = False
    own_backing: bool = False
    own_system: bool = False
    in_guest: tuple[str, ...] = ("fio",)


COMMAND = "command"
SECOND_DISK_ON = "source_on"
"""The option that names a backing for a second disk, the same for all cells."""
_FILES = ("host", "container", "guest")
"""Where a disk has a name that any program can open."""
_DD = {"bs": keys.size("1M"), "direct": keys.one_of("off", "on")}
_DD_STARTS = ("env", "dd")
_IOZONE = {
    "tests": keys.like("0,1,2,8", r"[0128](,[0128])*", "numbers of iozone's tests: 0,1,2,8"),
    "min_file": keys.size("64K"),
    "max_file": keys.size("4M"),
    "min_record": keys.size("4K"),
    "max_record": keys.size("16M"),
    "threads": keys.count(1, 1, 99, "threads"),
    "direct": keys.one_of("off", "on"),
}
_TREE = {
    "files": keys.count(10_000, 1, 999_999, "files"),
    "bytes": keys.size("1G"),
    "depth": keys.count(5, 1, 32, "levels of folders"),
    "scale": keys.scale("1/20"),
    "filesystem": keys.one_of("ext4", "xfs", "btrfs"),
    "source": keys.one_of("disk", "memory"),
    SECOND_DISK_ON: keys.Option(),
}
_BOOTS = {
    "reads": keys.count(5, 0, 99, "boots"),
    "writes": keys.count(5, 0, 99, "boots"),
    "scale": keys.scale("1/32"),
    "cold": keys.one_of("off", "on"),
}
_ARGV = "a list: a program and its arguments"
_JSON = r"([A-Za-z0-9_ %/+-]+(\.[A-Za-z0-9_ %/+-]+){0,15})?"
_COMMAND = {
    COMMAND: keys.Option(None, keys.matching(r'\["[^\x00-\x1f]+\]', _ARGV), most=1 << 20),
    "pattern": keys.Option("", keys.figure_regex),
    "json": keys.like("", _JSON, "like a.0.b"),
    "figure": keys.like("figure", r"[a-z][a-z0-9_]{0,39}", "a name like write_speed"),
    "unit": keys.like("1", r"[A-Za-z0-9/%*^. -]{1,20}", "a unit of at most 20 letters"),
    "better": keys.one_of("higher", "lower"),
}

PROGRAMS = (
    Program(
        COMMAND,
        "command",
        "a command of your own; {disk} in it is the disk under test",
        _COMMAND,
        frontends=(*_FILES, "own-guest"),
        in_guest=(),
    ),
    Program(
        "dd-write",
        "dd",
        "dd from /dev/zero over the whole disk, through the page cache, fsync in the time",
        _DD,
        {"rw": "write"},
        frontends=_FILES,
        in_guest=_DD_STARTS,
    ),
    Program(
        "dd-read",
        "dd",
        "dd of the whole disk to /dev/null, through the page cache",
        _DD,
        {"rw": "read"},
        frontends=_FILES,
        in_guest=_DD_STARTS,
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
        in_guest=("cp", "mount", "umount", "sync", "mkfs.{filesystem}", "module {filesystem}"),
    ),
    Program(
        "first-write",
        "first_write",
        "the disk written twice, part by part: what allocating costs, over the share touched",
        {
            "rw": keys.one_of("write", "randwrite"),
            "bs": keys.size("64K"),
            "iodepth": keys.count(1, 1, 999),
            "parts": keys.count(10, 1, 100, "parts"),
        },
    ),
    Program(
        "cache-life",
        "cache_life",
        "what of the disk stays in the host's page cache after a guest's reset and QEMU's end",
        {"settle": keys.time("3s")},
        frontends=("guest",),
        fill=True,
    ),
    Program(
        "cache-flood",
        "cache_flood",
        "skewed reads cold, again, and after a scan of the whole disk: what a cache keeps",
        {
            "accesses": keys.count(20_000, 100, 10_000_000, "reads"),
            "distribution": keys.like("zipf:1.2", r"zipf:[0-9.]{1,6}", "like zipf:1.2"),
        },
        {"rw": "randread"},
        frontends=("host", "daemon", "guest"),
        fill=True,
    ),
    Program(
        "out-of-space",
        "out_of_space",
        "the host runs out of space under a guest: it must pause, and go on when there is room",
        {"free": keys.one_of("on", "off")},
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
        in_guest=("module ext4",),
    ),
)

PROGRAM_BY_NAME = {program.name: program for program in PROGRAMS}
PROGRAM_BY_KIND = {program.kind: program for program in PROGRAMS}
"""Programs of one kind have the same needs."""


def programs_in_guest(workload: WorkloadSpec) -> tuple[str, ...]:
    """What a workload starts or loads in a guest: names of programs, and ``module NAME``."""
    program = PROGRAM_BY_KIND.get(workload.kind)
    if program is None:
        return ("fio",) if workload.kind in ("fio", "fio-job") else ()
    if program.kind == COMMAND:
        return (str(json.loads(workload.option(COMMAND))[0]),)
    return tuple(name.format(**dict(workload.options)) for name in program.in_guest)


def has_own_system(kind: str) -> bool:
    """Whether disks under this kind of workload hold an operating system of their own."""
    return kind in PROGRAM_BY_KIND and PROGRAM_BY_KIND[kind].own_system
