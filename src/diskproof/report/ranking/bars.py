"""A workload's means as bars, with intervals and single runs."""

from __future__ import annotations

from diskproof.report.charts import Spec, interval_layer, vega_chart
from diskproof.report.labels import render_figure, render_half_width
from diskproof.report.row_text import (
    LINE_HEIGHT,
    mark_offset,
    name_fields,
    name_layers,
    text_layer,
    wrap,
)
from diskproof.report.view import Line, WorkloadView

MAX_BARS = 24


def bars_chart(load: WorkloadView) -> Spec:
    """Means as bars with their 95 % intervals and each run as a point, best first."""
    lines = load.lines[:MAX_BARS]
    rows = [_bar_row(place, line) for place, line in enumerate(lines)]
    tallest = max((len(wrap(_bar_title(line))) for line in lines), default=1)
    below = mark_offset(tallest)
    value = {"type": "quantitative", "title": f"{load.metric} ({load.unit})"}
    return vega_chart(
        rows,
        (22 + LINE_HEIGHT * tallest) * len(rows),
        padding={"left": 4, "right": 6, "top": 0, "bottom": 4},
        encoding={
            "y": {"field": "place", "type": "ordinal", "axis": None, "scale": {"padding": 0}}
        },
        layer=[
            _bar(value, below),
            *interval_layer(rows, _whisker(value, below)),
            _runs(value, below),
            *name_layers(tallest, below),
            text_layer("figure", {"value": "width"}, "right", below),
        ],
    )


def _bar(value: Spec, below: float) -> Spec:
    return {
        "mark": {"type": "bar", "height": 12, "yOffset": below},
        "encoding": {
            "x": {"field": "mean", **value, "axis": {"tickCount": 4, "format": "~s"}},
            "color": {"field": "colour", "type": "nominal", "scale": None},
            "tooltip": [{"field": name} for name in ("label", "figure", "n", "rank")],
        },
    }


def _whisker(value: Spec, below: float) -> Spec:
    return {
        "mark": {"type": "rule", "strokeWidth": 2, "yOffset": below},
        "transform": [{"filter": "isValid(datum.low)"}],
        "encoding": {"x": {"field": "low", **value}, "x2": {"field": "high"}},
    }


def _runs(value: Spec, below: float) -> Spec:
    circle = {"type": "point", "size": 18, "color": "currentColor", "strokeWidth": 1}
    return {
        "mark": {**circle, "opacity": 0.8, "yOffset": below},
        "transform": [{"flatten": ["values"], "as": ["run"]}],
        "encoding": {"x": {"field": "run", **value}, "tooltip": [{"field": "run"}]},
    }


def _bar_row(place: int, line: Line) -> dict[str, object]:
    interval = line.ranked.interval
    half = interval.half_width
    return {
        "place": place,
        "rank": line.ranked.label,
        "label": line.label,
        **name_fields(_bar_title(line)),
        "figure": f"{render_figure(interval.mean)} \u00b1 {render_half_width(interval)}",
        "n": interval.n,
        "mean": interval.mean,
        "low": None if half is None else max(0.0, interval.mean - half),
        "high": None if half is None else interval.mean + half,
        "values": list(line.values),
        "colour": "var(--best)" if line.ranked.rank == 1 else "var(--bar)",
    }


def _bar_title(line: Line) -> str:
    return f"{line.ranked.label} {line.label}"
