"""A study that stops when it is decided: a real store, the simulated executor."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskproof.lab.course import JobFinished, JobStarted, Noted
from diskproof.measure.next import MeasureEvent
from diskproof.records import PlannedRun, RunRecord
from diskproof.stats.study_race import race_rules, replay_races
from diskproof.store import Store
from diskproof.store.race_scores import race_scores
from support.simulate import (
    Measured,
    SimulatedExecutor,
    Simulation,
    run_study,
    start_store,
    true_iops,
)
from test_lab import Stopping, kill_loop_at, make_record

pytestmark = pytest.mark.long

TEXT = """
name = "race"
workloads = ["rand-read-4k-d1", "sync-write-4k"]
[factors]
format = ["raw", "qcow2"]
cache = ["none", "writeback", "unsafe"]
aio = ["threads", "io_uring"]
[protocol]
size = "256MiB"
stop = "decided"
max_blocks = 12
"""
STUDY, SCHEDULE = make_record(TEXT)
SIMULATION = Simulation(seed=3, cv=0.05)
Runs = list[tuple[int, str]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with start_store(tmp_path / "store.sqlite") as opened:
        yield opened


def run_race(
    store: Store, simulation: Simulation = SIMULATION
) -> tuple[Measured, list[MeasureEvent]]:
    events: list[MeasureEvent] = []
    executor = SimulatedExecutor(STUDY.id, simulation)
    return run_study(STUDY, SCHEDULE, executor, store, on_event=events.append), events


def stored(store: Store) -> Runs:
    return [(run.block, run.cell.id) for run in store.runs(STUDY.id) if run.counted]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Measured, list[MeasureEvent], Runs]:
    """The race in one go."""
    path = tmp_path_factory.mktemp("whole") / "store.sqlite"
    with start_store(path) as store:
        return *run_race(store), stored(store)


Whole = tuple[Measured, list[MeasureEvent], Runs]


def test_each_workload_races_to_its_best_cell_in_a_part_of_the_runs(whole: Whole) -> None:
    outcome, _, runs = whole
    assert outcome.reason == "done"
    assert len(runs) == outcome.executed == outcome.standing.total < 0.4 * 10 * len(STUDY.cells)
    assert [race.workload for race in outcome.races] == ["rand-read-4k-d1", "sync-write-4k"]
    for race in outcome.races:
        (leader,) = race.leaders
        assert true_iops(leader) >= 0.98 * max(map(true_iops, race.cells))
        assert race.verdict is not None and race.verdict.settled and race.course.over
        assert race.verdict.probability > 0.95
    assert all(race.course.over and race.course.settled for race in outcome.races)


def test_who_was_dropped_does_not_run_again_and_the_event_says_why(whole: Whole) -> None:
    _, events, runs = whole
    out: dict[str, int] = {}
    for event in events:
        if isinstance(event, Noted):
            assert event.news.verdict is not None
            for drop in event.news.verdict.dropped:
                cell, rival = event.news.cells[drop.cell], event.news.cells[drop.rival]
                assert drop.reason == "slower" and 0 < drop.ratio < drop.at_most < 1
                assert true_iops(cell) < true_iops(rival)
                out[cell.id] = drop.block
    assert len(out) > 12
    assert all(block <= out.get(cell, 99) for block, cell in runs)


def test_blocks_stay_complete_and_their_order_is_that_of_the_schedule(whole: Whole) -> None:
    _, events, runs = whole
    place = {(run.block, run.cell.id): number for number, run in enumerate(SCHEDULE)}
    assert [place[run] for run in runs] == sorted(place[run] for run in runs)
    for event in events:
        if isinstance(event, Noted):
            last = len(event.news.course.verdicts) - 1
            ran = {cell for block, cell in runs if block == last}
            entered = {event.news.cells[place].id for place in event.news.course.entries[last]}
            assert entered <= ran


def test_what_remains_is_told_as_if_nobody_else_left(whole: Whole) -> None:
    _, events, _ = whole
    totals = [event.standing.total for event in events if isinstance(event, JobStarted)]
    assert totals[0] == len(SCHEDULE)
    assert totals == sorted(totals, reverse=True)
    for event in events:
        if isinstance(event, Noted):
            assert 1 <= event.news.racing <= len(event.news.cells) == 12


@pytest.mark.parametrize("after", [1, 23, 24, 47, 48, 49, 53, 60, 66])
def test_a_stopped_race_takes_the_same_course(store: Store, whole: Whole, after: int) -> None:
    stopping = Stopping(SimulatedExecutor(STUDY.id, SIMULATION), after)
    outcome = run_study(STUDY, SCHEDULE, stopping, store)
    assert outcome.reason == "interrupted"
    again, _ = run_race(store)
    assert (stored(store), again.races) == (whole[2], whole[0].races)


def test_a_stopped_race_for_the_likely_best_takes_the_same_course(tmp_path: Path) -> None:
    study, schedule = make_record(TEXT.replace('"decided"', '"likely"'))
    courses = []
    for name, after in (("whole", 10**6), ("parts", 27)):
        with start_store(tmp_path / name) as opened:
            for executor in (Stopping(SimulatedExecutor(study.id, SIMULATION), after),
                             SimulatedExecutor(study.id, SIMULATION)):  # fmt: skip
                outcome = run_study(study, schedule, executor, opened)
            courses.append((stored(opened), outcome.races))
            assert replay_races(study, race_scores(opened, study.id)) == outcome.races
    assert courses[0] == courses[1] and len(courses[0][0]) < 3 * len(study.cells)


def test_a_race_killed_again_and_again_takes_the_same_course(
    store: Store, tmp_path: Path, whole: Whole
) -> None:
    for number, events in enumerate((3, 60, 35, 20)):
        path, log = tmp_path / "store.sqlite", tmp_path / f"log{number}"
        assert len(kill_loop_at("test_lab_race", path, log, events)) == events
    assert 48 < len(stored(store)) < len(whole[2])
    outcome, _ = run_race(store)
    assert (stored(store), outcome.races) == (whole[2], whole[0].races)


def test_the_course_can_be_told_from_the_store_alone(store: Store, whole: Whole) -> None:
    run_race(store)
    (study,) = store.studies()
    assert replay_races(study, race_scores(store, study.id)) == whole[0].races


def test_a_finished_race_is_done_at_once(store: Store) -> None:
    first, _ = run_race(store)
    again, events = run_race(store)
    assert (again.executed, again.races) == (0, first.races)
    assert [type(event).__name__ for event in events] == ["Stopped"]


def test_runs_of_a_study_in_blocks_count_when_it_becomes_a_race(store: Store, whole: Whole) -> None:
    plain = TEXT.replace('stop = "decided"\nmax_blocks = 12', "blocks = 2")
    study, schedule = make_record(plain)
    assert study.id == STUDY.id and race_rules(study) is None
    executor = SimulatedExecutor(STUDY.id, SIMULATION)
    assert run_study(study, schedule, executor, store).races == ()
    outcome, _ = run_race(store)
    assert outcome.races == whole[0].races
    assert set(stored(store)) >= set(whole[2])


def test_a_longer_race_begins_with_the_course_of_the_shorter_one(store: Store) -> None:
    noisy = Simulation(seed=7, cv=0.3)
    first, _ = run_race(store, noisy)
    assert any(race.course.over and not race.course.settled for race in first.races)
    assert first.standing.total == first.standing.done
    longer, schedule = make_record(TEXT.replace("max_blocks = 12", "max_blocks = 14"))
    executor = SimulatedExecutor(STUDY.id, noisy)
    then = run_study(longer, schedule, executor, store)
    for before, after in zip(first.races, then.races, strict=True):
        assert after.course.verdicts[: len(before.course.verdicts)] == before.course.verdicts
        more = len(after.course.verdicts) > len(before.course.verdicts)
        assert more or after.course.settled or after.course.verdicts[-1].blocks_needed > 14


def test_a_budget_gives_the_best_answer_so_far_and_how_sure_it_is(store: Store) -> None:
    executor = SimulatedExecutor(STUDY.id, Simulation(seed=4, cv=0.08))
    one_block = 24 * 13.0
    outcome = run_study(
        STUDY, SCHEDULE, executor, store,
        budget_seconds=2.3 * one_block, now=executor.now,
    )  # fmt: skip
    assert outcome.reason == "budget"
    for race in outcome.races:
        assert race.verdict is not None and len(race.leaders) == 1
        assert 0 < race.verdict.probability < 1 and 0 < race.verdict.lead_at_least < 0.98
    nothing = run_study(STUDY, SCHEDULE, executor, store, budget_seconds=0, now=executor.now)
    assert (nothing.executed, nothing.races) == (0, outcome.races)


def test_failed_runs_do_not_hold_a_race_up(store: Store) -> None:
    outcome, events = run_race(store, Simulation(seed=2, cv=0.03, failure_rate=0.15))
    failed = sum(e.run.status == "failed" for e in events if isinstance(e, JobFinished))
    assert outcome.reason == "done" and failed == outcome.standing.failed > 5
    for race in outcome.races:
        assert true_iops(race.leaders[0]) >= 0.9 * max(map(true_iops, race.cells))


class Broken(SimulatedExecutor):
    """One cache mode never works."""

    def execute(self, planned: PlannedRun) -> RunRecord:
        self.simulation = Simulation(
            SIMULATION.seed, SIMULATION.cv, failure_rate=planned.cell.level("cache") == "unsafe"
        )
        return super().execute(planned)


def test_cells_that_never_give_a_value_leave(store: Store) -> None:
    outcome = run_study(STUDY, SCHEDULE, Broken(STUDY.id), store)
    for race in outcome.races:
        failed = [drop for drop in race.course.drops if drop.reason == "failed"]
        assert {race.cells[drop.cell].level("cache") for drop in failed} == {"unsafe"}
        assert all(drop.block == 1 and math.isnan(drop.ratio) for drop in failed)
        assert race.leaders[0].level("cache") == "writeback"


def test_a_retry_of_failed_runs_may_change_the_course(store: Store, whole: Whole) -> None:
    """Failed runs made again make their blocks what they would have been."""
    run_study(STUDY, SCHEDULE, Broken(STUDY.id), store)
    executor = SimulatedExecutor(STUDY.id, SIMULATION, started=2e9)
    outcome = run_study(STUDY, SCHEDULE, executor, store, retry=True)
    assert outcome.races == whole[0].races
