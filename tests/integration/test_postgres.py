"""A store on a real PostgreSQL server (must be installed) that dies, comes back, or is not ours."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from diskproof.errors import HostError, UsageError
from diskproof.lab.course import JobFinished, JobStarted, Warned
from diskproof.measure.next import MeasureEvent
from diskproof.process import start as proc
from diskproof.store import open_store
from support.databases import Server, make_cluster, start_server
from support.simulate import SIMULATED_HOST, SimulatedExecutor, run_study, start_store
from test_lab import SCHEDULE, STUDY

pytestmark = pytest.mark.long

ALL = {(run.block, run.cell.id) for run in SCHEDULE}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    with make_cluster() as folder:
        yield folder


@pytest.fixture
def server(cluster: Path) -> Iterator[Server]:
    with start_server(cluster) as started:
        yield started


@pytest.mark.parametrize("after", [0, 1, 25])
def test_a_server_that_is_killed_stops_the_study_and_loses_nothing(
    cluster: Path, server: Server, after: int
) -> None:
    """With the server's own fsync on: what was told as stored is there after its recovery."""
    url = server.new_database()
    finished: list[str] = []

    def note(event: MeasureEvent) -> None:
        if isinstance(event, JobFinished):
            finished.append(event.run.id)
        if len(finished) == after and not isinstance(event, Warned):
            server.kill()

    with start_store(url) as store:
        with pytest.raises(HostError, match="cannot be reached") as caught:
            executor = SimulatedExecutor(STUDY.id)
            run_study(STUDY, SCHEDULE, executor, store, on_event=note, patience=0.2)
        assert caught.value.hint and len(finished) == after
    in_hand = int(after == 0)  # it was killed while the first run was made
    assert ("kept in" in caught.value.why) == bool(in_hand)
    with start_server(cluster), open_store(url) as store:
        assert [run.id for run in store.runs(STUDY.id)] == finished
        assert _orphans(url) == 0
        outcome = run_study(STUDY, SCHEDULE, SimulatedExecutor(STUDY.id), store)
        assert outcome.executed == len(SCHEDULE) - after - in_hand
        assert store.finished_runs(STUDY.id) == ALL


def test_a_server_that_restarts_costs_no_run(cluster: Path) -> None:
    """Killed while a run is made, back when the study has said that it waits, run in hand."""
    told: list[str] = []
    with ExitStack() as servers:
        server = servers.enter_context(start_server(cluster))
        url = server.new_database()
        started = 0

        def note(event: MeasureEvent) -> None:
            nonlocal started
            started += isinstance(event, JobStarted)
            if isinstance(event, JobStarted) and started == 2:
                server.kill()
            if isinstance(event, Warned):
                told.append(event.text)
                if "is asked again" in event.text:
                    servers.enter_context(start_server(cluster))

        with start_store(url) as store:
            outcome = run_study(
                STUDY, SCHEDULE[:6], SimulatedExecutor(STUDY.id), store, on_event=note
            )
            assert (outcome.reason, outcome.executed) == ("done", 6)
            assert len(store.runs(STUDY.id)) == 6 and _orphans(url) == 0
    assert len(told) == 2 and "the finished run is kept meanwhile" in told[0], told
    assert told[1].startswith("the store is back after")


def test_a_server_that_crashes_inside_a_transaction_leaves_nothing_half(server: Server) -> None:
    """Its process is killed when the run's row and figures are written, and the rest is not."""
    url = server.new_database()
    executor = SimulatedExecutor(STUDY.id)
    crash = "COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'"
    with start_store(url) as store:
        store.add_study(STUDY)
        store.add_run(executor.execute(SCHEDULE[0]))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                f"CREATE FUNCTION crash() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN {crash}; RETURN NEW; END $$"
            )
            connection.execute(
                "CREATE TRIGGER crash BEFORE INSERT ON diskproof.histogram "
                "FOR EACH ROW EXECUTE FUNCTION crash()"
            )
        with pytest.raises(HostError, match="cannot be reached"):
            store.add_run(executor.execute(SCHEDULE[1]))
        server.wait_until_recovered()
        assert [(run.block, run.cell) for run in store.runs(STUDY.id)] == [(0, SCHEDULE[0].cell)]
        assert _orphans(url) == 0
    assert "was terminated by signal 9" in server.process.read_log().decode()


