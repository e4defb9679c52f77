"""What did not work, and what was in force: failed runs, cells left out, settings, the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diskproof.records import Cell, Check, Failure, HostRecord, StudyRecord
from diskproof.report import tables
from diskproof.report.chapter import Chapter, Draw, Lead, Reading
from diskproof.report.labels import cell_label, varying_factors
from diskproof.report.runs.table import render_dropped, render_failures
from diskproof.report.tails import Tails, text_tails
from diskproof.report.view import StudyView

if TYPE_CHECKING:
    from diskproof.store import Store

MAX_TAILS = 50
"""Failed runs whose consoles are shown; the rest is listed with its reason."""


@dataclass(frozen=True)
class FailedRun:
    """A run that gave no result. ``tails`` are (name, last lines) of what it left behind."""

    run_id: str
    cell: Cell
    block: int
    failure: Failure
    tails: Tails = ()


@dataclass(frozen=True)
class StudyRuns:
    """Runs of a study on a host: how many gave a result, and those that did not. ``checks`` are
    the settings that were read back, by cell id."""

    good: int
    failures: tuple[FailedRun, ...] = ()
    checks: Mapping[str, tuple[Check, ...]] = field(default_factory=dict)


def _find(reading: Reading) -> StudyRuns:
    store, study, host = reading.store, reading.study, reading.host
    failed = [run for run in store.failures(study.id) if run.host_id == host.id]
    shown = MAX_TAILS if reading.details else 0
    failures = [
        FailedRun(
            run.id,
            run.cell,
            run.block,
            run.failure,
            text_tails(store.run(run.id).artefacts) if number < shown else (),
        )
        for number, run in enumerate(failed)
        if run.failure is not None
    ]
    checks = store.checks(study.id, host.id) if reading.details else {}
    good = sum(len(line.values) for load in reading.workloads for line in load.lines)
    return StudyRuns(good, tuple(failures), checks)


def _hosts(store: Store, study: StudyRecord) -> Iterable[str]:
    return [run.host_id for run in store.failures(study.id)]


def _lead(runs: StudyRuns, view: StudyView) -> Lead:
    """Nothing where all that the study has was told by another chapter."""
    if not view.workloads and len(view.parts) > 1:
        return Lead()
    failed = len(runs.failures)
    facts = f"{runs.good} good, {failed} failed, {len(view.study.cells)} cells"
    count = f"{runs.good} runs, {f'{failed} failed' if failed else 'none failed'}"
    return Lead(count, facts=(("runs", facts),), failed=failed)


def _tables(runs: StudyRuns, view: StudyView, best: int) -> Sequence[tables.Shown]:
    return [
        *([render_failures(view.study, runs.failures)] if runs.failures else []),
        *([render_dropped(view.study.dropped)] if view.study.dropped else []),
    ]


def _page(runs: StudyRuns, view: StudyView, draw: Draw) -> Mapping[str, object]:
    factors = varying_factors(view.study.cells)
    return {
        "runs": runs,
        "study": view.study,
        "facts": _facts_lines(view.host),
        "label": lambda cell: cell_label(cell, factors),
    }


def _facts_lines(host: HostRecord) -> Sequence[tuple[str, str]]:
    """The host's facts as flat (name, value) lines, nested ones joined by dots."""
    found: list[tuple[str, str]] = []
    _flatten("", host.facts, found)
    return found


def _flatten(prefix: str, value: object, into: list[tuple[str, str]]) -> None:
    if isinstance(value, dict) and value:
        for key in sorted(value):
            _flatten(f"{prefix}.{key}" if prefix else str(key), value[key], into)
    elif isinstance(value, list | tuple):
        into.append((prefix, ", ".join(str(each) for each in value) or "none"))
    else:
        into.append((prefix, str(value)))


CHAPTER = Chapter("runs", _find, _page, table=_tables, lead=_lead, hosts=_hosts)
