"""What a store promises, of SQLite and of a real PostgreSQL server (which must be installed)."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diskproof.errors import DiskproofError, HostError, UsageError
from diskproof.records import (
    Artefact,
    Cell,
    Check,
    Dropped,
    Failure,
    Histogram,
    HostRecord,
    Metric,
    RunRecord,
    Series,
    StudyRecord,
    WorkloadSpec,
)
from diskproof.store import DuplicateRun, Progress, Store, open_store
from support.databases import make_cluster, start_server
from support.simulate import SimulatedExecutor, Simulation, run_study, start_store
from test_lab import SCHEDULE, STUDY

pytestmark = pytest.mark.long

KINDS = ("sqlite", "postgresql")
HOST = HostRecord("h1", "lab", {"cpus": 2, "note": "a \u00b5 \U0001f4be"})
CELLS = tuple(
    Cell((("cache", cache), ("format", "raw")), WorkloadSpec(load, "fio", (("bs", "4k"),)))
    for cache in ("none", "unsafe")
    for load in ("read", "write")
)
EMPTY = StudyRecord(
    "s1",
    "disks",
    "run",
    "name = 'disks'",
    7,
    3,
    CELLS,
    (Dropped("no", 2, (("aio", "x"),)),),
    ("w",),
)


@pytest.fixture(scope="session")
def database() -> Iterator[Callable[[], str]]:
    """Makes URLs of empty databases on one server."""
    with make_cluster() as folder, start_server(folder, "fsync=off") as server:
        yield server.new_database


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "store.sqlite")
    return str(request.getfixturevalue("database")())


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url, create=True) as opened:
        opened.add_study(EMPTY)
        opened.add_host(HOST)
        yield opened


def make_run(number: int, cell: Cell = CELLS[0], block: int = 0, value: float = 1.0) -> RunRecord:
    metrics = (
        Metric("iops", "1/s", value, True, True),
        Metric("latency_p99", "s", 1 / value, False),
    )
    return RunRecord(f"r{number}", "s1", cell, block, 0, 1.0, 2.0, "ok", "h1", metrics=metrics)


FULL = replace(
    make_run(1),
    checks=(Check("cache.direct", "on", "off", "QMP", False),) * 2,
    series=(Series("host", "cpu", "%", (0.0, 0.5, 1.0), (1.0, 1e-300, 3.0)),) * 2,
    histograms=(Histogram("read", (1e-5, 2e-5), (3, (1 << 63) - 1)),),
    artefacts=(Artefact("fio.json", "application/json", b"\0\xff" * 1000), Artefact("e", "x", b"")),
    phases=(("boot", 3.25), ("workload", 10.0)),
)  # fmt: skip
FAILED = replace(
    make_run(2), status="failed", metrics=(), failure=Failure("guest", "panic", "why", "hint")
)


# -- what goes in comes out -----------------------------------------------------------------


@pytest.mark.parametrize("run", [FULL, FAILED], ids=["good", "failed"])
def test_a_run_comes_out_as_it_went_in(store: Store, run: RunRecord) -> None:
    store.add_run(run)
    assert store.run(run.id) == run


def test_studies_and_hosts_come_out_as_they_went_in(store: Store) -> None:
    assert store.studies() == [EMPTY] and store.hosts() == [HOST]
    assert store.find_study("disks") == store.find_study("s1") == EMPTY
    assert store.find_study("other") is None
    with pytest.raises(UsageError, match="has no run 'r9'"):
        store.run("r9")


def test_a_store_outlives_its_process(url: str) -> None:
    with open_store(url, create=True) as first:
        first.add_study(EMPTY)
        first.add_host(HOST)
        first.add_run(FULL)
    with open_store(url) as second:
        assert second.run("r1") == FULL


def test_a_study_is_prolonged_never_shortened(store: Store) -> None:
    store.add_study(replace(EMPTY, blocks=9, cells=CELLS[:1]))
    (study,) = store.studies()
    assert (study.blocks, study.cells) == (9, CELLS)
    more = Cell((("cache", "directsync"),), CELLS[0].workload)
    store.add_study(replace(EMPTY, cells=(more, *CELLS)))
    assert store.studies()[0].cells == (*CELLS, more)
    store.add_host(replace(HOST, facts={"cpus": 4}))
    assert store.hosts()[0].facts == {"cpus": 4}


TEXT = st.text(max_size=20)
NAME = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=20)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ARRAYS = st.lists(st.tuples(FLOATS, FLOATS), max_size=5).map(
    lambda pairs: (tuple(a for a, _ in pairs), tuple(b for _, b in pairs))
)
COUNTS = st.lists(st.tuples(FLOATS, st.integers(0, (1 << 63) - 1)), max_size=5)
RUNS = st.builds(
    replace,
    st.just(make_run(1)),
    started=FLOATS,
    ended=FLOATS,
    metrics=st.lists(
        st.builds(Metric, NAME, NAME, FLOATS, st.booleans(), st.booleans()),
        max_size=4,
        unique_by=lambda metric: metric.name,
    ).map(tuple),
    series=st.lists(
        st.builds(lambda name, arrays: Series("host", name, "%", *arrays), NAME, ARRAYS), max_size=3
    ).map(tuple),
    histograms=st.lists(
        st.builds(
            lambda name, pairs: Histogram(
                name, tuple(edge for edge, _ in pairs), tuple(count for _, count in pairs)
            ),
            NAME,
            COUNTS,
        ),
        max_size=3,
    ).map(tuple),
    artefacts=st.lists(st.builds(Artefact, NAME, NAME, st.binary(max_size=50)), max_size=3).map(
        tuple
    ),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(run=RUNS)
def test_any_run_comes_out_to_the_last_bit(store: Store, run: RunRecord) -> None:
    block = len(store.runs("s1"))
    run = replace(run, id=f"r{block}", block=block)
    store.add_run(run)
    assert store.run(run.id) == run


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXT)
def test_whatever_a_guest_printed_its_run_is_kept(store: Store, text: str) -> None:
    block = len(store.runs("s1"))
    hostile = f"{text}\0\ud800 '; DROP TABLE run; --"
    failure = Failure("guest", hostile, hostile, hostile)
    store.add_run(replace(FAILED, id=f"r{block}", block=block, failure=failure))
    kept = store.run(f"r{block}").failure
    assert kept is not None and kept.what.endswith("DROP TABLE run; --") and "\0" not in kept.what


# -- what is counted ------------------------------------------------------------------------


def test_results_are_by_cell_and_metric_in_the_order_of_blocks(store: Store) -> None:
    for number, block in enumerate((2, 0, 1)):
        store.add_run(make_run(number, CELLS[1], block, 10.0 + block))
    store.add_run(make_run(9, CELLS[0], 0, 5.0))
    rows = store.results("disks")
    assert [(row.cell, row.metric) for row in rows] == [
        (cell, metric) for cell in CELLS[:2] for metric in ("iops", "latency_p99")
    ]
    assert (rows[2].values, rows[2].blocks) == ((10.0, 11.0, 12.0), (0, 1, 2))
    assert rows[2].run_ids == ("r1", "r2", "r0")
    assert [row.metric for row in store.results(metric="iops")] == ["iops"] * 2
    assert store.results("s2") == []


def test_the_same_run_again_does_nothing_another_of_its_place_is_refused(store: Store) -> None:
    store.add_run(FULL)
    store.add_run(FULL)
    with pytest.raises(DuplicateRun, match="run r7 cannot be stored"):
        store.add_run(make_run(7))
    with pytest.raises(DuplicateRun):
        store.add_run(make_run(1, block=1))
    assert [run.id for run in store.runs("s1")] == ["r1"] and store.run("r1") == FULL


def test_failed_runs_count_until_they_are_replaced(store: Store) -> None:
    store.add_run(FAILED)
    assert store.finished_runs("s1") == {(0, CELLS[0].id)}
    assert [run.id for run in store.failures("s1")] == ["r2"]
    counts = store.counts("s1")
    assert (counts.planned, counts.ok, counts.failed) == (12, 0, 1)
    assert store.remove_failed("s1") == 1 and store.remove_failed("s1") == 0
    assert store.finished_runs("s1") == set() and store.failures("s1") == []
    store.add_run(make_run(3))
    assert [(run.id, run.counted) for run in store.runs("s1")] == [("r2", False), ("r3", True)]
    assert store.run("r2") == FAILED
    assert store.results("s1")[0].run_ids == ("r3",)


def test_a_study_is_resumed_where_it_was_and_failed_runs_are_made_again(url: str) -> None:
    """The lab's loop on this kind of store: cut short, resumed, failed runs retried."""
    with start_store(url) as store:
        executor = SimulatedExecutor(STUDY.id, Simulation(failure_rate=0.2))
        run_study(STUDY, SCHEDULE[:20], executor, store)
    with open_store(url) as store:
        assert len(store.finished_runs(STUDY.id)) == 20
        outcome = run_study(STUDY, SCHEDULE, executor, store)
        assert outcome.executed == len(SCHEDULE) - 20
        failed = len(store.failures(STUDY.id))
        assert failed == outcome.standing.failed > 0
        again = SimulatedExecutor(STUDY.id, started=2e9)
        retried = run_study(STUDY, SCHEDULE, again, store, retry=True)
        assert (retried.executed, store.failures(STUDY.id)) == (failed, [])
        assert len(store.runs(STUDY.id)) == len(SCHEDULE) + failed


