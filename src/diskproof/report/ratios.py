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


CANNOT_TELL = "cannot tell yet"
UNTOLD = 100.0
"""An interval from a number to so many times that tells nothing."""


def is_untold(low: float | None, high: float | None) -> bool:
    """Whether an interval is known, and too wide to say anything."""
    return low is not None and high is not None and not high < UNTOLD * low


def ratio_text(ratio: RatioInterval) -> str:
    """A ratio with its simultaneous 95 % interval: ``0.87 (0.81-0.93)``; without one where it is
    too wide to say anything."""
    if not ratio.ratio > 0:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.ratio:.3g}"
    if is_untold(ratio.low, ratio.high):
        return f"{ratio.ratio:.3g} ({CANNOT_TELL})"
    return f"{ratio.ratio:.3g} ({ratio.low:.3g}-{ratio.high:.3g})"


@dataclass(frozen=True)
class RatioChart:
    """The chart, how many cells did not fit in it, whether an interval goes on beyond it, and
    whether one is too wide to be drawn."""

    spec: vega.Spec
    hidden: int
    cut: bool
    untold: bool

    @property
    def caption(self) -> str:
        text = (
            "Ratio to the best with simultaneous 95 % intervals; cells that share a letter are "
            "not told apart."
        )
        if self.cut:
            text = f"{text} Intervals that reach the edge go on beyond it."
        if self.untold:
            text = f"{text} {CANNOT_TELL}: too few runs for an interval that could be drawn."
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
    untold = any(row["tie"] == CANNOT_TELL for row in rows)
    return RatioChart(_ratios(rows, title), len(held) - len(shown), cut, untold)


def _ratio_row(
    place: int, name: str, ranked: Ranked | Scored, edges: tuple[float, float]
) -> dict[str, object]:
    low, high = drawn_interval(ranked.ratio.low, ranked.ratio.high, edges)
    title = f"{ranked.label} {name}"
    untold = low is None and ranked.ratio.low is not None
    return {
        "place": place,
        "label": title,
        **vega.name_fields(title),
        "tie": CANNOT_TELL if untold else group_name(ranked.groups),
        "ratio": vega.digits(ranked.ratio.ratio),
        "told": ratio_text(ranked.ratio),
        "low": low,
        "high": high,
        "colour": "var(--best)" if ranked.rank == 1 else "var(--bar)",
    }


def drawn_interval(
    low: float | None, high: float | None, edges: tuple[float, float]
) -> tuple[float, float] | tuple[None, None]:
    """An interval as far as the picture goes; none that says nothing, or would fill it."""
    if low is None or high is None or is_untold(low, high):
        return None, None
    if low <= edges[0] and high >= edges[1]:
        return None, None
    return max(edges[0], vega.digits(low)), min(edges[1], vega.digits(high))


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
