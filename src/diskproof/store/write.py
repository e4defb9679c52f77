"""Records into tables. Every function works inside its caller's transaction."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from diskproof.errors import UsageError
from diskproof.records import (
    Artefact,
    Cell,
    Check,
    Failure,
    Histogram,
    HostRecord,
    Metric,
    RunRecord,
    Series,
    StudyRecord,
)
from diskproof.store.bounds import MAX_TEXT
from diskproof.store.encoding import (
    cell_columns,
    pack_counts,
    pack_floats,
    render_dropped,
    render_json,
)
from diskproof.store.rows import Progress
from diskproof.store.tables import (
    ARTEFACT,
    CELL,
    CHECKED_SETTING,
    HISTOGRAM,
    HOST,
    METRIC,
    PROGRESS,
    RUN,
    SERIES,
    STUDY,
    STUDY_CELL,
)

_Item = TypeVar("_Item")
_BATCH = 500
_FREE_TEXT = 64 << 10


class DuplicateRun(UsageError):
    """The cell has a counted run in this block already."""


def write_study(connection: Connection, study: StudyRecord) -> None:
    """Store a study, or prolong the stored one: new cells are added, none is taken away."""
    columns: dict[str, Any] = {
        "name": study.name,
        "origin": study.origin,
        "text": clean_text(study.text, MAX_TEXT),
        "seed": study.seed,
        "blocks": study.blocks,
        "dropped": render_dropped(study.dropped),
        "warnings": render_json(study.warnings),
    }
    known = connection.scalar(select(STUDY.c.id).where(STUDY.c.id == study.id))
    if known is None:
        connection.execute(insert(STUDY).values(id=study.id, created=study.created, **columns))
    else:
        connection.execute(update(STUDY).where(STUDY.c.id == study.id).values(**columns))
    _write_cells(connection, study.id, study.cells)


def _write_cells(connection: Connection, study_id: str, cells: Sequence[Cell]) -> None:
    own = select(STUDY_CELL.c.cell_id).where(STUDY_CELL.c.study_id == study_id)
    listed = set(connection.scalars(own))
    by_id = {cell.id: cell for cell in cells if cell.id not in listed}
    known: set[str] = set()
    for ids in _batches(list(by_id)):
        known.update(connection.scalars(select(CELL.c.id).where(CELL.c.id.in_(ids))))
    insert_rows(connection, CELL, (cell_columns(by_id[key]) for key in by_id if key not in known))
    places = ({"study_id": study_id, "cell_id": key} for key in by_id)
    start = len(listed)
    insert_rows(
        connection, STUDY_CELL, ({**row, "place": start + n} for n, row in enumerate(places))
    )


def write_host(connection: Connection, host: HostRecord) -> None:
    """Store a host, or the newest facts of a known one."""
    columns = {"name": host.name, "facts": render_json(dict(host.facts))}
    changed = connection.execute(update(HOST).where(HOST.c.id == host.id).values(**columns))
    if changed.rowcount == 0:
        connection.execute(insert(HOST).values(id=host.id, **columns))


def write_run(connection: Connection, run: RunRecord) -> None:
    """Store a run with all it brought; a run that is stored already is left as it is.

    Raises DuplicateRun when another run counts for the same study, cell and block, UsageError when
    the study, the cell or the host is unknown.
    """
    if _is_stored(connection, run):
        return
    _require_known(connection, run)
    columns = _run_columns(run)
    try:
        number = connection.scalar(insert(RUN).values(**columns).returning(RUN.c.number))
    except IntegrityError as error:
        raise _duplicate(run, "another run, stored at this moment,") from error
    for table, rows in (
        (METRIC, map(metric_columns, run.metrics)),
        (CHECKED_SETTING, map(_check_columns, run.checks)),
        (SERIES, map(series_columns, run.series)),
        (HISTOGRAM, map(_histogram_columns, run.histograms)),
        (ARTEFACT, map(artefact_columns, run.artefacts)),
    ):
        numbered = enumerate(rows)
        insert_rows(
            connection, table, ({"run_number": number, "place": n} | row for n, row in numbered)
        )


def _is_stored(connection: Connection, run: RunRecord) -> bool:
    place = (RUN.c.study_id, RUN.c.cell_id, RUN.c.block)
    own = (run.study_id, run.cell.id, run.block)
    stored = connection.execute(select(*place).where(RUN.c.id == run.id)).one_or_none()
    if stored is not None and tuple(stored) == own:
        return True
    same = (a == b for a, b in zip(place, own, strict=True))
    counted = select(RUN.c.id).where(RUN.c.counted, *same)
    other = run.id if stored is not None else connection.scalar(counted)
    if other is not None:
        raise _duplicate(run, f"run {other}")
    return False


def _duplicate(run: RunRecord, other: str) -> DuplicateRun:
    return DuplicateRun(
        f"run {run.id} cannot be stored",
        f"{other} counts for cell {run.cell.id} in block {run.block} already",
        "another process may be running the same study",
    )


def _require_known(connection: Connection, run: RunRecord) -> None:
    cell = select(STUDY_CELL.c.place).where(
        STUDY_CELL.c.study_id == run.study_id, STUDY_CELL.c.cell_id == run.cell.id
    )
    host = select(HOST.c.id).where(HOST.c.id == run.host_id)
    if connection.scalar(cell) is None:
        raise UsageError(f"run {run.id} cannot be stored", "its cell is not one of its study")
    if connection.scalar(host) is None:
        raise UsageError(f"run {run.id} cannot be stored", f"host {run.host_id!r} is not known")


def _run_columns(run: RunRecord) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "id": run.id,
        "study_id": run.study_id,
        "cell_id": run.cell.id,
        "host_id": run.host_id,
        "block": run.block,
        "position": run.position,
        "started": run.started,
        "ended": run.ended,
        "status": run.status,
        "counted": True,
        "phases": render_json(run.phases),
    }
    return columns | failure_columns(run.failure)


def failure_columns(failure: Failure | None) -> dict[str, Any]:
    if failure is None:
        return {}
    return {f"failure_{key}": clean_text(text) for key, text in dataclasses.asdict(failure).items()}


def metric_columns(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "unit": metric.unit,
        "value": float(metric.value),
        "higher_is_better": metric.higher_is_better,
        "is_primary": metric.primary,
    }


def _check_columns(check: Check) -> dict[str, Any]:
    texts = {key: clean_text(getattr(check, key)) for key in ("name", "requested", "effective")}
    return {**texts, "source": clean_text(check.source), "ok": check.ok}


def series_columns(series: Series) -> dict[str, Any]:
    names = {"source": series.source, "name": series.name, "unit": series.unit}
    packed = {"times": pack_floats(series.times), "readings": pack_floats(series.values)}
    return {**names, **packed}


def _histogram_columns(histogram: Histogram) -> dict[str, Any]:
    edges, counts = pack_floats(histogram.edges), pack_counts(histogram.counts)
    return {"name": histogram.name, "edges": edges, "counts": counts}


def artefact_columns(artefact: Artefact) -> dict[str, Any]:
    return {
        "name": artefact.name,
        "media_type": artefact.media_type,
        "size": len(artefact.content),
        "content": zlib.compress(artefact.content),
    }


def supersede_failed(connection: Connection, study_id: str) -> int:
    """Failed runs of a study count no longer, so that they are made again. Returns how many."""
    failed = (RUN.c.study_id == study_id, RUN.c.counted, RUN.c.status == "failed")
    return connection.execute(update(RUN).where(*failed).values(counted=False)).rowcount


def write_progress(connection: Connection, progress: Progress) -> None:
    columns = dataclasses.asdict(progress)
    columns["current"] = clean_text(progress.current)
    remove_progress(connection, progress.study_id)
    connection.execute(insert(PROGRESS).values(**columns))


def remove_unused_study(connection: Connection, study_id: str) -> None:
    """Nothing, where a cell, a run or what somebody measures refers to the study."""
    with suppress(IntegrityError), connection.begin_nested():
        connection.execute(delete(STUDY).where(STUDY.c.id == study_id))


def remove_progress(connection: Connection, study_id: str) -> None:
    connection.execute(delete(PROGRESS).where(PROGRESS.c.study_id == study_id))


def clean_text(text: str, limit: int = _FREE_TEXT) -> str:
    """Free text as every database can hold it: no NUL, no lone surrogates, bounded.

    A guest's console may hold anything; that is no reason to lose the run.
    """
    cleaned = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return cleaned if len(cleaned) <= limit else cleaned[:limit] + " [cut]"


def insert_rows(connection: Connection, table: Table, rows: Iterable[dict[str, Any]]) -> None:
    for batch in _batches(list(rows)):
        connection.execute(insert(table), batch)


def _batches(items: Sequence[_Item]) -> Iterable[Sequence[_Item]]:
    return (items[start : start + _BATCH] for start in range(0, len(items), _BATCH))
