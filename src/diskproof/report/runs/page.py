"""What did not work, and what was in force: failed runs, cells left out, settings, the host."""

from collections.abc import Iterable, Mapping, Sequence

from diskproof.records import HostRecord, StudyRecord
from diskproof.report import layout
from diskproof.report.chapter import Chapter, Draw, Lead
from diskproof.report.labels import cell_label, varying_factors
from diskproof.report.losses import hidden_lines
from diskproof.report.plan_tables import render_dropped
from diskproof.report.runs.find import StudyRuns, find_runs
from diskproof.report.runs.table import render_failures
from diskproof.report.view import StudyView
from diskproof.store import Store

MOST_CHECKS, MOST_DROPPED, MOST_FACTS = 60, 200, 300
"""Lines on the page: of a cell's settings, of reasons, and of what is known of a host."""


def _hosts(store: Store, study: StudyRecord) -> Iterable[str]:
    return [run.host_id for run in store.failures(study.id)]


def _lead(runs: StudyRuns, view: StudyView) -> Lead:
    """Nothing where all that the study has was told by another chapter."""
    if not view.workloads and len(view.parts) > 1:
        return Lead()
    failed = len(runs.failures)
    facts = f"{view.runs} good, {failed} failed, {len(view.study.cells)} cells"
    count = f"{view.runs} runs, {f'{failed} failed' if failed else 'none failed'}"
    return Lead(count, facts=(("runs", facts),), failed=failed)


def _tables(runs: StudyRuns, view: StudyView, best: int) -> Sequence[layout.Shown]:
    return [
        *([render_failures(view.study, runs)] if runs.failures else []),
        *([render_dropped(view.study.dropped)] if view.study.dropped else []),
    ]


def _page(runs: StudyRuns, view: StudyView, draw: Draw) -> Mapping[str, object]:
    factors = varying_factors(view.study.cells)
    return {
        "runs": runs,
        "hidden": hidden_lines(runs.hidden),
        "study": view.study,
        "facts": _facts_lines(view.host)[:MOST_FACTS],
        "most_checks": MOST_CHECKS,
        "most_dropped": MOST_DROPPED,
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


CHAPTER = Chapter(
    "runs",
    find_runs,
    _page,
    table=_tables,
    lead=_lead,
    question="What did not work, and what was in force?",
    hosts=_hosts,
)
