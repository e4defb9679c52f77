"""Run a schedule: skip what is done, execute, store, tell; stop in time and cleanly."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import psutil

from diskproof.errors import DiskproofError
from diskproof.plan.estimate import Costs, Remaining
from diskproof.records import Cell, Metric, PlannedRun, RunRecord, StudyRecord
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
class Standing:
    """How far a study is. ``done`` counts failed runs too; ``eta_seconds`` is for what remains."""

    done: int
    failed: int
    total: int
    eta_seconds: float
    best: tuple[Best, ...]


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


Event = RunStarted | RunFinished | Stopped


@dataclass(frozen=True)
class Outcome:
    """How a call ended: ``executed`` runs were made in it, ``standing`` is of the whole study."""

    reason: Reason
    executed: int
    seconds: float
    standing: Standing


def run_study(
    study: StudyRecord,
    schedule: Sequence[PlannedRun],
    executor: Executor,
    store: Store,
    *,
    on_event: Callable[[Event], None],
    budget_seconds: float | None = None,
    retry_failed: bool = False,
    now: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Make all runs of a schedule that the store does not hold; the same call resumes.

    The caller has stored the host that the executor's records name. Failed runs are results and
    not made again, unless ``retry_failed``. No run is started that is expected to overshoot
    ``budget_seconds``. Ctrl-C discards the run in flight and returns ``interrupted``. Raises
    HostError when the store cannot be written.
    """
    store.add_study(study)
    if retry_failed:
        store.remove_failed(study.id)
    course = _Course(study, schedule, store)
    began, executed = now(), 0
    reason: Reason = "done"
    try:
        for planned in course.todo:
            expected = course.costs.expect(planned.cell)
            if budget_seconds is not None and now() - began + expected > budget_seconds:
                reason = "budget"
                on_event(Stopped(reason, course.standing(), expected))
                break
            on_event(RunStarted(planned, course.start(planned)))
            run_began = now()
            record = executor.execute(planned)
            store.add_run(record)
            executed += 1
            seconds = now() - run_began
            on_event(RunFinished(record, seconds, course.finish(record, seconds)))
        else:
            on_event(Stopped(reason, course.standing()))
    except KeyboardInterrupt:
        reason = "interrupted"
        on_event(Stopped(reason, course.standing()))
    finally:
        # A store that has just failed has said so; who reads it sees that our process is gone.
        with suppress(DiskproofError):
            store.clear_progress(study.id)
    return Outcome(reason, executed, now() - began, course.standing())


class _Course:
    """Where a study stands, from the store at first and from the runs as they end."""

    def __init__(self, study: StudyRecord, schedule: Sequence[PlannedRun], store: Store) -> None:
        self.study = study
        self.store = store
        self.started = time.time()
        self.total = len(schedule)
        finished = store.finished_runs(study.id)
        self.todo = tuple(run for run in schedule if (run.block, run.cell.id) not in finished)
        self.remaining = Remaining(run.cell for run in self.todo)
        self.done = self.total - len(self.todo)
        self.failed = 0
        self.costs = Costs()
        self.best = _BestCells()
        self.varying = _varying_factors(study.cells)
        self._learn_from_store()

    def _learn_from_store(self) -> None:
        for run in self.store.runs(self.study.id):
            self.costs.add(run.cell, run.ended - run.started)
            self.failed += run.counted and run.status == "failed"
        for row in self.store.results(self.study.id):
            for value in row.values if row.primary else ():
                metric = Metric(row.metric, row.unit, value, row.higher_is_better, True)
                self.best.add(row.cell, metric)

    def start(self, planned: PlannedRun) -> Standing:
        """Tell other terminals what runs now; also finds out that the store cannot be written
        before a run is spent on it."""
        standing = self.standing()
        self.store.set_progress(
            Progress(
                study_id=self.study.id,
                pid=os.getpid(),
                boot_id=_boot_id(),
                host=platform.node(),
                started=self.started,
                total=self.total,
                done=self.done,
                failed=self.failed,
                current=self._describe(planned),
                eta_seconds=standing.eta_seconds,
                updated=time.time(),
            )
        )
        return standing

    def finish(self, record: RunRecord, seconds: float) -> Standing:
        self.done += 1
        self.failed += record.status == "failed"
        self.costs.add(record.cell, seconds)
        self.remaining.finish(record.cell)
        for metric in record.metrics:
            if metric.primary:
                self.best.add(record.cell, metric)
        return self.standing()

    def standing(self) -> Standing:
        eta = self.remaining.expect(self.costs)
        return Standing(self.done, self.failed, self.total, eta, self.best.of_each_workload())

    def _describe(self, planned: PlannedRun) -> str:
        levels = [level for name, level in planned.cell.levels if name in self.varying]
        names = [*levels, planned.cell.workload.name]
        return f"{' '.join(names)} (block {planned.block + 1} of {self.study.blocks})"


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


def _varying_factors(cells: Sequence[Cell]) -> frozenset[str]:
    seen: dict[str, set[str]] = {}
    for cell in cells:
        for name, level in cell.levels:
            seen.setdefault(name, set()).add(level)
    return frozenset(name for name, levels in seen.items() if len(levels) > 1)
