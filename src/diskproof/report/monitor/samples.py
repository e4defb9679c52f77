"""A recording of the monitor, read back: ``--json`` or ``--csv``.

A file may come from anywhere: sizes are bounded, and what is no recording is an error that names
the line. A last line that was cut off is left out.
"""

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from diskproof.errors import UsageError

MAX_BYTES = 1 << 30
MAX_COLUMNS = 4096
MAX_NUMBERS = 10_000_000
MAX_ROW_NAMES = 1024
PROTOCOL = 1
_HEAD = re.compile(r"(?P<name>.+) \[(?P<unit>[^\]]+)\]")

Values = tuple[float, ...]


@dataclass(frozen=True)
class MonitorColumn:
    """One metric; its name says of what."""

    name: str
    unit: str


@dataclass(frozen=True)
class MonitorRecording:
    """``values[i]`` has a number for each column at ``times[i]`` (Unix, seconds); nan: not told.

    ``rows`` has, for each thing of which there is a varying number (``key``: ``vm``), its samples:
    (time, a number for each of ``row_columns``).
    """

    columns: tuple[MonitorColumn, ...]
    times: tuple[float, ...]
    values: tuple[Values, ...]
    key: str
    row_columns: tuple[MonitorColumn, ...]
    rows: dict[str, tuple[tuple[float, Values], ...]]


@dataclass(frozen=True)
class _Heads:
    columns: tuple[MonitorColumn, ...]
    key: str = ""
    row_columns: tuple[MonitorColumn, ...] = ()


