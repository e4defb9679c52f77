"""Which files a confined program may open, as data; ``start`` has diskproof-confine enforce it.

The kernel's Landlock keeps the program and its children to these paths, whoever they run as; what
is handed over as an open descriptor stays usable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

PROOF = "/etc/passwd"
"""Every user may read it and every host has it; no cage here holds it."""
_PROGRAMS = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store")
_LOADER = ("/etc/ld.so.cache", "/etc/alternatives")
# What glibc and QEMU ask of the machine: processors, limits of a block device's queue, itself.
_MACHINE = ("/proc/self", "/proc/stat", "/proc/meminfo", "/proc/sys/vm")
_SYSFS = ("/sys/dev/block", "/sys/devices", "/sys/kernel/mm/transparent_hugepage")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/kvm")


@dataclass(frozen=True)
class Cage:
    """Files, or folders with all below them; ``writable`` ones may be read as well. Relative paths
    start in the program's working folder, and what is not there is passed over."""

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()

    def reading(self, *paths: str) -> Cage:
        """The same with more to read."""
        return replace(self, readable=(*self.readable, *paths))

    def starting(self, program: str) -> Cage:
        """The same with what the program itself is made of, wherever it was installed."""
        found = Path(program).resolve()
        folder = found.parent
        return self.reading(str(folder.parent if folder.name == "bin" else folder))


QEMU_CAGE = Cage(
    readable=(*_PROGRAMS, *_LOADER, *_MACHINE, *_SYSFS),
    writable=(".", *_DEVICES),
)
"""QEMU and the storage daemon: the folder they work in, their programs, and a few devices."""


def cage_args(confine: str, cage: Cage) -> list[str]:
    """The argv prefix that starts a program in a cage, and only when the cage holds."""
    readable = (part for path in cage.readable for part in ("--read", path))
    writable = (part for path in cage.writable for part in ("--write", path))
    return [confine, *readable, *writable, "--prove", PROOF, "--"]
