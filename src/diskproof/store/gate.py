"""The gate: every row that is read passes here, where its values are held to what writers promise.

Columns are read raw, many rows at a time, and each kind of column asks and decodes all its values
at once, so that care costs less than the rows themselves.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, CursorResult, Select, Text, func, select
from sqlalchemy.engine.interfaces import DBAPICursor

from diskproof.errors import UsageError
from diskproof.store.budget import current_budget
from diskproof.store.kinds import COUNT, FLAWS, NAME, ColumnKind
from diskproof.store.sqlite_file import MAX_VALUE

_MOST_ROWS = 256
_MOST_BYTES = 4 << 20
"""Rows are taken from the database until they are so many, or so long by their texts and blobs."""
_TOLD = ("number", "run_number", "id", "run_id", "study_id", "cell_id", "place", "name")
"""What names a row: those columns of it that come first here."""
_ROW_ROOM = 64 << 10
_SHORT = NAME.most_bytes


class Damage(UsageError):
    """A store holds what no diskproof has written."""

    def __init__(self, why: str) -> None:
        hint = "restore it from a copy, or ask who sent it for another"
        super().__init__("the store holds damaged data", why, hint)


@dataclass(frozen=True)
class _Asked:
    """A column that a query asks for, and what is to be asked of its values."""

    name: str
    table: str
    kind: ColumnKind
    nullable: bool

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        """What the values stand for. Raises one of FLAWS."""
        if not self.nullable or None not in values:
            return self.kind.read(values)
        there = iter(self.kind.read([value for value in values if value is not None]))
        return [None if value is None else next(there) for value in values]


class Question:
    """A query with what is to be asked of the columns of its answer; kept where it is asked again,
    for to find that out takes as long as SQLite takes to answer."""

    def __init__(self, query: Select[Any], columns: Sequence[_Asked] = ()) -> None:
        self.query = query
        self.columns = columns or [_asked(column) for column in query.selected_columns]

    def where(self, *conditions: ColumnElement[bool]) -> "Question":
        return Question(self.query.where(*conditions), self.columns)


def read_each(connection: Connection, query: Select[Any] | Question) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, decoded. Raises Damage that names the row and the column."""
    question = query if isinstance(query, Question) else Question(query)
    for rows in _fetch(connection, question):
        if len(rows) == _MOST_ROWS:
            current_budget().require()
        try:
            values = [*map(_Asked.read, question.columns, zip(*rows, strict=True))]
        except FLAWS:
            raise _find_damage(rows, question.columns) from None
        yield from zip(*values, strict=True)


def read_records(connection: Connection, query: Select[Any] | Question) -> list[dict[str, Any]]:
    """The same as values by the names of their columns."""
    question = query if isinstance(query, Question) else Question(query)
    names = [column.name for column in question.columns]
    return [dict(zip(names, row, strict=True)) for row in read_each(connection, question)]


def _asked(column: Any) -> _Asked:
    kind = NAME if isinstance(column.type, Text) else COUNT
    if not isinstance(column, Column):
        return _Asked(column.name, "", kind, nullable=False)
    kind = column.info.get("kind", kind)
    return _Asked(column.key, column.table.name, kind, bool(column.nullable))


def _find_damage(rows: Sequence[Sequence[Any]], columns: Sequence[_Asked]) -> UsageError:
    """Which value of which row it is: each is asked alone now."""
    names = [column.name for column in columns]
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            try:
                column.read([value])
            except FLAWS as error:
                told = [name for name in _TOLD if name in names][:3]
                where = (f"{name} {row[names.index(name)]!r:.40}" for name in told)
                what = f"{column.name} of {column.table or 'a row'} ({', '.join(where)})"
                return Damage(f"{what} {error!s:.120}")
    return Damage("a row cannot be read")


def _fetch(connection: Connection, question: Question) -> Iterator[Sequence[Any]]:
    """Rows as the database has them, so many at a time that they are not long together. SQLite is
    kept from a row that is longer than its columns may be."""
    raw = connection.connection.driver_connection
    sizes = [column.kind.most_bytes for column in question.columns]
    limit = _Limit(raw if isinstance(raw, sqlite3.Connection) else None, sum(sizes) + _ROW_ROOM)
    long = [place for place, size in enumerate(sizes) if size > _SHORT]
    served = limit.raw is None
    most_rows = _require_short(connection, question, long) if served else _MOST_ROWS
    # A server keeps its rows until so many of them are asked for.
    options = {"stream_results": served}
    with limit:
        result: CursorResult[Any] = connection.execute(question.query, execution_options=options)
    cursor = result.cursor
    assert cursor is not None
    try:
        while True:
            with limit:
                if served:
                    rows: Sequence[Any] = result.fetchmany(most_rows)
                else:
                    rows = _fetch_some(cursor, long) if long else cursor.fetchmany(_MOST_ROWS)
            if not rows:
                return
            if served and long:
                current_budget().require()
            yield rows
    finally:
        result.close()


def _require_short(connection: Connection, question: Question, long: Sequence[int]) -> int:
    """Asks a server how long its values are before any is fetched; gives how many rows may be
    fetched at once. Raises Damage for a value that is longer than its column may be."""
    if not long:
        return _MOST_ROWS
    inner = question.query.order_by(None).subquery()
    columns = [question.columns[place] for place in long]
    asked = select(*(func.max(func.octet_length(inner.c[place])) for place in long))
    longest = [size or 0 for size in connection.execute(asked).one()]
    for column, size in zip(columns, longest, strict=True):
        if size > column.kind.most_bytes:
            raise Damage(f"{column.name} of {column.table} holds {size} bytes")
    return max(1, min(_MOST_ROWS, _MOST_BYTES // max(1, sum(longest))))


def _fetch_some(cursor: DBAPICursor, long: Sequence[int]) -> Sequence[Any]:
    rows: list[Any] = []
    size = 0
    for row in iter(cursor.fetchone, None):
        rows.append(row)
        for place in long:
            value = row[place]
            size += len(value) if isinstance(value, (str, bytes)) else 0
        if len(rows) == _MOST_ROWS or size > _MOST_BYTES:
            current_budget().require()
            break
    return rows


class _Limit:
    """SQLite's limit for a value while rows are fetched; writers have their own."""

    def __init__(self, raw: sqlite3.Connection | None, most: int) -> None:
        self.raw = raw
        self.most = min(most, MAX_VALUE, current_budget().most // 4)

    def __enter__(self) -> None:
        if self.raw:
            self.raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self.most)

    def __exit__(self, *_: object) -> None:
        if self.raw:
            self.raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
