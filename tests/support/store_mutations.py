"""Stores with something wrong in them: values, rows, schema, bytes; the same for the same seed."""

import json
import random
import sqlite3
import struct
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

Dice = random.Random
_LETTERS = "a'\"<>&{}[]\\\0\x1b\x7f\u202e\u00b5\U0001f4be \n"


def mutate(image: bytes, path: Path, dice: Dice) -> str:
    """Write a damaged copy of a store and say what was done to it."""
    path.write_bytes(image)
    how = dice.choices(_WAYS, (6, 3, 2, 2, 2, 1))[0]
    times = dice.choice((1, 1, 1, 2, 5))
    done = [how(path, dice) for _ in range(times)]
    return "; ".join(done)


# -- what is wrong in rows --------------------------------------------------------------------


def _set_value(path: Path, dice: Dice) -> str:
    with closing(_open(path)) as connection:
        table, column, kind = _pick_column(connection, dice)
        where, told = _pick_rows(connection, table, dice)
        value = _nasty(connection, table, column, kind, dice)
        _try(connection, f'update "{table}" set "{column}" = ? {where}', (value,))
    return f"{table}.{column} {told} = {value!r:.60}"


def _remove_rows(path: Path, dice: Dice) -> str:
    with closing(_open(path)) as connection:
        table, _, _ = _pick_column(connection, dice)
        where, told = _pick_rows(connection, table, dice)
        _try(connection, f'delete from "{table}" {where}')
    return f"{told} of {table} removed"


def _swap_values(path: Path, dice: Dice) -> str:
    """A value that belongs to another column, of this table or another."""
    with closing(_open(path)) as connection:
        table, column, _ = _pick_column(connection, dice)
        other, source, _ = _pick_column(connection, dice)
        where, told = _pick_rows(connection, table, dice)
        query = f'(select "{source}" from "{other}" limit 1)'
        _try(connection, f'update "{table}" set "{column}" = {query} {where}')
    return f"{table}.{column} {told} from {other}.{source}"


def _change_schema(path: Path, dice: Dice) -> str:
    with closing(_open(path)) as connection:
        table, column, _ = _pick_column(connection, dice)
        statement = dice.choice(
            (
                f'drop table "{table}"',
                f'alter table "{table}" add column strange text',
                f'alter table "{table}" rename column "{column}" to other',
                f'create view seen as select * from "{table}"',
                f'create trigger t after insert on "{table}" begin delete from "{table}"; end',
                f'create index quick on "{table}" (length("{column}"))',
                f"update diskproof_schema set version = {dice.choice((0, 1, 2, 4, 'null', -1))}",
                "pragma user_version = 7",
                f"create table strange as select * from {table}",
            )
        )
        _try(connection, statement)
        if dice.random() < 0.3:
            _try(connection, "pragma writable_schema = on")
            _try(
                connection,
                "update sqlite_master set sql = replace(sql, 'TEXT', ?) where name = ?",
                (dice.choice(("BLOB", "TEXT CHECK(1)", "(", "INTEGER")), table),
            )
    return statement


# -- what is wrong in bytes -------------------------------------------------------------------


def _flip_bytes(path: Path, dice: Dice) -> str:
    content = bytearray(path.read_bytes())
    count = dice.choice((1, 4, 32, 200))
    most = dice.choice((100, 4096, len(content)))
    for _ in range(count if content else 0):
        content[dice.randrange(min(most, len(content)))] = dice.randrange(256)
    path.write_bytes(content)
    return f"{count} bytes flipped in the first {most}"


def _cut_or_double(path: Path, dice: Dice) -> str:
    content = path.read_bytes()
    at = dice.randrange(len(content) + 1)
    path.write_bytes(content[:at] + (content if dice.random() < 0.3 else b""))
    return f"cut at {at}"


_WAYS: Sequence[Callable[[Path, Dice], str]] = (
    _set_value,
    _swap_values,
    _remove_rows,
    _flip_bytes,
    _change_schema,
    _cut_or_double,
)


# -- nasty values -----------------------------------------------------------------------------


def _nasty(
    connection: sqlite3.Connection, table: str, column: str, kind: str, dice: Dice
) -> object:
    """Something for a column of this declared type, or for another."""
    if dice.random() < 0.2:
        kind = dice.choice(("TEXT", "BIGINT", "DOUBLE", "BLOB", "NULL"))
    if kind == "NULL":
        return None
    if kind == "BLOB":
        return _nasty_blob(dice)
    if kind != "TEXT":
        return _nasty_number(dice, kind)
    kept = _first(connection, table, column)
    if isinstance(kept, str) and kept[:1] in ("[", "{") and dice.random() < 0.8:
        return _nasty_json(kept, dice)
    return dice.choice(
        (
            "",
            "".join(dice.choices(_LETTERS, k=dice.choice((1, 10, 190, 300)))),
            "x" * dice.choice((200, 201, 70_000, 3_000_000)),
            b"\xff\0\xff",
            "none",
        )
    )


