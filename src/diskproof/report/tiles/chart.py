"""Figures against the number of tiles: lines a cell, and bars of parts on top of each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diskproof.report import vega

MAX_TILE_LINES = 8
MAX_TILE_BARS = 24
_LEGEND_CHARS = 44
_DODGE = 0.07
"""How far lines stand beside each other, in tiles, so that their intervals can be told apart."""


@dataclass(frozen=True)
class TilePoint:
    """A mean at a number of tiles with its 95 % interval (None for a single run); ``missed``: not
    within the service level."""

    tiles: int
    mean: float
    half: float | None
    text: str
    missed: bool = False


def tiles_chart(
    lines: Sequence[tuple[str, Sequence[TilePoint]]], title: str, *, ideal: bool = False
) -> vega.Spec:
    """A line a cell with its intervals. ``ideal``: also that of tiles that do not hinder each
    other, which score as many as they are."""
    shown = lines[:MAX_TILE_LINES]
    names = [vega.shorten(label, _LEGEND_CHARS) for label, _ in shown]
    rows = [row for place, line in enumerate(shown) for row in _rows(place, names[place], line[1])]
    counts = sorted({point.tiles for _, points in shown for point in points})
    edges = [min(counts, default=1) - 0.4, max(counts, default=1) + 0.4]
    axis = {"values": counts, "format": "d", "title": "tiles", "grid": False}
    x = vega.amount("x", axis, {"domain": edges, "nice": False})
    y = vega.amount("mean", {"title": title, "format": "~s", "tickCount": 5}, {"zero": True})
    line = {"mark": {"type": "line", "strokeWidth": 2}, "encoding": vega.line_dashes("cell", names)}
    # A layer without rows would leave its scale without an extent.
    layers = [_ideal(counts)] if ideal and counts else []
    layers += [_whiskers()] if any(row["low"] is not None for row in rows) else []
    layers += [_missed()] if any(row["missed"] for row in rows) else []
    return vega.chart(
        rows,
        180,
        encoding={"x": x, "y": y, "color": vega.line_colours("cell", names)},
        layer=[line, *layers, _points()],
    )


def _rows(place: int, name: str, points: Sequence[TilePoint]) -> list[dict[str, object]]:
    return [
        {
            "cell": name,
            "tiles": point.tiles,
            "x": round(point.tiles + (place - 0.5) * _DODGE, 3),
            "mean": point.mean,
            "low": None if point.half is None else max(0.0, point.mean - point.half),
            "high": None if point.half is None else point.mean + point.half,
            "value": point.text,
            "missed": point.missed,
        }
        for point in points
    ]


def _whiskers() -> vega.Spec:
    return {
        "mark": {"type": "rule", "strokeWidth": 2},
        "transform": [{"filter": "isValid(datum.low)"}],
        "encoding": {"y": vega.amount("low"), "y2": {"field": "high"}},
    }


def _points() -> vega.Spec:
    return {
        "mark": {"type": "point", "filled": True, "size": 50, "opacity": 1},
        "encoding": {"tooltip": vega.tooltip("cell", "tiles", "value")},
    }


def _missed() -> vega.Spec:
    """A ring around what did not keep the service level."""
    return {
        "mark": {"type": "point", "filled": False, "size": 200, "strokeWidth": 2.5},
        "transform": [{"filter": "datum.missed"}],
        "encoding": {"color": {"value": "var(--warn)"}},
    }


def _ideal(counts: Sequence[int]) -> vega.Spec:
    ends = [{"x": at, "mean": at} for at in (counts[0], counts[-1])]
    return {
        "data": {"values": ends},
        "mark": {"type": "line", "strokeDash": [3, 3], "strokeWidth": 1.5},
        "encoding": {"color": {"value": "var(--bar)"}},
    }


# -- parts of a whole -----------------------------------------------------------------------


@dataclass(frozen=True)
class PartBar:
    """One bar: what it is of, its parts by name, and what its sum says in words."""

    name: str
    parts: Mapping[str, float]
    text: str


def parts_chart(bars: Sequence[PartBar], colours: Mapping[str, str], title: str) -> vega.Spec:
    """Bars of the same parts, in the order of ``colours``; names and sums stand above them."""
    shown = bars[:MAX_TILE_BARS]
    firsts = [
        {"place": place, "sum": bar.text, **vega.name_fields(bar.name)}
        for place, bar in enumerate(shown)
    ]
    rows = [
        {"place": place, "bar": bar.name, "part": part, "order": number, "value": bar.parts[part]}
        for place, bar in enumerate(shown)
        for number, part in enumerate(colours)
        if part in bar.parts
    ]
    axis = {"title": title, "tickCount": 4, "format": "~s"}
    names = [bar.name for bar in shown]

    def layers(below: float) -> list[vega.Spec]:
        parts = {
            "mark": {"type": "bar", "height": 12, "yOffset": below},
            "encoding": {
                "x": vega.amount("value", axis, stack="zero"),
                "color": vega.choice("part", colours),
                "order": vega.amount("order"),
                "tooltip": [*vega.tooltip("bar", "part"), vega.amount("value", format=".3~r")],
            },
        }
        sums = vega.text_layer("sum", {"value": "width"}, "right", below)
        return [
            parts,
            {"data": {"values": firsts}, "layer": [*vega.name_layers(names, below), sums]},
        ]

    return vega.rows_chart(rows, names, layers)
