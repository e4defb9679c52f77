"""A recording of the monitor as Parquet, in the shape of its CSV."""

import io
import math
from collections.abc import Iterator
from typing import Any

from diskproof.process.extras import require_extra
from diskproof.report.monitor.samples import MonitorColumn, MonitorRecording

ROW_GROUP = 10_000


def render_parquet(recording: MonitorRecording) -> bytes:
    """A row a sample; with virtual machines a row for each of them, the host's columns again.

    Columns are named as in CSV, with their units; what was not told is null.
    """
    require_extra("parquet")
    import pyarrow as pa
    from pyarrow import parquet

    fields = [
        ("time [s]", pa.float64()),
        *((_head(each), pa.float64()) for each in recording.columns),
    ]
    if recording.key:
        fields.append((recording.key, pa.string()))
        fields += [(_head(each), pa.float64()) for each in recording.row_columns]
    schema = pa.schema(fields)
    stream = io.BytesIO()
    with parquet.ParquetWriter(stream, schema) as writer:
        for rows in _groups(recording):
            columns = [list(column) for column in zip(*rows, strict=True)]
            writer.write_table(pa.table(columns, schema=schema))
    return stream.getvalue()


def _head(column: MonitorColumn) -> str:
    return f"{column.name} [{column.unit}]"


def _groups(recording: MonitorRecording) -> Iterator[list[tuple[Any, ...]]]:
    group: list[tuple[Any, ...]] = []
    for row in _rows(recording):
        group.append(row)
        if len(group) == ROW_GROUP:
            yield group
            group = []
    if group:
        yield group


def _rows(recording: MonitorRecording) -> Iterator[tuple[Any, ...]]:
    machines: dict[float, list[tuple[str, tuple[float, ...]]]] = {}
    for name, samples in recording.rows.items():
        for at, values in samples:
            machines.setdefault(at, []).append((name, values))
    nobody = (None,) * (1 + len(recording.row_columns)) if recording.key else ()
    for at, values in zip(recording.times, recording.values, strict=True):
        line = (at, *map(_told, values))
        for name, row in machines.get(at, ()):
            yield (*line, name, *map(_told, row))
        if at not in machines:
            yield (*line, *nobody)


def _told(value: float) -> float | None:
    return None if math.isnan(value) else value
