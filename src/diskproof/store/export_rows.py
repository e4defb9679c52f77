"""The rows of an export: what each table has, before it is CSV, Parquet or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from diskproof.records import Failure, StudyRecord
from diskproof.records.tiles import TileRun, WorkRun
from diskproof.store.database import Store
from diskproof.store.rows import RunRow, VerdictRow
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


def table_columns(store: Store, studies: Sequence[StudyRecord], kind: Kind) -> list[ExportColumn]:
    """The columns of a table, over all studies in it."""
    loads = [run for s in studies for run in store.tile_runs(s.id)] if kind == "tiles" else []
    if kind == "verdicts":
        cells = [row.cell for study in studies for row in store.verdicts(study.id)]
    elif kind == "tiles":
        cells = [run.cell for run in loads]
    else:
        cells = [cell for study in studies for cell in study.cells]
    factors = sorted({name for cell in cells for name, _ in cell.levels})
    levels = [ExportColumn(name, "text", "cell") for name in factors]
    if kind == "runs":
        names = {
            name: None for s in studies for row in store.results(s.id) for name in [row.metric]
        }
        metrics: list[ExportColumn] = [ExportColumn(name, "number", "metrics") for name in names]
        return [*_columns(_RUN_START), *levels, *_columns(_RUN_END), *metrics]
    if kind == "verdicts":
        return [*_columns(_VERDICT_START), *levels, *_columns(_VERDICT_END)]
    if kind == "tiles":
        told = dict.fromkeys(
            metric.name for run in loads for work in run.works for metric in work.metrics
        )
        metrics = [ExportColumn(name, "number", "metrics") for name in told]
        return [*_columns(_TILE_START), *levels, *_columns(_TILE_END), *metrics]
    if kind == "series":
        return [*_columns(_SERIES_START), *levels, *_columns(_SERIES_END)]
    return [*_columns(_RESULT_START), *levels, *_columns(_RESULT_END)]


def table_rows(store: Store, studies: Sequence[StudyRecord], kind: Kind) -> Iterator[Sequence[Row]]:
    """The rows of a table in batches, so that host samples of many runs fit into memory."""
    for study in studies:
        if kind == "results":
            yield [{"study_name": study.name, **row} for row in show_rows(store.results(study.id))]
        elif kind == "runs":
            yield _run_rows(store, study)
        elif kind == "verdicts":
            yield [_verdict_row(study, row) for row in store.verdicts(study.id)]
        elif kind == "tiles":
            yield [row for run in store.tile_runs(study.id) for row in _tile_rows(study, run)]
        else:
            for run in store.runs(study.id):
                yield _series_rows(store, study, run)


_RESULT_START: dict[str, Type] = {
    "study": "text",
    "study_name": "text",
    "host": "text",
    "workload": "text",
}
_RESULT_END: dict[str, Type] = {
    "metric": "text",
    "unit": "text",
    "higher_is_better": "flag",
    "primary": "flag",
    "n": "integer",
    "mean": "number",
    "ci95": "number",
    "runs": "numbers",
}
_RUN_START: dict[str, Type] = {
    "study": "text",
    "study_name": "text",
    "host": "text",
    "run": "text",
    "workload": "text",
}
_RUN_END: dict[str, Type] = {
    "block": "integer",
    "position": "integer",
    "started": "number",
    "ended": "number",
    "status": "text",
    "counted": "flag",
    "failure": "text",
    "failure_kind": "text",
}
_SERIES_START = _RUN_START
_VERDICT_START: dict[str, Type] = {
    "study": "text",
    "study_name": "text",
    "host": "text",
    "run": "text",
    "writer": "text",
    "fault": "text",
}
_VERDICT_END: dict[str, Type] = {
    "verdict": "text",
    "lost": "integer",
    "age_seconds": "number",
    "states_checked": "integer",
    "states_total": "integer",
    "estimated": "flag",
    "cuts": "integer",
    "cut": "integer",
    "missing": "numbers",
    "seed": "integer",
    "reason": "text",
    "reproduce": "text",
}
_TILE_START: dict[str, Type] = {
    "study": "text",
    "study_name": "text",
    "host": "text",
    "run": "text",
    "tile": "text",
    "workload": "text",
    "guest": "text",
}
_TILE_END: dict[str, Type] = {
    "tiles": "integer",
    "repeat": "integer",
    "tile_number": "integer",
    "started": "number",
    "ended": "number",
    "wall_seconds": "number",
    "failure": "text",
    "failure_kind": "text",
}
_SERIES_END: dict[str, Type] = {
    "block": "integer",
    "source": "text",
    "name": "text",
    "unit": "text",
    "time": "number",
    "value": "number",
}


def _columns(types: dict[str, Type]) -> list[ExportColumn]:
    return [ExportColumn(name, kind) for name, kind in types.items()]


def _run_rows(store: Store, study: StudyRecord) -> list[Row]:
    metrics: dict[str, dict[str, float]] = {}
    for result in store.results(study.id):
        for run_id, value in zip(result.run_ids, result.values, strict=True):
            metrics.setdefault(run_id, {})[result.metric] = value
    return [
        {
            **_described(study, run),
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


def _described(study: StudyRecord, run: RunRow) -> Row:
    return {
        "study": study.id,
        "study_name": study.name,
        "host": run.host_id,
        "run": run.id,
        "workload": run.cell.workload.name,
        "cell": run.cell.levels_dict(),
        "block": run.block,
    }


def _verdict_row(study: StudyRecord, row: VerdictRow) -> Row:
    start: Row = {
        "study": study.id,
        "study_name": study.name,
        "host": row.host_id,
        "run": row.run_id,
        "writer": row.cell.workload.name,
        "cell": row.cell.levels_dict(),
    }
    values = {name: getattr(row.verdict, name) for name in ("fault", *_VERDICT_END)}
    return {**start, **values, "missing": list(row.verdict.missing)}


def _tile_rows(study: StudyRecord, run: TileRun) -> Iterator[Row]:
    """A row for each workload of each tile; one without them for a run that has none."""
    works: tuple[WorkRun | None, ...] = run.works or (None,)
    for work in works:
        yield {
            "study": study.id,
            "study_name": study.name,
            "host": run.host_id,
            "run": run.id,
            "tile": run.cell.workload.name,
            "workload": work.work if work else None,
            "guest": work.guest if work else None,
            "cell": run.cell.levels_dict(),
            "tiles": run.tiles,
            "repeat": run.repeat,
            "tile_number": work.tile if work else None,
            "started": run.started,
            "ended": run.ended,
            "wall_seconds": run.seconds,
            **_failed(run.failure),
            "metrics": {metric.name: metric.value for metric in work.metrics} if work else {},
        }


def _series_rows(store: Store, study: StudyRecord, run: RunRow) -> list[Row]:
    return [
        {
            **_described(study, run),
            "source": series.source,
            "name": series.name,
            "unit": series.unit,
            "time": time,
            "value": value,
        }
        for series in store.series_of(run.id)
        for time, value in zip(series.times, series.values, strict=True)
    ]
