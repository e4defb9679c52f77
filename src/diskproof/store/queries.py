"""Records out of their tables, inside the caller's transaction."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache, partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, func, or_, select

from diskproof.errors import UsageError
from diskproof.records import (
    Cell,
    Check,
    Failure,
    Histogram,
    HostRecord,
    Series,
    StudyRecord,
    WorkloadSpec,
)
from diskproof.store.gate import Damage, Question, read_each, read_records
from diskproof.store.parts import CHECKED_SETTINGS, HISTOGRAMS, AnyRun, Part, RunKind, Values
from diskproof.store.rows import Progress, ResultRow, RunCounts, RunRow
from diskproof.store.tables import CELL, HOST, METRIC, PROGRESS, RUN, STUDY, STUDY_CELL
from diskproof.study.like import DiskDefault, find_defaults, named

_GOOD = (RUN.c.counted, RUN.c.status == "ok")
_WARNINGS = Question(select(STUDY.c.warnings))
_CELL = (CELL.c.id, CELL.c.levels, CELL.c.workload, CELL.c.kind, CELL.c.options)
_STUDIES = Question(select(STUDY).order_by(STUDY.c.created, STUDY.c.id))
_STUDY_CELLS = Question(select(*_CELL).join(STUDY_CELL).order_by(STUDY_CELL.c.place))


# -- studies and hosts ----------------------------------------------------------------------


def read_studies(connection: Connection) -> list[StudyRecord]:
    """All studies with their cells, oldest first."""
    return [_study(connection, row) for row in read_records(connection, _STUDIES)]


def find_study(connection: Connection, name_or_id: str) -> StudyRecord | None:
    """The study of this id, or else the newest of this name."""
    query = (
        select(STUDY)
        .where(_is_study(name_or_id))
        .order_by((STUDY.c.id == name_or_id).desc(), STUDY.c.created.desc(), STUDY.c.id)
    )
    return next((_study(connection, row) for row in read_records(connection, query.limit(1))), None)


def _is_study(name_or_id: str) -> ColumnElement[bool]:
    return or_(STUDY.c.id == name_or_id, STUDY.c.name == name_or_id)


def _study(connection: Connection, row: Values) -> StudyRecord:
    return StudyRecord(**row, cells=tuple(read_cells(connection, row["id"]).values()))


def read_cells(connection: Connection, study_id: str) -> dict[str, Cell]:
    """Cells of a study by id, in the study's order, with their names in it."""
    cells = _cells(connection, _STUDY_CELLS.where(STUDY_CELL.c.study_id == study_id))
    defaults = _defaults(connection, study_id)
    return dict(zip(cells, named(cells.values(), defaults), strict=True)) if defaults else cells


def _defaults(connection: Connection, study_id: str) -> tuple[DiskDefault, ...]:
    """The defaults of managers that a study's cells are named after."""
    return find_defaults(read_warnings(connection, study_id))


def read_warnings(connection: Connection, study_id: str) -> tuple[str, ...]:
    """What is told of a study; nothing of one that is not known."""
    query = _WARNINGS.where(STUDY.c.id == study_id)
    return next((told for (told,) in read_each(connection, query)), ())


def _cells(connection: Connection, query: Select[Any] | Question) -> dict[str, Cell]:
    cells = {
        key: Cell(levels, WorkloadSpec(*workload))
        for key, levels, *workload in read_each(connection, query)
    }
    if wrong := next((key for key, cell in cells.items() if cell.id != key), None):
        raise Damage(f"what cell {wrong} holds is not what it is named after")
    return cells


def read_hosts(connection: Connection) -> list[HostRecord]:
    return [HostRecord(*row) for row in read_each(connection, select(HOST).order_by(HOST.c.id))]


def find_progress(connection: Connection) -> Progress | None:
    """The progress that was written last, of whichever study."""
    newest = select(PROGRESS).order_by(PROGRESS.c.updated.desc()).limit(1)
    return next((Progress(**row) for row in read_records(connection, newest)), None)


# -- runs of every kind ---------------------------------------------------------------------


def find_run(connection: Connection, kind: RunKind[AnyRun], run_id: str) -> AnyRun | None:
    """A run with everything it brought, also one that counts no longer."""
    runs = _read_runs(connection, kind, kind.parts, kind.table.c.id == run_id)
    return next(iter(runs), None)


def read_counted(
    connection: Connection, kind: RunKind[AnyRun], study_id: str | None
) -> Iterator[AnyRun]:
    """The runs that count, of one study or of all, in the order they were stored, with the parts
    of them that are light and count."""
    conditions = [kind.table.c.study_id == study_id] if study_id is not None else []
    parts = [part for part in kind.parts if part.light]
    return _read_runs(connection, kind, parts, *conditions, *_counted(kind.table), counted=True)


def _counted(table: Table) -> Iterator[ColumnElement[bool]]:
    return (column for column in table.c if column.key == "counted")


