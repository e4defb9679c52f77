"""SQLite commits, one row each: on the host's recorded folder, or in a guest.

Journal mode WAL with ``synchronous=FULL``: each commit is synced before it returns, as SQLite's
pages on PRAGMA synchronous and on WAL say. ``durable = write`` takes ``synchronous=OFF``.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from diskproof.crash.writers import WriterContext, command
from diskproof.crash.writers import promised_rows as rows
from diskproof.crash.writers.command import Limit, main
from diskproof.crash.writers.promised_rows import Found

if TYPE_CHECKING:
    from diskproof.records import Cell

NAME = "sqlite"
FOLDER = "sqlite"
FILE = "promises.db"
PRAGMAS = {"journal_mode": "wal", "synchronous": "full"}
_BUSY_SECONDS = 10.0


class SqliteDatabase:
    """The database in its folder, through Python's own SQLite."""

    name = NAME

    def write(
        self,
        folder: Path,
        promise: Callable[[int], None],
        limit: Limit,
        settings: Mapping[str, str],
    ) -> None:
        """``settings`` are PRAGMAs."""
        with closing(_connect(folder)) as connection:
            for name, value in {**PRAGMAS, **settings}.items():
                connection.execute(f"PRAGMA {name}={value}")
            connection.execute(rows.CREATE)
            for number in limit.numbers():
                connection.execute(
                    f"INSERT INTO {rows.TABLE} VALUES (?, ?)", (number, rows.row_content(number))
                )
                promise(number)

    def check(self, folder: Path, promised: int) -> Found:
        """Opened, which recovers it; checked by itself; its rows counted."""
        if not (folder / FILE).is_file():
            return rows.all_lost(promised, f"{FILE} is not there")
        try:
            with closing(_connect(folder)) as connection:
                (said,) = connection.execute("PRAGMA integrity_check").fetchone()
                if said != "ok":
                    return Found(rows.CORRUPTS, why=f"integrity_check: {said[:300]}")
                return rows.judge_rows(_read_rows(connection), promised)
        except sqlite3.DatabaseError as error:
            return Found(rows.CORRUPTS, why=str(error))


def _connect(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / FILE, timeout=_BUSY_SECONDS, isolation_level=None)


def _read_rows(connection: sqlite3.Connection) -> dict[int, str]:
    """All rows; none without a table, whose making was a commit too."""
    query = "SELECT count(*) FROM sqlite_master WHERE name = ?"
    if connection.execute(query, (rows.TABLE,)).fetchone() == (0,):
        return {}
    return dict(connection.execute(rows.SELECT).fetchall())


class SqliteWriter:
    """The writer ``sqlite``."""

    def prepare(self, cell: Cell, folder: Path) -> None:
        """Nothing: all of it is made under record."""

    def write(self, context: WriterContext) -> None:
        """Raises RunFailure ``workload``, ``space``, or ``guest``."""
        if context.cell.level("frontend") == "guest":
            from diskproof.crash.writers.sqlite_guest import write_rows

            write_rows(context)
            return
        setting = f"synchronous={synchronous(context.cell.workload.option('durable'))}"
        command.write_database(context, __name__, context.recording.folder / FOLDER, setting)

    def check(self, cell: Cell) -> dict[str, object]:
        if cell.level("frontend") == "guest":
            from diskproof.crash.writers.ledger_fs import guest_check

            return guest_check(cell, NAME)
        argv = [*command.PYTHON, __name__, "check", FOLDER, "--stay"]
        return {"kind": "command", "argv": argv, "timeout_seconds": 60.0, "stays": True}


def synchronous(durable: str) -> str:
    """SQLite's setting for what a writer takes for a promise."""
    return "off" if durable == "write" else "full"


WRITER = SqliteWriter()

if __name__ == "__main__":
    sys.exit(main(SqliteDatabase(), sys.argv[1:]))
