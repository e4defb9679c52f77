"""The rows of an export: what each table has, before it is CSV, Parquet or JSON."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from diskproof.records import Cell, Failure, StudyRecord
from diskproof.records.tiles import TileRun, WorkRun
from diskproof.records.verdicts import VerdictRow
from diskproof.store.database import Store
from diskproof.store.rows import RunRow
from diskproof.store.show import show_rows

Kind = Literal["results", "runs", "series", "verdicts", "tiles"]
Type = Literal["text", "number", "integer", "flag", "numbers"]
Row = dict[str, object]


@dataclass(frozen=True)
class ExportColumn:
    """One column: ``group`` names the object it is part of (``cell``, ``metrics``), or is empty."""

    name: str
    type: Type
    group: str = ""

    @property
    def head(self) -> str:
        """Its name in a flat table: ``cell.cache``."""
        return f"{self.group}.{self.name}" if self.group else self.name

    def value(self, row: Row) -> object:
        """Its value in a nested row; None where the row has none."""
        if not self.group:
            return row.get(self.name)
        inner = row.get(self.group)
        return inner.get(self.name) if isinstance(inner, dict) else None


def _columns(type_: Type, *names: str, group: str = "") -> tuple[ExportColumn, ...]:
    return tuple(ExportColumn(name, type_, group) for name in names)


_BATCH = 10_000
_OF_RUN = _columns("text", "study", "study_name", "host", "run")
_VERDICT = (
    *_columns("text", "verdict"),
    *_columns("integer", "lost"),
    *_columns("number", "age_seconds"),
    *_columns("integer", "states_checked", "states_total"),
    *_columns("flag", "estimated"),
    *_columns("integer", "cuts", "cut"),
    *_columns("numbers", "missing"),
    *_columns("integer", "seed"),
    *_columns("text", "reason", "reproduce"),
)

# What stands before the levels of the cell, and what after them.
_TABLES: dict[Kind, tuple[tuple[ExportColumn, ...], tuple[ExportColumn, ...]]] = {
    "results": (
        _columns("text", "study", "study_name", "host", "workload"),
        (
            *_columns("text", "metric", "unit"),
            *_columns("flag", "higher_is_better", "primary"),
            *_columns("integer", "n"),
            *_columns("flag", "stopped"),
            *_columns("number", "mean", "ci95", "low95", "high95", "geomean"),
            *_columns("flag", "pooled"),
            *_columns("text", "reason"),
            *_columns("numbers", "runs"),
        ),
    ),
    "runs": (
        (*_OF_RUN, *_columns("text", "workload")),
        (
            *_columns("integer", "block", "position"),
            *_columns("number", "started", "ended"),
            *_columns("text", "status"),
            *_columns("flag", "counted"),
            *_columns("text", "failure", "failure_kind"),
        ),
    ),
    "series": (
        (*_OF_RUN, *_columns("text", "workload")),
        (
            *_columns("integer", "block"),
            *_columns("text", "source", "name", "unit"),
            *_columns("number", "time", "value"),
        ),
    ),
    "verdicts": ((*_OF_RUN, *_columns("text", "writer", "fault")), _VERDICT),
    "tiles": (
        (*_OF_RUN, *_columns("text", "tile", "workload", "guest")),
        (
            *_columns("integer", "tiles", "repeat", "tile_number"),
            *_columns("number", "started", "ended", "wall_seconds"),
            *_columns("text", "failure", "failure_kind"),
        ),
    ),
}


def table_columns(store: Store, studies: Sequence[StudyRecord], kind: Kind) -> list[ExportColumn]:
    """The columns of a table, over all studies in it."""
    metrics: Iterable[str] = ()
    if kind == "verdicts":
        cells = [row.cell for study in studies for row in store.verdicts(study.id)]
    elif kind == "tiles":
        loads = [run for study in studies for run in store.tile_runs(study.id)]
        cells = [run.cell for run in loads]
        metrics = (each.name for run in loads for work in run.works for each in work.metrics)
    else:
        cells = [cell for study in studies for cell in study.cells]
    if kind == "runs":
        metrics = (row.metric for study in studies for row in store.results(study.id))
    factors = sorted({name for cell in cells for name, _ in cell.levels})
    levels = _columns("text", *factors, group="cell")
    start, end = _TABLES[kind]
    return [*start, *levels, *end, *_columns("number", *dict.fromkeys(metrics), group="metrics")]


def table_rows(store: Store, studies: Sequence[StudyRecord], kind: Kind) -> Iterator[Sequence[Row]]:
    """The rows of a table in batches, so that host samples of many runs fit into memory."""
    for study in studies:
        if kind == "results":
            results = store.results(study.id)
            rows = show_rows(results, store.figures(results), [study])
            yield [{"study_name": study.name, **row} for row in rows]
        elif kind == "runs":
            yield _run_rows(store, study)
        elif kind == "verdicts":
            yield [_verdict_row(study, row) for row in store.verdicts(study.id)]
        elif kind == "tiles":
            yield [row for run in store.tile_runs(study.id) for row in _tile_rows(study, run)]
        else:
            for run in store.runs(study.id):
                readings = _series_rows(store, study, run)
                while batch := [*islice(readings, _BATCH)]:
                    yield batch


def _run_rows(store: Store, study: StudyRecord) -> list[Row]:
    metrics: dict[str, dict[str, float]] = {}
    for result in store.results(study.id):
        for run_id, value in zip(result.run_ids, result.values, strict=True):
            metrics.setdefault(run_id, {})[result.metric] = value
    return [
        {
            **_described(study, run.host_id, run.id, run.cell),
            "block": run.block,
            "position": run.position,
            "started": run.started,
            "ended": run.ended,
            "status": run.status,
            "counted": run.counted,
            **_failed(run.failure),
            "metrics": metrics.get(run.id, {}),
        }
        for run in store.runs(study.id)
    ]


def _failed(failure: Failure | None) -> Row:
    if failure is None:
        return {"failure": None, "failure_kind": None}
    text = " - ".join(filter(None, (failure.what, failure.why)))
    return {"failure": text, "failure_kind": failure.kind}


def _described(study: StudyRecord, host: str, run: str, cell: Cell, load: str = "workload") -> Row:
    """What every row says first; ``load`` is what the cell's workload is called there."""
    about: Row = {"study": study.id, "study_name": study.name, "host": host, "run": run}
    return about | {load: cell.workload.name, "cell": cell.levels_dict()}


