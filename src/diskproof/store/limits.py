"""What a store refuses to hold: foreign files bring anything, and every reader trusts a store."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import get_args

from diskproof.errors import UsageError
from diskproof.records import (
    Artefact,
    Cell,
    CrashRun,
    Durability,
    Fault,
    HostRecord,
    RunRecord,
    StudyRecord,
    Verdict,
)
from diskproof.store.encoding import MAX_BLOB, render_json

MAX_NAME = 200
MAX_LEVEL = 1000
MAX_TEXT = 4 << 20
MAX_PER_RUN = 1000
MAX_ARRAY = 5_000_000
MAX_EVENTS = 10_000
MAX_NUMBER = (1 << 31) - 1


def require_storable_study(study: StudyRecord) -> None:
    """Raises UsageError naming what cannot be stored of a study."""
    for name, text in (("id", study.id), ("name", study.name), ("origin", study.origin)):
        _require_name(f"study {name}", text)
    _require(len(study.text) <= MAX_TEXT, "study text", f"longer than {MAX_TEXT} characters")
    _require_number("seed", study.seed, (1 << 63) - 1)
    _require_number("blocks", study.blocks)
    _require_finite("creation time", [study.created])
    for cell in study.cells:
        require_storable_cell(cell)


def require_storable_cell(cell: Cell) -> None:
    """Raises UsageError naming what cannot be stored of a cell."""
    _require_name("workload name", cell.workload.name)
    _require_name("workload kind", cell.workload.kind)
    for pairs in (cell.levels, cell.workload.options):
        _require(len(pairs) <= MAX_PER_RUN, "cell", f"more than {MAX_PER_RUN} levels or options")
        for name, level in pairs:
            _require_name("factor or option", name)
            limit = MAX_LEVEL if pairs is cell.levels else MAX_TEXT
            _require(len(level) <= limit, f"level of {name!r}", f"longer than {limit} characters")


def require_storable_host(host: HostRecord) -> None:
    """Raises UsageError naming what cannot be stored of a host."""
    _require_name("host id", host.id)
    _require_name("host name", host.name)
    try:
        text = render_json(dict(host.facts))
    except (TypeError, ValueError, RecursionError) as error:
        raise _refusal("facts of the host", f"not plain JSON: {error}") from None
    _require(len(text) <= MAX_TEXT, "facts of the host", f"longer than {MAX_TEXT} characters")


def require_storable_run(run: RunRecord) -> None:
    """Raises UsageError naming what cannot be stored of a run."""
    _require_name("run id", run.id)
    _require_number("block", run.block)
    _require_number("position", run.position)
    _require_finite("start and end", [run.started, run.ended])
    _require_finite("phases", [seconds for _, seconds in run.phases])
    failed = run.status == "failed"
    _require(run.status in ("ok", "failed"), "status", f"unknown: {run.status!r:.40}")
    _require(failed == (run.failure is not None), "status", "failed and failure do not agree")
    for kind, parts in (
        ("checks", run.checks),
        ("metrics", run.metrics),
        ("series", run.series),
        ("histograms", run.histograms),
        ("artefacts", run.artefacts),
    ):
        _require(len(parts) <= MAX_PER_RUN, kind, f"more than {MAX_PER_RUN} in one run")
    _require_metrics(run)
    _require_arrays(run)
    for artefact in run.artefacts:
        _require_artefact(artefact)


def require_storable_crash_run(run: CrashRun) -> None:
    """Raises UsageError naming what cannot be stored of a crash run."""
    _require_name("crash run id", run.id)
    require_storable_cell(run.cell)
    _require_finite("start and end", [run.started, run.ended])
    _require_finite("phases", [seconds for _, seconds in run.phases])
    _require(len(run.artefacts) <= MAX_PER_RUN, "files", f"more than {MAX_PER_RUN}")
    for name, count in run.counts.items():
        _require_name("count", name)
        _require_number(f"count {name!r}", count, (1 << 63) - 1)
    for artefact in run.artefacts:
        _require_artefact(artefact)
    faults = [verdict.fault for verdict in run.verdicts]
    _require(len(set(faults)) == len(faults), "verdicts", "two of one run are of the same fault")
    for verdict in run.verdicts:
        _require_verdict(verdict)


def _require_verdict(verdict: Verdict) -> None:
    _require(verdict.fault in get_args(Fault), "fault", f"unknown: {verdict.fault!r:.40}")
    known = verdict.verdict in get_args(Durability)
    _require(known, "verdict", f"unknown: {verdict.verdict!r:.40}")
    counts = (verdict.lost, verdict.states_checked, verdict.cuts, verdict.seed)
    for count in (*counts, verdict.states_total or 0, verdict.cut or 0, *verdict.missing):
        _require_number("a count of a verdict", count, (1 << 63) - 1)
    _require_finite("times of a verdict", [verdict.age_seconds, verdict.seconds])
    _require_finite("timeline", [event.seconds for event in verdict.timeline])
    few = len(verdict.timeline) <= MAX_EVENTS and len(verdict.missing) <= MAX_EVENTS
    _require(few, "verdict", f"more than {MAX_EVENTS} events or missing writes")


def _require_artefact(artefact: Artefact) -> None:
    _require_name("artefact", artefact.name)
    _require_name("media type", artefact.media_type)
    too_large = len(artefact.content) > MAX_BLOB
    _require(not too_large, f"artefact {artefact.name!r}", f"larger than {MAX_BLOB} bytes")


def _require_metrics(run: RunRecord) -> None:
    for metric in run.metrics:
        _require_name("metric", metric.name)
        _require_unit(metric.unit)
        _require_finite(f"metric {metric.name!r}", [metric.value])
    names = [metric.name for metric in run.metrics]
    _require(len(set(names)) == len(names), "metrics", "two of one run have the same name")


def _require_arrays(run: RunRecord) -> None:
    for series in run.series:
        _require_name("series", series.name)
        _require_name("source of a series", series.source)
        _require_unit(series.unit)
        _require_parallel(f"series {series.name!r}", series.times, series.values)
        _require_finite(f"series {series.name!r}", (*series.times, *series.values))
    for histogram in run.histograms:
        _require_name("histogram", histogram.name)
        _require_parallel(f"histogram {histogram.name!r}", histogram.edges, histogram.counts)
        _require_finite(f"histogram {histogram.name!r}", histogram.edges)
        for count in (min(histogram.counts, default=0), max(histogram.counts, default=0)):
            _require_number(f"count of histogram {histogram.name!r}", count, (1 << 63) - 1)


def _require_parallel(what: str, first: Sequence[float], second: Sequence[float]) -> None:
    _require(len(first) == len(second), what, "its two lists differ in length")
    _require(len(first) <= MAX_ARRAY, what, f"more than {MAX_ARRAY} readings")


def _require_name(what: str, name: str) -> None:
    """Names are short, printable and not empty; they become column heads and file names."""
    _require(0 < len(name) <= MAX_NAME, what, f"must have 1 to {MAX_NAME} characters")
    _require(name.isprintable(), what, f"has characters that cannot be printed: {name!r:.60}")


def _require_unit(unit: str) -> None:
    _require(len(unit) <= MAX_NAME and (unit.isprintable()), "unit", f"odd: {unit!r:.60}")


def _require_number(what: str, number: int, largest: int = MAX_NUMBER) -> None:
    _require(0 <= number <= largest, what, f"{number} is not between 0 and {largest}")


def _require_finite(what: str, values: Iterable[float]) -> None:
    try:
        finite = all(map(math.isfinite, values))
    except (OverflowError, TypeError):
        finite = False
    _require(finite, what, "holds a value that is not a finite number")


def _require(holds: bool, what: str, why: str) -> None:
    if not holds:
        raise _refusal(what, why)


def _refusal(what: str, why: str) -> UsageError:
    return UsageError(f"cannot be stored: {what}", why)
