"""The tables of tile runs, beside those of ``tables.py``. docs/store.md describes each."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    text,
)

from diskproof.store.tables import METADATA, RUN_NUMBER, place_column

__all__ = [
    "METADATA",
    "TILE_FILE",
    "TILE_METRIC",
    "TILE_RUN",
    "TILE_SERIES",
    "TILE_STEP",
    "TILE_USE",
    "TILE_WORK",
]


def _run_reference() -> Column[int]:
    return Column("run_number", RUN_NUMBER, ForeignKey("tile_run.number"), primary_key=True)


TILE_RUN = Table(
    "tile_run",
    METADATA,
    Column("number", RUN_NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("study_id", Text, ForeignKey("study.id"), nullable=False),
    Column("cell_id", Text, ForeignKey("cell.id"), nullable=False),
    Column("host_id", Text, ForeignKey("host.id"), nullable=False),
    Column("tiles", Integer, nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("started", Double, nullable=False),
    Column("ended", Double, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("counted", Boolean, nullable=False),
    Column("failure_kind", Text),
    Column("failure_what", Text),
    Column("failure_why", Text),
    Column("failure_hint", Text),
    Column("checks", Text, nullable=False),
    Column("phases", Text, nullable=False),
)

# One run counts for a cell, a host, a number of tiles and a repeat; a retried one does not.
Index(
    "tile_run_counted_once",
    TILE_RUN.c.study_id,
    TILE_RUN.c.cell_id,
    TILE_RUN.c.host_id,
    TILE_RUN.c.tiles,
    TILE_RUN.c.repeat,
    unique=True,
    sqlite_where=text("counted"),
    postgresql_where=text("counted"),
)

TILE_STEP = Table(
    "tile_step",
    METADATA,
    _run_reference(),
    place_column(),
    Column("tile", Integer, nullable=False),
    Column("guest", Text, nullable=False),
    Column("step", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("work", Text, nullable=False),
    Column("started", Double, nullable=False),
    Column("ended", Double, nullable=False),
    Column("status", Integer),
    sqlite_with_rowid=False,
)

TILE_WORK = Table(
    "tile_work",
    METADATA,
    _run_reference(),
    place_column(),
    Column("tile", Integer, nullable=False),
    Column("work", Text, nullable=False),
    Column("guest", Text, nullable=False),
    sqlite_with_rowid=False,
)

TILE_METRIC = Table(
    "tile_metric",
    METADATA,
    Column("run_number", RUN_NUMBER, primary_key=True),
    Column("work_place", Integer, primary_key=True),
    place_column(),
    Column("name", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("value", Double, nullable=False),
    Column("higher_is_better", Boolean, nullable=False),
    Column("is_primary", Boolean, nullable=False),
    ForeignKeyConstraint(["run_number", "work_place"], ["tile_work.run_number", "tile_work.place"]),
    sqlite_with_rowid=False,
)

TILE_USE = Table(
    "tile_use",
    METADATA,
    _run_reference(),
    place_column(),
    Column("tile", Integer, nullable=False),
    Column("guest", Text, nullable=False),
    Column("cpu_seconds", Double, nullable=False),
    Column("read_bytes", BigInteger, nullable=False),
    Column("written_bytes", BigInteger, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("ksm_bytes", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

TILE_SERIES = Table(
    "tile_series",
    METADATA,
    _run_reference(),
    place_column(),
    Column("source", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("times", LargeBinary, nullable=False),
    Column("readings", LargeBinary, nullable=False),
)

TILE_FILE = Table(
    "tile_file",
    METADATA,
    _run_reference(),
    place_column(),
    Column("name", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),
)