# -- all or nothing -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        make_run(5, Cell((("cache", "x"),), CELLS[0].workload)),
        replace(make_run(5), host_id="nobody"),
        replace(make_run(5), study_id="s9"),
        replace(make_run(5), metrics=(Metric("iops", "1/s", float("nan"), True),)),
        replace(make_run(5), series=(Series("host", "x", "%", (1.0,), ()),)),
        replace(make_run(5), histograms=(Histogram("x", (1.0,), (-1,)),)),
        replace(make_run(5), block=-1),
        replace(make_run(5), status="failed"),
        make_run(1, block=1),
    ],
)
def test_a_run_that_cannot_be_stored_takes_a_whole_import_with_it(
    store: Store, bad: RunRecord
) -> None:
    store.add_run(FULL)
    other = replace(EMPTY, blocks=77)
    runs = [make_run(2, CELLS[1]), make_run(3, CELLS[2]), bad]
    with pytest.raises(UsageError):
        store.add_imported(other, replace(HOST, facts={}), runs)
    assert store.studies() == [EMPTY] and store.hosts() == [HOST]
    assert [run.id for run in store.runs("s1")] == ["r1"]


def test_progress_is_of_the_moment(store: Store) -> None:
    progress = Progress("s1", 1, "boot", "lab", 1.0, 10, 2, 1, "cell \0 x", None, 5.0)
    store.set_progress(progress)
    store.set_progress(replace(progress, done=3, eta_seconds=2.5))
    shown = store.progress()
    assert shown is not None and (shown.done, shown.eta_seconds) == (3, 2.5)
    store.clear_progress("s1")
    assert store.progress() is None


