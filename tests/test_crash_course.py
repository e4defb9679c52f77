"""A crash study's course: nothing twice, nothing lost, a stop in time. With an executor that makes
verdicts up; the real one is tested in integration/."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from diskproof.cli.crash_live import start_watching
from diskproof.crash.course import CellFinished, CellStarted, Event, Searching, run_crash_study
from diskproof.lab.course import is_running
from diskproof.records import Cell, HostRecord, StudyRecord
from diskproof.records.verdicts import FAULTS, CrashRun, Fault, Verdict
from diskproof.report.progress import study_status
from diskproof.store import Store, open_store
from diskproof.study.crash import CrashRules, crash_workload
from support.crashing import make_crash_run, make_verdict

STUDY = StudyRecord("s1", "study", "run", "", 1, 1, ())
SPEC = crash_workload(CrashRules(explore_seconds=3.0, seconds=1.0), "ledger", "daemon")
CELLS = tuple(
    Cell((("cache", cache), ("frontend", frontend)), SPEC)
    for frontend in ("daemon", "host")
    for cache in ("none", "unsafe")
)


class MadeUp:
    """Makes runs up; ``stop_at`` interrupts the run of that number."""

    def __init__(self, stop_at: int = -1, verdict: str = "keeps") -> None:
        self.made: list[tuple[str, tuple[Fault, ...]]] = []
        self.stop_at, self.verdict = stop_at, verdict

    def execute(
        self, cell: Cell, faults: Sequence[Fault], on_search: Callable[[Searching], None]
    ) -> CrashRun:
        if len(self.made) == self.stop_at:
            raise KeyboardInterrupt
        self.made.append((cell.id, tuple(faults)))
        on_search(Searching(cell, faults[0], 5, 0.1))
        verdicts = [make_verdict(fault) for fault in faults]
        if self.verdict == "undecided":
            verdicts = [Verdict(fault, "undecided", reason="?") for fault in faults]
        number = id(self) % 100_000 * 100 + len(self.made)
        return make_crash_run(number, *verdicts, **cell.levels_dict())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = open_store(str(tmp_path / "s.sqlite"), create=True)
    opened.add_host(HostRecord("h1", "lab", {}))
    return opened


def go(
    store: Store,
    executor: MadeUp,
    faults: tuple[Fault, ...] = FAULTS,
    budget: float | None = None,
    retry: bool = False,
) -> tuple[str, int, list[Event]]:
    events: list[Event] = []
    ticks = iter(range(10_000))
    outcome = run_crash_study(
        STUDY,
        [Cell(cell.levels, make_crash_run().cell.workload) for cell in CELLS],
        faults,
        executor,
        store,
        on_event=events.append,
        budget_seconds=budget,
        retry=retry,
        now=lambda: float(next(ticks)),
    )
    return outcome.reason, outcome.left, events


def test_other_terminals_see_what_runs(store: Store) -> None:
    seen = []

    class Seen(MadeUp):
        def execute(
            self, cell: Cell, faults: Sequence[Fault], on_search: Callable[[Searching], None]
        ) -> CrashRun:
            seen.append(store.progress())
            return super().execute(cell, faults, on_search)

    go(store, Seen())
    assert [(each.done, each.total, each.pid) for each in seen if each] == [
        (done, 14, os.getpid()) for done in (0, 4, 8, 11)
    ]
    first = seen[0]
    assert first and is_running(first) and first.current.startswith("none daemon ")
    (study,) = store.studies()
    status = study_status(study, store.counts(study.id), first, first.updated)
    assert (status.state, status.done, status.total) == ("running", 0, 14)
    assert store.progress() is None
    go(store, Seen(stop_at=0), retry=True)
    assert store.progress() is None


def test_every_verdict_is_made_once(store: Store) -> None:
    first, second = MadeUp(), MadeUp()
    reason, left, events = go(store, first)
    assert (reason, left, len(first.made)) == ("done", 0, 4)
    # On the bare host there is no guest to kill: 4 + 4 + 3 + 3.
    assert len(store.verdicts("s1")) == 14
    finished = [event for event in events if isinstance(event, CellFinished)]
    assert [event.done for event in finished] == [4, 8, 11, 14]
    assert finished[-1].eta_seconds == 0
    assert isinstance(events[0], CellStarted) and events[0].total == 14
    assert go(store, second)[:2] == ("done", 0)
    assert second.made == []


def test_its_last_line_says_what_it_took(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, events = go(store, MadeUp())
    with start_watching(CELLS, quiet=False) as watcher:
        for event in events:
            watcher(event)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4 and all("at most " in line for line in lines[:-1])
    assert re.match(r"\[14/14, took \S+ m?s\] host ", lines[-1])


def test_only_what_is_missing_is_made(store: Store) -> None:
    go(store, MadeUp(), ("power",))
    more = MadeUp()
    go(store, more, ("power", "qemu-kill"))
    assert {faults for _, faults in more.made} == {("qemu-kill",)}


def test_an_interrupted_study_goes_on_where_it_was(store: Store) -> None:
    first, second = MadeUp(stop_at=2), MadeUp()
    assert go(store, first)[:2] == ("interrupted", 6)
    assert go(store, second)[:2] == ("done", 0)
    assert [cell for cell, _ in (*first.made, *second.made)] == [
        Cell(cell.levels, make_crash_run().cell.workload).id for cell in CELLS
    ]


def test_no_cell_is_started_that_may_overshoot_the_budget(store: Store) -> None:
    idle = MadeUp()
    assert go(store, idle, budget=5.0)[:2] == ("budget", 14)
    assert idle.made == []
    assert store.find_study("s1") is not None


def test_undecided_verdicts_are_made_again_only_when_asked(store: Store) -> None:
    go(store, MadeUp(verdict="undecided"))
    again = MadeUp()
    assert go(store, again)[:2] == ("done", 0)
    assert again.made == []
    assert go(store, again, retry=True)[:2] == ("done", 0)
    assert len(again.made) == 4
    assert {row.verdict.verdict for row in store.verdicts("s1")} == {"keeps"}
