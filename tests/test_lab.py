"""The loop: a real store, the simulated executor (and a real full disk; that needs root)."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskproof.errors import HostError
from diskproof.lab.course import JobFinished, JobStarted, Stopped
from diskproof.measure.next import MeasureEvent
from diskproof.plan import estimate_seconds, make_plan
from diskproof.plan.schedule import make_schedule
from diskproof.process import start as proc
from diskproof.records import PlannedRun, RunRecord, StudyRecord
from diskproof.store import Store, open_store
from diskproof.study.load import parse_study
from support.memory_disks import start_memory_disk
from support.planning import FACTS
from support.simulate import SimulatedExecutor, Simulation, run_study, start_store, true_iops

TEXT = """
name = "loop"
workloads = ["rand-read-4k-d1", "sync-write-4k"]
[factors]
frontend = ["host", "daemon", "guest"]
cache = ["none", "writeback", "unsafe"]
[protocol]
size = "256MiB"
blocks = 3
"""


def make_record(text: str = TEXT) -> tuple[StudyRecord, tuple[PlannedRun, ...]]:
    study = parse_study(text)
    cells = make_plan(study, FACTS).cells
    schedule = make_schedule(cells, study.blocks, study.seed)
    record = StudyRecord(study.id, study.name, "run", text, study.seed, study.blocks, cells)
    return record, schedule


STUDY, SCHEDULE = make_record()
SIMULATION = Simulation()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with start_store(tmp_path / "store.sqlite") as opened:
        yield opened


class Stopping:
    """Executes until ``stop`` says otherwise, then acts like Ctrl-C in the middle of a run."""

    def __init__(self, executor: SimulatedExecutor, after: int) -> None:
        self.executor = executor
        self.left = after

    def execute(self, planned: PlannedRun) -> RunRecord:
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)
        self.left -= 1
        return self.executor.execute(planned)


def test_a_study_runs_to_its_end(store: Store) -> None:
    events: list[MeasureEvent] = []
    executor = SimulatedExecutor(STUDY.id)
    outcome = run_study(STUDY, SCHEDULE, executor, store, on_event=events.append, now=executor.now)
    total = len(SCHEDULE)
    assert (outcome.reason, outcome.executed, outcome.standing.done) == ("done", total, total)
    assert outcome.standing.eta_seconds == pytest.approx(0, abs=1e-6)
    kinds = [type(event) for event in events]
    assert kinds == [JobStarted, JobFinished] * total + [Stopped]
    started = [event.job for event in events if isinstance(event, JobStarted)]
    assert started == list(SCHEDULE)
    assert store.finished_runs(STUDY.id) == {(run.block, run.cell.id) for run in SCHEDULE}
    assert store.progress() is None


def test_a_finished_study_is_done_at_once_and_more_blocks_prolong_it(store: Store) -> None:
    executor = SimulatedExecutor(STUDY.id)
    run_study(STUDY, SCHEDULE, executor, store)
    again = run_study(STUDY, SCHEDULE, executor, store)
    assert (again.executed, again.standing.done) == (0, len(SCHEDULE))
    longer, schedule = make_record(TEXT.replace("blocks = 3", "blocks = 5"))
    assert longer.id == STUDY.id
    more = run_study(longer, schedule, executor, store)
    assert more.executed == len(schedule) - len(SCHEDULE)


def test_failed_runs_are_results_until_a_retry_is_asked_for(store: Store) -> None:
    failing = SimulatedExecutor(STUDY.id, Simulation(failure_rate=0.3))
    first = run_study(STUDY, SCHEDULE, failing, store)
    failed = first.standing.failed
    assert 0 < failed < len(SCHEDULE) and first.reason == "done"
    well = SimulatedExecutor(STUDY.id, started=2e9)
    again = run_study(STUDY, SCHEDULE, well, store)
    assert (again.executed, again.standing.failed) == (0, failed)
    retried = run_study(STUDY, SCHEDULE, well, store, retry=True)
    assert (retried.executed, retried.standing.failed) == (failed, 0)
    assert sum(not run.counted for run in store.runs(STUDY.id)) == failed


def test_the_budget_is_not_overshot_by_a_run_that_was_known_to_be_too_long(store: Store) -> None:
    executor = SimulatedExecutor(STUDY.id)
    events: list[MeasureEvent] = []
    budget = 300.0
    outcome = run_study(
        STUDY,
        SCHEDULE,
        executor,
        store,
        on_event=events.append,
        budget_seconds=budget,
        now=executor.now,
    )
    stopped = events[-1]
    assert isinstance(stopped, Stopped) and stopped.reason == outcome.reason == "budget"
    # Costs vary by some percent from run to run: at most that of one run is over.
    assert outcome.seconds < budget + 2
    assert outcome.seconds + stopped.next_seconds > budget
    assert run_study(
        STUDY, SCHEDULE, executor, store, budget_seconds=0, now=executor.now
    ).executed == 0  # fmt: skip


@pytest.mark.parametrize("factor", [0.4, 1.0, 3.0])
def test_the_eta_is_true_after_a_tenth_of_the_runs(store: Store, factor: float) -> None:
    """Also where runs take much longer or shorter than estimated before any was made."""
    study, schedule = make_record(TEXT.replace("blocks = 3", "blocks = 10"))

    class Slow(SimulatedExecutor):
        def execute(self, planned: PlannedRun) -> RunRecord:
            record = super().execute(planned)
            self._clock += (factor - 1) * estimate_seconds(planned.cell)
            return record

    executor = Slow(study.id)
    etas: list[tuple[float, float]] = []

    def note(event: MeasureEvent) -> None:
        if isinstance(event, JobFinished):
            etas.append((executor.now(), event.standing.eta_seconds))

    run_study(study, schedule, executor, store, on_event=note, now=executor.now)
    end = executor.now()
    for when, eta in etas[len(schedule) // 10 : -3]:
        assert eta == pytest.approx(end - when, rel=0.15)


def test_a_resumed_study_knows_costs_and_winners_from_the_store(store: Store) -> None:
    executor = SimulatedExecutor(STUDY.id)
    half = Stopping(executor, len(SCHEDULE) // 2)
    before = run_study(STUDY, SCHEDULE, half, store, now=executor.now)
    events: list[MeasureEvent] = []
    still = run_study(STUDY, SCHEDULE, executor, store, on_event=events.append, budget_seconds=0.0)
    first = events[0]
    assert isinstance(first, Stopped) and first.reason == "budget"
    assert first.standing.eta_seconds == pytest.approx(before.standing.eta_seconds, rel=0.01)
    assert {b.cell.id: b.runs for b in still.best} == {b.cell.id: b.runs for b in before.best}


def test_best_so_far_is_the_best_in_the_end(store: Store) -> None:
    executor = SimulatedExecutor(STUDY.id, Simulation(cv=0.02))
    best = run_study(STUDY, SCHEDULE, executor, store).best
    for each in best:
        cells = [c for c in STUDY.cells if c.workload == each.cell.workload]
        assert each.cell == max(cells, key=true_iops)
        assert each.mean == pytest.approx(true_iops(each.cell), rel=0.1)
        assert each.runs == 3


def test_best_follows_a_leader_that_falls_back_and_metrics_where_less_is_better() -> None:
    from diskproof.measure.next import BestCells
    from diskproof.records import Metric

    first, second = STUDY.cells[0], next(
        c for c in STUDY.cells[1:] if c.workload == STUDY.cells[0].workload
    )  # fmt: skip
    best = BestCells()
    for cell, value in ((first, 1.0), (second, 2.0), (first, 9.0)):
        best.add(cell, Metric("seconds", "s", value, False, True))
    assert [(b.cell, b.mean) for b in best.leaders.values()] == [(second, 2.0)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_store_without_room_stops_the_study_and_loses_nothing(tmp_path: Path) -> None:
    with start_memory_disk(tmp_path / "small", "size=1m") as point:
        with start_store(point / "store.sqlite") as store:
            finished: list[str] = []

            def note(event: MeasureEvent) -> None:
                if isinstance(event, JobFinished):
                    finished.append(event.run.id)

            study, schedule = make_record(TEXT.replace("blocks = 3", "blocks = 60"))
            with pytest.raises(HostError, match="no space left for the store"):
                run_study(study, schedule, SimulatedExecutor(study.id), store, on_event=note)
            assert 0 < len(finished) < len(schedule)
        proc.run(["mount", "-o", "remount,size=64m", str(point)], timeout=10)
        with open_store(str(point / "store.sqlite")) as store:
            assert [run.id for run in store.runs(study.id)] == finished
            outcome = run_study(study, schedule, SimulatedExecutor(study.id), store)
            assert outcome.reason == "done"


LOOP = """
import signal, sys
from diskproof.store import open_store
from {module} import STUDY, SCHEDULE, SIMULATION, SimulatedExecutor, run_study
left = int(sys.argv[2])
def tell(event):
    global left
    left -= 1
    print(type(event).__name__, flush=True)
    if not left:
        signal.pause()
