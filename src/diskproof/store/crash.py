"""Crash runs and their verdicts, into their tables and out, inside the caller's transaction."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, case, insert, select, update
from sqlalchemy.exc import IntegrityError

from diskproof.errors import UsageError
from diskproof.records import Cell, Check
from diskproof.records.verdicts import FAULTS, CrashRun, TraceEvent, Verdict
from diskproof.store.encoding import cell_columns, parse_cell, parse_phases, render_json
from diskproof.store.read_runs import parse_artefact, parse_failure
from diskproof.store.rows import VerdictRow
from diskproof.store.tables import CELL, CRASH_FILE, CRASH_RUN, HOST, STUDY, VERDICT
from diskproof.store.write import DuplicateRun, artefact_columns, clean_text, failure_columns

_PLAIN = (
    *("fault", "verdict", "lost", "age_seconds", "states_checked", "states_total", "estimated"),
    *("cuts", "seed", "cut", "seconds"),
)

_FAULT_PLACE = case({fault: n for n, fault in enumerate(FAULTS)}, value=VERDICT.c.fault)


# -- writing --------------------------------------------------------------------------------


def write_crash_run(connection: Connection, run: CrashRun) -> None:
    """Store a crash run with its verdicts and files; one that is stored already is left alone.

    Raises DuplicateRun when a verdict of the same cell, host and fault counts, UsageError when
    the study or the host is unknown.
    """
    if connection.scalar(select(CRASH_RUN.c.id).where(CRASH_RUN.c.id == run.id)) is not None:
        return
    _require_known(connection, run)
    if connection.scalar(select(CELL.c.id).where(CELL.c.id == run.cell.id)) is None:
        connection.execute(insert(CELL).values(**cell_columns(run.cell)))
    row = insert(CRASH_RUN).values(**_run_columns(run)).returning(CRASH_RUN.c.number)
    number = connection.scalar(row)
    try:
        for verdict in run.verdicts:
            columns = _verdict_columns(verdict)
            ids = {"study_id": run.study_id, "cell_id": run.cell.id, "host_id": run.host_id}
            values = {"run_number": number, "counted": True, **ids, **columns}
            connection.execute(insert(VERDICT).values(**values))
    except IntegrityError as error:
        raise DuplicateRun(
            f"crash run {run.id} cannot be stored",
            f"a verdict of cell {run.cell.id} counts already",
            "another process may be running the same study",
        ) from error
    for place, artefact in enumerate(run.artefacts):
        connection.execute(
            insert(CRASH_FILE).values(run_number=number, place=place, **artefact_columns(artefact))
        )


def _require_known(connection: Connection, run: CrashRun) -> None:
    for table, key in ((STUDY, run.study_id), (HOST, run.host_id)):
        if connection.scalar(select(table.c.id).where(table.c.id == key)) is None:
            why = f"{table.name} {key!r} is not known"
            raise UsageError(f"crash run {run.id} cannot be stored", why)


def _run_columns(run: CrashRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "study_id": run.study_id,
        "cell_id": run.cell.id,
        "host_id": run.host_id,
        "started": run.started,
        "ended": run.ended,
        "checks": render_json([dataclasses.astuple(check) for check in run.checks]),
        "counts": render_json(dict(run.counts)),
        "phases": render_json(run.phases),
        **failure_columns(run.failure),
    }


def _verdict_columns(verdict: Verdict) -> dict[str, Any]:
    return {name: getattr(verdict, name) for name in _PLAIN} | {
        "missing": render_json(verdict.missing),
        "reason": clean_text(verdict.reason),
        "reproduce": clean_text(verdict.reproduce),
        "timeline": render_json([dataclasses.astuple(event) for event in verdict.timeline]),
        "details": render_json(dict(verdict.details)),
    }


def supersede_undecided(connection: Connection, study_id: str) -> int:
    """Undecided verdicts of a study count no longer, so that they are made again."""
    undecided = (VERDICT.c.study_id == study_id, VERDICT.c.counted)
    query = update(VERDICT).where(*undecided, VERDICT.c.verdict == "undecided")
    return connection.execute(query.values(counted=False)).rowcount


# -- reading --------------------------------------------------------------------------------


def read_verdicts(connection: Connection, study_id: str | None = None) -> list[VerdictRow]:
    """The verdicts that count, of one study or of all, in the order they were made; those of one
    run in the order of the faults."""
    query = (
        select(
            VERDICT,
            *(CELL.c.levels, CELL.c.workload, CELL.c.kind, CELL.c.options),
            *(CRASH_RUN.c.id.label("run_id"), CRASH_RUN.c.counts, CRASH_RUN.c.ended),
        )
        .join(CRASH_RUN, CRASH_RUN.c.number == VERDICT.c.run_number)
        .join(CELL, CELL.c.id == VERDICT.c.cell_id)
        .where(VERDICT.c.counted)
        .order_by(VERDICT.c.run_number, _FAULT_PLACE)
    )
    if study_id is not None:
        query = query.where(VERDICT.c.study_id == study_id)
    return [_verdict_row(row) for row in connection.execute(query)]


def _verdict_row(row: Row[Any]) -> VerdictRow:
    cell = parse_cell(row.levels, row.workload, row.kind, row.options)
    return VerdictRow(
        row.study_id, row.host_id, row.run_id, cell, _verdict(row), _counts(row.counts), row.ended
    )


def _counts(text: str) -> Mapping[str, int]:
    return {str(name): int(count) for name, count in json.loads(text).items()}


def _verdict(row: Row[Any]) -> Verdict:
    return Verdict(
        **{name: getattr(row, name) for name in _PLAIN},
        missing=tuple(int(number) for number in json.loads(row.missing)),
        reason=row.reason,
        reproduce=row.reproduce,
        timeline=tuple(
            TraceEvent(float(seconds), str(kind), str(state), str(text))
            for seconds, kind, state, text in json.loads(row.timeline)
        ),
        details=json.loads(row.details),
    )


def find_crash_run(connection: Connection, run_id: str) -> CrashRun | None:
    """A crash run with its verdicts and files, also those that count no longer."""
    row = connection.execute(select(CRASH_RUN).where(CRASH_RUN.c.id == run_id)).one_or_none()
    if row is None:
        return None
    columns = select(CELL.c.levels, CELL.c.workload, CELL.c.kind, CELL.c.options)
    cell: Cell = parse_cell(*connection.execute(columns.where(CELL.c.id == row.cell_id)).one())
    verdicts = select(VERDICT).where(VERDICT.c.run_number == row.number).order_by(_FAULT_PLACE)
    files = select(CRASH_FILE).where(CRASH_FILE.c.run_number == row.number)
    return CrashRun(
        row.id,
        row.study_id,
        cell,
        row.host_id,
        row.started,
        row.ended,
        tuple(_verdict(each) for each in connection.execute(verdicts)),
        parse_failure(row),
        tuple(Check(*check) for check in json.loads(row.checks)),
        _counts(row.counts),
        tuple(map(parse_artefact, connection.execute(files.order_by(CRASH_FILE.c.place)))),
        parse_phases(row.phases),
    )
