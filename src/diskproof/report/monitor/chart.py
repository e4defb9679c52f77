"""Metrics of a watched host over time of day: lines, or parts of a whole on top of each other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from diskproof.report import vega

MAX_WATCHED_POINTS = 240
MAX_WATCHED_LINES = 8


@dataclass(frozen=True)
class MetricLine:
    """A metric over time (Unix, seconds); nan is a gap."""

    label: str
    times: Sequence[float]
    values: Sequence[float]


def watched_chart(lines: Sequence[MetricLine], unit: str, *, stacked: bool = False) -> vega.Spec:
    """At most ``MAX_WATCHED_LINES`` lines; stacked ones are shares of a whole of 100."""
    names = [vega.shorten(line.label, 40) for line in lines]
    rows = [
        {"metric": name, "time": times, "value": values}
        for name, line in zip(names, lines, strict=True)
        for times, values in [thinned(line)]
    ]
    mark = {"type": "area", "opacity": 0.85} if stacked else {"type": "line", "strokeWidth": 1.5}
    y = vega.amount("value", {"title": unit, "format": "~s", "tickCount": 4})
    if stacked:
        y |= {"stack": "zero", "scale": {"domainMin": 0}}
    legend = {"columns": 2, "labelLimit": 150}
    return vega.chart(
        rows,
        130,
        transform=[{"flatten": ["time", "value"]}],
        mark=mark,
        encoding={
            "x": {
                "field": "time",
                "type": "temporal",
                "axis": {"title": None, "format": "%H:%M:%S", "tickCount": 4, "labelOverlap": True},
            },
            "y": y,
            "color": vega.line_colours("metric", names, legend=legend),
            **({} if stacked else vega.line_dashes("metric", names)),
            "tooltip": [
                *vega.tooltip("metric"),
                {"field": "time", "type": "temporal", "format": "%H:%M:%S.%L"},
                vega.amount("value", format=".4~r"),
            ],
        },
    )


def thinned(line: MetricLine) -> tuple[list[int], list[float | None]]:
    """Means of neighbouring samples, so that few enough are left: (milliseconds, values)."""
    size = max(1, math.ceil(len(line.times) / MAX_WATCHED_POINTS))
    starts = range(0, len(line.times), size)
    means = [_mean(line.values[start : start + size]) for start in starts]
    return [round(line.times[start] * 1000) for start in starts], means


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    return vega.digits(sum(known) / len(known)) if known else None