with open_store(sys.argv[1]) as store:
    run_study(STUDY, SCHEDULE, SimulatedExecutor(STUDY.id, SIMULATION), store, on_event=tell)
"""


def kill_loop_at(module: str, path: Path, log: Path, events: int) -> list[str]:
    """Run a test module's study in a process of its own and kill -9 it at an event; returns the
    events."""
    read, write = os.pipe()
    with os.fdopen(read) as told, os.fdopen(write, "wb") as tell:
        argv = [sys.executable, "-c", LOOP.format(module=module), str(path), str(events)]
        with proc.start_process(
            argv, name="loop", log=log, stdout=tell, cwd=Path(__file__).parent
        ) as loop:
            tell.close()
            lines = [next(told).strip() for _ in range(events)]
            os.kill(loop.pid, signal.SIGKILL)
            loop.wait(30)
        return lines


@pytest.mark.parametrize("events", [1, 2, 7, 30])
def test_a_killed_loop_loses_at_most_the_run_in_flight(
    store: Store, tmp_path: Path, events: int
) -> None:
    lines = kill_loop_at("test_lab", tmp_path / "store.sqlite", tmp_path / "log", events)
    stored = len(store.finished_runs(STUDY.id))
    told = lines.count("JobFinished")
    assert stored == told
    progress = store.progress()
    assert progress is not None and progress.pid != os.getpid()
    outcome = run_study(STUDY, SCHEDULE, SimulatedExecutor(STUDY.id), store)
    assert outcome.executed == len(SCHEDULE) - stored
    assert len(store.runs(STUDY.id)) == len(SCHEDULE)
