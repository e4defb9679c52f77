"""Run a crash study: skip verdicts that are there, record, explore, store, tell; stop in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from diskproof.lab.course import describe_cell, find_varying, start_telling
from diskproof.records import Cell, StudyRecord
from diskproof.records.verdicts import CrashRun, Fault
from diskproof.study.crash import faults_of

if TYPE_CHECKING:
    from diskproof.store import Store

Reason = Literal["done", "budget", "interrupted"]
RECORDING_SECONDS = {"host": 1.5, "daemon": 2.0, "guest": 25.0}


@dataclass(frozen=True)
class CellStarted:
    """``done`` of ``total`` verdicts are there; ``eta_seconds`` is for what remains at most."""

    cell: Cell
    done: int
    total: int
    eta_seconds: float


@dataclass(frozen=True)
class Searching:
    """A search goes on. ``found`` says the worst so far, empty while nothing was lost."""

    cell: Cell
    fault: Fault
    states: int
    seconds: float
    found: str = ""


@dataclass(frozen=True)
class CellFinished:
    """The crash run is stored."""

    run: CrashRun
    seconds: float
    done: int
    total: int
    eta_seconds: float


Event = CellStarted | Searching | CellFinished


class CrashExecutor(Protocol):
    """Makes one crash run. A failed one is a record; raises only for Ctrl-C and defects."""

    def execute(
        self, cell: Cell, faults: Sequence[Fault], on_search: Callable[[Searching], None]
    ) -> CrashRun: ...


@dataclass(frozen=True)
class Outcome:
    """How a call ended: ``executed`` crash runs were made in it, ``left`` verdicts are missing."""

    reason: Reason
    executed: int
    left: int
    seconds: float


def run_crash_study(
    study: StudyRecord,
    cells: Sequence[Cell],
    faults: tuple[Fault, ...],
    executor: CrashExecutor,
    store: Store,
    *,
    on_event: Callable[[Event], None],
    budget_seconds: float | None = None,
    retry: bool = False,
    now: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Make all verdicts of ``cells`` that the store does not hold; the same call resumes.

    Undecided verdicts are results and not made again, unless ``retry``. No cell is started that
    may overshoot ``budget_seconds``. Ctrl-C discards the run in flight and returns
    ``interrupted``. Raises HostError when the store cannot be written.
    """
    if store.find_study(study.id) is None:
        store.add_study(study)
    if retry:
        store.remove_undecided(study.id)
    course = _Course(store, study.id, cells, faults, now)
    began, executed = now(), 0
    reason: Reason = "done"
    varying = find_varying(cells)
    with start_telling(store, study.id) as tell:
        try:
            for cell, missing in course.upcoming():
                if budget_seconds is not None and (
                    now() - began + course.expect(cell, missing) > budget_seconds
                ):
                    reason = "budget"
                    break
                started = CellStarted(cell, course.done, course.total, course.eta())
                tell(
                    describe_cell(cell, varying),
                    done=course.done,
                    failed=course.failed,
                    total=course.total,
                    eta_seconds=started.eta_seconds,
                )
                on_event(started)
                cell_began = now()
                run = executor.execute(cell, missing, on_event)
                store.add_crash_run(run)
                executed += 1
                seconds = now() - cell_began
                course.finish(run, missing, seconds)
                on_event(CellFinished(run, seconds, course.done, course.total, course.eta()))
        except KeyboardInterrupt:
            reason = "interrupted"
    return Outcome(reason, executed, course.total - course.done, now() - began)


class _Course:
    """What is there, what is missing, and what that may cost."""

    def __init__(
        self,
        store: Store,
        study_id: str,
        cells: Sequence[Cell],
        faults: tuple[Fault, ...],
        now: Callable[[], float],
    ) -> None:
        there = {(row.cell.id, row.verdict.fault) for row in store.verdicts(study_id)}
        wanted = [(cell, faults_of(cell.level("frontend"), faults)) for cell in cells]
        self.total = sum(len(each) for _, each in wanted)
        missing = [(c, tuple(f for f in fs if (c.id, f) not in there)) for c, fs in wanted]
        self.missing = [(cell, left) for cell, left in missing if left]
        self.done = self.total - sum(len(left) for _, left in self.missing)
        self.failed = 0
        self.spent: dict[str, list[float]] = {}

    def upcoming(self) -> list[tuple[Cell, tuple[Fault, ...]]]:
        return list(self.missing)

    def expect(self, cell: Cell, faults: Sequence[Fault]) -> float:
        """Seconds that a cell takes: the longest of its frontend so far, or at most."""
        known = self.spent.get(cell.level("frontend"))
        if known:
            return max(known)
        search = float(cell.workload.option("explore_seconds", "0"))
        writing = float(cell.workload.option("seconds", "0"))
        start = RECORDING_SECONDS.get(cell.level("frontend"), 0.0)
        return start + writing + search * len(faults)

    def eta(self) -> float:
        return sum(self.expect(cell, faults) for cell, faults in self.missing)

    def finish(self, run: CrashRun, faults: Sequence[Fault], seconds: float) -> None:
        cell = run.cell
        self.spent.setdefault(cell.level("frontend"), []).append(seconds)
        self.missing = [each for each in self.missing if each[0].id != cell.id]
        self.done += len(faults)
        self.failed += len(faults) if run.failure else 0
