"""``like``: managers of virtual machines whose default for a new disk is a cell beside the others.

The plan finds what each gives on each backing and says it in a sentence that is stored among what
it told of the study; whoever reads a store knows by it which cells are a manager's default.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from diskproof.records import Cell
from diskproof.study.ground import find_ground
from diskproof.study.keys import Mistakes

MANAGERS = ("qemu", "libvirt", "virt-manager", "proxmox", "incus", "kubevirt", "nova")
GUESTS = frozenset({"guest", "own-guest"})
FRONTENDS = ("daemon", *sorted(GUESTS))
"""Where the settings of a disk mean something."""

OF_DEVICES = ("iothread",)
"""What a manager gives a guest's device. The storage daemon's iothread is another one."""

_SENTENCE = re.compile(
    r"a new disk of (?P<manager>[\w-]+) ?(?P<version>\S*) on (?P<backing>\S+): "
    r"(?P<levels>[\w=. -]+) \((?P<source>.*)\)",
    re.DOTALL,
)


@dataclass(frozen=True)
class DiskDefault:
    """What a manager gives a new disk on a backing. ``levels`` are those it decides."""

    manager: str
    version: str
    backing: str
    levels: tuple[tuple[str, str], ...]
    source: str

    @property
    def name(self) -> str:
        return f"{self.manager} {self.version}".strip()

    @property
    def cache(self) -> str:
        """Its cache mode, which every manager decides."""
        return dict(self.levels).get("cache", "")

    @property
    def levels_text(self) -> str:
        return " ".join(f"{name}={level}" for name, level in self.levels)

    @property
    def sentence(self) -> str:
        """It as it is stored."""
        return f"a new disk of {self.name} on {self.backing}: {self.levels_text} ({self.source})"

    def levels_in(self, frontend: str) -> dict[str, str]:
        """What of it means something to a frontend."""
        return {k: v for k, v in self.levels if frontend != "daemon" or k not in OF_DEVICES}

    def is_of(self, levels: Mapping[str, str]) -> bool:
        """Whether a cell is this default: all that it has of what the manager decides is so."""
        frontend = levels.get("frontend", "")
        if frontend not in FRONTENDS or levels.get("backing") != self.backing:
            return False
        given = self.levels_in(frontend)
        return all(levels.get(name, level) == level for name, level in given.items())


def check_frontends(factors: Mapping[str, tuple[str, ...]], mistakes: Mistakes) -> None:
    """It is a mistake to ask for defaults where no frontend has a disk with settings."""
    asked = factors.get("frontend")
    if asked and set(asked).isdisjoint(FRONTENDS):
        message = (
            f"like: with frontend={' and '.join(asked)} a disk has no settings that a manager "
            f"gives; add {' or '.join(FRONTENDS)}"
        )
        mistakes.add(("like",), message)


def find_default(text: str) -> DiskDefault | None:
    """The default that a sentence tells; None for any other sentence."""
    if (found := _SENTENCE.fullmatch(text)) is None:
        return None
    pairs = (pair.partition("=") for pair in found["levels"].split(" "))
    levels = tuple((name, level) for name, _, level in pairs)
    where = found["manager"], found["version"], found["backing"]
    return DiskDefault(*where, levels, found["source"])


def find_defaults(told: Iterable[str]) -> tuple[DiskDefault, ...]:
    """The defaults that a plan told of."""
    return tuple(filter(None, map(find_default, told)))


def keep_warnings(told: Iterable[str]) -> list[str]:
    """What a plan told beside the defaults, and what backings lie on."""
    return [text for text in told if not find_default(text) and not find_ground(text)]


def named(cells: Iterable[Cell], defaults: Iterable[DiskDefault]) -> Iterator[Cell]:
    """The cells, those that are a manager's default with its name."""
    by_cache: dict[tuple[str, str], list[DiskDefault]] = {}
    for default in defaults:
        by_cache.setdefault((default.backing, default.cache), []).append(default)
    for cell in cells:
        names: dict[str, None] = {}
        if by_cache:
            levels = cell.levels_dict()
            known = by_cache.get((levels.get("backing", ""), levels.get("cache", "")), ())
            names = dict.fromkeys(each.name for each in known if each.is_of(levels))
        yield replace(cell, names=tuple(names)) if names else cell
