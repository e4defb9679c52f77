"""Each cell's ratio to the best with its simultaneous interval, and the letters of its ties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from diskproof.report.charts import Spec, interval_layer, vega_chart
from diskproof.report.labels import group_name
from diskproof.report.ranking.words import ratio_text
from diskproof.report.row_text import (
    LINE_HEIGHT,
    mark_offset,
    name_fields,
    name_layers,
    text_layer,
    wrap,
)
from diskproof.stats.ranking import Ranked
from diskproof.stats.score import Scored

MAX_ROWS = 24
WIDEST = 4.0
"""An interval is drawn to this many times beyond the farthest ratio: one cell of which next to
nothing is known would else press all others into a line."""


@dataclass(frozen=True)
class RatioChart:
    """The chart, how many cells did not fit in it and whether an interval goes on beyond it."""

    spec: Spec
    hidden: int
    cut: bool

    @property
    def caption(self) -> str:
        text = (
            "Ratio to the best with simultaneous 95 % intervals; cells that share a letter are "
            "not told apart."
        )
        if self.cut:
            text = f"{text} Intervals that reach the edge go on beyond it."
        return f"{text} {self.hidden} more cells are in the table." if self.hidden else text


def ratio_chart(places: Sequence[tuple[str, Ranked | Scored]], title: str) -> RatioChart | None:
    """Named cells, best first. None where no second cell has a ratio."""
    held = [(name, ranked) for name, ranked in places if ranked.ratio.ratio > 0]
    shown = held[:MAX_ROWS]
    if len(shown) < 2:
        return None
    ratios = [ranked.ratio.ratio for _, ranked in shown]
    edges = min(ratios) / WIDEST, max(ratios) * WIDEST
    rows = [_row(place, name, ranked, edges) for place, (name, ranked) in enumerate(shown)]
    cut = any(row["low"] == edges[0] or row["high"] == edges[1] for row in rows)
    return RatioChart(_spec(rows, title), len(held) - len(shown), cut)


def _row(
    place: int, name: str, ranked: Ranked | Scored, edges: tuple[float, float]
) -> dict[str, object]:
    low, high = ranked.ratio.low, ranked.ratio.high
    title = f"{ranked.label} {name}"
    return {
        "place": place,
        "label": title,
        **name_fields(title),
        "tie": group_name(ranked.groups),
        "ratio": _digits(ranked.ratio.ratio),
        "told": ratio_text(ranked),
        "low": None if low is None else max(edges[0], _digits(low)),
        "high": None if high is None else min(edges[1], _digits(high)),
        "colour": "var(--best)" if ranked.rank == 1 else "var(--bar)",
    }


def _digits(value: float) -> float:
    return float(f"{value:.5g}") if math.isfinite(value) else value


def _spec(rows: Sequence[dict[str, object]], title: str) -> Spec:
    tallest = max(len(wrap(str(row["label"]))) for row in rows)
    below = mark_offset(tallest)
    ratio = {
        "type": "quantitative",
        "scale": {"type": "log", "nice": False, "padding": 8},
        "axis": {"title": title, "tickCount": 5, "format": "~r"},
    }
    colour = {"field": "colour", "type": "nominal", "scale": None}
    tooltip = [{"field": name} for name in ("label", "told", "tie")]
    return vega_chart(
        rows,
        (18 + LINE_HEIGHT * tallest) * len(rows),
        padding={"left": 4, "right": 6, "top": 0, "bottom": 4},
        encoding={
            "y": {"field": "place", "type": "ordinal", "axis": None, "scale": {"padding": 0}}
        },
        layer=[
            {
                "mark": {"type": "rule", "color": "var(--grid)"},
                "encoding": {"x": {"datum": 1, **ratio}, "y": None},
            },
            *interval_layer(
                rows,
                {
                    "mark": {"type": "rule", "strokeWidth": 3, "yOffset": below},
                    "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
                    "encoding": {"x": {"field": "low", **ratio}, "x2": {"field": "high"}}
                    | {"color": colour},
                },
            ),
            {
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1}
                | {"yOffset": below},
                "encoding": {"x": {"field": "ratio", **ratio}, "color": colour, "tooltip": tooltip},
            },
            *name_layers(tallest, below),
            text_layer("tie", {"value": "width"}, "right", below),
        ],
    )
