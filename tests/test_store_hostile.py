"""Stores that strangers made: what could run in one is refused when it is opened."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diskproof.errors import UsageError
from diskproof.store import open_store
from support.simulated_stores import fill, simulated_cells

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
import signal, sys
from diskproof.cli.app import _interrupt
from diskproof.store.connect import StoreUrl, explained, make_engine
signal.signal(signal.SIGTERM, _interrupt)
place = StoreUrl({str(tmp_path / "empty.sqlite")!r})
with explained(place), make_engine(place, create=True).connect() as connection:
    print("ready", flush=True)
    connection.exec_driver_sql({ENDLESS!r}).all()
"""
    argv = [sys.executable, "-c", program]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stdout.readline() == b"ready\n"
        time.sleep(0.2)
        sent = time.monotonic()
        running.send_signal(number)
        _, told = running.communicate(timeout=20)
        assert time.monotonic() - sent < 5
    assert b"KeyboardInterrupt" in told.splitlines()[-1]
