"""What the monitor saw as one page: pictures and a table, no network, readable with scripts off."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from diskproof.report.chapter import Drawing, Figure
from diskproof.report.monitor.chart import MAX_WATCHED_POINTS, watched_chart
from diskproof.report.monitor.pictures import MonitorChart, choose_pictures
from diskproof.report.monitor.samples import MonitorColumn, MonitorRecording
from diskproof.report.page import render_document
from diskproof.units import render_seconds

MAX_FIGURES = 120


@dataclass(frozen=True)
class Summary:
    """One line of the table; numbers are None where nothing was told."""

    name: str
    unit: str
    mean: float | None
    least: float | None
    p95: float | None
    most: float | None


def render_monitor_page(recording: MonitorRecording, title: str) -> str:
    """The page as text. Long recordings are drawn as means; the table has their extremes."""
    drawing = Drawing()
    context = {
        "title": title,
        "facts": _facts(recording),
        "sections": _sections(choose_pictures(recording)[:MAX_FIGURES], drawing),
        "lines": line_summaries(recording),
        "rows": row_summaries(recording),
        "number": _figure,
    }
    return render_document("monitor/page.html.j2", drawing, context)


def _sections(pictures: Sequence[MonitorChart], drawing: Drawing) -> dict[str, list[Figure]]:
    sections: dict[str, list[Figure]] = {}
    for place, picture in enumerate(pictures):
        spec = watched_chart(picture.lines, picture.unit, stacked=picture.stacked)
        sections.setdefault(picture.section, []).append(drawing.figure(spec, picture.title, place))
    return sections


def _facts(recording: MonitorRecording) -> list[tuple[str, str]]:
    if not recording.times:
        return [("samples", "none")]
    first, last = recording.times[0], recording.times[-1]
    size = math.ceil(len(recording.times) / MAX_WATCHED_POINTS)
    facts = [
        ("from", _local(first)),
        ("to", _local(last)),
        ("samples", f"{len(recording.times)} in {render_seconds(max(0.0, last - first))}"),
    ]
    if recording.rows:
        facts.append((_things(recording), ", ".join(recording.rows)))
    if size > 1:
        facts.append(("drawn", f"means of {size} samples each; the table has all"))
    return facts


def _things(recording: MonitorRecording) -> str:
    return {"vm": "virtual machines"}.get(recording.key, recording.key)


def _local(seconds: float) -> str:
    """Time of day as this machine writes it."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g} s"


def line_summaries(recording: MonitorRecording) -> list[Summary]:
    """Mean and extremes of the host's columns, over the samples that tell."""
    return [
        _summary(column, [values[place] for values in recording.values])
        for place, column in enumerate(recording.columns)
    ]


def row_summaries(recording: MonitorRecording) -> dict[str, list[Summary]]:
    """The same for each virtual machine."""
    return {
        name: [
            _summary(column, [values[place] for _, values in samples])
            for place, column in enumerate(recording.row_columns)
        ]
        for name, samples in recording.rows.items()
    }


def _summary(column: MonitorColumn, values: Sequence[float]) -> Summary:
    known = sorted(value for value in values if math.isfinite(value))
    if not known:
        return Summary(column.name, column.unit, None, None, None, None)
    p95 = known[math.ceil(0.95 * len(known)) - 1]
    return Summary(column.name, column.unit, sum(known) / len(known), known[0], p95, known[-1])


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
