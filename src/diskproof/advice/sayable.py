"""What a dialect can say of each factor, as a table, and what it says of the rest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from diskproof.advice.dialect import Unsayable
from diskproof.records.virtual_machines import Levels


@dataclass(frozen=True)
class Sayable:
    """The ``levels`` of a factor that a dialect has words for. ``reason`` says why there are no
    others; ``nearest`` gives the nearest of those, by level; what is not in it has ``otherwise``.
    """

    levels: tuple[str, ...]
    reason: str
    nearest: Mapping[str, str]
    otherwise: str = ""


def sayable(levels: tuple[str, ...], reason: str, otherwise: str = "", **nearest: str) -> Sayable:
    """One row of a table."""
    return Sayable(levels, reason, nearest, otherwise)


def find_unsayable(levels: Levels, table: Mapping[str, Sayable]) -> Iterator[Unsayable]:
    """What of a cell has no words, in the order of the table. A factor that the table does not
    have is none of the disk's (``frontend``, ``memory``)."""
    for factor, row in table.items():
        level = levels.get(factor)
        if level is not None and level not in row.levels:
            nearest = row.nearest.get(level, row.otherwise)
            yield Unsayable(factor, level, row.reason, nearest)
