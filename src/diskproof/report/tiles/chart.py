"""Figures against the number of tiles: lines a cell, and bars of parts on top of each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diskproof.report.charts import Spec, vega_chart
from diskproof.report.row_text import (
    LINE_HEIGHT,
    mark_offset,
    name_fields,
    name_layers,
    text_layer,
    wrap,
)

MAX_TILE_LINES = 8
MAX_TILE_BARS = 24
_COLOURS = tuple(f"var(--c{number})" for number in range(1, 5))
_DASHES = ([1, 0], [5, 3])
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
) -> Spec:
    """A line a cell with its intervals. ``ideal``: also that of tiles that do not hinder each
    other, which score as many as they are."""
    shown = lines[:MAX_TILE_LINES]
    names = [_short(label) for label, _ in shown]
    rows = [row for place, line in enumerate(shown) for row in _rows(place, names[place], line[1])]
    counts = sorted({point.tiles for _, points in shown for point in points})
    edges = [min(counts, default=1) - 0.4, max(counts, default=1) + 0.4]
    x = {
        "field": "x",
        "type": "quantitative",
        "scale": {"domain": edges, "nice": False},
        "axis": {"values": counts, "format": "d", "title": "tiles", "grid": False},
    }
    y = {
        "field": "mean",
        "type": "quantitative",
        "scale": {"zero": True},
        "axis": {"title": title, "format": "~s", "tickCount": 5},
    }
    # A layer without rows would leave its scale without an extent.
    layers = [_ideal(counts)] if ideal and counts else []
    layers += [_whiskers()] if any(row["low"] is not None for row in rows) else []
    layers += [_missed()] if any(row["missed"] for row in rows) else []
    return vega_chart(
        rows,
        180,
        encoding={"x": x, "y": y, "color": _colour(names)},
        layer=[_line(names), *layers, _points()],
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


def _line(names: Sequence[str]) -> Spec:
    layer: Spec = {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {}}
    if len(names) > len(_COLOURS):
        dashes = [_DASHES[place // len(_COLOURS) % len(_DASHES)] for place in range(len(names))]
        scale = {"domain": list(names), "range": dashes}
        layer["encoding"] = {"strokeDash": {"field": "cell", "type": "nominal", "scale": scale}}
    return layer


def _whiskers() -> Spec:
    return {
        "mark": {"type": "rule", "strokeWidth": 2},
        "transform": [{"filter": "isValid(datum.low)"}],
        "encoding": {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}},
    }


def _points() -> Spec:
    return {
        "mark": {"type": "point", "filled": True, "size": 50, "opacity": 1},
        "encoding": {"tooltip": [{"field": name} for name in ("cell", "tiles", "value")]},
    }


def _missed() -> Spec:
    """A ring around what did not keep the service level."""
    return {
        "mark": {"type": "point", "filled": False, "size": 200, "strokeWidth": 2.5},
        "transform": [{"filter": "datum.missed"}],
        "encoding": {"color": {"value": "var(--warn)"}},
    }


def _ideal(counts: Sequence[int]) -> Spec:
    ends = [{"x": at, "mean": at} for at in (counts[0], counts[-1])]
    return {
        "data": {"values": ends},
        "mark": {"type": "line", "strokeDash": [3, 3], "strokeWidth": 1.5},
        "encoding": {"color": {"value": "var(--bar)"}},
    }


def _colour(names: Sequence[str]) -> Spec:
    colours = [_COLOURS[place % len(_COLOURS)] for place in range(len(names))]
    scale = {"domain": list(names), "range": colours}
    return {"field": "cell", "type": "nominal", "scale": scale, "sort": list(names)}


def _short(label: str) -> str:
    return label if len(label) <= _LEGEND_CHARS else label[: _LEGEND_CHARS - 1] + "\u2026"


# -- parts of a whole -----------------------------------------------------------------------


@dataclass(frozen=True)
class PartBar:
    """One bar: what it is of, its parts by name, and what its sum says in words."""

    name: str
    parts: Mapping[str, float]
    text: str


def parts_chart(bars: Sequence[PartBar], colours: Mapping[str, str], title: str) -> Spec:
    """Bars of the same parts, in the order of ``colours``; names and sums stand above them."""
    shown = bars[:MAX_TILE_BARS]
    tallest = max((len(wrap(bar.name)) for bar in shown), default=1)
    below = mark_offset(tallest)
    firsts = [
        {"place": place, "sum": bar.text, **name_fields(bar.name)}
        for place, bar in enumerate(shown)
    ]
    rows = [
        {"place": place, "bar": bar.name, "part": part, "order": number, "value": bar.parts[part]}
        for place, bar in enumerate(shown)
        for number, part in enumerate(colours)
        if part in bar.parts
    ]
    scale = {"domain": list(colours), "range": list(colours.values())}
    x = {"field": "value", "type": "quantitative", "stack": "zero"}
    named: Spec = {
        "data": {"values": firsts},
        "layer": [
            *name_layers(tallest, below),
            text_layer("sum", {"value": "width"}, "right", below),
        ],
    }
    return vega_chart(
        rows,
        (22 + LINE_HEIGHT * tallest) * max(1, len(shown)),
        padding={"left": 4, "right": 6, "top": 0, "bottom": 4},
        encoding={
            "y": {"field": "place", "type": "ordinal", "axis": None, "scale": {"padding": 0}}
        },
        layer=[
            {
                "mark": {"type": "bar", "height": 12, "yOffset": below},
                "encoding": {
                    "x": {**x, "axis": {"title": title, "tickCount": 4, "format": "~s"}},
                    "color": {"field": "part", "type": "nominal", "scale": scale},
                    "order": {"field": "order", "type": "quantitative"},
                    "tooltip": [
                        {"field": "bar"},
                        {"field": "part"},
                        {"field": "value", "type": "quantitative", "format": ".3~r"},
                    ],
                },
            },
            named,
        ],
    )
