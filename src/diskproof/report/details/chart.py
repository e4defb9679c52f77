"""Latency by percentile and metrics over time, a line a cell."""

import math
from collections.abc import Sequence

from diskproof.records import Histogram, Series
from diskproof.report import vega
from diskproof.report.labels import render_short_latency
from diskproof.stats.histograms import find_percentile

MAX_POINTS = 80
_PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999)


def tail_chart(curves: Sequence[tuple[str, Histogram]]) -> vega.Spec:
    """Latency by percentile; the further right, the rarer. Both axes are logarithmic."""
    rows = [
        {
            "cell": vega.shorten(label),
            "rarity": 100 / (100 - percent),
            "percentile": f"p{percent:g}",
            "seconds": latency,
            "latency": render_short_latency(latency),
        }
        for label, histogram in curves
        for percent in _PERCENTILES
        if (latency := find_percentile(histogram, percent))
    ]
    ticks = [100 / (100 - percent) for percent in (50, 90, 99, 99.9, 99.99, 99.999)]
    name = "'p' + format(100 - 100 / datum.value, '~r')"
    rarity = {"values": [round(tick, 6) for tick in ticks], "labelExpr": name, "title": None}
    return vega.chart(
        rows,
        200,
        mark={"type": "line", "point": {"size": 14}, "strokeWidth": 2},
        encoding={
            "x": vega.amount("rarity", rarity, {"type": "log", "nice": False}),
            "y": vega.amount(
                "seconds",
                {"title": "latency (s)", "format": "~s", "tickCount": 5},
                {"type": "log"},
            ),
            "color": vega.line_colours("cell", [vega.shorten(label) for label, _ in curves]),
            "tooltip": vega.tooltip("cell", "percentile", "latency"),
        },
    )


def series_chart(name: str, unit: str, traces: Sequence[tuple[str, Series]]) -> vega.Spec:
    """One metric over time, a line a cell."""
    rows = [
        {"cell": vega.shorten(label), "s": times, "value": values}
        for label, series in traces
        for times, values in [_thinned(series)]
    ]
    return vega.chart(
        rows,
        140,
        transform=[{"flatten": ["s", "value"]}],
        mark={"type": "line", "strokeWidth": 2},
        encoding={
            "x": vega.amount("s", {"title": "seconds since the workload started", "tickCount": 5}),
            "y": vega.amount(
                "value", {"title": f"{name} ({unit})", "format": "~s", "tickCount": 4}
            ),
            "color": vega.line_colours("cell", [vega.shorten(label) for label, _ in traces]),
            "tooltip": vega.tooltip("cell", "s", "value"),
        },
    )


def _thinned(series: Series) -> tuple[list[float], list[float]]:
    """At most MAX_POINTS means of neighbouring samples: (first times, means)."""
    pairs = [
        (time, value)
        for time, value in zip(series.times, series.values, strict=True)
        if math.isfinite(time) and math.isfinite(value)
    ]
    size = max(1, math.ceil(len(pairs) / MAX_POINTS))
    groups = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    means = [sum(value for _, value in group) / len(group) for group in groups]
    return [round(group[0][0], 3) for group in groups], [vega.digits(mean) for mean in means]
