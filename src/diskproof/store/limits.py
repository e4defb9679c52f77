"""What a store refuses to hold: foreign files bring anything, and every reader trusts a store."""

from __future__ import annotations

from typing import get_args

from diskproof.records import Cell, Histogram, HostRecord, RunRecord, StudyRecord
from diskproof.records.verdicts import CrashRun, Durability, Fault, Verdict
from diskproof.store.bounds import (
    MAX_EVENTS,
    MAX_LEVEL,
    MAX_PER_RUN,
    MAX_TEXT,
    refusal,
    require,
    require_artefact,
    require_finite,
    require_metrics,
    require_name,
    require_number,
    require_parallel,
    require_series,
)
from diskproof.store.encoding import render_json


def require_storable_study(study: StudyRecord) -> None:
    """Raises UsageError naming what cannot be stored of a study."""
    for name, text in (("id", study.id), ("name", study.name), ("origin", study.origin)):
        require_name(f"study {name}", text)
    require(len(study.text) <= MAX_TEXT, "study text", f"longer than {MAX_TEXT} characters")
    require_number("seed", study.seed, (1 << 63) - 1)
    require_number("blocks", study.blocks)
    require_finite("creation time", [study.created])
    for cell in study.cells:
        require_storable_cell(cell)


def require_storable_cell(cell: Cell) -> None:
    """Raises UsageError naming what cannot be stored of a cell."""
    require_name("workload name", cell.workload.name)
    require_name("workload kind", cell.workload.kind)
    for pairs in (cell.levels, cell.workload.options):
        require(len(pairs) <= MAX_PER_RUN, "cell", f"more than {MAX_PER_RUN} levels or options")
        for name, level in pairs:
            require_name("factor or option", name)
            limit = MAX_LEVEL if pairs is cell.levels else MAX_TEXT
            require(len(level) <= limit, f"level of {name!r}", f"longer than {limit} characters")


def require_storable_host(host: HostRecord) -> None:
    """Raises UsageError naming what cannot be stored of a host."""
    require_name("host id", host.id)
    require_name("host name", host.name)
    try:
        text = render_json(dict(host.facts))
    except (TypeError, ValueError, RecursionError) as error:
        raise refusal("facts of the host", f"not plain JSON: {error}") from None
    require(len(text) <= MAX_TEXT, "facts of the host", f"longer than {MAX_TEXT} characters")


def require_storable_run(run: RunRecord) -> None:
    """Raises UsageError naming what cannot be stored of a run."""
    require_name("run id", run.id)
    require_number("block", run.block)
    require_number("position", run.position)
    require_finite("start and end", [run.started, run.ended])
    require_finite("phases", [seconds for _, seconds in run.phases])
    failed = run.status == "failed"
    require(run.status in ("ok", "failed"), "status", f"unknown: {run.status!r:.40}")
    require(failed == (run.failure is not None), "status", "failed and failure do not agree")
    for kind, parts in (
        ("checks", run.checks),
        ("metrics", run.metrics),
        ("series", run.series),
        ("histograms", run.histograms),
        ("artefacts", run.artefacts),
    ):
        require(len(parts) <= MAX_PER_RUN, kind, f"more than {MAX_PER_RUN} in one run")
    require_metrics(run.metrics)
    for series in run.series:
        require_series(series)
    for histogram in run.histograms:
        _require_histogram(histogram)
    for artefact in run.artefacts:
        require_artefact(artefact)


def require_storable_crash_run(run: CrashRun) -> None:
    """Raises UsageError naming what cannot be stored of a crash run."""
    require_name("crash run id", run.id)
    require_storable_cell(run.cell)
    require_finite("start and end", [run.started, run.ended])
    require_finite("phases", [seconds for _, seconds in run.phases])
    require(len(run.artefacts) <= MAX_PER_RUN, "files", f"more than {MAX_PER_RUN}")
    for name, count in run.counts.items():
        require_name("count", name)
        require_number(f"count {name!r}", count, (1 << 63) - 1)
    for artefact in run.artefacts:
        require_artefact(artefact)
    faults = [verdict.fault for verdict in run.verdicts]
    require(len(set(faults)) == len(faults), "verdicts", "two of one run are of the same fault")
    for verdict in run.verdicts:
        _require_verdict(verdict)


def _require_verdict(verdict: Verdict) -> None:
    require(verdict.fault in get_args(Fault), "fault", f"unknown: {verdict.fault!r:.40}")
    known = verdict.verdict in get_args(Durability)
    require(known, "verdict", f"unknown: {verdict.verdict!r:.40}")
    counts = (verdict.lost, verdict.states_checked, verdict.cuts, verdict.seed)
    for count in (*counts, verdict.states_total or 0, verdict.cut or 0, *verdict.missing):
        require_number("a count of a verdict", count, (1 << 63) - 1)
    require_finite("times of a verdict", [verdict.age_seconds, verdict.seconds])
    require_finite("timeline", [event.seconds for event in verdict.timeline])
    few = len(verdict.timeline) <= MAX_EVENTS and len(verdict.missing) <= MAX_EVENTS
    require(few, "verdict", f"more than {MAX_EVENTS} events or missing writes")


def _require_histogram(histogram: Histogram) -> None:
    require_name("histogram", histogram.name)
    require_parallel(f"histogram {histogram.name!r}", histogram.edges, histogram.counts)
    require_finite(f"histogram {histogram.name!r}", histogram.edges)
    for count in (min(histogram.counts, default=0), max(histogram.counts, default=0)):
        require_number(f"count of histogram {histogram.name!r}", count, (1 << 63) - 1)
