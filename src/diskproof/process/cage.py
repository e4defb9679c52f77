"""What a confined program may open and how much it may take, as data; ``start`` has
diskproof-confine enforce it.

The kernel's Landlock keeps the program and its children to these paths, whoever they run as; what
is handed over as an open descriptor stays usable. Its seccomp filter denies what nothing that
measures needs; the list and where it comes from are in native/lab/confine/src/filter.rs. Bounds
are those of setrlimit(2).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

WALLED_MARK = "DISKPROOF_FILES=proved"
"""In the environment of what diskproof-confine has started once ``PROOF`` was out of reach."""
PROOF = "/etc/passwd"
"""Every user may read it and every host has it; no cage here holds it."""
_PROGRAMS = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store")
_LOADER = ("/etc/ld.so.cache", "/etc/alternatives")
# What glibc and QEMU ask of the machine: processors, limits of a block device's queue, itself.
_MACHINE = ("/proc/self", "/proc/stat", "/proc/meminfo", "/proc/sys/vm")
_SYSFS = ("/sys/dev/block", "/sys/devices", "/sys/kernel/mm/transparent_hugepage")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/kvm")
NAMES = ("/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/services")
"""What a program asks to find a server that has a name."""

LOOK_MEMORY = 256 << 20
"""Bytes of data that a QEMU may have which only looks at an image. The largest tables of a qcow2
fit (L1 32 MiB, refcounts 8 MiB)."""
TOOL_MEMORY = 1 << 30
"""Of a tool that asks a server or checks an image, and ends."""
QEMU_MEMORY = 4 << 30
"""Of a QEMU beside its guest's memory: translated code (1 GiB), stacks of threads (8 MiB each)."""
SERVER_MEMORY = 8 << 30
"""Of a program under load: stacks of threads and buffers, as deep as the queues."""
_MAX_FILES = 65_536
# Threads count, and all that have the user: a QEMU has 64 for each of its disks at most.
_MAX_PROCESSES = 32_768


@dataclass(frozen=True)
class Cage:
    """Files, or folders with all below them; ``writable`` ones may be read as well. Relative paths
    start in the program's working folder, and what is not there is passed over.

    ``memory`` bounds its data in bytes (RLIMIT_DATA: what it may write and shares with nobody);
    ``spawns`` is whether it may start processes (threads it may), ``schedules`` whether it may
    choose its processors and its priority."""

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    memory: int = SERVER_MEMORY
    spawns: bool = False
    schedules: bool = False

    def reading(self, *paths: str) -> Self:
        """The same with more to read."""
        return replace(self, readable=(*self.readable, *paths))

    def writing(self, *paths: str) -> Self:
        """The same with more to write."""
        return replace(self, writable=(*self.writable, *paths))

    def within(self, memory: int) -> Self:
        """The same with another bound for its data, in bytes."""
        return replace(self, memory=memory)

    def starting(self, program: str) -> Self:
        """The same with what the program itself is made of, wherever it was installed."""
        found = Path(program).resolve()
        folder = found.parent
        return self.reading(str(folder.parent if folder.name == "bin" else folder))


BARE_CAGE = Cage((*_PROGRAMS, *_LOADER, *_MACHINE, *_SYSFS), _DEVICES)
"""A QEMU without a folder, for what it was handed: its programs, and a few devices."""
QEMU_CAGE = BARE_CAGE.writing(".")
"""QEMU and the storage daemon: the folder they work in as well."""
TOOL_CAGE = QEMU_CAGE.within(TOOL_MEMORY)
"""qemu-img and qemu-io."""
CLIENT_CAGE = replace(QEMU_CAGE.reading(*NAMES), schedules=True)
"""fio; its job file may choose processors, its server may have a name."""
OPEN_CAGE = Cage(spawns=True)
"""For programs whose files are anywhere, such as a database: without Landlock."""


def cage_args(confine: str, cage: Cage, *, files: bool = True) -> list[str]:
    """The argv prefix that starts a program in a cage, and only when the cage holds.

    Without ``files`` it may open all that its user can: where the kernel has no Landlock.
    """
    return [
        *(confine, *_limit_args(cage)),
        *(() if cage.spawns else ("--no-spawn",)),
        *(("--may-schedule",) if cage.schedules else ()),
        *(_file_args(cage) if files else ("--any-file",)),
        "--",
    ]


def confine_args(
    confine: str,
    cage: Cage,
    *,
    files: bool,
    parent: int | None,
    user: int | None,
    groups: Sequence[int],
) -> list[str]:
    """As ``cage_args``, as a child of ``parent`` and as long as that lives; with ``user`` that is
    who it becomes, without capabilities. Without ``parent`` the prefix is left open: whoever uses
    it adds ``--parent PID --``."""
    who = () if user is None else ("--user", str(user))
    more = (part for group in groups for part in ("--group", str(group)))
    prefix = cage_args(confine, cage, files=files)
    opened = [*prefix[:-1], *who, *(more if who else ())]
    return opened if parent is None else [*opened, "--parent", str(parent), "--"]


def _file_args(cage: Cage) -> Iterator[str]:
    for path in cage.readable:
        yield from ("--read", path)
    for path in cage.writable:
        yield from ("--write", path)
    yield from ("--prove", PROOF)


def _limit_args(cage: Cage) -> Iterator[str]:
    # Registered buffers of io_uring are locked; they are a part of its data.
    memory = {"data": cage.memory, "memlock": cage.memory}
    limits = {"core": 0, "nofile": _MAX_FILES, "nproc": _MAX_PROCESSES, **memory}
    for name, value in limits.items():
        yield from ("--limit", f"{name}={value}")
