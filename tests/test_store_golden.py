"""Stores that diskproof of each age wrote (tests/golden/stores): read to the last bit, left alone
by reading, brought up by writing. What is written today is what version 3 has."""

# ruff: noqa: F811 (fixtures by their names)
import csv
import gzip
import hashlib
import json
import sqlite3
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from diskproof.errors import UsageError
from diskproof.store import open_store
from support.crashing import make_crash_run
from support.tile_stores import Made, make_tile_run, tile_cell
from test_store import database, url  # noqa: F401  (fixtures of both databases)

GOLDEN = Path(__file__).parent / "golden" / "stores"
sys.path.insert(0, str(GOLDEN))
import fill  # noqa: E402
from answers import read_answers  # noqa: E402

pytestmark = pytest.mark.long

VERSIONS = (1, 2, 3)
NEWEST = VERSIONS[-1]


def unpack(version: int, suffix: str) -> bytes:
    return gzip.decompress((GOLDEN / f"{version}.{suffix}.gz").read_bytes())


def put(url: str, version: int) -> None:
    """Put the golden store of a version where this URL is."""
    if "://" not in url:
        Path(url).write_bytes(unpack(version, "sqlite"))
        return
    with psycopg.connect(url) as connection:
        connection.execute(unpack(version, "sql"))  # type: ignore[arg-type]  # our own file


def answers_of(url: str) -> Any:
    with open_store(url) as store:
        return json.loads(json.dumps(read_answers(store), default=list))


def golden_answers(version: int) -> Any:
    return json.loads((GOLDEN / f"{version}.json").read_text())


def fetch(url: str, statement: str) -> list[tuple[Any, ...]]:
    if "://" in url:
        with psycopg.connect(url) as connection:
            return connection.execute(statement).fetchall()  # type: ignore[call-overload,no-any-return]
    opened = sqlite3.connect(url)
    try:
        return opened.execute(statement).fetchall()
    finally:
        opened.close()


def schema_of(url: str) -> list[tuple[Any, ...]]:
    """Tables and indexes, as the database tells them."""
    if "://" not in url:
        return fetch(url, "SELECT type, name, sql FROM sqlite_master ORDER BY type, name")
    columns = fetch(
        url,
        "SELECT table_name, ordinal_position, column_name, data_type, is_nullable, column_default"
        " FROM information_schema.columns WHERE table_schema = 'diskproof' ORDER BY 1, 2",
    )
    indexes = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'diskproof' ORDER BY 1"
    constraints = (
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'diskproof'::regnamespace ORDER BY 1"
    )
    return [*columns, *fetch(url, indexes), *fetch(url, constraints)]


