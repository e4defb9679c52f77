"""Ratios to the best with their simultaneous intervals, as text and as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass

from diskproof.report import vega
from diskproof.report.labels import group_name
from diskproof.stats.intervals import RatioInterval
from diskproof.stats.ranking import Ranked
from diskproof.stats.score import Scored

MAX_RATIOS = 24
WIDEST = 4.0
"""An interval is drawn to this many times beyond the farthest ratio: one cell of which next to
nothing is known would else press all others into a line."""


def ratio_text(ratio: RatioInterval) -> str:
    """A ratio with its simultaneous 95 % interval: ``0.87 (0.81-0.93)``."""
    if not ratio.ratio > 0:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.ratio:.3g}"
    high = f"{ratio.high:.3g}" if ratio.high < 1e4 else "?"
    return f"{ratio.ratio:.3g} ({ratio.low:.3g}-{high})"


@dataclass(frozen=True)
class RatioChart:
    """The chart, how many cells did not fit in it and whether an interval goes on beyond it."""

    spec: vega.Spec
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
    shown = held[:MAX_RATIOS]
    if len(shown) < 2:
        return None
    ratios = [ranked.ratio.ratio for _, ranked in shown]
    edges = min(ratios) / WIDEST, max(ratios) * WIDEST
    rows = [_ratio_row(place, name, ranked, edges) for place, (name, ranked) in enumerate(shown)]
    cut = any(row["low"] == edges[0] or row["high"] == edges[1] for row in rows)
    return RatioChart(_ratios(rows, title), len(held) - len(shown), cut)


def _ratio_row(
    place: int, name: str, ranked: Ranked | Scored, edges: tuple[float, float]
) -> dict[str, object]:
    low, high = ranked.ratio.low, ranked.ratio.high
    title = f"{ranked.label} {name}"
    return {
        "place": place,
        "label": title,
        **vega.name_fields(title),
        "tie": group_name(ranked.groups),
        "ratio": vega.digits(ranked.ratio.ratio),
        "told": ratio_text(ranked.ratio),
        "low": None if low is None else max(edges[0], vega.digits(low)),
        "high": None if high is None else min(edges[1], vega.digits(high)),
        "colour": "var(--best)" if ranked.rank == 1 else "var(--bar)",
    }


def _ratios(rows: Sequence[dict[str, object]], title: str) -> vega.Spec:
    names = [str(row["label"]) for row in rows]
    scale = {"type": "log", "nice": False, "padding": 8}
    axis = {"title": title, "tickCount": 5, "format": "~r"}
    x, colour = vega.amount("ratio", axis, scale), vega.own_colour()

    def layers(below: float) -> list[vega.Spec]:
        whisker = {
            "mark": {"type": "rule", "strokeWidth": 3, "yOffset": below},
            "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
            "encoding": {
                "x": {**x, "field": "low"},
                "x2": {"field": "high"},
                "color": vega.own_colour(),
            },
        }
        point = {"type": "point", "filled": True, "size": 60, "opacity": 1, "yOffset": below}
        told = vega.tooltip("label", "told", "tie")
        return [
            vega.line_at_one(axis, scale),
            *vega.interval_layer(rows, whisker),
            {"mark": point, "encoding": {"x": x, "color": colour, "tooltip": told}},
            *vega.name_layers(names, below),
            vega.text_layer("tie", {"value": "width"}, "right", below),
        ]

    return vega.rows_chart(rows, names, layers, 18)
