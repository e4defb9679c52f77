"""Virtual machines that are found on this host, whoever manages them, without disturbing them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from diskproof.host.machines.join import join_machines
from diskproof.records.virtual_machines import Machine

_ROWS: tuple[str, ...] = (
    "running",
    "libvirt",
    "incus",
    "proxmox",
    "microvms",
)


@dataclass(frozen=True)
class Finder:
    """It looks for one manager's machines. ``find`` yields machines, and sentences on what could
    not be looked at (no rights, no answer in time); it never raises and never waits for long."""

    name: str
    find: Callable[[], Iterator[Machine | str]]


@dataclass(frozen=True)
class FoundMachines:
    """``obstacles`` say what could not be looked at, and how it can."""

    machines: tuple[Machine, ...]
    obstacles: tuple[str, ...]


def find_machines() -> FoundMachines:
    """Every virtual machine that can be found here, each once."""
    found = [
        item
        for row in _ROWS
        for item in import_module(f"diskproof.host.machines.{row}").FINDER.find()
    ]
    machines = tuple(item for item in found if isinstance(item, Machine))
    told = tuple(item for item in found if isinstance(item, str))
    return FoundMachines(join_machines(machines), told)
