"""How long runs take and what room they need, before and while they are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diskproof.errors import HostError
from diskproof.plan.history import History
from diskproof.records import Cell, PhaseCosts
from diskproof.records.verdicts import Fault
from diskproof.study.boots import count_boots
from diskproof.study.crash import faults_of, longest_seconds
from diskproof.study.programs import has_own_system

if TYPE_CHECKING:
    from diskproof.plan import Plan

Group = tuple[str, str]
"""(frontend, workload): runs of one group cost about the same."""

PREPARE_SECONDS = 3.0
"""Of a whole study: the host is probed, at the end the tables are computed."""
FILL_BYTES_PER_SECOND = 400e6
START_SECONDS = {"host": 0.3, "container": 0.6, "daemon": 0.7, "guest": 4.0, "own-guest": 30.0}
TCG_BOOT_SECONDS = 6.0


@dataclass(frozen=True)
class Estimate:
    """Time for all runs in seconds and peak room on a backing in bytes; ``obstacle`` is why that
    room cannot be had. ``phases`` are parts of that time; a guess has none."""

    seconds: float
    disk_bytes: int
    obstacle: HostError | None = None
    phases: PhaseCosts = PhaseCosts()


def cost_group(cell: Cell) -> Group:
    return (cell.level("frontend"), cell.workload.name)


def estimate_seconds(cell: Cell) -> float:
    """Expected length of one run before any was measured."""
    spec = cell.workload
    fill = int(spec.option("size", "0")) / FILL_BYTES_PER_SECOND
    boot = TCG_BOOT_SECONDS if cell.level("accel") == "tcg" else 0.0
    if has_own_system(spec.kind):
        return (1 + count_boots(spec)) * (START_SECONDS["guest"] + boot)
    return (
        float(spec.option("runtime", "0"))
        + float(spec.option("ramp", "0"))
        + START_SECONDS.get(cell.level("frontend"), 0.0)
        + boot
        + (fill if spec.option("fill") == "on" else 0.0)
    )


def foretell(cell: Cell, history: History) -> float:
    """Expected length of one run: as such runs were, else as is usual."""
    known = history.expect(cell)
    return estimate_seconds(cell) if known is None else sum(known.values())


def estimate(plan: Plan, blocks: int, history: History | None = None) -> Estimate:
    """For ``diskproof plan``."""
    history = history or History()
    phases = Counter[str]()
    for cell in plan.cells:
        for name, seconds in (history.expect(cell) or {}).items():
            phases[name] += blocks * seconds  # type: ignore[assignment]  # it counts seconds
    seconds = PREPARE_SECONDS + blocks * sum(foretell(cell, history) for cell in plan.cells)
    told = PhaseCosts(tuple(phases.most_common()), history.runs)
    return Estimate(seconds, plan.needed_bytes, plan.obstacle, told)


def longest_verdicts(cell: Cell, faults: tuple[Fault, ...]) -> float:
    """Seconds that a crash cell takes at most under those of ``faults`` that mean something to it,
    before any like it was made."""
    frontend, spec = cell.level("frontend"), cell.workload
    search, writing = (float(spec.option(key, "0")) for key in ("explore_seconds", "seconds"))
    return longest_seconds(frontend, writing, search, len(faults_of(frontend, faults)))


class Costs:
    """What runs really cost, learnt as they end.

    A cell's own mean is the best guess, then the mean of its group, then the estimate times how
    far off estimates have been; so the guess is true from the first run on, and exact in the end.
    Failed runs count: what failed by a timeout will do so again.
    """

    def __init__(self, history: History | None = None) -> None:
        self.history = history or History()
        self._cells: dict[str, _Mean] = {}
        self._groups: dict[Group, _Mean] = {}
        self._measured = 0.0
        self._estimated = 0.0

    def add(self, cell: Cell, seconds: float) -> None:
        self._cells.setdefault(cell.id, _Mean()).add(seconds)
        self._groups.setdefault(cost_group(cell), _Mean()).add(seconds)
        self._measured += seconds
        self._estimated += foretell(cell, self.history)

    def expect(self, cell: Cell) -> float:
        """Seconds that the next run of this cell will take."""
        own = self._cells.get(cell.id) or self._groups.get(cost_group(cell))
        return own.value if own else self.correction * foretell(cell, self.history)

    def means(self) -> dict[Group, float]:
        """Measured mean seconds by group."""
        return {group: mean.value for group, mean in self._groups.items()}

    @property
    def correction(self) -> float:
        """How far off estimates have been: measured over estimated time."""
        return self._measured / self._estimated if self._estimated else 1.0


class _Mean:
    def __init__(self) -> None:
        self._sum = 0.0
        self._count = 0

    def add(self, value: float) -> None:
        self._sum += value
        self._count += 1

    @property
    def value(self) -> float:
        return self._sum / self._count


class Remaining:
    """What is still to do, kept by group: an ETA for 10,000 cells must not cost 10,000 steps."""

    def __init__(self, cells: Iterable[Cell], history: History | None = None) -> None:
        self._history = history or History()
        self._counts: Counter[Group] = Counter()
        self._estimates: dict[Group, float] = {}
        for cell in cells:
            group = cost_group(cell)
            self._counts[group] += 1
            self._estimates[group] = self._estimates.get(group, 0.0) + self._foretell(cell)

    def finish(self, cell: Cell) -> None:
        group = cost_group(cell)
        self._counts[group] -= 1
        self._estimates[group] -= self._foretell(cell)

    def _foretell(self, cell: Cell) -> float:
        return foretell(cell, self._history)

    def expect(self, costs: Costs) -> float:
        """Seconds for all that remains."""
        known = costs.means()
        return sum(
            count * known[group]
            if group in known
            else costs.correction * max(0.0, self._estimates[group])
            for group, count in self._counts.items()
        )
