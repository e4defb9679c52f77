"""What runs have cost, phase by phase, so that those of another study can be foretold.

The plan knows how long a load runs; how long a disk is filled or its image removed, only a host
tells. Those phases grow with the disk, the others are the same for runs of one kind.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from diskproof.records import Cell

LOAD, OTHER = "workload", "other"
SIZED = frozenset({"create", "source", "make_data", "fill", "drop", "drain", "remove"})

Phases = Sequence[tuple[str, float]]
Kind = tuple[str, ...]


@dataclass
class _Sums:
    """Of the runs of one kind: their number, the bytes of their disks, and seconds by phase. Of the
    load only what it took beyond what it was asked to."""

    runs: int = 0
    size: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, cell: Cell, phases: Phases) -> None:
        self.runs += 1
        self.size += _size(cell)
        for name, seconds in phases:
            more = seconds - _asked_seconds(cell) if name == LOAD else seconds
            self.seconds[name] = self.seconds.get(name, 0.0) + more

    def expect(self, cell: Cell) -> dict[str, float]:
        scale = _size(cell) * self.runs / self.size if self.size else 1.0
        found = {
            name: seconds / self.runs * (scale if name in SIZED else 1.0)
            for name, seconds in self.seconds.items()
        }
        found[LOAD] = max(0.0, found.get(LOAD, 0.0) + _asked_seconds(cell))
        return found


class History:
    """Runs of this host. A cell is foretold by the runs that were most like it."""

    def __init__(self) -> None:
        self.runs = 0
        self._kinds: dict[Kind, _Sums] = {}

    def add(self, cell: Cell, seconds: float, phases: Phases) -> None:
        """A run that ended well; ``seconds`` are all that it took."""
        self.runs += 1
        told = sum(part for _, part in phases)
        whole = [*phases, (OTHER, max(0.0, seconds - told))]
        for kind in _kinds(cell):
            self._kinds.setdefault(kind, _Sums()).add(cell, whole)

    def expect(self, cell: Cell) -> dict[str, float] | None:
        """Seconds of one run by phase; None where nothing of its frontend has run."""
        known = next((kind for kind in _kinds(cell) if kind in self._kinds), None)
        return self._kinds[known].expect(cell) if known else None


def _kinds(cell: Cell) -> Iterator[Kind]:
    """From the nearest to the widest."""
    frontend, name = cell.level("frontend"), cell.workload.name
    yield (name, *(f"{factor}={level}" for factor, level in cell.levels if factor != "backing"))
    yield (frontend, name)
    yield (frontend, cell.workload.kind, cell.workload.option("fill"))
    yield (frontend,)


def _size(cell: Cell) -> int:
    return int(cell.workload.option("size", "0"))


def _asked_seconds(cell: Cell) -> float:
    """What the load of a cell is asked to take."""
    spec = cell.workload
    return float(spec.option("runtime", "0")) + float(spec.option("ramp", "0"))
