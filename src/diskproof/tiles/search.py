"""Find how many tiles a host carries: which cell runs next with how many, until all is known.

Each round gives every cell that is still open one run, in an order of its own, so that a drift of
the host hits all cells alike. What comes next depends on the stored runs and the seed alone: the
same call resumes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from diskproof.lab.course import start_telling
from diskproof.plan.tile_costs import run_seconds
from diskproof.records import Cell, StudyRecord, content_id
from diskproof.records.tiles import TileRun
from diskproof.stats.capacity import Capacity, Trial, find_capacity, next_trial, trial_limit
from diskproof.stats.tile_trials import find_trials
from diskproof.study.tiles import TileRules

if TYPE_CHECKING:
    from diskproof.store import Store

Reason = Literal["done", "budget", "interrupted"]


class TileExecutor(Protocol):
    """Makes one run. A failed one is a record; raises only for Ctrl-C and defects."""

    def execute(self, cell: Cell, tiles: int, repeat: int) -> TileRun: ...


@dataclass(frozen=True)
class Standing:
    """How far a study is: ``done`` runs of ``total``, which a search may stay below; so may
    ``eta_seconds``. ``failed`` are among ``done``."""

    done: int
    failed: int
    total: int
    eta_seconds: float


@dataclass(frozen=True)
class RunStarted:
    """A run of ``tiles`` tiles begins."""

    cell: Cell
    tiles: int
    repeat: int
    standing: Standing


@dataclass(frozen=True)
class RunFinished:
    """The run is stored. ``capacity`` is what is known of its cell by now; None where given
    numbers are run."""

    run: TileRun
    seconds: float
    standing: Standing
    capacity: Capacity | None


Event = RunStarted | RunFinished


@dataclass(frozen=True)
class Outcome:
    """How a call ended: ``executed`` runs were made in it."""

    reason: Reason
    executed: int
    seconds: float
    standing: Standing


def run_tile_study(
    study: StudyRecord,
    cells: Sequence[Cell],
    rules: TileRules,
    executor: TileExecutor,
    store: Store,
    *,
    host_id: str,
    cpus: int,
    on_event: Callable[[Event], None],
    budget_seconds: float | None = None,
    retry: bool = False,
    now: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Make the runs that the answer needs and the store does not hold of this host (what
    another carries says nothing about it).

    Failed runs are results, and not made again unless ``retry``. No run is started that is
    expected to overshoot ``budget_seconds``. Ctrl-C discards the run in flight and returns
    ``interrupted``. Raises HostError when the store cannot be written.
    """
    if store.find_study(study.id) is None:
        store.add_study(study)
    if retry:
        store.remove_failed_tiles(study.id)
    search = Search(cells, rules, study.seed, cpus)
    for run in store.tile_runs(study.id):
        if run.host_id == host_id:
            search.add(run, run.ended - run.started)
    began, executed = now(), 0
    reason: Reason = "done"
    with start_telling(store, study.id) as tell:
        try:
            while trial := search.find_next():
                expected = search.expect(*trial)
                if budget_seconds is not None and now() - began + expected > budget_seconds:
                    reason = "budget"
                    break
                cell, tiles = trial
                repeat = search.next_repeat(cell, tiles)
                started = RunStarted(cell, tiles, repeat, search.standing())
                tell(_describe(started), **asdict(started.standing))
                on_event(started)
                run_began = now()
                run = executor.execute(cell, tiles, repeat)
                store.add_tile_run(run)
                executed += 1
                seconds = now() - run_began
                search.add(run, seconds)
                on_event(RunFinished(run, seconds, search.standing(), search.capacity(cell)))
        except KeyboardInterrupt:
            reason = "interrupted"
    return Outcome(reason, executed, now() - began, search.standing())


