"""Rows of a database that a writer was promised, one a commit, and what is left of them. Pure.

A promise is the line ``WRITER N``: the commit of row N has returned. Rows are 1, 2, 3, ...
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

TABLE = "promise"
CREATE = f"CREATE TABLE {TABLE} (number INTEGER PRIMARY KEY, content TEXT NOT NULL)"
SELECT = f"SELECT number, content FROM {TABLE} ORDER BY number"
KEEPS, LOSES, CORRUPTS, FAILED = 0, 1, 2, 3
"""Exit codes of a check."""


@dataclass(frozen=True)
class Found:
    """The verdict on one state: an exit code above, how many promises are lost, and why."""

    code: int
    lost: int = 0
    why: str = ""


def row_content(number: int) -> str:
    """What row ``number`` holds: 512 characters that nothing compresses to a page's header."""
    rounds = (hashlib.sha256(f"{number}.{part}".encode()).hexdigest() for part in range(8))
    return "".join(rounds)


def insert_text(number: int) -> str:
    """A row as SQL; its content needs no quoting."""
    return f"INSERT INTO {TABLE} VALUES ({number}, '{row_content(number)}')"


def promise_line(writer: str, number: int) -> str:
    return f"{writer} {number}"


def read_promised(lines: Iterable[str], writer: str) -> int:
    """The highest row that was promised, 0 for none. Other lines are passed over."""
    highest = 0
    for line in lines:
        name, _, number = line.strip().partition(" ")
        if name == writer and number.isascii() and number.isdigit() and len(number) < 19:
            highest = max(highest, int(number))
    return highest


def judge_rows(rows: Mapping[int, str], promised: int) -> Found:
    """Rows that were promised must be there, and every row must hold what was written."""
    if wrong := [number for number, content in rows.items() if content != row_content(number)]:
        return Found(CORRUPTS, why=f"row {wrong[0]} does not hold what was written")
    missing = [number for number in range(1, promised + 1) if number not in rows]
    if missing:
        return Found(LOSES, len(missing), f"row {missing[0]} of {promised} is not there")
    return Found(KEEPS)


def all_lost(promised: int, why: str) -> Found:
    """Nothing is left; no loss if nothing was promised."""
    return Found(LOSES, promised, why) if promised else Found(KEEPS)
