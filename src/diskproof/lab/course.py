"""Run a schedule: skip what is done, execute, store, tell; stop in time and cleanly."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import psutil

from diskproof.errors import DiskproofError
from diskproof.plan.estimate import Costs, Remaining
from diskproof.records import Cell, Metric, PlannedRun, RunRecord, StudyRecord
from diskproof.stats.study_race import RaceState, run_score, start_races
from diskproof.store.race_scores import race_scores
from diskproof.store.rows import Progress

if TYPE_CHECKING:
    from diskproof.store import Store

Reason = Literal["done", "budget", "interrupted"]


class Executor(Protocol):
    """Makes one run. A failed run is a record; raises only for Ctrl-C and defects."""

    def execute(self, planned: PlannedRun) -> RunRecord: ...


@dataclass(frozen=True)
class Best:
    """The cell with the best mean of a workload's primary metric, from ``runs`` runs so far."""

    cell: Cell
    metric: str
    unit: str
    mean: float
    runs: int


@dataclass(frozen=True)
class RaceCount:
    """One workload's race: ``racing`` of ``cells`` go on, ``resting`` ones only if the lead
    changes; ``over``: it runs no more, ``settled`` or not."""

    workload: str
    racing: int
    resting: int
    cells: int
    settled: bool
    over: bool


@dataclass(frozen=True)
class Standing:
    """How far a study is. ``done`` counts failed runs too; ``eta_seconds`` is for what remains.

    While cells race, ``total`` and ``eta_seconds`` are what it comes to at most: if no other cell
    leaves and all that rest come back.
    """

    done: int
    failed: int
    total: int
    eta_seconds: float
    best: tuple[Best, ...]
    races: tuple[RaceCount, ...] = ()


@dataclass(frozen=True)
class RunStarted:
    planned: PlannedRun
    standing: Standing


@dataclass(frozen=True)
class RunFinished:
    """The run is stored. ``seconds`` is all it cost, the store included."""

    record: RunRecord
    seconds: float
    standing: Standing


@dataclass(frozen=True)
class BlockJudged:
    """A block of a workload's race is complete. ``race.verdict`` tells who left after it and why,
    and what is known."""

    race: RaceState
    standing: Standing


@dataclass(frozen=True)
class Stopped:
    """Nothing more is run. ``next_seconds`` is what the run after would have cost (``budget``)."""

    reason: Reason
    standing: Standing
    next_seconds: float = 0.0


def is_running(progress: Progress) -> bool:
    """Whether the process that told this lives. On another host one cannot look: it counts as
    living until it says that it stopped."""
    if progress.host != platform.node():
        return True
    if progress.boot_id != _boot_id():
        return False
    try:
        # A process that is younger than the progress has only got the dead one's number.
        born: float = psutil.Process(progress.pid).create_time()
        return born <= progress.started
    except psutil.Error:
        return False


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Tell(Protocol):
    """Says how far a study is, before each run: so it is also found out that the store cannot be
    written before a run is spent on it."""

    def __call__(
        self, what: str, *, done: int, failed: int, total: int, eta_seconds: float | None
    ) -> None: ...


@contextmanager
def start_telling(store: Store, study_id: str) -> Iterator[Tell]:
    """Other terminals see what this process measures, until the block ends."""
    started = time.time()

    def tell(what: str, *, done: int, failed: int, total: int, eta_seconds: float | None) -> None:
        store.set_progress(
            Progress(
                study_id=study_id,
                pid=os.getpid(),
                boot_id=_boot_id(),
                host=platform.node(),
                started=started,
                total=total,
                done=done,
                failed=failed,
                current=what,
                eta_seconds=eta_seconds,
                updated=time.time(),
            )
        )

    try:
        yield tell
    finally:
        # A store that has just failed has said so; who reads it sees that our process is gone.
        with suppress(DiskproofError):
            store.clear_progress(study_id)


Event = RunStarted | RunFinished | BlockJudged | Stopped


@dataclass(frozen=True)
class Outcome:
    """How a call ended: ``executed`` runs were made in it, ``standing`` is of the whole study.

    ``races`` are as all complete blocks tell; none unless the study is a race.
    """

    reason: Reason
    executed: int
    seconds: float
    standing: Standing
    races: tuple[RaceState, ...] = ()