class Search:
    """What was run, what comes next, and what that costs."""

    def __init__(self, cells: Sequence[Cell], rules: TileRules, seed: int, cpus: int) -> None:
        self.cells = {cell.id: cell for cell in cells}
        self.rules, self.seed, self.cpus = rules, seed, cpus
        self._runs: dict[str, list[TileRun]] = {cell.id: [] for cell in cells}
        self._costs: dict[int, list[float]] = {}
        self._pace: list[float] = []
        self._wanted: dict[str, int | None] = {}

    def add(self, run: TileRun, seconds: float) -> None:
        """A run that counts, with all that it cost. Those of cells that are not asked about, and
        with more tiles than are, say nothing here."""
        if run.cell.id not in self.cells or run.tiles > self._most:
            return
        self._runs[run.cell.id].append(run)
        self._wanted.pop(run.cell.id, None)
        self._costs.setdefault(run.tiles, []).append(seconds)
        self._pace.append(seconds / self._guess(run.cell, run.tiles))

    @property
    def _most(self) -> int:
        return max(self.rules.counts) if self.rules.counts else self.rules.most

    # -- what comes next --------------------------------------------------------------------

    def find_next(self) -> tuple[Cell, int] | None:
        """The next run: of the cells that are open the one with the fewest runs."""
        if self.rules.counts:
            return self._find_next_count()
        wanted = {cell_id: self._next_tiles(cell_id) for cell_id in self.cells}
        ranks = [
            (len(self._runs[cell_id]), self._rank(len(self._runs[cell_id]), cell_id), cell_id)
            for cell_id, tiles in wanted.items()
            if tiles is not None
        ]
        if not ranks:
            return None
        cell_id = min(ranks)[2]
        return self.cells[cell_id], wanted[cell_id] or 1

    def _next_tiles(self, cell_id: str) -> int | None:
        if cell_id not in self._wanted:  # until the cell has another run
            rules, trials = self.rules, self._trials(cell_id)
            self._wanted[cell_id] = next_trial(trials, rules.most, rules.runs)
        return self._wanted[cell_id]

    def _find_next_count(self) -> tuple[Cell, int] | None:
        """Given numbers: each round has every cell with every number once."""
        left = [
            (done, self._rank(done, f"{cell_id} {tiles}"), cell_id, tiles)
            for cell_id in self.cells
            for tiles in self.rules.counts
            if (done := self._count(cell_id, tiles)) < self.rules.runs
        ]
        if not left:
            return None
        *_, cell_id, tiles = min(left)
        return self.cells[cell_id], tiles

    def _rank(self, round_number: int, what: str) -> str:
        """The place in a round: random, and the same whenever it is asked for."""
        return content_id([self.seed, round_number, what])

    def _count(self, cell_id: str, tiles: int) -> int:
        return sum(run.tiles == tiles for run in self._runs[cell_id])

    def next_repeat(self, cell: Cell, tiles: int) -> int:
        """The lowest number of a run that is not there: a run that is made again takes the place
        of the one before."""
        there = {run.repeat for run in self._runs[cell.id] if run.tiles == tiles}
        return min(set(range(1, len(there) + 2)) - there)

    def _trials(self, cell_id: str) -> list[Trial]:
        return find_trials(self._runs[cell_id])

    def capacity(self, cell: Cell) -> Capacity | None:
        """What is known of a cell; None where given numbers are run."""
        if self.rules.counts:
            return None
        return find_capacity(self._trials(cell.id), self.rules.most)

    # -- what it costs ----------------------------------------------------------------------

    def expect(self, cell: Cell, tiles: int) -> float:
        """Seconds that a run takes: as those with as many tiles did, else by how far off guesses
        have been."""
        if known := self._costs.get(tiles):
            return math.fsum(known) / len(known)
        pace = math.fsum(self._pace) / len(self._pace) if self._pace else 1.0
        return pace * self._guess(cell, tiles)

    def _guess(self, cell: Cell, tiles: int) -> float:
        return run_seconds(cell, self.rules, tiles, self.cpus)

    def standing(self) -> Standing:
        runs = [run for of_cell in self._runs.values() for run in of_cell]
        left = [(cell, *each) for cell in self.cells.values() for each in self._left(cell)]
        return Standing(
            done=len(runs),
            failed=sum(run.failure is not None for run in runs),
            total=len(runs) + sum(count for *_, count in left),
            eta_seconds=math.fsum(n * self.expect(cell, tiles) for cell, tiles, n in left),
        )

    def _left(self, cell: Cell) -> list[tuple[int, int]]:
        """(tiles, runs) that a cell still needs; of a search what it may come to."""
        rules = self.rules
        if rules.counts:
            return [(n, max(0, rules.runs - self._count(cell.id, n))) for n in rules.counts]
        tiles = self._next_tiles(cell.id)
        if tiles is None:
            return []
        baseline = self._count(cell.id, 1)
        others = len(self._runs[cell.id]) - baseline
        limit = min(trial_limit(rules.most), (rules.most - 1) * rules.runs)
        middle = max(tiles, math.ceil((1 + rules.most) / 2))
        return [(1, max(0, rules.runs - baseline)), (middle, max(0, limit - others))]


def _describe(event: RunStarted) -> str:
    tiles = f"{event.tiles} tile{'s' * (event.tiles > 1)}"
    levels = [event.cell.level(name) for name in ("cache", "format", "share")]
    what = " ".join(filter(None, [tiles, event.cell.workload.name, *levels]))
    return f"{what} (run {event.repeat})"
