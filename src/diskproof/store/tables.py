"""The tables of a store, the same in SQLite and PostgreSQL. docs/store.md describes each."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)

from diskproof.store import json_kinds, kinds

SCHEMA_VERSION = 3
"""Raised with every change of the tables; a store of a newer version is refused."""

OLDEST_VERSION = 1
"""What has been added since: 2 has the tables of crash runs, 3 those of tile runs."""

METADATA = MetaData()
# SQLite numbers rows by itself only in a column of exactly this type.
_RUN_NUMBER = BigInteger().with_variant(Integer, "sqlite")


# -- columns that several tables have -------------------------------------------------------


def _key(name: str, other: str) -> Column[str]:
    return Column(name, Text, ForeignKey(f"{other}.id"), primary_key=True)


def owner_columns(*names: str) -> Iterator[Column[str]]:
    """What a run belongs to: rows of the tables of these names."""
    for name in names:
        yield Column(f"{name}_id", Text, ForeignKey(f"{name}.id"), nullable=False)


def number_columns() -> Iterator[Column[Any]]:
    """What a run is called: its number in this store, and its id everywhere."""
    yield Column("number", _RUN_NUMBER, primary_key=True)
    yield from kinds.NAME("id", unique=True)


def failure_columns() -> Iterator[Column[str]]:
    return kinds.FREE_TEXT(
        *(f"failure_{part}" for part in ("kind", "what", "why", "hint")), nullable=True
    )


def _run_of(header: str) -> Column[int]:
    return Column("run_number", _RUN_NUMBER, ForeignKey(f"{header}.number"), primary_key=True)


def _place() -> Column[int]:
    """Where the record stood in the run's tuple."""
    return Column("place", Integer, primary_key=True)


def part_columns(header: str) -> tuple[Column[int], Column[int]]:
    return _run_of(header), _place()


def _figure() -> Iterator[Column[Any]]:
    yield from kinds.LABEL("unit")
    yield from kinds.REAL("value")
    yield from kinds.FLAG("higher_is_better")
    yield from kinds.FLAG("is_primary", key="primary")


def series_table(name: str, header: str) -> Table:
    return Table(
        name,
        METADATA,
        *part_columns(header),
        *kinds.NAME("source", "name"),
        *kinds.LABEL("unit"),
        *kinds.SAMPLES("times"),
        *kinds.SAMPLES("readings", key="values"),
    )


def _file_table(name: str, header: str) -> Table:
    def size(context: Any) -> int:
        return len(context.get_current_parameters()["content"])

    return Table(
        name,
        METADATA,
        *part_columns(header),
        *kinds.NAME("name", "media_type"),
        Column("size", BigInteger, nullable=False, default=size),
        *kinds.CONTENT("content"),
    )


def count_once(table: Table, *names: str) -> None:
    """What makes it impossible to count a run twice; those that a retry replaced do not count."""
    Index(
        f"{table.name}_counted_once",
        *(table.c[name] for name in names),
        unique=True,
        sqlite_where=text("counted"),
        postgresql_where=text("counted"),
    )


# -- studies --------------------------------------------------------------------------------

SCHEMA = Table("diskproof_schema", METADATA, Column("version", Integer, primary_key=True))

STUDY = Table(
    "study",
    METADATA,
    *kinds.NAME("id", primary_key=True),
    *kinds.NAME("name", "origin"),
    *kinds.FILE_TEXT("text"),
    *kinds.COUNT("seed"),
    *kinds.NUMBER("blocks"),
    *json_kinds.DROPPED("dropped"),
    *json_kinds.TEXTS("warnings"),
    *kinds.REAL("created"),
)

CELL = Table(
    "cell",
    METADATA,
    *kinds.NAME("id", primary_key=True),
    *json_kinds.LEVELS("levels"),
    *kinds.NAME("workload", "kind"),
    *json_kinds.OPTIONS("options"),
)

STUDY_CELL = Table(
    "study_cell",
    METADATA,
    *(_key("study_id", "study"), _key("cell_id", "cell")),
    *kinds.NUMBER("place"),
    sqlite_with_rowid=False,
)

HOST = Table(
    "host",
    METADATA,
    *kinds.NAME("id", primary_key=True),
    *kinds.NAME("name"),
    *json_kinds.OBJECT("facts"),
)

PROGRESS = Table(
    "progress",
    METADATA,
    _key("study_id", "study"),
    *kinds.COUNT("pid"),
    *kinds.FREE_TEXT("boot_id", "host"),
    *kinds.REAL("started"),
    *kinds.NUMBER("total", "done", "failed"),
    *kinds.FREE_TEXT("current"),
    *kinds.REAL("eta_seconds", nullable=True),
    *kinds.REAL("updated"),
)

# -- measured runs --------------------------------------------------------------------------

