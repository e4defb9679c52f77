"""Metrics of a watched host over time of day: lines, or parts of a whole on top of each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from diskproof.report.charts import Spec, vega_chart

MAX_WATCHED_POINTS = 240
MAX_WATCHED_LINES = 8
_COLOURS = tuple(f"var(--c{number})" for number in range(1, 5))
_DASHES = ([1, 0], [5, 3])


@dataclass(frozen=True)
class Line:
    """A metric over time (Unix, seconds); nan is a gap."""

    label: str
    times: Sequence[float]
    values: Sequence[float]


def watched_chart(lines: Sequence[Line], unit: str, *, stacked: bool = False) -> Spec:
    """At most ``MAX_WATCHED_LINES`` lines; stacked ones are shares of a whole of 100."""
    names = [_short(line.label) for line in lines]
    rows = [
        {"metric": name, "time": times, "value": values}
        for name, line in zip(names, lines, strict=True)
        for times, values in [thinned(line)]
    ]
    mark = {"type": "area", "opacity": 0.85} if stacked else {"type": "line", "strokeWidth": 1.5}
    y: Spec = {
        "field": "value",
        "type": "quantitative",
        "axis": {"title": unit, "format": "~s", "tickCount": 4},
    }
    if stacked:
        y |= {"stack": "zero", "scale": {"domainMin": 0}}
    return vega_chart(
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
            "color": _coloured(names),
            **({} if stacked or len(names) <= len(_COLOURS) else {"strokeDash": _dashed(names)}),
            "tooltip": [
                {"field": "metric"},
                {"field": "time", "type": "temporal", "format": "%H:%M:%S.%L"},
                {"field": "value", "type": "quantitative", "format": ".4~r"},
            ],
        },
    )


def thinned(line: Line) -> tuple[list[int], list[float | None]]:
    """Means of neighbouring samples, so that few enough are left: (milliseconds, values)."""
    size = max(1, math.ceil(len(line.times) / MAX_WATCHED_POINTS))
    starts = range(0, len(line.times), size)
    means = [_mean(line.values[start : start + size]) for start in starts]
    return [round(line.times[start] * 1000) for start in starts], means


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    return float(f"{sum(known) / len(known):.5g}") if known else None


def _short(label: str) -> str:
    return label if len(label) <= 40 else label[:39] + "\u2026"


def _coloured(names: Sequence[str]) -> Spec:
    colours = [_COLOURS[place % len(_COLOURS)] for place in range(len(names))]
    scale = {"domain": list(names), "range": colours}
    legend = {"columns": 2, "labelLimit": 150}
    return {
        "field": "metric",
        "type": "nominal",
        "scale": scale,
        "sort": list(names),
        "legend": legend,
    }


def _dashed(names: Sequence[str]) -> Spec:
    """Beyond the colours that can be told apart, a second round is dashed."""
    dashes = [_DASHES[place // len(_COLOURS) % len(_DASHES)] for place in range(len(names))]
    scale = {"domain": list(names), "range": dashes}
    return {"field": "metric", "type": "nominal", "scale": scale, "sort": list(names)}