def _orphans(url: str) -> int:
    """Rows of parts whose run is not there, and runs without their figures."""
    query = (
        "SELECT (SELECT count(*) FROM diskproof.metric m LEFT JOIN diskproof.run r "
        "ON r.number = m.run_number WHERE r.number IS NULL) + "
        "(SELECT count(*) FROM diskproof.run r WHERE r.status = 'ok' AND NOT EXISTS "
        "(SELECT 1 FROM diskproof.metric m WHERE m.run_number = r.number))"
    )
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def test_a_connection_that_was_cut_between_two_runs_is_made_again(server: Server) -> None:
    """An idle connection that the server ended is no reason to stop."""
    url = server.new_database()
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"

    def note(event: MeasureEvent) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(cut + " AND datname = current_database()")

    with start_store(url) as store:
        schedule = SCHEDULE[:10]
        outcome = run_study(STUDY, schedule, SimulatedExecutor(STUDY.id), store, on_event=note)
        assert outcome.executed == len(store.runs(STUDY.id)) == 10


WRITER = """
import sys
sys.path[:0] = sys.argv[3:]
from dataclasses import replace
from test_lab import STUDY, SCHEDULE, SimulatedExecutor, open_store
from diskproof.store import DuplicateRun
url, part = sys.argv[1], int(sys.argv[2])
executor = SimulatedExecutor(STUDY.id, started=1e9 * (part + 1))
with open_store(url, create=True) as store:
    for planned in SCHEDULE:
        try:
            store.add_run(executor.execute(planned))
            print("stored", flush=True)
        except DuplicateRun:
            print("refused", flush=True)
"""


def test_two_processes_on_one_study_store_every_place_once(server: Server, tmp_path: Path) -> None:
    url = server.new_database()
    with start_store(url) as store:
        store.add_study(STUDY)
    outputs = [tmp_path / "first", tmp_path / "second"]
    argv = [sys.executable, "-c", WRITER, url]
    with outputs[0].open("wb") as out:
        with proc.start_process(
            [*argv, "0", *sys.path], name="writer", log=tmp_path / "log", stdout=out
        ) as first:
            second = proc.run([*argv, "1", *sys.path], timeout=120)
            assert first.wait(120) == 0, (tmp_path / "log").read_text()
    words = outputs[0].read_text().split() + second.text.split()
    assert words.count("stored") == words.count("refused") == len(SCHEDULE)
    with open_store(url) as store:
        assert len(store.runs(STUDY.id)) == len(SCHEDULE)
        assert store.finished_runs(STUDY.id) == ALL


def test_a_database_of_others_keeps_its_tables(server: Server) -> None:
    """Our tables live in a schema of their own: others' tables are neither seen nor touched."""
    url = server.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE run (number int); INSERT INTO run VALUES (42)")
    with pytest.raises(UsageError, match="not a diskproof store"):
        open_store(url)
    with open_store(url, create=True) as store:
        assert store.studies() == []
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT number FROM public.run").fetchall() == [(42,)]


def test_a_store_of_another_version_and_a_missing_database_are_told(server: Server) -> None:
    url = server.new_database()
    open_store(url, create=True).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE diskproof.diskproof_schema SET version = 99")
    with pytest.raises(UsageError, match="has version 99"):
        open_store(url)
    with pytest.raises(HostError, match="cannot be reached"):
        open_store(server.url("nowhere"))


def test_a_reader_without_the_right_to_write(server: Server) -> None:
    """Results can be given to a user who may read only; what he cannot do is told."""
    url = server.new_database()
    with open_store(url, create=True) as store:
        store.add_study(STUDY)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA diskproof TO reader")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA diskproof TO reader")
    with open_store(url.replace("diskproof@", "reader@")) as store:
        assert store.studies()[0].id == STUDY.id
        with pytest.raises(HostError, match="denies access"):
            store.add_host(SIMULATED_HOST)
