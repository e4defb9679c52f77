"""Kinds of runs are rows of data: a fourth one costs its row, its parts and its tables."""

# ruff: noqa: F811 (fixtures by their names)
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, Text

from diskproof.errors import UsageError
from diskproof.records import Cell, Failure, HostRecord, Series, StudyRecord, WorkloadSpec
from diskproof.store import DuplicateRun, Progress, Store, open_store, parts, tables
from diskproof.store.kinds import FLAG, NAME, NUMBER, REAL
from diskproof.store.parts import KINDS, MEASURED, Part, RunKind
from diskproof.store.rows import RunRow
from support.crashing import make_crash_run
from test_store import EMPTY, FULL, HOST, database, url  # noqa: F401  (fixtures of both databases)

# -- a fourth kind, as somebody would add it ------------------------------------------------


@dataclass(frozen=True)
class Discard:
    """One request to discard, and what it gave back."""

    name: str
    freed: int
    seconds: float


@dataclass(frozen=True)
class TrimRun:
    """A run of the fourth kind."""

    id: str
    study_id: str
    cell: Cell
    host_id: str
    started: float
    discards: tuple[Discard, ...] = ()
    series: tuple[Series, ...] = ()
    failure: Failure | None = None


CELL = Cell((("cache", "none"),), WorkloadSpec("sweep", "trim"))
TRIM_RUN = TrimRun(
    "t1",
    "s1",
    CELL,
    "h1",
    5.0,
    (Discard("small", 4096, 0.25), Discard("large", 1 << 20, 0.5)),
    FULL.series,
)


def make_tables() -> tuple[Table, Table, Table]:
    header = Table(
        "trim_run",
        tables.METADATA,
        *tables.number_columns(),
        *tables.owner_columns("study", "cell", "host"),
        *REAL("started"),
        *FLAG("counted", default=True),
        *tables.failure_columns(),
    )
    tables.count_once(header, "study_id", "cell_id")
    discard = Table(
        "trim_discard",
        tables.METADATA,
        *tables.part_columns("trim_run"),
        *NAME("name"),
        *NUMBER("freed"),
        *REAL("seconds"),
    )
    return header, discard, tables.series_table("trim_series", "trim_run")


@pytest.fixture
def trim(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunKind[TrimRun]]:
    header, discard, series = made = make_tables()
    kind = RunKind(
        "trim run",
        TrimRun,
        header,
        (
            Part("discards", Discard, discard, unique="name", light=True),
            Part("series", Series, series, parallel=("times", "values")),
        ),
        place=("study_id", "cell_id"),
        counted=header,
        again=header.c.failure_kind.is_not(None),
        since=3,
    )
    monkeypatch.setattr(parts, "KINDS", (*KINDS, kind))
    yield kind
    for table in made:
        tables.METADATA.remove(table)


@pytest.fixture
def store(trim: RunKind[TrimRun], url: str) -> Iterator[Store]:
    with open_store(url, create=True) as opened:
        opened.add_study(EMPTY)
        opened.add_host(HOST)
        yield opened


def test_a_fourth_kind_of_run_comes_out_as_it_went_in(store: Store, trim: RunKind[TrimRun]) -> None:
    store.add_run(TRIM_RUN)
    store.add_run(TRIM_RUN)
    assert store.run_of(trim, "t1") == TRIM_RUN
    assert store.counted_runs(trim, "s1") == (replace(TRIM_RUN, series=()),)
    assert store.counted_runs(trim, "other") == ()
    with pytest.raises(UsageError, match="no trim run 't2'"):
        store.run_of(trim, "t2")
    store.add_run(FULL)  # the kinds do not see each other
    assert [run.id for run in store.runs("s1")] == ["r1"]


