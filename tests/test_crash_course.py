"""A crash study's course: nothing twice, nothing lost, a stop in time. With an executor that makes
verdicts up; the real one is tested in integration/."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.crash.next import CrashCampaign, CrashEvent
from diskproof.lab.course import (
    Activity,
    JobFinished,
    JobStarted,
    Standing,
    Tell,
    run_course,
    start_telling,
)
from diskproof.records import Cell, Failure, HostRecord, StudyRecord
from diskproof.records.verdicts import CrashRun, Fault, Verdict
from diskproof.store import Store, open_store
from diskproof.study.crash import USUAL_FAULTS, CrashRules, beside_writeback, crash_workload
from support.crashing import make_crash_run, make_verdict

STUDY = StudyRecord("s1", "study", "run", "", 1, 1, ())
SPEC = crash_workload(CrashRules(explore_seconds=3.0, seconds=1.0), "ledger", "daemon")
CELLS = tuple(
    Cell((("cache", cache), ("frontend", frontend)), SPEC)
    for frontend in ("daemon", "host")
    for cache in ("none", "unsafe")
)
NUMBERS = itertools.count()


class MadeUp:
    """Makes runs up; ``stop_at`` interrupts the run of that number."""

    def __init__(self, stop_at: int = -1, verdict: str = "keeps") -> None:
        self.made: list[tuple[str, tuple[Fault, ...]]] = []
        self.stop_at, self.verdict = stop_at, verdict

    def execute(self, cell: Cell, faults: Sequence[Fault], tell: Tell) -> CrashRun:
        if len(self.made) == self.stop_at:
            raise KeyboardInterrupt
        self.made.append((cell.id, tuple(faults)))
        tell(Activity(f"{faults[0]}: 5 states"))
        verdicts = [make_verdict(fault) for fault in faults]
        if self.verdict == "undecided":
            verdicts = [Verdict(fault, "undecided", reason="?") for fault in faults]
        return make_crash_run(next(NUMBERS), *verdicts, **cell.levels_dict())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = open_store(str(tmp_path / "s.sqlite"), create=True)
    opened.add_host(HostRecord("h1", "lab", {}))
    return opened


def make_campaign(
    store: Store, executor: MadeUp, faults: tuple[Fault, ...] = USUAL_FAULTS
) -> CrashCampaign:
    cells = [Cell(cell.levels, make_crash_run().cell.workload) for cell in CELLS]
    return CrashCampaign(STUDY, cells, faults, executor.execute, store)


def go(
    store: Store,
    executor: MadeUp,
    faults: tuple[Fault, ...] = USUAL_FAULTS,
    retry: bool = False,
) -> tuple[str, int, list[CrashEvent]]:
    events: list[CrashEvent] = []
    ticks = iter(range(10_000))
    outcome = run_course(
        make_campaign(store, executor, faults),
        describe=str,
        on_event=events.append,
        retry=retry,
        now=lambda: float(next(ticks)),
    )
    left = outcome.standing.total - outcome.standing.done
    return outcome.reason, left, events


def test_every_verdict_is_made_once(store: Store) -> None:
    first, second = MadeUp(), MadeUp()
    reason, left, events = go(store, first)
    assert (reason, left, len(first.made)) == ("done", 0, 4)
    # On the bare host there is no guest to kill: 4 + 4 + 3 + 3.
    assert len(store.verdicts("s1")) == 14
    finished = [event.standing for event in events if isinstance(event, JobFinished)]
    assert [standing.done for standing in finished] == [4, 8, 11, 14]
    assert finished[-1].eta_seconds == 0
    assert isinstance(events[0], JobStarted) and events[0].standing.total == 14
    assert go(store, second)[:2] == ("done", 0)
    assert second.made == []


def test_only_what_is_missing_is_made(store: Store) -> None:
    go(store, MadeUp(), ("power",))
    more = MadeUp()
    go(store, more, ("power", "qemu-kill"))
    assert {faults for _, faults in more.made} == {("qemu-kill",)}


def test_undecided_verdicts_are_made_again_only_when_asked(store: Store) -> None:
    go(store, MadeUp(verdict="undecided"))
    again = MadeUp()
    assert go(store, again)[:2] == ("done", 0)
    assert again.made == []
    assert go(store, again, retry=True)[:2] == ("done", 0)
    assert len(again.made) == 4
    assert {row.verdict.verdict for row in store.verdicts("s1")} == {"keeps"}


def test_a_question_of_which_no_answer_is_kept_leaves_no_study(store: Store) -> None:
    """`crash flushes` has a study only while it asks, unless that holds something."""
    store.add_study(STUDY)
    with start_telling(store, "s1") as tell:
        tell("flushes", Standing(0, 0, 1, float("nan")))
        store.remove_unused_study("s1")
        progress = store.progress()
        assert progress is not None and progress.eta_seconds is None
    store.remove_unused_study("s1")
    assert store.studies() == []
    go(store, MadeUp(stop_at=1))
    store.remove_unused_study("s1")
    assert [study.id for study in store.studies()] == ["s1"]
    assert len(store.verdicts("s1")) == 4


def test_what_failed_alone_is_not_run_beside_writeback(store: Store) -> None:
    alone = Cell(CELLS[0].levels, make_crash_run().cell.workload)
    cells = [alone, beside_writeback(alone)]

    def fail(cell: Cell, faults: Sequence[Fault], tell: Tell) -> CrashRun:
        made = MadeUp(verdict="undecided").execute(cell, faults, tell)
        return replace(made, failure=Failure("tool", "the writer ended with status 3"))

    def forbid(cell: Cell, faults: Sequence[Fault], tell: Tell) -> CrashRun:
        raise AssertionError(f"{cell} was run again")

    for make, count, failed, retry in (
        (fail, 4, 4, False),
        (forbid, 4, 0, False),
        (MadeUp().execute, 5, 0, True),
    ):
        campaign = CrashCampaign(STUDY, cells, USUAL_FAULTS, make, store)
        outcome = run_course(campaign, describe=str, on_event=lambda event: None, retry=retry)
        assert outcome.reason == "done"
        standing = outcome.standing
        assert (standing.done, standing.total, standing.failed) == (count, count, failed)
        assert len(store.verdicts("s1")) == count


def test_what_failed_on_one_disk_is_run_beside_writeback_on_others(store: Store) -> None:
    workload = make_crash_run().cell.workload
    alone = [Cell((("cache", cache), ("frontend", "guest")), workload) for cache in ("a", "b")]
    made = MadeUp()

    def fail_on_a(cell: Cell, faults: Sequence[Fault], tell: Tell) -> CrashRun:
        run = made.execute(cell, faults, tell)
        failure = Failure("guest", "the guest is gone") if cell.level("cache") == "a" else None
        return replace(run, failure=failure)

    cells = [each for cell in alone for each in (cell, beside_writeback(cell))]
    campaign = CrashCampaign(STUDY, cells, USUAL_FAULTS, fail_on_a, store)
    outcome = run_course(campaign, describe=str, on_event=lambda event: None)
    standing = outcome.standing
    assert (standing.done, standing.total, standing.failed) == (9, 9, 4)
    told = {(row.cell.level("cache"), row.cell.level("beside")) for row in store.verdicts("s1")}
    assert told == {("a", ""), ("b", ""), ("b", "writeback")}