def run_study(
    study: StudyRecord,
    schedule: Sequence[PlannedRun],
    executor: Executor,
    store: Store,
    *,
    on_event: Callable[[Event], None],
    budget_seconds: float | None = None,
    retry: bool = False,
    now: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Make all runs of a schedule that the store does not hold; the same call resumes.

    In a race only those cells run in a block that are still open after the blocks before it. What
    is known of them depends on the stored runs of complete blocks and on nothing else.
    The caller has stored the host that the executor's records name. Failed runs are results and
    not made again, unless ``retry``. No run is started that is expected to overshoot
    ``budget_seconds``. Ctrl-C discards the run in flight and returns ``interrupted``. Raises
    HostError when the store cannot be written.
    """
    store.add_study(study)
    if retry:
        store.remove_failed(study.id)
    course = _Course(study, schedule, store)
    began, executed = now(), 0
    reason: Reason = "done"
    with start_telling(store, study.id) as tell:
        try:
            for planned in course.upcoming():
                expected = course.costs.expect(planned.cell)
                if budget_seconds is not None and now() - began + expected > budget_seconds:
                    reason = "budget"
                    on_event(Stopped(reason, course.standing(), expected))
                    break
                on_event(RunStarted(planned, course.start(planned, tell)))
                run_began = now()
                record = executor.execute(planned)
                store.add_run(record)
                executed += 1
                seconds = now() - run_began
                on_event(RunFinished(record, seconds, course.finish(record, seconds)))
                for race in course.judge():
                    on_event(BlockJudged(race, course.standing()))
            else:
                on_event(Stopped(reason, course.standing()))
        except KeyboardInterrupt:
            reason = "interrupted"
            on_event(Stopped(reason, course.standing()))
    races = tuple(race.state() for race in course.races.values())
    return Outcome(reason, executed, now() - began, course.standing(), races)


class _Course:
    """Where a study stands, from the store at first and from the runs as they end."""

    def __init__(self, study: StudyRecord, schedule: Sequence[PlannedRun], store: Store) -> None:
        self.study = study
        self.store = store
        self.schedule = schedule
        self.scores = race_scores(store, study.id)
        planned = {run.cell.id for run in schedule}
        cells = [cell for cell in study.cells if cell.id in planned]
        self.races = {race.workload: race for race in start_races(study, cells)}
        for race in self.races.values():
            race.advance(self.scores)
        self._count_what_remains()
        self.done = sum((run.block, run.cell.id) in self.scores for run in schedule)
        self.failed = 0
        self.costs = Costs()
        self.best = _BestCells()
        self.varying = find_varying(study.cells)
        self._learn_from_store()

    def _learn_from_store(self) -> None:
        for run in self.store.runs(self.study.id):
            self.costs.add(run.cell, run.ended - run.started)
            self.failed += run.counted and run.status == "failed"
        for row in self.store.results(self.study.id):
            for value in row.values if row.primary else ():
                metric = Metric(row.metric, row.unit, value, row.higher_is_better, True)
                self.best.add(row.cell, metric)

    def upcoming(self) -> Iterator[PlannedRun]:
        """The runs that the store lacks, in order. Which cells of a race run in a block is asked
        when all earlier ones are complete."""
        for run in self.schedule:
            if (run.block, run.cell.id) in self.scores:
                continue
            race = self.races.get(run.cell.workload.name)
            if race is None or run.cell.id in race.runs_in(run.block):
                yield run

    def judge(self) -> list[RaceState]:
        """Judge the blocks that are complete by now; the races where that was one."""
        judged = [race for race in self.races.values() if race.advance(self.scores)]
        if judged:
            self._count_what_remains()
        return [race.state() for race in judged]

    def _count_what_remains(self) -> None:
        """What is still to run, and where the races stand."""
        if self.races:
            left = [cell for race in self.races.values() for cell in race.left(self.scores)]
        else:
            left = [r.cell for r in self.schedule if (r.block, r.cell.id) not in self.scores]
        self.remaining = Remaining(left)
        self.left = len(left)
        self.counts = tuple(_count(race.state()) for race in self.races.values())

    def start(self, planned: PlannedRun, tell: Tell) -> Standing:
        standing = self.standing()
        what = describe_cell(planned.cell, self.varying)
        tell(
            f"{what} (block {planned.block + 1} of {self.study.blocks})",
            done=self.done,
            failed=self.failed,
            total=standing.total,
            eta_seconds=standing.eta_seconds,
        )
        return standing

    def finish(self, record: RunRecord, seconds: float) -> Standing:
        self.done += 1
        self.left -= 1
        self.scores[record.block, record.cell.id] = _score(record)
        self.failed += record.status == "failed"
        self.costs.add(record.cell, seconds)
        self.remaining.finish(record.cell)
        for metric in record.metrics:
            if metric.primary:
                self.best.add(record.cell, metric)
        return self.standing()

    def standing(self) -> Standing:
        eta = self.remaining.expect(self.costs)
        total = self.done + self.left
        best = self.best.of_each_workload()
        return Standing(self.done, self.failed, total, eta, best, self.counts)


def _score(record: RunRecord) -> float:
    primary = next((metric for metric in record.metrics if metric.primary), None)
    if record.status == "failed" or primary is None:
        return math.nan
    return run_score(primary.value, primary.higher_is_better)


def _count(race: RaceState) -> RaceCount:
    course = race.course
    return RaceCount(
        race.workload, race.racing, race.resting, len(race.cells), course.settled, course.over
    )


class _BestCells:
    """Running means of the primary metric, and the best cell of each workload."""

    def __init__(self) -> None:
        self._cells: dict[str, dict[str, Best]] = {}
        self._leaders: dict[str, Best] = {}

    def add(self, cell: Cell, metric: Metric) -> None:
        name, sign = cell.workload.name, 1 if metric.higher_is_better else -1
        cells = self._cells.setdefault(name, {})
        known = cells.get(cell.id, Best(cell, metric.name, metric.unit, 0.0, 0))
        runs = known.runs + 1
        mean = known.mean + (metric.value - known.mean) / runs
        cells[cell.id] = new = replace(known, mean=mean, runs=runs)
        leader = self._leaders.get(name)
        if leader is None or leader.cell.id == cell.id:  # the leader may have lost its lead
            self._leaders[name] = max(cells.values(), key=lambda best: sign * best.mean)
        elif sign * mean > sign * leader.mean:
            self._leaders[name] = new

    def of_each_workload(self) -> tuple[Best, ...]:
        return tuple(self._leaders.values())


def describe_cell(cell: Cell, varying: Collection[str]) -> str:
    """Those levels that tell a study's cells apart, and the workload."""
    levels = [level for name, level in cell.levels if name in varying]
    return " ".join([*levels, cell.workload.name])


def find_varying(cells: Sequence[Cell]) -> frozenset[str]:
    seen: dict[str, set[str]] = {}
    for cell in cells:
        for name, level in cell.levels:
            seen.setdefault(name, set()).add(level)
    return frozenset(name for name, levels in seen.items() if len(levels) > 1)
