"""The tables of a store, the same in SQLite and PostgreSQL. docs/store.md describes each."""

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
    MetaData,
    Table,
    Text,
    text,
)

SCHEMA_VERSION = 3
"""Raised with every change of the tables; a store of a newer version is refused."""

OLDEST_VERSION = 1
"""What has been added since: 2 has the tables ``crash_run``, ``crash_file`` and ``verdict``, 3 has
those of ``tiles_schema.py``."""

METADATA = MetaData()
# SQLite numbers rows by itself only in a column of exactly this type.
RUN_NUMBER = BigInteger().with_variant(Integer, "sqlite")


def _run_reference() -> Column[int]:
    return Column("run_number", RUN_NUMBER, ForeignKey("run.number"), primary_key=True)


def place_column() -> Column[int]:
    """Where the record stood in the run's tuple."""
    return Column("place", Integer, primary_key=True)


SCHEMA = Table("diskproof_schema", METADATA, Column("version", Integer, primary_key=True))

STUDY = Table(
    "study",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("blocks", Integer, nullable=False),
    Column("dropped", Text, nullable=False),
    Column("warnings", Text, nullable=False),
    Column("created", Double, nullable=False),
)

CELL = Table(
    "cell",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("levels", Text, nullable=False),
    Column("workload", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("options", Text, nullable=False),
)

STUDY_CELL = Table(
    "study_cell",
    METADATA,
    Column("study_id", Text, ForeignKey("study.id"), primary_key=True),
    Column("cell_id", Text, ForeignKey("cell.id"), primary_key=True),
    Column("place", Integer, nullable=False),
    sqlite_with_rowid=False,
)

HOST = Table(
    "host",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("facts", Text, nullable=False),
)

RUN = Table(
    "run",
    METADATA,
    Column("number", RUN_NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("study_id", Text, nullable=False),
    Column("cell_id", Text, nullable=False),
    Column("host_id", Text, ForeignKey("host.id"), nullable=False),
    Column("block", Integer, nullable=False),
    Column("position", Integer, nullable=False),
    Column("started", Double, nullable=False),
    Column("ended", Double, nullable=False),
    Column("status", Text, nullable=False),
    Column("counted", Boolean, nullable=False),
    Column("failure_kind", Text),
    Column("failure_what", Text),
    Column("failure_why", Text),
    Column("failure_hint", Text),
    Column("phases", Text, nullable=False),
    ForeignKeyConstraint(["study_id", "cell_id"], ["study_cell.study_id", "study_cell.cell_id"]),
)

# What makes it impossible to count a run twice; attempts that a retry replaced are not counted.
Index(
    "run_counted_once",
    RUN.c.study_id,
    RUN.c.cell_id,
    RUN.c.block,
    unique=True,
    sqlite_where=text("counted"),
    postgresql_where=text("counted"),
)

METRIC = Table(
    "metric",
    METADATA,
    _run_reference(),
    Column("name", Text, primary_key=True),
    Column("place", Integer, nullable=False),
    Column("unit", Text, nullable=False),
    Column("value", Double, nullable=False),
    Column("higher_is_better", Boolean, nullable=False),
    Column("is_primary", Boolean, nullable=False),
    sqlite_with_rowid=False,
)

CHECKED_SETTING = Table(
    "checked_setting",
    METADATA,
    _run_reference(),
    place_column(),
    Column("name", Text, nullable=False),
    Column("requested", Text, nullable=False),
    Column("effective", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("ok", Boolean, nullable=False),
    sqlite_with_rowid=False,
)

SERIES = Table(
    "series",
    METADATA,
    _run_reference(),
    place_column(),
    Column("source", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("times", LargeBinary, nullable=False),
    Column("readings", LargeBinary, nullable=False),
)

HISTOGRAM = Table(
    "histogram",
    METADATA,
    _run_reference(),
    place_column(),
    Column("name", Text, nullable=False),
    Column("edges", LargeBinary, nullable=False),
    Column("counts", LargeBinary, nullable=False),
)

ARTEFACT = Table(
    "artefact",
    METADATA,
    _run_reference(),
    place_column(),
    Column("name", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),
)

PROGRESS = Table(
    "progress",
    METADATA,
    Column("study_id", Text, ForeignKey("study.id"), primary_key=True),
    Column("pid", BigInteger, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("started", Double, nullable=False),
    Column("total", Integer, nullable=False),
    Column("done", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("current", Text, nullable=False),
    Column("eta_seconds", Double),
    Column("updated", Double, nullable=False),
)

CRASH_RUN = Table(
    "crash_run",
    METADATA,
    Column("number", RUN_NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("study_id", Text, ForeignKey("study.id"), nullable=False),
    Column("cell_id", Text, ForeignKey("cell.id"), nullable=False),
    Column("host_id", Text, ForeignKey("host.id"), nullable=False),
    Column("started", Double, nullable=False),
    Column("ended", Double, nullable=False),
    Column("failure_kind", Text),
    Column("failure_what", Text),
    Column("failure_why", Text),
    Column("failure_hint", Text),
    Column("checks", Text, nullable=False),
    Column("counts", Text, nullable=False),
    Column("phases", Text, nullable=False),
)

CRASH_FILE = Table(
    "crash_file",
    METADATA,
    Column("run_number", RUN_NUMBER, ForeignKey("crash_run.number"), primary_key=True),
    place_column(),
    Column("name", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),
)

VERDICT = Table(
    "verdict",
    METADATA,
    Column("run_number", RUN_NUMBER, ForeignKey("crash_run.number"), primary_key=True),
    Column("fault", Text, primary_key=True),
    Column("study_id", Text, nullable=False),
    Column("cell_id", Text, nullable=False),
    Column("host_id", Text, nullable=False),
    Column("counted", Boolean, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("lost", BigInteger, nullable=False),
    Column("age_seconds", Double, nullable=False),
    Column("states_checked", BigInteger, nullable=False),
    Column("states_total", BigInteger),
    Column("estimated", Boolean, nullable=False),
    Column("cuts", BigInteger, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("cut", BigInteger),
    Column("missing", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("reproduce", Text, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("timeline", Text, nullable=False),
    Column("details", Text, nullable=False),
)

# One verdict counts for a cell, a fault and a host; those that a retry replaced do not.
Index(
    "verdict_counted_once",
    VERDICT.c.study_id,
    VERDICT.c.cell_id,
    VERDICT.c.host_id,
    VERDICT.c.fault,
    unique=True,
    sqlite_where=text("counted"),
    postgresql_where=text("counted"),
)
