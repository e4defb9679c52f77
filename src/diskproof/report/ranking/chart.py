"""A ranking as pictures: bars, ratios to the best with their ties, factor against factor."""

import math
from collections.abc import Set

from diskproof.report import vega
from diskproof.report.barred import MARK
from diskproof.report.durability import is_lossy
from diskproof.report.labels import plus_minus, render_figure
from diskproof.report.view import Line, WorkloadView

MAX_BARS = 24
_LOG = " log"
"""A column no factor can be called: it has a space."""


def bars_chart(load: WorkloadView, unfit: Set[str] = frozenset()) -> vega.Spec:
    """Means as bars with their 95 % intervals and each run as a point, best first; ``unfit`` are
    the labels of cells that drop flushes."""
    rows = [_bar_row(place, line, unfit) for place, line in enumerate(load.lines[:MAX_BARS])]
    names = [_bar_title(line, unfit) for line in load.lines[:MAX_BARS]]
    value = {"title": f"{load.metric} ({load.unit})"}

    def layers(below: float) -> list[vega.Spec]:
        return [
            _bar(value, below),
            *vega.interval_layer(rows, _whisker(value, below)),
            _runs(value, below),
            *vega.name_layers(names, below),
            vega.text_layer("figure", {"value": "width"}, "right", below),
        ]

    return vega.rows_chart(rows, names, layers)


def _bar(value: vega.Spec, below: float) -> vega.Spec:
    return {
        "mark": {"type": "bar", "height": 12, "yOffset": below},
        "encoding": {
            "x": vega.amount("mean", {"tickCount": 4, "format": "~s"}, **value),
            "color": vega.own_colour(),
            "tooltip": vega.tooltip("label", "figure", "n", "rank"),
        },
    }


def _whisker(value: vega.Spec, below: float) -> vega.Spec:
    return {
        "mark": {"type": "rule", "strokeWidth": 2, "yOffset": below},
        "transform": [{"filter": "isValid(datum.low)"}],
        "encoding": {"x": vega.amount("low", **value), "x2": {"field": "high"}},
    }


def _runs(value: vega.Spec, below: float) -> vega.Spec:
    circle = {"type": "point", "size": 18, "color": "currentColor", "strokeWidth": 1}
    return {
        "mark": {**circle, "opacity": 0.8, "yOffset": below},
        "transform": [{"flatten": ["values"], "as": ["run"]}],
        "encoding": {"x": vega.amount("run", **value), "tooltip": vega.tooltip("run")},
    }


def _bar_row(place: int, line: Line, unfit: Set[str]) -> dict[str, object]:
    interval = line.ranked.interval
    half = None if interval.says_nothing else interval.half_width
    return {
        "place": place,
        "rank": line.ranked.label,
        "label": line.label,
        **vega.name_fields(_bar_title(line, unfit)),
        "figure": f"{render_figure(interval.mean)} {plus_minus(interval)}",
        "n": interval.n,
        "mean": interval.mean,
        "low": None if half is None else max(0.0, interval.mean - half),
        "high": None if half is None else interval.mean + half,
        "values": list(line.values),
        "colour": "var(--c2)"
        if line.label in unfit or is_lossy(line.durability)
        else "var(--best)"
        if line.ranked.rank == 1
        else "var(--bar)",
    }


def _bar_title(line: Line, unfit: Set[str]) -> str:
    worst = line.durability.worst if line.durability else None
    lossy = f" ({worst.verdict.verdict})" if worst and worst.verdict.is_broken else ""
    return f"{line.ranked.label} {line.label}{MARK * (line.label in unfit)}{lossy}"


def heat_factors(load: WorkloadView) -> tuple[str, str] | None:
    """The two factors whose levels' mean logarithms differ most; the one with fewer levels first.

    None with fewer than two varying factors.
    """
    spread = {}
    for factor in load.varying:
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


def heat_chart(load: WorkloadView, across: str, down: str) -> vega.Spec:
    """Speed of factor against factor in percent of the best cell, geometric mean over the rest.

    Which factors is a parameter of the live chart; the picture has those given.
    """
    axis = {"title": None, "labelAngle": -30, "labelLimit": 120, "domain": False, "ticks": False}
    return vega.chart(
        _shares(load),
        34 * len({line.ranked.cell.level(down, "-") for line in load.lines}),
        params=[
            vega.drop_down("across", load.varying, across),
            vega.drop_down("down", load.varying, down),
        ],
        transform=[
            {"calculate": "datum[across]", "as": "x"},
            {"calculate": "datum[down]", "as": "y"},
            {"aggregate": [{"op": "mean", "field": _LOG, "as": "l"}], "groupby": ["x", "y"]},
            {"calculate": "exp(datum.l)", "as": "share"},
        ],
        encoding={
            "x": {"field": "x", "type": "nominal", "axis": axis},
            "y": {"field": "y", "type": "nominal", "axis": {**axis, "labelAngle": 0}},
        },
        layer=[_field(), _percent()],
    )


def _shares(load: WorkloadView) -> list[dict[str, object]]:
    """Each cell's levels and the logarithm of its speed over the best cell's."""
    best = load.lines[0].ranked.interval.mean
    rows = []
    for line in load.lines:
        mean = line.ranked.interval.mean
        if mean > 0 and best > 0:
            share = mean / best if load.higher_is_better else best / mean
            beside = line.ranked.cell.level("frontend", "-")  # the bare host has no format, say
            levels = {name: line.ranked.cell.level(name, beside) for name in load.varying}
            rows.append({**levels, _LOG: round(math.log(share), 5)})
    return rows


def _field() -> vega.Spec:
    scale = {"domain": [0, 1], "scheme": "cividis"}
    share = vega.amount("share", scale=scale, legend=None)
    return {"mark": {"type": "rect", "cornerRadius": 3}, "encoding": {"color": share}}


def _percent() -> vega.Spec:
    """The figure in its field, dark on the bright half of the scale."""
    dark_on_bright = {"test": "datum.share > 0.5", "value": "#111"}
    return {
        "mark": {"type": "text", "fontWeight": "bold"},
        "encoding": {
            "text": vega.amount("share", format=".0%"),
            "color": {"condition": dark_on_bright, "value": "#fff"},
        },
    }