RUN = Table(
    "run",
    METADATA,
    *number_columns(),
    *kinds.NAME("study_id", "cell_id"),
    *owner_columns("host"),
    *kinds.NUMBER("block", "position"),
    *kinds.REAL("started", "ended"),
    *kinds.STATUS("status"),
    *kinds.FLAG("counted", default=True),
    *failure_columns(),
    *json_kinds.PHASES("phases"),
    ForeignKeyConstraint(["study_id", "cell_id"], ["study_cell.study_id", "study_cell.cell_id"]),
)
count_once(RUN, "study_id", "cell_id", "block")

METRIC = Table(
    "metric",
    METADATA,
    _run_of("run"),
    *kinds.NAME("name", primary_key=True),
    *kinds.NUMBER("place"),
    *_figure(),
    sqlite_with_rowid=False,
)

CHECKED_SETTING = Table(
    "checked_setting",
    METADATA,
    *part_columns("run"),
    *kinds.FREE_TEXT("name", "requested", "effective", "source"),
    *kinds.FLAG("ok"),
    sqlite_with_rowid=False,
)

HISTOGRAM = Table(
    "histogram",
    METADATA,
    *part_columns("run"),
    *kinds.NAME("name"),
    *kinds.EDGES("edges"),
    *kinds.COUNTS("counts"),
)

SERIES = series_table("series", "run")
ARTEFACT = _file_table("artefact", "run")

# -- crash runs -----------------------------------------------------------------------------

CRASH_RUN = Table(
    "crash_run",
    METADATA,
    *number_columns(),
    *owner_columns("study", "cell", "host"),
    *kinds.REAL("started", "ended"),
    *failure_columns(),
    *json_kinds.CHECKS("checks"),
    *json_kinds.TALLY("counts"),
    *json_kinds.PHASES("phases"),
)

CRASH_FILE = _file_table("crash_file", "crash_run")

VERDICT = Table(
    "verdict",
    METADATA,
    _run_of("crash_run"),
    *kinds.FAULT("fault", primary_key=True),
    *kinds.NAME("study_id", "cell_id", "host_id"),
    *kinds.FLAG("counted", default=True),
    *kinds.DURABILITY("verdict"),
    *kinds.COUNT("lost"),
    *kinds.REAL("age_seconds"),
    *kinds.COUNT("states_checked"),
    *kinds.COUNT("states_total", nullable=True),
    *kinds.FLAG("estimated"),
    *kinds.COUNT("cuts", "seed"),
    *kinds.COUNT("cut", nullable=True),
    *json_kinds.NUMBERS("missing"),
    *kinds.FREE_TEXT("reason", "reproduce"),
    *kinds.REAL("seconds"),
    *json_kinds.EVENTS("timeline"),
    *json_kinds.OBJECT("details"),
)
count_once(VERDICT, "study_id", "cell_id", "host_id", "fault")

# -- tile runs ------------------------------------------------------------------------------

TILE_RUN = Table(
    "tile_run",
    METADATA,
    *number_columns(),
    *owner_columns("study", "cell", "host"),
    *kinds.TILES("tiles"),
    *kinds.NUMBER("repeat"),
    *kinds.REAL("started", "ended"),
    *kinds.DURATION("seconds"),
    *kinds.FLAG("counted", default=True),
    *failure_columns(),
    *json_kinds.CHECKS("checks"),
    *json_kinds.PHASES("phases"),
)
count_once(TILE_RUN, "study_id", "cell_id", "host_id", "tiles", "repeat")

TILE_STEP = Table(
    "tile_step",
    METADATA,
    *part_columns("tile_run"),
    *kinds.TILES("tile"),
    *kinds.NAME("guest", "step"),
    *kinds.PHASE("phase"),
    *kinds.LABEL("work"),
    *kinds.REAL("started", "ended"),
    *kinds.EXIT_STATUS("status", nullable=True),
    sqlite_with_rowid=False,
)

TILE_WORK = Table(
    "tile_work",
    METADATA,
    *part_columns("tile_run"),
    *kinds.TILES("tile"),
    *kinds.NAME("work", "guest"),
    sqlite_with_rowid=False,
)

TILE_METRIC = Table(
    "tile_metric",
    METADATA,
    Column("run_number", _RUN_NUMBER, primary_key=True),
    Column("work_place", Integer, primary_key=True),
    _place(),
    *kinds.NAME("name"),
    *_figure(),
    ForeignKeyConstraint(["run_number", "work_place"], ["tile_work.run_number", "tile_work.place"]),
    sqlite_with_rowid=False,
)

TILE_USE = Table(
    "tile_use",
    METADATA,
    *part_columns("tile_run"),
    *kinds.TILES("tile"),
    *kinds.NAME("guest"),
    *kinds.REAL("cpu_seconds"),
    *kinds.COUNT("read_bytes", "written_bytes", "memory_bytes", "ksm_bytes"),
    sqlite_with_rowid=False,
)

TILE_SERIES = series_table("tile_series", "tile_run")
TILE_FILE = _file_table("tile_file", "tile_run")