def _verdict_row(study: StudyRecord, row: VerdictRow) -> Row:
    about = _described(study, row.host_id, row.run_id, row.cell, "writer")
    values = {column.name: getattr(row.verdict, column.name) for column in _VERDICT}
    return {**about, "fault": row.verdict.fault, **values, "missing": list(row.verdict.missing)}


def _tile_rows(study: StudyRecord, run: TileRun) -> Iterator[Row]:
    """A row for each workload of each tile; one without them for a run that has none."""
    works: tuple[WorkRun | None, ...] = run.works or (None,)
    for work in works:
        yield {
            **_described(study, run.host_id, run.id, run.cell, "tile"),
            "workload": work.work if work else None,
            "guest": work.guest if work else None,
            "tiles": run.tiles,
            "repeat": run.repeat,
            "tile_number": work.tile if work else None,
            "started": run.started,
            "ended": run.ended,
            "wall_seconds": run.seconds,
            **_failed(run.failure),
            "metrics": {metric.name: metric.value for metric in work.metrics} if work else {},
        }


def _series_rows(store: Store, study: StudyRecord, run: RunRow) -> Iterator[Row]:
    about = {**_described(study, run.host_id, run.id, run.cell), "block": run.block}
    for series in store.series_of(run.id):
        named = {**about, "source": series.source, "name": series.name, "unit": series.unit}
        for time, value in zip(series.times, series.values, strict=True):
            yield {**named, "time": time, "value": value}
