"""Factor against factor: how fast each pair of levels is."""

from __future__ import annotations

import math

from diskproof.report.charts import Spec, vega_chart
from diskproof.report.view import WorkloadView

_LOG = " log"
"""A column no factor can be called: it has a space."""


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
    """Speed of factor against factor in percent of the best cell, geometric mean over the rest.

    Which factors is a parameter of the live chart; the picture has those given.
    """
    axis = {"title": None, "labelAngle": -30, "labelLimit": 120, "domain": False, "ticks": False}
    return vega_chart(
        _shares(load),
        34 * len({line.ranked.cell.level(down, "-") for line in load.lines}),
        params=[_factor_choice("across", across, load), _factor_choice("down", down, load)],
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
            levels = {name: line.ranked.cell.level(name, "-") for name in load.factors}
            rows.append({**levels, _LOG: round(math.log(share), 5)})
    return rows


def _field() -> Spec:
    scale = {"domain": [0, 1], "scheme": "cividis"}
    share = {"field": "share", "type": "quantitative", "scale": scale, "legend": None}
    return {"mark": {"type": "rect", "cornerRadius": 3}, "encoding": {"color": share}}


def _percent() -> Spec:
    """The figure in its field, dark on the bright half of the scale."""
    dark_on_bright = {"test": "datum.share > 0.5", "value": "#111"}
    return {
        "mark": {"type": "text", "fontWeight": "bold"},
        "encoding": {
            "text": {"field": "share", "type": "quantitative", "format": ".0%"},
            "color": {"condition": dark_on_bright, "value": "#fff"},
        },
    }


def _factor_choice(name: str, value: str, load: WorkloadView) -> Spec:
    choice = {"input": "select", "options": list(load.factors), "name": f"{name} "}
    return {"name": name, "value": value, "bind": choice}
