"""Stores that strangers made: what could run in one is refused when it is opened."""

import json
import resource
import signal
import sqlite3
import subprocess
import sys
import time
import zlib
from functools import partial
from pathlib import Path

import pytest

from diskproof.errors import UsageError
from diskproof.store import open_store
from support.simulated_stores import fill, simulated_cells
from test_store import EMPTY, FULL, HOST
from test_store_golden import read_answers

ENDLESS = (
    "with recursive r(n) as (select 1 union all select n + 1 from r)"
    " select n as id, 'h' as name, '{}' as facts from r where n < 0"
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return fill(tmp_path / "store.sqlite", simulated_cells(), blocks=2)


def alter(store: Path, *statements: str) -> None:
    with sqlite3.connect(store) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (["alter table host rename to h2", f"create view host as {ENDLESS}"], "h2"),
        ([f"create view other as {ENDLESS}"], "view 'other'"),
        (
            ["drop table diskproof_schema", "create view diskproof_schema as select 3 as version"],
            "view",
        ),
        (
            ["create trigger greedy after insert on run begin delete from run; end"],
            "trigger 'greedy'",
        ),
        (["create virtual table words using fts5(word)"], "'words'"),
        (["create table mine (id integer)"], "table 'mine'"),
        (["alter table host add column more as (zeroblob(1000000000))"], "other columns"),
        (["alter table host add column more text"], "other columns"),
        (["alter table metric rename column value to worth"], "other columns"),
        (["create index quick on run (abs(started))"], "index 'quick'"),
        (["drop table series"], "no table series"),
        (["insert into diskproof_schema values (7)"], "version is not one number"),
        (["delete from diskproof_schema"], "version is not one number"),
    ],
)
@pytest.mark.parametrize("create", [False, True])
def test_a_store_that_holds_more_than_ours_is_refused(
    store: Path, statements: list[str], told: str, create: bool
) -> None:
    alter(store, *statements)
    with pytest.raises(UsageError, match="is not as diskproof makes them") as error:
        open_store(str(store), create=create)
    assert told in error.value.why


def test_what_is_analysed_for_speed_stays_a_store(store: Path) -> None:
    alter(store, "analyze")
    with open_store(str(store)) as opened:
        assert opened.results()


def test_readers_cannot_write(store: Path) -> None:
    with open_store(str(store)) as opened, opened._reading() as connection:
        with pytest.raises(Exception, match="readonly"):
            connection.exec_driver_sql("delete from metric")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_heard_while_sqlite_works(tmp_path: Path, number: signal.Signals) -> None:
    """SQLite's own code runs for ever here; a signal ends it as anywhere else."""
    program = f"""
import signal
from diskproof.store.connect import StoreUrl, explained, make_engine
signal.signal(signal.SIGTERM, signal.default_int_handler)
place = StoreUrl({str(tmp_path / "empty.sqlite")!r})
with explained(place), make_engine(place, create=True).connect() as connection:
    print("ready", flush=True)
    connection.exec_driver_sql({ENDLESS!r}).all()
"""
    argv = [sys.executable, "-c", program]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stdout.readline() == b"ready\n"
        time.sleep(0.2)
        running.send_signal(number)
        _, told = running.communicate(timeout=60)  # it would never end by itself
    assert b"KeyboardInterrupt" in told.splitlines()[-1]


# -- what rows hold ---------------------------------------------------------------------------


def floats(count: int) -> bytes:
    return zlib.compress(bytes(8 * count), 9)


