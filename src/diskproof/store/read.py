"""Studies, hosts and results out of their tables, inside the caller's transaction."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, or_, select

from diskproof.records import Cell, HostRecord, StudyRecord
from diskproof.store.encoding import parse_cell, parse_dropped, parse_facts, parse_texts
from diskproof.store.rows import Progress, ResultRow
from diskproof.store.tables import CELL, HOST, METRIC, PROGRESS, RUN, STUDY, STUDY_CELL

GOOD = (RUN.c.counted, RUN.c.status == "ok")


# -- studies and hosts ----------------------------------------------------------------------


def read_studies(connection: Connection) -> list[StudyRecord]:
    """All studies with their cells, oldest first."""
    rows = connection.execute(select(STUDY).order_by(STUDY.c.created, STUDY.c.id)).all()
    return [_study(connection, row) for row in rows]


def find_study(connection: Connection, name_or_id: str) -> StudyRecord | None:
    """The study of this id, or else the newest of this name."""
    query = (
        select(STUDY)
        .where(_is_study(name_or_id))
        .order_by((STUDY.c.id == name_or_id).desc(), STUDY.c.created.desc(), STUDY.c.id)
    )
    row = connection.execute(query.limit(1)).one_or_none()
    return None if row is None else _study(connection, row)


def _is_study(name_or_id: str) -> ColumnElement[bool]:
    return or_(STUDY.c.id == name_or_id, STUDY.c.name == name_or_id)


def _study(connection: Connection, row: Row[Any]) -> StudyRecord:
    return StudyRecord(
        row.id,
        row.name,
        row.origin,
        row.text,
        row.seed,
        row.blocks,
        tuple(read_cells(connection, row.id).values()),
        parse_dropped(row.dropped),
        parse_texts(row.warnings),
        row.created,
    )


def read_cells(connection: Connection, study_id: str) -> dict[str, Cell]:
    """Cells of a study by id, in the study's order."""
    query = (
        select(CELL.c.id, CELL.c.levels, CELL.c.workload, CELL.c.kind, CELL.c.options)
        .join(STUDY_CELL)
        .where(STUDY_CELL.c.study_id == study_id)
        .order_by(STUDY_CELL.c.place)
    )
    return {key: parse_cell(*columns) for key, *columns in connection.execute(query)}


def read_hosts(connection: Connection) -> list[HostRecord]:
    rows = connection.execute(select(HOST).order_by(HOST.c.id))
    return [HostRecord(row.id, row.name, parse_facts(row.facts)) for row in rows]


# -- results --------------------------------------------------------------------------------


def read_results(connection: Connection, study: str | None, metric: str | None) -> list[ResultRow]:
    """Values by study, host, cell and metric, in the order of studies, cells and metrics."""
    wanted = select(STUDY.c.id).order_by(STUDY.c.created, STUDY.c.id)
    if study is not None:
        wanted = wanted.where(_is_study(study))
    return [
        row
        for study_id in connection.scalars(wanted).all()
        for row in _study_results(connection, study_id, metric)
    ]


def _study_results(connection: Connection, study_id: str, metric: str | None) -> list[ResultRow]:
    runs: dict[tuple[Any, ...], list[tuple[int, float, str]]] = defaultdict(list)
    metric_place: dict[str, int] = {}
    for row in connection.execute(_result_query(study_id, metric)):
        key, (place, block, value, run_id) = row[:6], row[6:]
        runs[key].append((block, value, run_id))
        metric_place.setdefault(key[2], place)
    cells = read_cells(connection, study_id)
    cell_place = {cell_id: number for number, cell_id in enumerate(cells)}

    def order(key: tuple[Any, ...]) -> tuple[Any, ...]:
        return (cell_place[key[0]], key[1], metric_place[key[2]], key)

    rows = []
    for key in sorted(runs, key=order):
        cell_id, host_id, name, unit, higher_is_better, primary = key
        described = (name, unit, higher_is_better, primary)
        blocks, values, run_ids = zip(*sorted(runs[key]), strict=True)
        cell = cells[cell_id]
        rows.append(
            ResultRow(study_id, host_id, cell, *described, tuple(values), tuple(blocks), run_ids)
        )
    return rows


def _result_query(study_id: str, metric: str | None) -> Select[Any]:
    query = (
        select(
            RUN.c.cell_id,
            RUN.c.host_id,
            METRIC.c.name,
            METRIC.c.unit,
            METRIC.c.higher_is_better,
            METRIC.c.is_primary,
            METRIC.c.place,
            RUN.c.block,
            METRIC.c.value,
            RUN.c.id,
        )
        .join(METRIC, METRIC.c.run_number == RUN.c.number)
        .where(*GOOD, RUN.c.study_id == study_id)
    )
    return query if metric is None else query.where(METRIC.c.name == metric)


def find_progress(connection: Connection) -> Progress | None:
    """The progress that was written last, of whichever study."""
    row = connection.execute(select(PROGRESS).order_by(PROGRESS.c.updated.desc()).limit(1))
    found = row.one_or_none()
    return None if found is None else Progress(**found._mapping)