def read_series(
    connection: Connection, kind: RunKind[Any], run_id: str, sources: Sequence[str]
) -> tuple[Series, ...]:
    """The time series of one run, all or those of these sources."""
    part = next(part for part in kind.parts if part.field == "series")
    wanted = [part.table.c.source.in_(sources)] if sources else []
    found = _read_part(connection, kind.table, part, kind.table.c.id == run_id, *wanted)
    return tuple(each for of_run in found.values() for each in of_run)


def _read_runs(
    connection: Connection,
    kind: RunKind[AnyRun],
    parts: Iterable[Part],
    *conditions: ColumnElement[bool],
    counted: bool = False,
) -> Iterator[AnyRun]:
    """Runs by conditions on their headers, in the order they were stored."""
    found = {}
    for part in parts:
        of_part = _counted(part.table) if counted else ()
        found[part.field] = _read_part(connection, kind.table, part, *conditions, *of_part)
    for number, header in _read_headers(connection, kind.table, kind.record, *conditions):
        of_run = {field: tuple(records[number,]) for field, records in found.items()}
        run = kind.record(**header, **of_run)
        try:
            kind.require(run)
        except UsageError as error:
            raise Damage(
                f"{error.what.partition(': ')[2]} of {kind.name} {run.id} {error.why}"
            ) from None
        yield run


def _read_headers(
    connection: Connection, headers: Table, record: type, *conditions: ColumnElement[bool]
) -> Iterator[tuple[int, Values]]:
    """What the headers of runs say of the fields of a record, by the runs' numbers."""
    of_cells, of_headers, names = _header_queries(headers, record)
    cells = _cells(connection, of_cells.where(*conditions))
    defaults = cache(partial(_defaults, connection))
    for number, cell_id, *values in read_each(connection, of_headers.where(*conditions)):
        header = dict(zip(names, values, strict=False))
        failure = values[len(names) :]
        if (None in failure) != (failure[0] is None) or cell_id not in cells:
            raise Damage(f"half of the failure or of the cell of run {header['id']} is missing")
        header["failure"] = None if failure[0] is None else Failure(*failure)
        (cell,) = named([cells[cell_id]], defaults(header["study_id"]))
        yield number, header | {"cell": cell}


@cache
def _header_queries(headers: Table, record: type) -> tuple[Question, Question, tuple[str, ...]]:
    """What is asked of headers, without its conditions (to put a query together takes as long as
    SQLite takes to answer it): cells, headers with those fields of a record, then its failure."""
    names = tuple(field.name for field in fields(record) if field.name in headers.c)
    failure = (f"failure_{field.name}" for field in fields(Failure))
    columns = (headers.c[name] for name in (*names, *failure))
    query = select(headers.c.number, headers.c.cell_id, *columns).order_by(headers.c.number)
    cells = select(*_CELL).distinct().join(headers, headers.c.cell_id == CELL.c.id)
    return Question(cells), Question(query), names


def _read_part(
    connection: Connection, headers: Table, part: Part, *conditions: ColumnElement[bool]
) -> Mapping[tuple[int, ...], list[Any]]:
    """The records of a part by their keys, in order."""
    found: dict[tuple[int, ...], list[Any]] = defaultdict(list)
    within = _read_part(connection, headers, part.inner, *conditions) if part.inner else {}
    width = len(part.keys)
    for row in read_each(connection, _part_query(headers, part).where(*conditions)):
        key, values = row[:width], row[width:]
        if part.inner:
            values = (*values[:-1], tuple(within[(*key, values[-1])]))
        record = part.record(*values)
        records = found[key]
        records.append(record)
        if (
            len(records) > part.most
            or len({len(getattr(record, name)) for name in part.parallel}) > 1
        ):
            raise Damage(f"{part.field} of run number {key[0]}: too many, or lists of two lengths")
    return found


@cache
def _part_query(headers: Table, part: Part) -> Question:
    table = part.table
    columns = (*(table.c[name] for name in part.keys), *part.columns)
    query = select(*columns, *([table.c.place] if part.inner else []))
    joined = query.join(headers, headers.c.number == table.c.run_number)
    return Question(joined.order_by(part.place))


# -- measured runs --------------------------------------------------------------------------


def read_finished(connection: Connection, study_id: str) -> set[tuple[int, str]]:
    query = select(RUN.c.block, RUN.c.cell_id).where(RUN.c.counted, RUN.c.study_id == study_id)
    return {(block, cell_id) for block, cell_id in read_each(connection, query)}


def read_counts(connection: Connection, study_id: str) -> RunCounts:
    query = (
        select(RUN.c.status, func.count())
        .where(RUN.c.counted, RUN.c.study_id == study_id)
        .group_by(RUN.c.status)
    )
    counts: dict[str, int] = dict(read_each(connection, query))
    cells = select(func.count()).where(STUDY_CELL.c.study_id == study_id).label("cells")
    planned = select(STUDY.c.blocks, cells).where(STUDY.c.id == study_id)
    total = sum(blocks * of_each for blocks, of_each in read_each(connection, planned))
    return RunCounts(total, counts.get("ok", 0), counts.get("failed", 0))


