"""Which crash run comes next: the cells of which the store lacks verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Never

from diskproof.lab.course import Activity, Campaign, Event, Standing, Tell
from diskproof.plan.estimate import longest_verdicts
from diskproof.records import Cell, StudyRecord
from diskproof.records.verdicts import CrashRun, Fault
from diskproof.store.parts import CRASH
from diskproof.study.crash import BESIDE, beside_writeback, faults_of

if TYPE_CHECKING:
    from diskproof.store import Store


class CrashJob(NamedTuple):
    """One recording of a cell, for the verdicts on these faults."""

    cell: Cell
    faults: tuple[Fault, ...]


CrashEvent = Event[CrashJob, CrashRun, Never]
MakeCrashRun = Callable[[Cell, Sequence[Fault], Tell], CrashRun]


def crash_jobs(cells: Iterable[Cell], faults: tuple[Fault, ...]) -> list[CrashJob]:
    """All that these cells are asked."""
    return [CrashJob(cell, _asked_of(cell, faults)) for cell in cells]


def _asked_of(cell: Cell, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """What commits and writeback beside a program decide is a power cut's."""
    if cell.level(BESIDE):
        return tuple(fault for fault in faults if fault == "power")
    return faults_of(cell.level("frontend"), faults)


def expect_first(job: CrashJob) -> float:
    """Seconds that a job takes at most, before any like it was made."""
    return longest_verdicts(job.cell, job.faults)


class CrashCampaign(Campaign[CrashJob, CrashRun, Never]):
    """All verdicts of ``cells`` on ``faults`` that the store does not hold; it counts verdicts.
    Undecided ones are results."""

    def __init__(
        self,
        study: StudyRecord,
        cells: Sequence[Cell],
        faults: tuple[Fault, ...],
        make: MakeCrashRun,
        store: Store,
    ) -> None:
        self.study, self.cells, self.faults = study, cells, faults
        self.make, self.store = make, store
        self._spent: dict[str, float] = {}

    def begin(self, retry: bool) -> None:
        if retry:
            self.store.remove_undecided(self.study.id)
        made = self.store.counted_runs(CRASH, self.study.id)
        there = {(row.cell.id, row.verdict.fault) for run in made for row in run.rows}
        wanted = crash_jobs(self.cells, self.faults)
        missing = (
            CrashJob(job.cell, tuple(f for f in job.faults if (job.cell.id, f) not in there))
            for job in wanted
        )
        self._missing = [job for job in missing if job.faults]
        self._total = sum(len(job.faults) for job in wanted)
        self._done = self._total - sum(len(job.faults) for job in self._missing)
        self._failed = 0
        for run in made:
            if run.failure and run.verdicts:
                self._leave_out_beside(run.cell)

    def next(self) -> CrashJob | None:
        return self._missing[0] if self._missing else None

    def expect(self, job: CrashJob) -> float:
        """The longest of its frontend so far, or at most."""
        return self._spent.get(job.cell.level("frontend"), expect_first(job))

    def execute(self, job: CrashJob, tell: Tell) -> CrashRun:
        tell(Activity("recording"))
        return self.make(job.cell, job.faults, tell)

    def keep(self, run: CrashRun) -> None:
        self.store.add_crash_run(run)

    def learn(self, run: CrashRun, seconds: float) -> Sequence[Never]:
        frontend = run.cell.level("frontend")
        self._spent[frontend] = max(seconds, self._spent.get(frontend, 0.0))
        self._missing = [job for job in self._missing if job.cell.id != run.cell.id]
        self._done += len(run.verdicts)
        if run.failure:
            self._failed += len(run.verdicts)
            self._leave_out_beside(run.cell)
        return ()

    def _leave_out_beside(self, failed: Cell) -> None:
        """What failed alone would fail once more, and be told twice."""
        needless = [job for job in self._missing if job.cell == beside_writeback(failed)]
        self._missing = [job for job in self._missing if job not in needless]
        self._total -= sum(len(job.faults) for job in needless)

    def standing(self) -> Standing:
        eta = sum(self.expect(job) for job in self._missing)
        return Standing(self._done, self._failed, self._total, eta, at_most=True)
