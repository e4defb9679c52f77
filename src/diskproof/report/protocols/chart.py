"""First write against rewrite over the share of the disk touched; a cache that warms up."""

from __future__ import annotations

from collections.abc import Sequence

from diskproof.report.charts import Spec, interval_layer, vega_chart
from diskproof.report.details.chart import by_cell, legend
from diskproof.stats.intervals import Interval
from diskproof.store.curves import Curve

PASS_COLOURS = {"first_write": "var(--c2)", "rewrite": "var(--c1)"}
PASS_WORDS = {"first_write": "first write", "rewrite": "rewrite"}
_LINE_LEGEND = {"symbolType": "stroke", "symbolOpacity": 1}


def curve_chart(curves: Sequence[Curve], highest: float) -> Spec:
    """Both passes of one cell; ``highest`` is the end of the scale, the same in all its panels."""
    rows = [
        {"pass": PASS_WORDS[curve.name], "x": end, **_range_fields(interval)}
        for curve in curves
        for end, interval in curve.points
    ]
    words = [PASS_WORDS[curve.name] for curve in curves]
    colours = {"domain": words, "range": [PASS_COLOURS[curve.name] for curve in curves]}
    unit = curves[0].unit if curves else ""
    across = {"title": "% of the disk touched", "values": [0, 25, 50, 75, 100]}
    return _band_chart(
        rows,
        130,
        {"field": "x", "type": "quantitative", "scale": {"domain": [0, 100]}, "axis": across},
        {"title": unit, "scale": {"domain": [0, highest * 1.05], "clamp": True}},
        {
            "field": "pass",
            "type": "nominal",
            "scale": colours,
            "sort": words,
            "legend": {"columns": 2},
        },
        "pass",
    )


def warm_up_chart(courses: Sequence[tuple[str, Sequence[tuple[float, Interval]]]]) -> Spec:
    """Speed since a cold start, a line a cell: (label, (seconds, mean over the cell's runs))."""
    rows = [
        {"cell": legend(label), "x": round(second, 3), **_range_fields(interval)}
        for label, points in courses
        for second, interval in points
    ]
    # The intervals of a few wild runs must not press the means to the ground.
    highest = 1.4 * max((each.mean for _, points in courses for _, each in points), default=1.0)
    across = {"title": "seconds since the cold start", "tickCount": 6}
    return _band_chart(
        rows,
        200,
        {"field": "x", "type": "quantitative", "axis": across},
        {"title": "IOPS", "scale": {"domain": [0, highest], "clamp": True}},
        by_cell([label for label, _ in courses]),
        "cell",
    )


def _range_fields(interval: Interval) -> dict[str, object]:
    half = interval.half_width
    ends = {} if half is None else {"low": max(0.0, interval.mean - half)}
    ends |= {} if half is None else {"high": interval.mean + half}
    fields: dict[str, float] = {"mean": interval.mean, **ends}
    return {name: float(f"{value:.5g}") for name, value in fields.items()}


def _band_chart(
    rows: Sequence[dict[str, object]], height: int, x: Spec, y: Spec, colour: Spec, by: str
) -> Spec:
    """Lines of means with bands from ``low`` to ``high`` where there are any."""
    axis = {"title": y["title"], "format": "~s", "tickCount": 4}
    y = {"field": "mean", "type": "quantitative", "axis": axis, "scale": y["scale"]}
    named = {**colour, "legend": {**colour.get("legend", {}), **_LINE_LEGEND}}
    band: Spec = {
        "mark": {"type": "area", "opacity": 0.22, "clip": True},
        "transform": [{"filter": "isValid(datum.high)"}],
        "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
    }
    line: Spec = {
        "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 16, "filled": True}},
        "encoding": {
            "y": y,
            "tooltip": [{"field": name} for name in (by, "x", "mean", "low", "high")],
        },
    }
    layers = [*interval_layer(rows, band), line]
    return vega_chart(rows, height, encoding={"x": x, "color": named}, layer=layers)
