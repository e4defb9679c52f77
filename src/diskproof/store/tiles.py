"""Runs of tiles, into their tables and out, inside the caller's transaction."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, insert, select, update
from sqlalchemy.exc import IntegrityError

from diskproof.errors import UsageError
from diskproof.records import Check, Metric, Series
from diskproof.records.tiles import GuestUse, StepRun, TileRun, WorkRun
from diskproof.store.encoding import cell_columns, parse_cell, parse_phases, render_json
from diskproof.store.read_runs import parse_artefact, parse_failure, parse_metric, parse_series
from diskproof.store.tables import CELL, HOST, STUDY
from diskproof.store.tiles_schema import (
    TILE_FILE,
    TILE_METRIC,
    TILE_RUN,
    TILE_SERIES,
    TILE_STEP,
    TILE_USE,
    TILE_WORK,
)
from diskproof.store.write import (
    DuplicateRun,
    artefact_columns,
    failure_columns,
    insert_rows,
    metric_columns,
    series_columns,
)

_PLACE = ("study_id", "cell_id", "host_id", "tiles", "repeat")


# -- writing --------------------------------------------------------------------------------


def write_tile_run(connection: Connection, run: TileRun) -> None:
    """Store a run of tiles with all it brought; one that is stored already is left alone.

    Raises DuplicateRun when another counts for the same study, cell, host, number of tiles and
    repeat, UsageError when the study or the host is unknown.
    """
    place = _place_of(run)
    stored = select(*(TILE_RUN.c[name] for name in _PLACE)).where(TILE_RUN.c.id == run.id)
    found = connection.execute(stored).one_or_none()
    if found is not None:
        if tuple(found) != tuple(place.values()):
            raise _duplicate(run)
        return
    _require_known(connection, run)
    try:
        if connection.scalar(select(CELL.c.id).where(CELL.c.id == run.cell.id)) is None:
            connection.execute(insert(CELL).values(**cell_columns(run.cell)))
        row = insert(TILE_RUN).values(**place, **_run_columns(run)).returning(TILE_RUN.c.number)
        number = connection.scalar(row)
    except IntegrityError as error:
        raise _duplicate(run) from error
    for table, rows in _part_rows(run):
        numbered = ({"run_number": number, "place": n} | row for n, row in enumerate(rows))
        insert_rows(connection, table, numbered)
    insert_rows(connection, TILE_METRIC, ({"run_number": number} | row for row in _metrics(run)))


def _place_of(run: TileRun) -> dict[str, Any]:
    values = (run.study_id, run.cell.id, run.host_id, run.tiles, run.repeat)
    return dict(zip(_PLACE, values, strict=True))


def _duplicate(run: TileRun) -> DuplicateRun:
    return DuplicateRun(
        f"tile run {run.id} cannot be stored",
        f"a run of {run.tiles} tiles counts as number {run.repeat} of cell {run.cell.id} already",
        "another process may be running the same study",
    )


def _require_known(connection: Connection, run: TileRun) -> None:
    for table, key in ((STUDY, run.study_id), (HOST, run.host_id)):
        if connection.scalar(select(table.c.id).where(table.c.id == key)) is None:
            why = f"{table.name} {key!r} is not known"
            raise UsageError(f"tile run {run.id} cannot be stored", why)


def _run_columns(run: TileRun) -> dict[str, Any]:
    checks = [dataclasses.astuple(check) for check in run.checks]
    return {
        "id": run.id,
        "started": run.started,
        "ended": run.ended,
        "seconds": run.seconds,
        "counted": True,
        "checks": render_json(checks),
        "phases": render_json(run.phases),
        **failure_columns(run.failure),
    }


def _part_rows(run: TileRun) -> Iterator[tuple[Table, Iterator[dict[str, Any]]]]:
    yield TILE_STEP, map(dataclasses.asdict, run.steps)
    yield TILE_USE, map(dataclasses.asdict, run.uses)
    works = ({"tile": work.tile, "work": work.work, "guest": work.guest} for work in run.works)
    yield TILE_WORK, works
    yield TILE_SERIES, map(series_columns, run.series)
    yield TILE_FILE, map(artefact_columns, run.artefacts)


def _metrics(run: TileRun) -> Iterator[dict[str, Any]]:
    for work_place, work in enumerate(run.works):
        for place, metric in enumerate(work.metrics):
            yield {"work_place": work_place, "place": place} | metric_columns(metric)


def supersede_failed(connection: Connection, study_id: str) -> int:
    """Failed runs of tiles of a study count no longer, so that they are made again."""
    failed = (TILE_RUN.c.study_id == study_id, TILE_RUN.c.failure_kind.is_not(None))
    query = update(TILE_RUN).where(TILE_RUN.c.counted, *failed).values(counted=False)
    return connection.execute(query).rowcount


# -- reading --------------------------------------------------------------------------------


def read_tile_runs(connection: Connection, study_id: str | None = None) -> tuple[TileRun, ...]:
    """The runs that count, of one study or of all, in the order they were stored, without series
    and artefacts."""
    conditions: list[ColumnElement[bool]] = [TILE_RUN.c.counted]
    if study_id is not None:
        conditions.append(TILE_RUN.c.study_id == study_id)
    return tuple(_read(connection, conditions).values())


def find_tile_run(connection: Connection, run_id: str) -> TileRun | None:
    """A run with everything it brought, also one that counts no longer."""
    for number, run in _read(connection, [TILE_RUN.c.id == run_id]).items():
        files = select(TILE_FILE).where(TILE_FILE.c.run_number == number)
        artefacts = connection.execute(files.order_by(TILE_FILE.c.place))
        series = read_tile_series(connection, run_id)
        return replace(run, series=series, artefacts=tuple(map(parse_artefact, artefacts)))
    return None


def read_tile_series(connection: Connection, run_id: str) -> tuple[Series, ...]:
    query = select(TILE_SERIES).join(TILE_RUN).where(TILE_RUN.c.id == run_id)
    return tuple(map(parse_series, connection.execute(query.order_by(TILE_SERIES.c.place))))


def _read(connection: Connection, conditions: list[ColumnElement[bool]]) -> Mapping[int, TileRun]:
    """Runs by their number, in its order."""
    chosen = select(TILE_RUN.c.number).where(*conditions)
    steps = _read_parts(connection, TILE_STEP, chosen)
    uses = _read_parts(connection, TILE_USE, chosen)
    works = _read_works(connection, chosen)
    columns = (CELL.c.levels, CELL.c.workload, CELL.c.kind, CELL.c.options)
    query = select(TILE_RUN, *columns).join(CELL, CELL.c.id == TILE_RUN.c.cell_id)
    return {
        row.number: TileRun(
            row.id,
            row.study_id,
            parse_cell(row.levels, row.workload, row.kind, row.options),
            row.host_id,
            *(row.tiles, row.repeat, row.started, row.ended, row.seconds),
            steps=tuple(map(_step, steps[row.number])),
            works=tuple(works[row.number]),
            uses=tuple(map(_use, uses[row.number])),
            checks=tuple(Check(*check) for check in json.loads(row.checks)),
            failure=parse_failure(row),
            phases=parse_phases(row.phases),
        )
        for row in connection.execute(query.where(*conditions).order_by(TILE_RUN.c.number))
    }


def _read_parts(connection: Connection, table: Table, chosen: Any) -> Mapping[int, list[Row[Any]]]:
    query = select(table).where(table.c.run_number.in_(chosen)).order_by(table.c.place)
    found: dict[int, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(query):
        found[row.run_number].append(row)
    return found


def _read_works(connection: Connection, chosen: Any) -> Mapping[int, list[WorkRun]]:
    metrics: dict[tuple[int, int], list[Metric]] = defaultdict(list)
    for number, rows in _read_parts(connection, TILE_METRIC, chosen).items():
        for row in rows:
            metrics[number, row.work_place].append(parse_metric(row))
    found: dict[int, list[WorkRun]] = defaultdict(list)
    for number, rows in _read_parts(connection, TILE_WORK, chosen).items():
        for row in rows:
            of_work = tuple(metrics[number, row.place])
            found[number].append(WorkRun(row.tile, row.work, row.guest, of_work))
    return found


def _step(row: Row[Any]) -> StepRun:
    names = (field.name for field in dataclasses.fields(StepRun))
    return StepRun(*(getattr(row, name) for name in names))


def _use(row: Row[Any]) -> GuestUse:
    names = (field.name for field in dataclasses.fields(GuestUse))
    return GuestUse(*(getattr(row, name) for name in names))
