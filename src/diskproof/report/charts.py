"""Charts as Vega-Lite specifications; the same one is drawn to SVG here and alive in the page.

Text takes the page's own colour (``currentColor``) and marks its CSS variables, so that one
picture reads in a light and in a dark scheme. Widths are those of a phone; the page's script
stretches a live chart to its box.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from diskproof.records import Histogram, Series
from diskproof.report.labels import render_figure, render_half_width, render_short_latency
from diskproof.report.view import Line, WorkloadView
from diskproof.stats.histograms import find_percentile

Spec = dict[str, Any]

WIDTH = 340
MAX_BARS = 24
MAX_POINTS = 80
LABEL_CHARS = 32
COLOURS = tuple(f"var(--c{number})" for number in range(1, 5))
_PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999)

_CONFIG: Spec = {
    "aria": False,  # thousands of marks; the figure has its caption and the table all numbers
    "background": None,
    "font": "sans-serif",
    "view": {"stroke": None},
    "text": {"color": "currentColor", "fontSize": 12},
    "rule": {"color": "currentColor"},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "gridColor": "var(--grid)",
        "domainColor": "var(--grid)",
        "tickColor": "var(--grid)",
    },
    "legend": {
        "labelColor": "currentColor",
        "labelFontSize": 11,
        "labelLimit": 320,
        "title": None,
        "orient": "bottom",
        "columns": 1,
        "symbolStrokeWidth": 3,
    },
}


def _chart(
    data: Sequence[Mapping[str, object]], height: int, padding: Spec | None = None, **rest: Any
) -> Spec:
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "data": {"values": list(data)},
        "width": WIDTH,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": padding or {"left": 10, "right": 10, "top": 4, "bottom": 4},
        "config": _CONFIG,
        **rest,
    }


def bars_chart(load: WorkloadView) -> Spec:
    """Means as bars with their 95 % intervals and each run as a point, best first."""
    lines = load.lines[:MAX_BARS]
    rows = [_bar_row(place, line) for place, line in enumerate(lines)]
    tallest = max((len(_wrap(line)) for line in map(_bar_title, lines)), default=1) - 1
    step = 36 + 14 * tallest
    place = {"field": "place", "type": "ordinal", "axis": None, "scale": {"padding": 0}}
    below = 9 + 7 * tallest
    tip = [{"field": name} for name in ("label", "figure", "n", "rank")]
    value = {"type": "quantitative", "title": f"{load.metric} ({load.unit})"}
    return _chart(
        rows,
        step * len(rows),
        padding={"left": 4, "right": 6, "top": 0, "bottom": 4},
        encoding={"y": place},
        layer=[
            {
                "mark": {"type": "bar", "height": 12, "yOffset": below},
                "encoding": {
                    "x": {"field": "mean", **value, "axis": {"tickCount": 4, "format": "~s"}},
                    "color": {"field": "colour", "type": "nominal", "scale": None},
                    "tooltip": tip,
                },
            },
            {
                "mark": {"type": "rule", "strokeWidth": 2, "yOffset": below},
                "transform": [{"filter": "isValid(datum.low)"}],
                "encoding": {"x": {"field": "low", **value}, "x2": {"field": "high"}},
            },
            {
                "mark": {
                    "type": "point",
                    "size": 18,
                    "yOffset": below,
                    "color": "currentColor",
                    "strokeWidth": 1,
                    "opacity": 0.8,
                },
                "transform": [{"flatten": ["values"], "as": ["run"]}],
                "encoding": {"x": {"field": "run", **value}, "tooltip": [{"field": "run"}]},
            },
            *(
                _bar_text(f"line{number}", {"value": 0}, "left", below - 14 * number)
                for number in range(tallest + 1)
            ),
            _bar_text("figure", {"value": "width"}, "right", below),
        ],
    )


def _bar_row(place: int, line: Line) -> dict[str, object]:
    interval = line.ranked.interval
    half = interval.half_width
    return {
        "place": place,
        "rank": line.ranked.label,
        "label": line.label,
        **{f"line{number}": part for number, part in enumerate(_wrap(_bar_title(line))[::-1])},
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


def _bar_text(field: str, x: Spec, align: str, below: float) -> Spec:
    """Text that stands on its bar, so that it needs no margin of its own."""
    return {
        "mark": {"type": "text", "align": align, "baseline": "bottom", "yOffset": below - 7},
        "transform": [{"filter": f"isValid(datum.{field})"}],
        "encoding": {"x": x, "text": {"field": field}},
    }


def _wrap(text: str) -> list[str]:
    """Lines of at most LABEL_CHARS, broken at spaces, and hard where a word is longer."""
    import textwrap

    return textwrap.wrap(text, LABEL_CHARS, break_on_hyphens=False) or [text]


def tail_chart(curves: Sequence[tuple[str, Histogram]]) -> Spec:
    """Latency by percentile; the further right, the rarer. Both axes are logarithmic."""
    rows = [
        {
            "cell": _legend(label),
            "rarity": 100 / (100 - percent),
            "percentile": f"p{percent:g}",
            "seconds": latency,
            "latency": render_short_latency(latency),
        }
        for label, histogram in curves
        for percent in _PERCENTILES
        if (latency := _tail_latency(histogram, percent)) is not None
    ]
    ticks = [100 / (100 - percent) for percent in (50, 90, 99, 99.9, 99.99, 99.999)]
    name = "'p' + format(100 - 100 / datum.value, '~r')"
    rarity = {"values": [round(tick, 6) for tick in ticks], "labelExpr": name, "title": None}
    return _chart(
        rows,
        200,
        mark={"type": "line", "point": {"size": 14}, "strokeWidth": 2},
        encoding={
            "x": {
                "field": "rarity",
                "type": "quantitative",
                "scale": {"type": "log", "nice": False},
                "axis": rarity,
            },
            "y": {
                "field": "seconds",
                "type": "quantitative",
                "scale": {"type": "log"},
                "axis": {"title": "latency (s)", "format": "~s", "tickCount": 5},
            },
            "color": _by_cell([label for label, _ in curves]),
            "tooltip": [{"field": f} for f in ("cell", "percentile", "latency")],
        },
    )


def _tail_latency(histogram: Histogram, percent: float) -> float | None:
    """None where fewer than one operation is rarer: there is no such percentile."""
    if sum(histogram.counts) * (100 - percent) < 100:
        return None
    latency = find_percentile(histogram, percent)
    return latency if latency and latency > 0 else None


def series_chart(name: str, unit: str, traces: Sequence[tuple[str, Series]]) -> Spec:
    """One metric over time, a line a cell."""
    rows = [
        {"cell": _legend(label), "s": times, "value": values}
        for label, series in traces
        for times, values in [_thinned(series)]
    ]
    return _chart(
        rows,
        140,
        transform=[{"flatten": ["s", "value"]}],
        mark={"type": "line", "strokeWidth": 2},
        encoding={
            "x": {
                "field": "s",
                "type": "quantitative",
                "axis": {"title": "seconds since the workload started", "tickCount": 5},
            },
            "y": {
                "field": "value",
                "type": "quantitative",
                "axis": {"title": f"{name} ({unit})", "format": "~s", "tickCount": 4},
            },
            "color": _by_cell([label for label, _ in traces]),
            "tooltip": [{"field": f} for f in ("cell", "s", "value")],
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
    return [round(group[0][0], 3) for group in groups], [float(f"{mean:.5g}") for mean in means]


def _legend(label: str) -> str:
    """A legend line cannot wrap: levels beyond its width end in an ellipsis the table resolves."""
    return label if len(label) <= 48 else label[:47] + "\u2026"


def _by_cell(labels: Sequence[str]) -> Spec:
    names = [_legend(label) for label in labels]
    scale = {"domain": names, "range": list(COLOURS[: len(names)])}
    return {"field": "cell", "type": "nominal", "scale": scale, "sort": names}


def heat_factors(load: WorkloadView) -> tuple[str, str] | None:
    """The two factors whose levels' mean logarithms differ most; the one with fewer levels first.

    None with fewer than two varying factors.
    """
    spread = {}
    for factor in load.factors:
        means: dict[str, list[float]] = {}
        for line in load.lines:
            if line.ranked.interval.mean > 0:
                logs = means.setdefault(line.ranked.cell.level(factor, "-"), [])
                logs.append(math.log(line.ranked.interval.mean))
        centres = [sum(logs) / len(logs) for logs in means.values()]
        if len(centres) > 1:
            spread[factor] = (max(centres) - min(centres), len(centres))
    if len(spread) < 2:
        return None
    top = sorted(spread, key=lambda factor: -spread[factor][0])[:2]
    across, down = sorted(top, key=lambda factor: spread[factor][1])
    return across, down


def heat_chart(load: WorkloadView, across: str, down: str) -> Spec:
    """Speed of factor against factor in percent of the best cell, geometric mean over the rest."""
    best = load.lines[0].ranked.interval.mean
    rows = []
    for line in load.lines:
        mean = line.ranked.interval.mean
        if mean > 0 and best > 0:
            share = mean / best if load.higher_is_better else best / mean
            levels = {name: line.ranked.cell.level(name, "-") for name in load.factors}
            rows.append({**levels, " log": round(math.log(share), 5)})
    text = {"field": "share", "type": "quantitative", "format": ".0%"}
    axis = {"title": None, "labelAngle": -30, "labelLimit": 120, "domain": False, "ticks": False}
    return _chart(
        rows,
        34 * len({line.ranked.cell.level(down, "-") for line in load.lines}),
        params=[_factor_choice("across", across, load), _factor_choice("down", down, load)],
        transform=[
            {"calculate": "datum[across]", "as": "x"},
            {"calculate": "datum[down]", "as": "y"},
            {"aggregate": [{"op": "mean", "field": " log", "as": "l"}], "groupby": ["x", "y"]},
            {"calculate": "exp(datum.l)", "as": "share"},
        ],
        encoding={
            "x": {"field": "x", "type": "nominal", "axis": axis},
            "y": {"field": "y", "type": "nominal", "axis": {**axis, "labelAngle": 0}},
        },
        layer=[
            {
                "mark": {"type": "rect", "cornerRadius": 3},
                "encoding": {
                    "color": {
                        "field": "share",
                        "type": "quantitative",
                        "scale": {"domain": [0, 1], "scheme": "cividis"},
                        "legend": None,
                    }
                },
            },
            {
                "mark": {"type": "text", "fontWeight": "bold"},
                "encoding": {
                    "text": text,
                    "color": {
                        "condition": {"test": "datum.share > 0.5", "value": "#111"},
                        "value": "#fff",
                    },
                },
            },
        ],
    )


def _factor_choice(name: str, value: str, load: WorkloadView) -> Spec:
    choice = {"input": "select", "options": list(load.factors), "name": f"{name} "}
    return {"name": name, "value": value, "bind": choice}


def draw(spec: Spec) -> str:
    """The chart as an SVG element."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(spec))