def read_rows(
    connection: Connection, study_id: str, *conditions: ColumnElement[bool]
) -> list[RunRow]:
    """Runs in the order they were stored, replaced attempts included."""
    of_study = (RUN.c.study_id == study_id, *conditions)
    return [RunRow(**header) for _, header in _read_headers(connection, RUN, RunRow, *of_study)]


def read_histograms(
    connection: Connection, study_id: str, cell_id: str, host_id: str | None
) -> Mapping[str, Mapping[str, Histogram]]:
    """The histograms of a cell's counted good runs, by name and then by the id of the run."""
    query = (
        select(RUN.c.id, *HISTOGRAMS.columns)
        .join(RUN)
        .where(*_GOOD, RUN.c.study_id == study_id, RUN.c.cell_id == cell_id)
        .order_by(RUN.c.block, HISTOGRAMS.place)
    )
    if host_id is not None:
        query = query.where(RUN.c.host_id == host_id)
    found: dict[str, dict[str, Histogram]] = defaultdict(dict)
    for run_id, *row in read_each(connection, query):
        histogram = Histogram(*row)
        if len(histogram.edges) != len(histogram.counts):
            raise Damage(f"a histogram of cell {cell_id} has lists of two lengths")
        found[histogram.name][run_id] = histogram
    return found


def read_checks(
    connection: Connection, study_id: str, host_id: str | None
) -> Mapping[str, tuple[Check, ...]]:
    """By cell id, the read-back settings of its newest counted run that has any."""
    query = (
        select(RUN.c.cell_id, RUN.c.number, *CHECKED_SETTINGS.columns)
        .join(CHECKED_SETTINGS.table)
        .where(RUN.c.counted, RUN.c.study_id == study_id)
        .order_by(RUN.c.number, CHECKED_SETTINGS.place)
    )
    if host_id is not None:
        query = query.where(RUN.c.host_id == host_id)
    newest: dict[str, tuple[int, list[Check]]] = {}
    for cell_id, number, *check in read_each(connection, query):
        if newest.get(cell_id, (None,))[0] != number:
            newest[cell_id] = (number, [])
        newest[cell_id][1].append(Check(*check))
    return {cell_id: tuple(checks) for cell_id, (_, checks) in newest.items()}


def read_results(connection: Connection, study: str | None, metric: str | None) -> list[ResultRow]:
    """Values by study, host, cell and metric, in the order of studies, cells and metrics."""
    wanted = select(STUDY.c.id).order_by(STUDY.c.created, STUDY.c.id)
    if study is not None:
        wanted = wanted.where(_is_study(study))
    return [
        row
        for (study_id,) in list(read_each(connection, wanted))
        for row in _study_results(connection, study_id, metric)
    ]


def _study_results(
    connection: Connection, study_id: str, metric: str | None
) -> Iterator[ResultRow]:
    runs: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    metric_place: dict[str, int] = {}
    for row in read_each(connection, _result_query(study_id, metric)):
        key = row[:6]
        figures = runs.get(key)
        if figures is None:
            figures = runs[key] = []
            metric_place.setdefault(key[2], row[6])
        figures.append(row[7:])
    cells = read_cells(connection, study_id)
    cell_place = {cell_id: number for number, cell_id in enumerate(cells)}
    if strange := {key[0] for key in runs} - cells.keys():
        raise Damage(f"runs of study {study_id} are of the cell {min(strange)}, none of its own")
    hosts = {key for (key,) in read_each(connection, select(HOST.c.id))}
    if strange := {key[1] for key in runs} - hosts:
        raise Damage(f"runs of study {study_id} are of the host {min(strange)}, which is not in it")

    def order(key: tuple[Any, ...]) -> tuple[Any, ...]:
        return (cell_place[key[0]], key[1], metric_place[key[2]], key)

    for key in sorted(runs, key=order):
        cell_id, host_id, name, unit, better, primary = key
        blocks, values, run_ids = zip(*sorted(runs[key]), strict=True)
        described = (cells[cell_id], name, unit, better, primary)
        yield ResultRow(study_id, host_id, *described, values, blocks, run_ids)


def _result_query(study_id: str, metric: str | None) -> Select[Any]:
    query = (
        select(
            *(RUN.c.cell_id, RUN.c.host_id),
            *(METRIC.c.name, METRIC.c.unit, METRIC.c.higher_is_better, METRIC.c.primary),
            *(METRIC.c.place, RUN.c.block, METRIC.c.value, RUN.c.id),
        )
        .join(METRIC, METRIC.c.run_number == RUN.c.number)
        .where(*_GOOD, RUN.c.study_id == study_id)
    )
    return query if metric is None else query.where(METRIC.c.name == metric)
