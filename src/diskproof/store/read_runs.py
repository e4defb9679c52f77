"""Runs out of their tables: whole, as light rows, or one kind of their parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, func, select

from diskproof.records import Artefact, Cell, Check, Failure, Histogram, Metric, RunRecord, Series
from diskproof.store.encoding import (
    parse_cell,
    parse_phases,
    unpack_bytes,
    unpack_counts,
    unpack_floats,
)
from diskproof.store.read import GOOD, read_cells
from diskproof.store.rows import RunCounts, RunRow
from diskproof.store.tables import (
    ARTEFACT,
    CELL,
    CHECKED_SETTING,
    HISTOGRAM,
    METRIC,
    RUN,
    SERIES,
    STUDY,
    STUDY_CELL,
)


def read_finished(connection: Connection, study_id: str) -> set[tuple[int, str]]:
    query = select(RUN.c.block, RUN.c.cell_id).where(RUN.c.counted, RUN.c.study_id == study_id)
    return {(block, cell_id) for block, cell_id in connection.execute(query)}


def read_counts(connection: Connection, study_id: str) -> RunCounts:
    query = (
        select(RUN.c.status, func.count())
        .where(RUN.c.counted, RUN.c.study_id == study_id)
        .group_by(RUN.c.status)
    )
    counts: dict[str, int] = dict(tuple(row) for row in connection.execute(query))
    cells = select(func.count()).where(STUDY_CELL.c.study_id == study_id).scalar_subquery()
    planned = connection.scalar(select(STUDY.c.blocks * cells).where(STUDY.c.id == study_id))
    return RunCounts(planned or 0, counts.get("ok", 0), counts.get("failed", 0))


def read_runs(
    connection: Connection, study_id: str, *conditions: ColumnElement[bool]
) -> Iterator[RunRow]:
    """Runs in the order they were stored, replaced attempts included."""
    cells = read_cells(connection, study_id)
    query = select(RUN).where(RUN.c.study_id == study_id, *conditions).order_by(RUN.c.number)
    for row in connection.execute(query):
        yield _run_row(row, cells[row.cell_id])


def _run_row(row: Row[Any], cell: Cell) -> RunRow:
    return RunRow(
        row.id,
        row.study_id,
        cell,
        row.host_id,
        row.block,
        row.position,
        row.started,
        row.ended,
        row.status,
        row.counted,
        parse_failure(row),
        parse_phases(row.phases),
    )


def parse_failure(row: Row[Any]) -> Failure | None:
    if row.failure_kind is None:
        return None
    return Failure(row.failure_kind, row.failure_what, row.failure_why, row.failure_hint)


def find_run(connection: Connection, run_id: str) -> RunRecord | None:
    """A run with everything it brought."""
    row = connection.execute(select(RUN).where(RUN.c.id == run_id)).one_or_none()
    if row is None:
        return None
    columns = select(CELL.c.levels, CELL.c.workload, CELL.c.kind, CELL.c.options)
    cell = connection.execute(columns.where(CELL.c.id == row.cell_id)).one()
    return RunRecord(
        row.id,
        row.study_id,
        parse_cell(*cell),
        row.block,
        row.position,
        row.started,
        row.ended,
        row.status,
        row.host_id,
        parse_failure(row),
        tuple(_check(each) for each in _parts(connection, CHECKED_SETTING, row.number)),
        tuple(parse_metric(each) for each in _parts(connection, METRIC, row.number)),
        tuple(parse_series(each) for each in _parts(connection, SERIES, row.number)),
        tuple(_histogram(each) for each in _parts(connection, HISTOGRAM, row.number)),
        tuple(parse_artefact(each) for each in _parts(connection, ARTEFACT, row.number)),
        parse_phases(row.phases),
    )


def _parts(connection: Connection, table: Table, number: int) -> Iterator[Row[Any]]:
    query = select(table).where(table.c.run_number == number).order_by(table.c.place)
    yield from connection.execute(query)


def _check(row: Row[Any]) -> Check:
    return Check(row.name, row.requested, row.effective, row.source, row.ok)


def parse_metric(row: Row[Any]) -> Metric:
    return Metric(row.name, row.unit, row.value, row.higher_is_better, row.is_primary)


def parse_series(row: Row[Any]) -> Series:
    times, values = unpack_floats(row.times), unpack_floats(row.readings)
    return Series(row.source, row.name, row.unit, times, values)


def _histogram(row: Row[Any]) -> Histogram:
    return Histogram(row.name, unpack_floats(row.edges), unpack_counts(row.counts))


def parse_artefact(row: Row[Any]) -> Artefact:
    return Artefact(row.name, row.media_type, unpack_bytes(row.content))


def read_series(connection: Connection, run_id: str) -> tuple[Series, ...]:
    query = select(SERIES).join(RUN).where(RUN.c.id == run_id).order_by(SERIES.c.place)
    return tuple(parse_series(row) for row in connection.execute(query))


def read_histograms(
    connection: Connection, study_id: str, cell_id: str, host_id: str | None
) -> dict[str, list[Histogram]]:
    """The histograms of a cell's counted good runs, by name."""
    query = (
        select(HISTOGRAM)
        .join(RUN)
        .where(*GOOD, RUN.c.study_id == study_id, RUN.c.cell_id == cell_id)
        .order_by(RUN.c.block, HISTOGRAM.c.place)
    )
    if host_id is not None:
        query = query.where(RUN.c.host_id == host_id)
    found: dict[str, list[Histogram]] = defaultdict(list)
    for row in connection.execute(query):
        found[row.name].append(_histogram(row))
    return dict(found)


def read_checks(
    connection: Connection, study_id: str, host_id: str | None
) -> Mapping[str, tuple[Check, ...]]:
    """By cell id, the read-back settings of its newest counted run that has any."""
    query = (
        select(CHECKED_SETTING, RUN.c.cell_id, RUN.c.number)
        .join(RUN)
        .where(RUN.c.counted, RUN.c.study_id == study_id)
        .order_by(RUN.c.number, CHECKED_SETTING.c.place)
    )
    if host_id is not None:
        query = query.where(RUN.c.host_id == host_id)
    newest: dict[str, tuple[int, list[Check]]] = {}
    for row in connection.execute(query):
        number, checks = newest.get(row.cell_id, (None, []))
        if number != row.number:
            checks = []
        newest[row.cell_id] = (row.number, [*checks, _check(row)])
    return {cell_id: tuple(checks) for cell_id, (_, checks) in newest.items()}
