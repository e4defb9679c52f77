"""Tiles as data: guests and workloads of one tile, the roles and loads there are, and the
``[tiles]`` table of a study."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from diskproof.study.keys import Option
from diskproof.units import MIB

KIND = "tiles"
"""The kind of workload of a tile cell; its name is that of the tile."""

COMMAND = "command"
SHARES = ("smb", "nfs")
NETWORKS = ("auto", "bridge", "switch")
BUILT_IN = "article"
"""The tile that comes with diskproof, and the name a study knows it by."""


@dataclass(frozen=True)
class RoleKind:
    """What a guest is. ``root`` names its packages (``guest.packages.EXTRA_PACKAGES``; empty: the
    plain guest), ``memory`` and ``disk`` are the defaults in bytes."""

    help: str
    root: str
    memory: int
    disk: int


@dataclass(frozen=True)
class LoadKind:
    """A kind of load, its keys, and which roles its two ends must have (empty: any)."""

    help: str
    options: Mapping[str, Option] = field(default_factory=dict)
    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()


def _count(default: str) -> Option:
    return Option(default, r"[1-9][0-9]{0,6}", help="a number from 1 to 9999999")


ROLES: Mapping[str, RoleKind] = {
    "plain": RoleKind("a disk with a file system, no servers", "", 256 * MIB, 1024 * MIB),
    "file-server": RoleKind(
        "Samba or NFS, as the study's share says", "servers", 256 * MIB, 2048 * MIB
    ),
    "web-mail": RoleKind("nginx, PHP, MariaDB, Postfix", "servers", 448 * MIB, 2048 * MIB),
    "database": RoleKind("PostgreSQL", "servers", 320 * MIB, 2048 * MIB),
}

LOADS: Mapping[str, LoadKind] = {
    "copy": LoadKind(
        "a tree of files copied over the share, and after a rest copied back",
        {
            "files": _count("44500"),
            "bytes": Option("670M", size=True),
            "depth": Option("5", r"[1-9]|[12][0-9]|3[0-2]", help="1 to 32 levels of folders"),
            "idle": Option("30s", time=True),
        },
        ("file-server",),
        ("file-server",),
    ),
    "pgbench": LoadKind(
        "transactions of pgbench", {"transactions": _count("10000"), "clients": _count("4")},
        ("web-mail", "database"), ("database",),
    ),
    "http": LoadKind(
        "requests for a page that asks the database",
        {"requests": _count("2000"), "clients": _count("4")},
        ("database", "web-mail"), ("web-mail",),
    ),
    "mail": LoadKind(
        "batches of mails at an interval, then a burst; timed to the mailbox",
        {
            "batches": _count("100"),
            "batch": _count("5"),
            "interval": Option("1s", time=True),
            "burst": _count("100"),
            "size": Option("56K", size=True),
        },
        ("database", "web-mail"), ("web-mail",),
    ),
    COMMAND: LoadKind("a command of your own"),
}  # fmt: skip


@dataclass(frozen=True)
class TileGuest:
    """One guest of a tile. ``memory`` and ``disk`` in bytes; ``root`` as its role's."""

    name: str
    role: str
    root: str
    memory: int
    vcpus: int
    disk: int


@dataclass(frozen=True)
class TileWork:
    """One workload of a tile: ``source`` drives it against ``target`` (empty: none), when the
    workloads ``after`` have ended. ``command`` and ``check`` are those of a ``command``. Its own
    ``service_level`` replaces the study's. ``timeout`` in seconds for each of its steps."""

    name: str
    load: str
    source: str
    target: str
    options: tuple[tuple[str, str], ...] = ()
    after: tuple[str, ...] = ()
    timeout: float = 3600.0
    service_level: float | None = None
    command: tuple[str, ...] = ()
    check: tuple[str, ...] = ()

    def option(self, key: str) -> str:
        return dict(self.options)[key]

    def level_under(self, service_level: float) -> float:
        """How many times its one-tile figure it may take in a study of that service level."""
        return service_level if self.service_level is None else self.service_level


@dataclass(frozen=True)
class Tile:
    """Guests that load each other."""

    name: str
    description: str
    guests: tuple[TileGuest, ...]
    works: tuple[TileWork, ...]

    @property
    def memory(self) -> int:
        """Bytes of all guests together."""
        return sum(guest.memory for guest in self.guests)

    @property
    def disk(self) -> int:
        """Bytes of all disks together."""
        return sum(guest.disk for guest in self.guests)

    def guest(self, name: str) -> TileGuest:
        return next(guest for guest in self.guests if guest.name == name)

    def work(self, name: str) -> TileWork:
        return next(work for work in self.works if work.name == name)


def restore_tile(text: str) -> Tile:
    """The tile that the plan wrote into the option ``tile`` of a cell.

    Raises KeyError, TypeError or ValueError for what it did not write.
    """
    stored = json.loads(text)
    works = ({key: _frozen(value) for key, value in work.items()} for work in stored["works"])
    return Tile(
        stored["name"],
        stored["description"],
        tuple(TileGuest(**guest) for guest in stored["guests"]),
        tuple(TileWork(**work) for work in works),
    )


def _frozen(value: Any) -> Any:
    """JSON has lists where a frozen record has tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class TileRules:
    """``[tiles]`` of a study. ``counts``: exactly these numbers of tiles instead of a search up to
    ``most``; at most ``runs`` runs for each number. ``ksm`` and ``share`` are levels; without
    one of ``ksm`` it stays as the host has it."""

    tile: Tile
    scale: Fraction = Fraction(1)
    most: int = 3
    runs: int = 3
    counts: tuple[int, ...] = ()
    service_level: float = 2.0
    ksm: tuple[str, ...] = ()
    share: tuple[str, ...] = ("smb",)
    network: str = "auto"
