"""Reads against writes: which cells no other beats in both."""

import math
from collections.abc import Mapping, Sequence

from diskproof.report import vega
from diskproof.stats.pareto import FrontPoint
from diskproof.stats.score import Levels

HEIGHT = 260
MAX_NUMBERS = 9
NEAR = 18
"""Numbers closer than this many pixels are written as one."""


def front_cells(points: Sequence[FrontPoint]) -> list[FrontPoint]:
    """The front from the best reader to the best writer, as it is numbered in the chart."""
    return [point for point in points if point.on_front][:MAX_NUMBERS]


def pareto_chart(points: Sequence[FrontPoint], labels: Mapping[Levels, str]) -> vega.Spec:
    """Each cell's read and write score in percent of the best, on logarithmic axes.

    A number stands up and to the right of its point, where the front leaves room.
    """
    rows = [_row(point, labels) for point in points if min(point.scores) > 0]
    front = [row for row in rows if row["front"]]
    x, y = _axis("read"), _axis("write")
    return vega.chart(
        rows,
        HEIGHT,
        padding={"left": 4, "right": 20, "top": 14, "bottom": 4},
        encoding={"x": x, "y": y},
        layer=[
            {
                "data": {"values": front},
                "mark": {"type": "line", "interpolate": "step-before", "color": "var(--best)"}
                | {"strokeDash": [3, 3], "opacity": 0.8},
            },
            {
                "mark": {"type": "point", "size": 60, "opacity": 1, "strokeWidth": 2},
                "encoding": {
                    "stroke": vega.own_colour(),
                    "fill": vega.own_colour("fill"),
                    "tooltip": vega.tooltip("cell", "read", "write", "told"),
                },
            },
            {
                "data": {"values": _numbers(points)},
                "mark": {"type": "text", "align": "left", "baseline": "bottom"}
                | {"dx": 5, "dy": -4, "fontWeight": "bold"},
                "encoding": {"text": {"field": "number", "type": "nominal"}},
            },
        ],
    )


def _axis(name: str) -> vega.Spec:
    axis = {"title": f"{name}, share of the best", "format": "~%", "tickCount": 4}
    return vega.amount(name, axis, {"type": "log", "nice": False, "padding": 10})


def _row(point: FrontPoint, labels: Mapping[Levels, str]) -> dict[str, object]:
    read, write = map(vega.digits, point.scores)
    told = "on the front" if point.on_front else "off" if point.proved_off else "off, not proved"
    colour = "var(--best)" if point.on_front else "var(--bar)"
    return {
        "cell": labels.get(point.levels, "?"),
        "read": read,
        "write": write,
        "front": point.on_front,
        "told": told,
        "colour": colour,
        "fill": colour if point.on_front or point.proved_off else "transparent",
    }


def _numbers(points: Sequence[FrontPoint]) -> list[dict[str, object]]:
    """Where the front's numbers stand; of points that lie together as one text."""
    spans = [
        math.log(max(each)) - math.log(min(each)) or 1.0
        for each in zip(*(p.scores for p in points if min(p.scores) > 0), strict=True)
    ]
    placed: list[tuple[FrontPoint, list[int]]] = []
    for number, point in enumerate(front_cells(points), 1):
        if placed and _apart(placed[-1][0], point, spans) < NEAR:
            placed[-1][1].append(number)
        else:
            placed.append((point, [number]))
    return [
        {"read": point.scores[0], "write": point.scores[1], "number": ", ".join(map(str, numbers))}
        for point, numbers in placed
    ]


def _apart(one: FrontPoint, other: FrontPoint, spans: Sequence[float]) -> float:
    """The larger of the two distances on paper, in pixels."""
    sizes = (vega.WIDTH - 60, HEIGHT - 40)
    return max(
        abs(math.log(a / b)) / span * size
        for a, b, span, size in zip(one.scores, other.scores, spans, sizes, strict=True)
    )