def content_of(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table; what is compressed is told as what it holds."""
    if "://" in url:
        names, schema = (
            "SELECT tablename FROM pg_tables WHERE schemaname = 'diskproof'",
            "diskproof.",
        )
    else:
        names, schema = "SELECT name FROM sqlite_master WHERE type = 'table'", ""
    return {
        name: sorted((tuple(map(_unpacked, row)) for row in _rows(url, schema + name)), key=repr)
        for (name,) in fetch(url, names)
    }


def _rows(url: str, table: str) -> list[tuple[Any, ...]]:
    return fetch(url, f"SELECT * FROM {table}")  # a name out of the database itself


def _unpacked(value: Any) -> Any:
    return zlib.decompress(value) if isinstance(value, bytes) else value


# -- reading --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_golden_store_is_read_to_the_last_bit(url: str, version: int) -> None:
    put(url, version)
    found, golden = answers_of(url), golden_answers(version)
    assert found.keys() == golden.keys()
    for question, answer in golden.items():
        if question.startswith("show ") or question == "export results":
            assert told_then(found[question]) == told_then(answer), question
        else:
            assert found[question] == answer, question


def told_then(answer: Any) -> list[dict[str, Any]]:
    """Results without the columns that came later, and without the means of runs' percentiles,
    which are percentiles of all operations now."""
    rows = list(csv.DictReader(answer.splitlines())) if isinstance(answer, str) else answer
    later = {"low95", "high95", "pooled", "reason", "geomean", "stopped"}
    pooled = {"mean", "ci95"}
    return [
        {
            name: value
            for name, value in row.items()
            if name not in later and not (name in pooled and "_p99" in row["metric"])
        }
        for row in rows
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cell_that_a_race_went_on_without_is_marked(url: str, version: int) -> None:
    put(url, version)
    rows = answers_of(url)["show True"]
    assert {(row["study"], row["n"]) for row in rows if row["stopped"]} == {("race", 2)}
    assert {row["n"] for row in rows if row["study"] == "race" and not row["stopped"]} == {4}


def test_the_golden_stores_hold_what_they_are_for() -> None:
    """A golden store that lost its content would prove nothing."""
    for version in VERSIONS:
        golden = golden_answers(version)
        counted = [run["counted"] for run in golden["runs disks"]]
        assert counted.count(False) == 1 and len(counted) == 13
        assert golden["run disks-0"]["series"] and golden["run disks-0"]["histograms"]
        assert {verdict["verdict"]["verdict"] for verdict in golden["verdicts"]} == (
            {"keeps", "loses", "undecided"} if version >= 2 else set()
        )
        assert len(golden["tile_runs"]) == (3 if version >= 3 else 0)
        (stored,) = _read_golden(version, "SELECT version FROM diskproof_schema")
        assert stored == (version,)


def _read_golden(version: int, statement: str) -> list[tuple[Any, ...]]:
    opened = sqlite3.connect(":memory:")
    try:
        # The header says "has a write-ahead log", which a file in memory cannot have.
        image = bytearray(unpack(version, "sqlite"))
        image[18:20] = b"\1\1"
        opened.deserialize(bytes(image))
        return opened.execute(statement).fetchall()
    finally:
        opened.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_reading_leaves_a_store_as_it_is(tmp_path: Path, version: int) -> None:
    place = tmp_path / "old.sqlite"
    put(str(place), version)
    before = hashlib.sha256(place.read_bytes()).hexdigest()
    answers_of(str(place))
    assert hashlib.sha256(place.read_bytes()).hexdigest() == before
    assert [each.name for each in tmp_path.iterdir()] == ["old.sqlite"]


@pytest.mark.parametrize("version", VERSIONS)
def test_reading_leaves_a_database_as_it_is(database: Callable[[], str], version: int) -> None:
    url = database()
    put(url, version)
    before = schema_of(url), content_of(url)
    answers_of(url)
    assert (schema_of(url), content_of(url)) == before


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_store_has_no_runs_of_later_kinds(url: str, version: int) -> None:
    put(url, version)
    with open_store(url) as store:
        assert (store.tile_runs(), store.tile_series_of("tile-11none")) == ((), ())
        with pytest.raises(UsageError, match="no run of tiles 'x'"):
            store.tile_run("x")
        with pytest.raises(UsageError, match="no crash run 'x'"):
            store.crash_run("x")


# -- writing --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_golden_store_is_brought_up_when_it_is_written(url: str, version: int) -> None:
    put(url, version)
    golden = golden_answers(version)
    known = {study["id"] for study in golden["studies"]}
    study = next(iter(golden["studies"]))["id"]
    with open_store(url, create=True) as store:
        assert {each.id for each in store.studies()} == known
        of = store.studies()[0].cells[0]
        run = fill.run(99, study, of, 8, 2.0)
        crash = make_crash_run(50, study_id=study)
        tiles = make_tile_run(Made(tile_cell(), 1, 1, study_id=study))
        tiles = fill.R["TileRun"](**vars(tiles) | {"host_id": "h1"})
        store.add_run(run)
        store.add_crash_run(crash)
        store.add_tile_run(tiles)
    with open_store(url) as store:
        assert (store.run(run.id), store.crash_run(crash.id)) == (run, crash)
        assert store.tile_run(tiles.id) == tiles
    assert fetch(url, f"SELECT version FROM {_schema_table(url)}") == [(NEWEST,)]
    put_beside = golden.keys() & {"hosts", "studies", "run disks-0", "crash_run crash-1"}
    found = answers_of(url)
    for question in put_beside:
        assert found[question] == golden[question]


def _schema_table(url: str) -> str:
    return "diskproof.diskproof_schema" if "://" in url else "diskproof_schema"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_store_that_was_brought_up_has_the_schema_of_a_new_one(
    url: str, tmp_path: Path, version: int, request: pytest.FixtureRequest
) -> None:
    other = str(tmp_path / "new.sqlite")
    if "://" in url:
        other = request.getfixturevalue("database")()
    put(url, version)
    for place in (url, other):
        open_store(place, create=True).close()
    assert schema_of(url) == schema_of(other)


def test_what_is_written_today_is_what_version_3_has(
    url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    other = str(tmp_path / "golden.sqlite")
    if "://" in url:
        other = request.getfixturevalue("database")()
    put(other, 3)
    fill.main(url)
    found, golden = content_of(url), content_of(other)
    assert found.keys() == golden.keys()
    for table, rows in golden.items():
        assert found[table] == rows, table
    assert schema_of(url) == schema_of(other)
