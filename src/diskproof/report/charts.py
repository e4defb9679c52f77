"""Charts as Vega-Lite specifications; the same one is drawn to SVG here and alive in the page.

Text takes the page's own colour (``currentColor``) and marks its CSS variables, so that one
picture reads in a light and in a dark scheme. Widths are those of a phone; the page's script
stretches a live chart to its box.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Spec = dict[str, Any]

WIDTH = 340
MAX_PICTURES = 20
"""Static pictures on a page; further charts are drawn with scripts on only. It bounds the page's
size and the time to make it, whatever the number of workloads."""

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
        "titleColor": "currentColor",
        "labelFontSize": 11,
        "labelLimit": 270,
        "title": None,
        "orient": "bottom",
        "columns": 1,
        "symbolStrokeWidth": 3,
    },
}


def vega_chart(
    data: Sequence[Mapping[str, object]], height: int, padding: Spec | None = None, **rest: Any
) -> Spec:
    """A chart of ``data`` rows; ``rest`` is the mark, encoding or layers."""
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


def interval_layer(rows: Sequence[Mapping[str, object]], layer: Spec) -> list[Spec]:
    """A layer of intervals from ``low`` to ``high``, where any row has one: single runs have none,
    and Vega warns of a layer without data."""
    known = any(row.get("low") is not None and row.get("high") is not None for row in rows)
    return [layer] if known else []


def draw(spec: Spec) -> str:
    """The chart as an SVG element."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(spec))


@dataclass
class Figure:
    """A chart on the page. ``importance`` 0 gets its static picture first; ``svg`` may be empty."""

    id: str
    caption: str
    spec: Spec
    importance: int
    svg: str = ""


Draw = Callable[[Spec, str, int], Figure]
"""Puts a chart on the page with its caption and importance."""


@dataclass
class Drawing:
    """The figures of a page."""

    figures: list[Figure] = field(default_factory=list)

    def figure(self, spec: Spec, caption: str, importance: int) -> Figure:
        figure = Figure(f"chart-{len(self.figures)}", caption, spec, importance)
        self.figures.append(figure)
        return figure

    def draw(self) -> None:
        """Make the static pictures, the most important first."""
        for figure in sorted(self.figures, key=lambda each: each.importance)[:MAX_PICTURES]:
            figure.svg = draw(figure.spec)
