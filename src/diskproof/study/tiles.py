"""Tiles as data: guests and workloads of one tile, the roles and loads there are, and the
``[tiles]`` table of a study."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from diskproof.study import keys
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
    options: Mapping[str, keys.Option] = field(default_factory=dict)
    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()


def _count(default: int) -> keys.Option:
    return keys.count(default, 1, 9_999_999)


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
            "files": _count(44500),
            "bytes": keys.size("670M"),
            "depth": keys.count(5, 1, 32, "levels of folders"),
            "idle": keys.time("30s"),
        },
        ("file-server",),
        ("file-server",),
    ),
    "pgbench": LoadKind(
        "transactions of pgbench", {"transactions": _count(10000), "clients": _count(4)},
        ("web-mail", "database"), ("database",),
    ),
    "http": LoadKind(
        "requests for a page that asks the database",
        {"requests": _count(2000), "clients": _count(4)},
        ("database", "web-mail"), ("web-mail",),
    ),
    "mail": LoadKind(
        "batches of mails at an interval, then a burst; timed to the mailbox",
        {
            "batches": _count(100),
            "batch": _count(5),
            "interval": keys.time("1s"),
            "burst": _count(100),
            "size": keys.size("56K"),
        },
        ("database", "web-mail"), ("web-mail",),
    ),
    COMMAND: LoadKind("a command of your own"),
}  # fmt: skip


MOST_TILES = 64
read_guest_name = keys.matching(
    r"[a-z][a-z0-9-]{0,30}", "a guest's name: at most 31 small letters, digits and '-'"
)
_argv = keys.some(keys.argument, 100)


@dataclass(frozen=True)
class TileGuest:
    """``[guests.NAME]`` of a tile. ``memory`` and ``disk`` in bytes; they and ``root`` are the
    role's where they are not said."""

    name: str
    role: str = keys.field("plain", keys.text(64))
    root: str = keys.field("", keys.choice("", "postgres", "servers"))
    memory: int = keys.field(0, keys.mib(192 * MIB, 1 << 40))
    vcpus: int = keys.field(1, keys.whole(1, 64))
    disk: int = keys.field(0, keys.mib(16 * MIB, 1 << 44))


@dataclass(frozen=True)
class TileWork:
    """``[workloads.NAME]`` of a tile: ``source`` drives it against ``target`` (empty: none), when
    the workloads ``after`` have ended. ``command`` and ``check`` are those of a ``command``. Its
    own ``service_level`` replaces the study's. ``timeout`` in seconds for each of its steps."""

    name: str
    load: str = keys.field("", keys.text(64))
    source: str = keys.field("", read_guest_name, key="from", required=True)
    target: str = keys.field("", read_guest_name, key="to")
    options: tuple[tuple[str, str], ...] = ()
    after: tuple[str, ...] = keys.field((), keys.some(keys.name, 100, least=0))
    timeout: float = keys.field(3600.0, keys.duration(1))
    service_level: float | None = keys.field(None, keys.times)
    command: tuple[str, ...] = keys.field((), _argv)
    check: tuple[str, ...] = keys.field((), _argv)

    def option(self, name: str) -> str:
        return dict(self.options)[name]

    def level_under(self, service_level: float) -> float:
        """How many times its one-tile figure it may take in a study of that service level."""
        return service_level if self.service_level is None else self.service_level


@dataclass(frozen=True)
class Tile:
    """Guests that load each other."""

    name: str = keys.field("", keys.name)
    description: str = keys.field("", keys.text(10_000))
    guests: tuple[TileGuest, ...] = ()
    works: tuple[TileWork, ...] = ()

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


def restore_tile(content: str) -> Tile:
    """The tile that the plan wrote into the option ``tile`` of a cell.

    Raises KeyError, TypeError or ValueError for what it did not write.
    """
    stored = json.loads(content)
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


def _read_counts(value: object) -> tuple[int, ...]:
    return tuple(sorted(set(keys.some(keys.whole(1, MOST_TILES), 100)(value))))


@dataclass(frozen=True)
class TileRules:
    """``[tiles]`` of a study. ``counts``: exactly these numbers of tiles instead of a search up to
    ``most``; at most ``runs`` runs for each number. ``ksm`` and ``share`` are levels; without
    one of ``ksm`` it stays as the host has it."""

    tile: Tile
    scale: Fraction = keys.field(Fraction(1), lambda value: Fraction(keys.share(value)))
    most: int = keys.field(3, keys.whole(1, MOST_TILES))
    runs: int = keys.field(3, keys.whole(1, 1000))
    counts: tuple[int, ...] = keys.field((), _read_counts)
    service_level: float = keys.field(2.0, keys.times)
    ksm: tuple[str, ...] = keys.field((), keys.known("level of ksm", ("off", "on")))
    share: tuple[str, ...] = keys.field(("smb",), keys.known("level of share", SHARES))
    network: str = keys.field("auto", keys.choice(*NETWORKS))
