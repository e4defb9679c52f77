"""How long what remains of a study takes, learnt while its runs end."""

from collections.abc import Iterable
from dataclasses import dataclass

from diskproof.plan.estimate import foretell, foretell_once
from diskproof.plan.history import ONCE, History, Once, Phases, made_once
from diskproof.records import Cell

Group = tuple[str, str]
"""(frontend, workload): estimates of one group are off by about the same."""


@dataclass
class _Known:
    """What is known of one cell: what it was foretold to take, how many runs of it are left, and
    how long those took that were made."""

    group: Group
    foretold: float
    left: int = 0
    runs: int = 0
    seconds: float = 0.0

    @property
    def mean(self) -> float:
        return self.seconds / self.runs


@dataclass
class _Pace:
    """What runs took, and were foretold to take."""

    seconds: float = 0.0
    foretold: float = 0.0

    def add(self, seconds: float, foretold: float) -> None:
        self.seconds += seconds
        self.foretold += foretold

    @property
    def correction(self) -> float:
        return self.seconds / self.foretold if self.foretold else 1.0


class Outlook:
    """What runs really cost, learnt as they end, and what those that are left will.

    A cell's own mean is the best guess, then what it was foretold to take times how far off that
    was for its group, then for all. So the guess is true from the first run on, and exact in the
    end. Failed runs count: what failed by a timeout will do so again. What is made once is told
    apart, for it does not come again. An outlook on 10,000 cells must not cost 10,000 steps: sums
    are kept.
    """

    def __init__(self, history: History | None = None) -> None:
        self.history = history or History()
        self._cells: dict[str, _Known] = {}
        self._paces: dict[Group, _Pace] = {}
        self._all = _Pace()
        self._made: set[Once] = set()
        self._to_make: dict[Once, float] = {}
        self._seen = 0.0
        """Seconds of the runs that are left of cells that have run."""
        self._unseen: dict[Group, float] = {}
        """Foretold seconds of those of other cells."""
        self._left = 0

    def _known(self, cell: Cell) -> _Known:
        if cell.id not in self._cells:
            group = (cell.level("frontend"), cell.workload.name)
            self._cells[cell.id] = _Known(group, foretell(cell, self.history))
        return self._cells[cell.id]

    def set_left(self, cells: Iterable[Cell]) -> None:
        """The runs that are left, by their cells."""
        for known in self._cells.values():
            known.left = 0
        self._seen, self._left, self._to_make = 0.0, 0, {}
        self._unseen.clear()
        for cell in cells:
            self._count(self._known(cell), 1)
            once = made_once(cell)
            if once and once not in self._made and once not in self._to_make:
                self._to_make[once] = foretell_once(cell, self.history)

    def _count(self, known: _Known, runs: int) -> None:
        known.left += runs
        self._left += runs
        if known.runs:
            self._seen += runs * known.mean
        else:
            before = self._unseen.get(known.group, 0.0)
            self._unseen[known.group] = before + runs * known.foretold

    def learn(self, cell: Cell, seconds: float, phases: Phases) -> None:
        """A run of a cell that took so long, all counted."""
        known = self._known(cell)
        lasting = seconds - sum(part for name, part in phases if name in ONCE)
        left = known.left
        self._count(known, -left)
        known.runs += 1
        known.seconds += lasting
        self._count(known, left)
        self._paces.setdefault(known.group, _Pace()).add(lasting, known.foretold)
        self._all.add(lasting, known.foretold)

    def finish(self, cell: Cell) -> None:
        """One run fewer is left, and what it needed is there."""
        self._count(self._known(cell), -1)
        if once := made_once(cell):
            self._made.add(once)
            self._to_make.pop(once, None)

    def expect(self, cell: Cell) -> float:
        """Seconds that the next run of this cell will take."""
        known = self._known(cell)
        lasting = known.mean if known.runs else self._correct(known.group) * known.foretold
        once = made_once(cell)
        return lasting + (self._to_make.get(once, 0.0) if once else 0.0)

    def _correct(self, group: Group) -> float:
        return self._paces.get(group, self._all).correction

    def expect_left(self) -> float:
        """Seconds for all that remains."""
        if self._left <= 0:  # sums of fractions do not end at nought by themselves
            return 0.0
        unseen = sum(self._correct(group) * part for group, part in self._unseen.items())
        return max(0.0, self._seen + unseen) + sum(self._to_make.values())
