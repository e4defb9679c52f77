"""Which run of tiles comes next, with how many, until it is known how many a host carries.

Each round gives every cell that is still open one run, in an order of its own, so that a drift of
the host hits all cells alike. What comes next depends on the stored runs and the seed alone: the
same call resumes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from diskproof.lab.course import Activity, Campaign, Event, Standing, Tell
from diskproof.plan.tile_costs import TileCosts
from diskproof.records import Cell, StudyRecord, WorkloadSpec, content_id
from diskproof.records.tiles import TileRun
from diskproof.stats.capacity import Capacity, Trial, find_capacity, next_trial, trial_limit
from diskproof.stats.tile_trials import find_trials
from diskproof.study.tiles import TileRules
from diskproof.tiles.engine import OnStep, PhaseProgress

if TYPE_CHECKING:
    from diskproof.store import Store

MAX_STEPS = 6
"""Steps that are named at a time."""


class TileJob(NamedTuple):
    """The ``repeat``-th run of a cell with so many tiles."""

    cell: Cell
    tiles: int
    repeat: int


@dataclass(frozen=True)
class Carried:
    """What is known of a cell after a run of it."""

    cell: Cell
    capacity: Capacity


TileEvent = Event[TileJob, TileRun, Carried]
MakeTileRun = Callable[[Cell, int, int, OnStep], TileRun]


class TileCampaign(Campaign[TileJob, TileRun, Carried]):
    """The runs that the answer needs and the store does not hold of this host: what another
    carries says nothing about it."""

    def __init__(
        self,
        study: StudyRecord,
        cells: Sequence[Cell],
        rules: TileRules,
        make: MakeTileRun,
        store: Store,
        *,
        host_id: str,
        cpus: int,
    ) -> None:
        self.study, self.make, self.store = study, make, store
        self.host_id = host_id
        self.search = Search(cells, rules, study.seed, cpus)
        self.carried: dict[str, Carried] = {}

    def begin(self, retry: bool) -> None:
        if retry:
            self.store.remove_failed_tiles(self.study.id)
        load = next(iter(self.search.cells.values())).workload
        add_past_runs(self.search.costs, self.store, [self.host_id], load, but=self.study.id)
        for run in self.store.tile_runs(self.study.id):
            if run.host_id == self.host_id:
                self.search.add(run, run.ended - run.started)

    def next(self) -> TileJob | None:
        return self.search.find_next()

    def expect(self, job: TileJob) -> float:
        return self.search.costs.expect(job.cell, job.tiles)

    def execute(self, job: TileJob, tell: Tell) -> TileRun:
        tell(Activity("starting"))
        phase = ""

        def on_step(progress: PhaseProgress) -> None:
            nonlocal phase
            begins = f"{progress.phase}: {progress.total} steps" * (progress.phase != phase)
            phase = progress.phase
            tell(Activity(_describe_steps(progress), begins))

        return self.make(*job, on_step)

    def keep(self, run: TileRun) -> None:
        self.store.add_tile_run(run)

    def learn(self, run: TileRun, seconds: float) -> Sequence[Carried]:
        self.search.add(run, seconds)
        capacity = self.search.capacity(run.cell)
        if capacity is None:
            return ()
        self.carried[run.cell.id] = carried = Carried(run.cell, capacity)
        return (carried,)

    def standing(self) -> Standing:
        return self.search.standing()


def _describe_steps(progress: PhaseProgress) -> str:
    """What runs in which guest: ``load 3/12: tile 1 web web.run, ...``."""
    running = [" ".join((f"tile {tile}", guest, step)) for tile, guest, step in progress.running]
    more = f" and {len(running) - MAX_STEPS} more" if len(running) > MAX_STEPS else ""
    named = ", ".join(running[:MAX_STEPS])
    return f"{progress.phase} {progress.done}/{progress.total}: {named}{more}"


def add_past_runs(
    costs: TileCosts, store: Store, hosts: Collection[str], load: WorkloadSpec, but: str = ""
) -> None:
    """Learn from the runs of this very tile that these hosts made in all studies ``but`` one."""
    for run in store.tile_runs():
        known = run.study_id != but and run.host_id in hosts and run.failure is None
        if known and run.cell.workload == load:
            costs.add(run.cell, run.tiles, run.ended - run.started, run.phases)


class Search:
    """What was run, what comes next, and what that costs."""

    def __init__(self, cells: Sequence[Cell], rules: TileRules, seed: int, cpus: int) -> None:
        self.cells = {cell.id: cell for cell in cells}
        self.rules, self.seed = rules, seed
        self._runs: dict[str, list[TileRun]] = {cell.id: [] for cell in cells}
        self.costs = TileCosts(rules, cpus)
        self._wanted: dict[str, int | None] = {}

    def add(self, run: TileRun, seconds: float) -> None:
        """A run that counts, with all that it cost. Those of cells that are not asked about, and
        with more tiles than are, say nothing here."""
        if run.cell.id not in self.cells or run.tiles > self._most:
            return
        self._runs[run.cell.id].append(run)
        self._wanted.pop(run.cell.id, None)
        self.costs.add(run.cell, run.tiles, seconds)

    @property
    def _most(self) -> int:
        return max(self.rules.counts) if self.rules.counts else self.rules.most

    # -- what comes next --------------------------------------------------------------------

    def find_next(self) -> TileJob | None:
        """The next run: of the cells that are open the one with the fewest runs."""
        if self.rules.counts:
            return self._find_next_count()
        wanted = {cell_id: self._next_tiles(cell_id) for cell_id in self.cells}
        ranks = [
            (done := len(self._runs[cell_id]), self._rank(done, cell_id, tiles), cell_id)
            for cell_id, tiles in wanted.items()
            if tiles is not None
        ]
        if not ranks:
            return None
        cell_id = min(ranks)[2]
        return self._job(cell_id, wanted[cell_id] or 1)

    def _next_tiles(self, cell_id: str) -> int | None:
        if cell_id not in self._wanted:  # until the cell has another run
            rules, trials = self.rules, self._trials(cell_id)
            self._wanted[cell_id] = next_trial(trials, rules.most, rules.runs)
        return self._wanted[cell_id]

    def _find_next_count(self) -> TileJob | None:
        """Given numbers: each round has every cell with every number once."""
        left = [
            (done, self._rank(done, cell_id, tiles), cell_id, tiles)
            for cell_id in self.cells
            for tiles in self.rules.counts
            if (done := self._count(cell_id, tiles)) < self.rules.runs
        ]
        if not left:
            return None
        *_, cell_id, tiles = min(left)
        return self._job(cell_id, tiles)

    def _rank(self, round_number: int, cell_id: str, tiles: int) -> str:
        """The place in a round: random, the same whenever it is asked for, and however much work a
        tile has."""
        return content_id([self.seed, round_number, self.cells[cell_id].levels, tiles])

    def _count(self, cell_id: str, tiles: int) -> int:
        return sum(run.tiles == tiles for run in self._runs[cell_id])

    def _job(self, cell_id: str, tiles: int) -> TileJob:
        """With the lowest number of a run that is not there: a run that is made again takes the
        place of the one before."""
        there = {run.repeat for run in self._runs[cell_id] if run.tiles == tiles}
        repeat = min(set(range(1, len(there) + 2)) - there)
        return TileJob(self.cells[cell_id], tiles, repeat)

    def _trials(self, cell_id: str) -> list[Trial]:
        return find_trials(self._runs[cell_id])

    def capacity(self, cell: Cell) -> Capacity | None:
        """What is known of a cell; None where given numbers are run."""
        if self.rules.counts:
            return None
        return find_capacity(self._trials(cell.id), self.rules.most)

    def standing(self) -> Standing:
        runs = [run for of_cell in self._runs.values() for run in of_cell]
        left = [(cell, *each) for cell in self.cells.values() for each in self._left(cell)]
        return Standing(
            done=len(runs),
            failed=sum(run.failure is not None for run in runs),
            total=len(runs) + sum(count for *_, count in left),
            eta_seconds=math.fsum(n * self.costs.expect(cell, tiles) for cell, tiles, n in left),
            at_most=True,
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