def read_recording(path: Path) -> MonitorRecording:
    """Raises UsageError for a file that cannot be read or is no recording."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}", error.strerror or str(error)) from None
    if len(content) > MAX_BYTES:
        raise UsageError(f"{path} is too large", f"at most {MAX_BYTES >> 20} MiB are read")
    return parse_recording(content, str(path))


def parse_recording(content: bytes, place: str) -> MonitorRecording:
    """As ``read_recording``; ``place`` names the file in errors."""
    whole = content[: content.rfind(b"\n") + 1].decode("utf-8", "replace")
    if not whole:
        _refuse(place, 1, "it is empty")
    reader = _JsonLines if whole.startswith("{") else _CsvLines
    return _gather(reader(whole, place))


class _Gathered:
    """Samples as they come."""

    def __init__(self, heads: _Heads) -> None:
        self.heads = heads
        self.times: list[float] = []
        self.values: list[Values] = []
        self.rows: dict[str, list[tuple[float, Values]]] = {}
        self.numbers = 0


class _JsonLines:
    """``{"type":"header",...}``, then ``{"type":"sample",...}`` lines."""

    def __init__(self, text: str, place: str) -> None:
        self.place = place
        self.lines = text.split("\n")[:-1]

    def heads(self) -> _Heads:
        header = self._object(1, self.lines[0])
        if header.get("type") != "header" or header.get("protocol") != PROTOCOL:
            _refuse(self.place, 1, "it does not begin with a header of the monitor")
        table = header.get("rows") or {"key": "", "columns": []}
        if not isinstance(table, dict):
            _refuse(self.place, 1, "its rows have no columns")
        columns = self._columns(header.get("columns"))
        return _Heads(columns, str(table.get("key", "")), self._columns(table.get("columns")))

    def _columns(self, told: object) -> tuple[MonitorColumn, ...]:
        if not isinstance(told, list) or len(told) > MAX_COLUMNS:
            _refuse(self.place, 1, "its header has no list of columns, or too long a one")
        if not all(isinstance(each, dict) for each in told):
            _refuse(self.place, 1, "a column of its header is no object")
        return tuple(MonitorColumn(str(each.get("name")), str(each.get("unit"))) for each in told)

    def samples(self, heads: _Heads) -> Iterator[tuple[float, Values, list[tuple[str, Values]]]]:
        for number, line in enumerate(self.lines[1:], 2):
            sample = self._object(number, line)
            rows = sample.get("rows", [])
            if sample.get("type") != "sample" or not isinstance(rows, list):
                _refuse(self.place, number, "it is no sample")
            at = self._numbers([sample.get("time")], 1, number)[0]
            values = self._numbers(sample.get("values"), len(heads.columns), number)
            yield at, values, [self._row(row, heads, number) for row in rows]

    def _row(self, row: object, heads: _Heads, number: int) -> tuple[str, Values]:
        if not isinstance(row, list) or not row or not isinstance(row[0], str):
            _refuse(self.place, number, "a row has no name")
        return row[0], self._numbers(row[1:], len(heads.row_columns), number)

    def _numbers(self, told: object, width: int, number: int) -> Values:
        if not isinstance(told, list) or len(told) != width:
            _refuse(self.place, number, f"it has not {width} values")
        return tuple(self._number(value, number) for value in told)

    def _number(self, value: object, number: int) -> float:
        if value is None:
            return math.nan
        if isinstance(value, bool) or not isinstance(value, int | float):
            _refuse(self.place, number, "a value is no number")
        try:
            return float(value)
        except OverflowError:
            _refuse(self.place, number, "a value is no number")

    def _object(self, number: int, line: str) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            _refuse(self.place, number, "it is no JSON object")
        return found


class _CsvLines:
    """``time [s],cpu.user [percent],...``; a head without unit names what the rows are of."""

    def __init__(self, text: str, place: str) -> None:
        self.place = place
        self.reader = csv.reader(io.StringIO(text, newline=""), strict=True)

    def heads(self) -> _Heads:
        first, *names = self._next() or [""]
        if first != "time [s]" or len(names) > MAX_COLUMNS:
            _refuse(self.place, 1, "it does not begin with the monitor's columns: time [s],...")
        parts = [_HEAD.fullmatch(name) for name in names]
        keys = [place for place, part in enumerate(parts) if part is None]
        if len(keys) > 1:
            _refuse(self.place, 1, f"its column {names[keys[1]]!r} has no unit")
        split = keys[0] if keys else len(names)
        columns = tuple(
            MonitorColumn(part["name"], part["unit"]) for part in parts if part is not None
        )
        return _Heads(columns[:split], names[split] if keys else "", columns[split:])

    def samples(self, heads: _Heads) -> Iterator[tuple[float, Values, list[tuple[str, Values]]]]:
        """A line that stands again for a further row is one sample."""
        width = len(heads.columns)
        held: tuple[float, Values, list[tuple[str, Values]]] | None = None
        while (fields := self._next()) is not None:
            if len(fields) != 1 + width + (1 + len(heads.row_columns) if heads.key else 0):
                _refuse(self.place, self.reader.line_num, "it has not as many fields as the head")
            at = self._number(fields[0])
            if held is None or held[0] != at:
                if held is not None:
                    yield held
                held = at, tuple(map(self._number, fields[1 : width + 1])), []
            if heads.key and fields[width + 1]:
                row = tuple(map(self._number, fields[width + 2 :]))
                held[2].append((fields[width + 1], row))
        if held is not None:
            yield held

    def _next(self) -> list[str] | None:
        try:
            return next(self.reader, None)
        except csv.Error as error:
            _refuse(self.place, self.reader.line_num, str(error))

    def _number(self, text: str) -> float:
        try:
            return float(text) if text else math.nan
        except ValueError:
            _refuse(self.place, self.reader.line_num, "a value is no number")


def _gather(reader: _JsonLines | _CsvLines) -> MonitorRecording:
    got = _Gathered(reader.heads())
    _check_names(got.heads, reader.place)
    for at, values, rows in reader.samples(got.heads):
        if not math.isfinite(at):
            _refuse(reader.place, len(got.times) + 2, "a sample has no time")
        got.times.append(at)
        got.values.append(values)
        for name, row in rows:
            got.rows.setdefault(name, []).append((at, row))
        got.numbers += len(values) + sum(len(row) for _, row in rows)
        if got.numbers > MAX_NUMBERS or len(got.rows) > MAX_ROW_NAMES:
            raise UsageError(f"{reader.place} is too large", "record with a longer delay")
    return MonitorRecording(
        got.heads.columns,
        tuple(got.times),
        tuple(got.values),
        got.heads.key,
        got.heads.row_columns,
        {name: tuple(samples) for name, samples in got.rows.items()},
    )


def _check_names(heads: _Heads, place: str) -> None:
    names = Counter(column.name for column in (*heads.columns, *heads.row_columns))
    for name, times in names.items():
        if times > 1:
            _refuse(place, 1, f"the column {name!r} comes twice")


def _refuse(place: str, line: int, why: str) -> NoReturn:
    hint = "a recording is made with `diskproof monitor --json FILE` or `--csv FILE`"
    raise UsageError(f"{place}:{line}: no recording of the monitor", why, hint)
