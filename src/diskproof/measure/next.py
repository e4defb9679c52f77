"""Which run comes next: the schedule, and in a race only those cells that are still open."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from diskproof.lab.course import Campaign, Event, Standing, Tell
from diskproof.measure.past_runs import read_history
from diskproof.plan.outlook import Outlook
from diskproof.records import Cell, Metric, PlannedRun, RunRecord, StudyRecord
from diskproof.stats.study_race import RaceState, run_score, start_races
from diskproof.store.race_scores import race_scores

if TYPE_CHECKING:
    from diskproof.store import Store

MeasureEvent = Event[PlannedRun, RunRecord, RaceState]


@dataclass(frozen=True)
class Best:
    """The cell with the best mean of a workload's primary metric, from ``runs`` runs so far."""

    cell: Cell
    metric: str
    unit: str
    mean: float
    runs: int


class MeasureCampaign(Campaign[PlannedRun, RunRecord, RaceState]):
    """The runs of a schedule that the store does not hold, each made by ``make``.

    In a race only those cells run in a block that are still open after the blocks before it. What
    is known of them depends on the stored runs of complete blocks and on nothing else. ``races``
    are as all complete blocks tell; none unless the study is a race.
    """

    def __init__(
        self,
        study: StudyRecord,
        schedule: Sequence[PlannedRun],
        make: Callable[[PlannedRun], RunRecord],
        store: Store,
    ) -> None:
        self.study, self.schedule, self.make, self.store = study, schedule, make, store
        planned = {run.cell.id for run in schedule}
        cells = [cell for cell in study.cells if cell.id in planned]
        self._races = {race.workload: race for race in start_races(study, cells)}
        self._outlook, self._best = Outlook(), BestCells()

    def begin(self, retry: bool) -> None:
        if retry:
            self.store.remove_failed(self.study.id)
        self._scores = race_scores(self.store, self.study.id)
        self._outlook = Outlook(read_history(self.store))
        self._upcoming = self._find_upcoming()
        for race in self._races.values():
            race.advance(self._scores)
        self._count_what_remains()
        self._done = sum((run.block, run.cell.id) in self._scores for run in self.schedule)
        self._failed = 0
        for run in self.store.runs(self.study.id):
            self._outlook.learn(run.cell, run.ended - run.started, run.phases)
            self._failed += run.counted and run.status == "failed"
        for row in self.store.results(self.study.id):
            for value in row.values if row.primary else ():
                metric = Metric(row.metric, row.unit, value, row.higher_is_better, True)
                self._best.add(row.cell, metric)

    def next(self) -> PlannedRun | None:
        return next(self._upcoming, None)

    def _find_upcoming(self) -> Iterator[PlannedRun]:
        """The runs that the store lacks, in order. Which cells of a race run in a block is asked
        when all earlier ones are complete."""
        for run in self.schedule:
            if (run.block, run.cell.id) in self._scores:
                continue
            race = self._races.get(run.cell.workload.name)
            if race is None or run.cell.id in race.runs_in(run.block):
                yield run

    def expect(self, job: PlannedRun) -> float:
        return self._outlook.expect(job.cell)

    def execute(self, job: PlannedRun, tell: Tell) -> RunRecord:
        return self.make(job)

    def keep(self, run: RunRecord) -> None:
        self.store.add_run(run)

    def learn(self, run: RunRecord, seconds: float) -> Sequence[RaceState]:
        """The races where this run has completed a block."""
        self._done += 1
        self._left -= 1
        self._scores[run.block, run.cell.id] = _score(run)
        self._failed += run.status == "failed"
        self._outlook.learn(run.cell, seconds, run.phases)
        self._outlook.finish(run.cell)
        for metric in run.metrics:
            if metric.primary:
                self._best.add(run.cell, metric)
        judged = [race for race in self._races.values() if race.advance(self._scores)]
        if judged:
            self._count_what_remains()
        return [race.state() for race in judged]

    def _count_what_remains(self) -> None:
        """What is still to run, and where the races stand."""
        if self._races:
            left = [cell for race in self._races.values() for cell in race.left(self._scores)]
        else:
            left = [r.cell for r in self.schedule if (r.block, r.cell.id) not in self._scores]
        self._outlook.set_left(left)
        self._left = len(left)
        self.races = tuple(race.state() for race in self._races.values())

    def standing(self) -> Standing:
        """While cells race it is what it comes to if no other cell leaves and all that rest come
        back."""
        racing = any(not race.course.over for race in self.races)
        eta = self._outlook.expect_left()
        return Standing(self._done, self._failed, self._done + self._left, eta, racing)

    @property
    def best(self) -> Mapping[str, Best]:
        """The best cell of each workload so far."""
        return self._best.leaders


def _score(record: RunRecord) -> float:
    primary = next((metric for metric in record.metrics if metric.primary), None)
    if record.status == "failed" or primary is None:
        return math.nan
    return run_score(primary.value, primary.higher_is_better)


class BestCells:
    """Running means of the primary metric, and the best cell of each workload."""

    def __init__(self) -> None:
        self._cells: dict[str, dict[str, Best]] = {}
        self.leaders: dict[str, Best] = {}

    def add(self, cell: Cell, metric: Metric) -> None:
        name, sign = cell.workload.name, 1 if metric.higher_is_better else -1
        cells = self._cells.setdefault(name, {})
        known = cells.get(cell.id, Best(cell, metric.name, metric.unit, 0.0, 0))
        runs = known.runs + 1
        mean = known.mean + (metric.value - known.mean) / runs
        cells[cell.id] = new = replace(known, mean=mean, runs=runs)
        leader = self.leaders.get(name)
        if leader is None or leader.cell.id == cell.id:  # the leader may have lost its lead
            self.leaders[name] = max(cells.values(), key=lambda best: sign * best.mean)
        elif sign * mean > sign * leader.mean:
            self.leaders[name] = new