# -- several at once ------------------------------------------------------------------------


def in_threads(*works: Callable[[], None]) -> None:
    """Run all at once; the first error of any is raised here."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(works))

    def guarded(work: Callable[[], None]) -> None:
        try:
            barrier.wait()
            work()
        except BaseException as error:  # noqa: BLE001 - handed over to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_two_writers_lose_nothing_and_readers_see_whole_runs(store: Store, url: str) -> None:
    writers = 2
    partial = []

    def write(writer: int) -> None:
        with open_store(url) as own:
            for block in range(30):
                run = replace(FULL, id=f"w{writer}-{block}", cell=CELLS[writer], block=block)
                own.add_run(run)

    def read() -> None:
        with open_store(url) as own:
            for _ in range(30):
                rows = own.results("s1")
                by_cell: dict[str, set[tuple[str, ...]]] = {}
                for row in rows:
                    by_cell.setdefault(row.cell.id, set()).add(row.run_ids)
                # Both metrics of a run are seen, or none of them.
                partial.extend(ids for ids in by_cell.values() if len(ids) != 1)

    in_threads(*(lambda n=n: write(n) for n in range(writers)), read)  # type: ignore[misc]
    assert partial == []
    assert len(store.runs("s1")) == 60
    assert {row.blocks for row in store.results("s1")} == {tuple(range(30))}


def test_of_two_runs_for_one_place_exactly_one_counts(store: Store, url: str) -> None:
    refused: list[str] = []

    def write(writer: int) -> None:
        with open_store(url) as own:
            for block in range(30):
                run = replace(make_run(0), id=f"w{writer}-{block}", block=block)
                try:
                    own.add_run(run)
                except DuplicateRun:
                    refused.append(run.id)

    in_threads(lambda: write(0), lambda: write(1))
    stored = [run.id for run in store.runs("s1")]
    assert len(stored) == 30 and sorted([*stored, *refused]) == sorted(
        f"w{writer}-{block}" for writer in range(2) for block in range(30)
    )


def test_a_store_is_made_once_however_many_try(url: str) -> None:
    def make() -> None:
        open_store(url, create=True).close()

    in_threads(*[make] * 4)
    with open_store(url) as store:
        assert store.studies() == []


# -- wrong places ---------------------------------------------------------------------------


def test_without_create_nothing_is_made(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert caught.value.hint
    with pytest.raises(UsageError):
        open_store(url)


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("mysql://x/y", UsageError),
        ("://", UsageError),
        ("postgresql://nobody:secret@/x?host=/nowhere", HostError),
        ("postgresql://nobody:secret@127.0.0.1:1/x", HostError),
        ("/nowhere/store.sqlite", HostError),
        ("/", UsageError),
    ],
)
def test_a_place_where_no_store_can_be_is_explained(place: str, kind: type[DiskproofError]) -> None:
    with pytest.raises(kind) as caught:
        open_store(place, create=True)
    assert caught.value.hint or caught.value.why
    assert "secret" not in str(caught.value)
