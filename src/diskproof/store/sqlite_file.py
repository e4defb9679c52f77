"""A SQLite store as a connection with walls around it: the file may come from a stranger.

What SQLite would run of a file (views, triggers, virtual tables, columns that compute) is refused
before anything is asked of it; limits, and signals that are heard, hold for the rest.
"""

import logging
import re
import sqlite3
from collections.abc import Iterable
from functools import cache

from sqlalchemy import Connection, Engine, Index, Table, create_engine, event, text
from sqlalchemy.dialects import sqlite as dialect
from sqlalchemy.pool import QueuePool
from sqlalchemy.schema import CreateIndex, CreateTable

from diskproof.errors import UsageError

BUSY_SECONDS = 30.0
"""How long a write waits for another process's write before it gives up."""
QUIET_SECONDS = 1.0
"""How much of that passes before it is said."""
SIGNAL_STEPS = 20_000
"""So many of SQLite's steps (about a millisecond) lie between two looks for signals."""
MAX_VALUE = 272 << 20
"""The largest value a store may hold, in bytes: a column of 256 MiB that did not compress."""
_MOST_OBJECTS = 200
_log = logging.getLogger(__name__)
_OF_SQLITE = ("sqlite_stat1", "sqlite_stat4", "sqlite_sequence")

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_VALUE,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 20,
    sqlite3.SQLITE_LIMIT_COLUMN: 200,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 5,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_SETTINGS = (
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "foreign_keys = ON",
    "synchronous = FULL",
    "mmap_size = 0",
    "cache_size = -8192",  # KiB; a file may ask for any other
)


def sqlite_engine(uri: str) -> Engine:
    """An engine for a SQLite file. What does not begin as a writer changes nothing in it."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        for limit, most in _LIMITS.items():
            connection.setlimit(limit, most)
        # To enter a line of Python is when signals are heard; SQLite alone would hear none.
        connection.set_progress_handler(_go_on, SIGNAL_STEPS)
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}")
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes its lock at once: one that reads first could find it gone afterwards.
        statement = connection.get_execution_options().get("begin", "BEGIN")
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        raw.execute(f"PRAGMA query_only = {'ON' if statement == 'BEGIN' else 'OFF'}")
        if statement and not _begins(raw, statement):
            connection.exec_driver_sql(statement)

    return engine


def _begins(raw: sqlite3.Connection, statement: str) -> bool:
    """Whether a transaction begins at once, or nearly; says so where another process has the file
    to itself. What fails here is to be tried again with all the patience there is."""
    raw.execute(f"PRAGMA busy_timeout = {QUIET_SECONDS * 1000:.0f}")
    try:
        raw.execute(statement)
        raw.execute("PRAGMA schema_version").fetchall()  # one that reads takes its lock only then
        return True
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            _log.warning("another process has the store: waiting up to %.0f s for it", BUSY_SECONDS)
        if raw.in_transaction:
            raw.execute("ROLLBACK")
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise KeyboardInterrupt from None  # what a signal raised is gone by now
        return False
    finally:
        raw.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")


def _go_on() -> int:
    """What a signal's handler raises in here ends the statement: SQLITE_INTERRUPT."""
    return 0


# -- what a file holds -----------------------------------------------------------------------


def require_plain_tables(connection: Connection, known: Iterable[Table], place: str) -> set[str]:
    """The names of a file's tables and indexes; nothing in it is run to find out.

    Raises UsageError for anything but these tables and their indexes as we make them.
    """
    expected = {name: made for table in known for name, made in _made(table)}
    query = text("SELECT type, name, sql FROM sqlite_master LIMIT :most")
    found = connection.execute(query, {"most": _MOST_OBJECTS}).all()
    for kind, name, made in found:
        if name in _OF_SQLITE or (kind == "index" and made is None):
            continue
        if kind not in ("table", "index") or name not in expected:
            raise refuse_store(place, f"it holds the {kind!s:.20} {name!r:.60}, none of ours")
        if expected[name] != _clauses(str(made)):
            raise refuse_store(place, f"its {kind} {name} has other columns than diskproof's")
    return {name for _, name, _ in found}


def refuse_store(place: str, why: str) -> UsageError:
    return UsageError(
        f"the store {place} is not as diskproof makes them",
        why,
        "something in it could run when it is read: ask for a store as diskproof wrote it",
    )


@cache
def _made(table: Table) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """How SQLite tells of the table and its indexes when we have made them."""
    parts: tuple[Table | Index, ...] = (table, *table.indexes)
    return tuple((str(part.name), _clauses(_render(part))) for part in parts)


def _render(part: Table | Index) -> str:
    made = CreateTable(part) if isinstance(part, Table) else CreateIndex(part)
    return str(made.compile(dialect=dialect.dialect()))


def _clauses(made: str) -> tuple[str, ...]:
    """The lines of a statement, in any order and without its blanks."""
    lines = (re.sub(r"\s+", " ", line).strip(" ,") for line in made.split(",\x20\n"))
    return tuple(sorted(lines))