def _nasty_number(dice: Dice, kind: str) -> object:
    whole = (0, 1, 2, -1, 7, 1000, 1 << 31, (1 << 31) - 1, (1 << 63) - 1, -(1 << 63))
    real = (0.0, -1.0, 1e-320, 1e300, -1e300, 1e17, 9e999, 253402300800.0, 5.5)
    return dice.choice(real if kind == "DOUBLE" or dice.random() < 0.2 else whole)


def _nasty_blob(dice: Dice) -> bytes:
    length = dice.choice((0, 1, 3, 100, 5000))
    figures = dice.choices((0.0, 1.0, -1.0, 1e-9, 1e300, float("inf"), float("nan")), k=length)
    packed = zlib.compress(struct.pack(f"<{length}d", *figures))
    odd = (packed, packed[:-2], packed + b"x", b"", dice.randbytes(40), zlib.compress(b"abc"))
    return dice.choice(odd if dice.random() < 0.9 else _bombs())


@cache
def _bombs() -> tuple[bytes, ...]:
    return zlib.compress(bytes(8 * 4_900_000)), zlib.compress(bytes(60_000_000))


def _nasty_json(kept: str, dice: Dice) -> str:
    try:
        content = json.loads(kept)
    except (ValueError, RecursionError):
        return kept[:-1]
    deep = dice.choice((5, 40, 3000, 100_000))
    made = (
        *("{bad", "null", "[]", "{}", "7", '"text"', "[[]]", '{"a":1e999}', "[NaN]"),
        "[" * deep + "]" * deep,
        json.dumps([content] * 3),
        json.dumps(_change(content, dice)),
        json.dumps(_change(content, dice)),
        json.dumps([["f" * 5, "x" * 900]] * dice.choice((2, 999, 5000))),
    )
    return dice.choice(made)


def _change(content: object, dice: Dice) -> object:
    """One place in it is something else."""
    if isinstance(content, list) and content and dice.random() < 0.8:
        at = dice.randrange(len(content))
        return [_change(each, dice) if place == at else each for place, each in enumerate(content)]
    if isinstance(content, dict) and content and dice.random() < 0.8:
        name = dice.choice(sorted(content))
        return {**content, name: _change(content[name], dice)}
    return dice.choice(
        (None, 0, -1, 1e300, "", "\x1b[2J", [], {}, True, 10**400, "y" * 2000, "\ud800")
    )


# -- picking ----------------------------------------------------------------------------------


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    _try(connection, "pragma journal_mode = delete")
    return connection


def _try(connection: sqlite3.Connection, statement: str, values: Sequence[object] = ()) -> None:
    try:
        connection.execute(statement, values)
    except (sqlite3.Error, OverflowError):
        return  # damaged already, or refused by SQLite itself


def _fetch(connection: sqlite3.Connection, query: str) -> list[tuple[object, ...]]:
    try:
        return connection.execute(query).fetchall()
    except (sqlite3.Error, OverflowError):
        return []


def _pick_column(connection: sqlite3.Connection, dice: Dice) -> tuple[str, str, str]:
    query = "select name from sqlite_master where type = 'table' and name not like 'sqlite%'"
    tables = [str(name) for (name,) in _fetch(connection, f"{query} order by name")]
    filled = [name for name in tables if _fetch(connection, f'select 1 from "{name}" limit 1')]
    table = dice.choice(filled or tables or ["run"])
    columns = _fetch(connection, f'select name, type from pragma_table_info("{table}")')
    column, kind = dice.choice(columns or [("id", "TEXT")])
    return table, str(column), str(kind)


def _pick_rows(connection: sqlite3.Connection, table: str, dice: Dice) -> tuple[str, str]:
    """A condition for some rows and its name; the first columns are in every key."""
    if dice.random() < 0.4:
        return "", "of all rows"
    column = next(iter(_fetch(connection, f'select name from pragma_table_info("{table}")')), "id")
    name = column[0] if isinstance(column, tuple) else column
    chosen = f'(select "{name}" from "{table}" limit 1 offset {dice.randrange(5)})'
    return f'where "{name}" = {chosen}', "of some rows"


def _first(connection: sqlite3.Connection, table: str, column: str) -> object:
    found = _fetch(connection, f'select "{column}" from "{table}" limit 1')
    return found[0][0] if found else None