DAMAGE: dict[str, tuple[str, object, str]] = {
    "a metric that is a word": ("metric.value", "abc", "value of metric (id 'r1'"),
    "a metric without end": ("metric.value", 9e999, "not a finite number"),
    "facts as deep as a well": (
        "host.facts",
        '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
        "facts",
    ),
    "facts deeper than any host": (
        "host.facts",
        '{"a":' + "[" * 99 + "]" * 99 + "}",
        "deeper than",
    ),
    "facts that are a list": ("host.facts", "[1]", "facts of host"),
    "facts with a number without end": ("host.facts", '{"a":1e999}', "facts of host"),
    "levels that are no JSON": ("cell.levels", "{bad", "levels of cell"),
    "levels that are others": ("cell.levels", '[["cache","none"]]', "not what it is named after"),
    "20,000 levels of 900 characters": (
        "cell.levels",
        json.dumps([[f"f{n}", "x" * 900] for n in range(20_000)]),
        "longer than 8388608",
    ),
    "2,000 levels": ("cell.levels", json.dumps([[f"f{n}", "x"] for n in range(2000)]), "than 1000"),
    "a name in bytes": ("study.name", b"\xff\0\xff", "name of study (id"),
    "a name with a command for the terminal": ("study.name", "a\x1b[2J", "cannot be printed"),
    "a name of 50 MB": ("study.name", "x" * 50_000_000, "longer than 200"),
    "a name of 50 kB": ("study.name", "x" * 50_000, "longer than 200"),
    "no name": ("study.name", "", "is empty"),
    "a study without end": ("study.blocks", 1 << 40, "is not between"),
    "a block before the first": ("run.block", -1, "is not between"),
    "a status of its own": ("run.status", "fine", "unknown: 'fine'"),
    "a half failure": ("run.failure_kind", "tool", "half of the failure"),
    "33 million figures in a column": (
        "histogram.edges",
        partial(floats, 33_500_000),
        "larger than 800000",
    ),
    "33 million figures in a series": (
        "series.times",
        partial(floats, 33_500_000),
        "larger than 40000000",
    ),
    "a series of two lengths": ("series.times", floats(2), "lists of two lengths"),
    "half a figure": ("series.times", zlib.compress(b"abc"), "times of series"),
    "an array that ends early": ("series.times", floats(3)[:-3], "ends early"),
    "an array that is none": ("histogram.counts", b"abc", "counts of histogram"),
    "a flag that is 7": ("metric.higher_is_better", 7, "higher_is_better of metric"),
    "a host that is not there": ("run.host_id", "nobody", "which is not in it"),
}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A run with everything."""
    path = tmp_path / "store.sqlite"
    with open_store(str(path), create=True) as opened:
        opened.add_study(EMPTY)
        opened.add_host(HOST)
        opened.add_run(FULL)
    return path


@pytest.mark.parametrize("case", DAMAGE)
def test_what_no_diskproof_writes_is_named_where_it_stands(stored: Path, case: str) -> None:
    column, given, told = DAMAGE[case]
    value = given() if callable(given) else given
    table, _, name = column.partition(".")
    with sqlite3.connect(stored) as connection:
        connection.execute(f"update {table} set {name} = ?", (value,))
    connection.close()
    with open_store(str(stored)) as opened, pytest.raises(UsageError) as error:
        read_answers(opened)
    assert told in str(error.value)
    assert len(str(error.value)) < 500


def test_many_small_bombs_meet_the_budget(stored: Path) -> None:
    """Each column is within its bounds, and all of them would take more than this host has."""
    bomb = floats(4_900_000)
    assert len(bomb) < 60_000
    with sqlite3.connect(stored) as connection:
        connection.execute("delete from series")
        rows = [(1, place, "fio", "iops", "1/s", bomb, bomb) for place in range(75)]
        connection.executemany("insert into series values (?, ?, ?, ?, ?, ?, ?)", rows)
    connection.close()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open_store(str(stored)) as opened:
        with pytest.raises(UsageError, match="takes too much memory"):
            opened.series_of(FULL.id)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10


def test_who_trusts_a_store_gives_it_more(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sqlite3.connect(stored) as connection:
        values = (floats(500_000), floats(500_000))
        connection.execute("update series set times = ?, readings = ?", values)
    connection.close()
    monkeypatch.setenv("DISKPROOF_MEMORY", "8MiB")
    with open_store(str(stored)) as opened, pytest.raises(UsageError) as error:
        opened.series_of(FULL.id)
    assert "DISKPROOF_MEMORY=2GiB" in error.value.hint
    monkeypatch.delenv("DISKPROOF_MEMORY")
    with open_store(str(stored)) as opened:
        assert opened.series_of(FULL.id)
    monkeypatch.setenv("DISKPROOF_MEMORY", "much")
    with pytest.raises(UsageError, match="DISKPROOF_MEMORY"):
        open_store(str(stored))