def test_a_fourth_kind_of_run_counts_once_until_it_is_retried(
    store: Store, trim: RunKind[TrimRun]
) -> None:
    failed = replace(TRIM_RUN, failure=Failure("qemu", "died"))
    store.add_run(failed)
    with pytest.raises(DuplicateRun, match="trim run t2 cannot be stored"):
        store.add_run(replace(TRIM_RUN, id="t2"))
    assert store.supersede(MEASURED, "s1") == 0
    assert store.supersede(trim, "s1") == 1
    store.add_run(replace(TRIM_RUN, id="t2"))
    assert [run.id for run in store.counted_runs(trim, None)] == ["t2"]
    assert store.run_of(trim, "t1") == failed


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"host_id": "x"}, "host 'x' is not known"),
        ({"started": float("inf")}, "started of trim run"),
        ({"discards": (Discard("a", -1, 0.0),)}, "freed of 'a' in discards"),
        ({"discards": (Discard("a", 1, 0.0),) * 2}, "the same name"),
        ({"discards": tuple(Discard(str(n), 1, 0.0) for n in range(1001))}, "more than 1000"),
        ({"series": (Series("host", "x", "%", (1.0,), ()),)}, "lists differ"),
        ({"cell": Cell((("a\nb", "x"),), CELL.workload)}, "levels of its cell"),
    ],
)
def test_a_fourth_kind_is_bounded_by_its_columns(
    store: Store, trim: RunKind[TrimRun], changes: dict[str, Any], what: str
) -> None:
    with pytest.raises(UsageError, match="cannot be stored") as refused:
        store.add_run(replace(TRIM_RUN, **changes))
    assert what in f"{refused.value.what} {refused.value.why}"
    assert store.counted_runs(trim, None) == ()


# -- every kind -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_all_that_a_run_says_has_a_place(kind: RunKind[Any]) -> None:
    """A field that is added to a record and to no table would be lost without a word."""
    kept = {column.key for column in kind.table.c} | {part.field for part in kind.parts}
    assert {field.name for field in fields(kind.record)} <= kept | {"cell", "failure"}
    for part in (*kind.parts, *(part.inner for part in kind.parts if part.inner)):
        assert set(part.names) <= {column.key for column in part.table.c}
        inner = {part.inner.field} if part.inner else set()
        assert {field.name for field in fields(part.record)} == {*part.names} | inner


@pytest.mark.parametrize(
    ("record", "table", "elsewhere"),
    [
        (StudyRecord, tables.STUDY, {"cells"}),
        (HostRecord, tables.HOST, set()),
        (Progress, tables.PROGRESS, set()),
        (RunRow, tables.RUN, {"cell", "failure"}),
    ],
)
def test_all_that_a_record_says_has_a_column(
    record: type, table: Table, elsewhere: set[str]
) -> None:
    columns = {column.key for column in table.c}
    assert {field.name for field in fields(record)} - elsewhere <= columns


@pytest.mark.parametrize(
    ("table", "column", "damage"),
    [
        ("run", "phases", "[["),
        ("run", "phases", '[["boot"]]'),
        ("run", "phases", "[" * 100_000),
        ("series", "times", b"\0"),
        ("artefact", "content", b"x\x9c\x03"),
        ("cell", "levels", "{}1"),
        ("crash_run", "counts", "[1]"),
        ("verdict", "timeline", "[[1]]"),
    ],
)
def test_damage_is_told(tmp_path: Path, table: str, column: str, damage: str | bytes) -> None:
    place = tmp_path / "store.sqlite"
    crash = make_crash_run()
    with open_store(str(place), create=True) as made:
        made.add_study(EMPTY)
        made.add_host(HOST)
        made.add_run(FULL)
        made.add_run(crash)
    with sqlite3.connect(place) as edited:
        edited.execute(f"UPDATE {table} SET {column} = ?", (damage,))
    edited.close()
    with open_store(str(place)) as read, pytest.raises(UsageError, match="damaged data"):
        read.run("r1")
        read.crash_run(crash.id)


def test_no_table_is_without_bounds() -> None:
    """Whoever adds a column as plain SQL would have a store keep anything."""
    plain = {
        f"{table.name}.{column.key}"
        for table in tables.METADATA.tables.values()
        for column in table.c
        if isinstance(column.type, Text) and "kind" not in column.info
        if not column.foreign_keys
    }
    assert plain == set()
