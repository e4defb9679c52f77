"""iozone's heat map: bandwidth by record size and file size, one test a chart."""

from __future__ import annotations

from collections.abc import Sequence

from diskproof.report.charts import Spec, vega_chart
from diskproof.store.grids import Grid, size_of

MAX_GRID_CELLS = 24
"""Cells that one chart lets choose from; the tables have all."""
_NAMED_COLUMNS = 9  # more are too narrow for a figure in each


def grid_chart(grids: Sequence[tuple[str, Grid]]) -> Spec:
    """One test of several cells by label, the first one shown. All have one scale of colours."""
    shown = grids[:MAX_GRID_CELLS]
    files = sorted({file for _, grid in shown for file in grid.files}, key=size_of)
    records = sorted({record for _, grid in shown for record in grid.records}, key=size_of)
    means = [mean for _, grid in shown for mean in grid.means.values() if mean > 0]
    axis = {"labelAngle": 0, "domain": False, "ticks": False}
    figures = [_figures()] if len(files) <= _NAMED_COLUMNS else []
    return vega_chart(
        _rows(shown),
        40 + 24 * len(records),
        params=[_choice([label for label, _ in shown])],
        transform=[{"filter": "datum.cell === cell"}],
        encoding={
            "x": _sizes("file", "file size", files, axis),
            "y": _sizes("record", "record size", records, axis),
        },
        layer=[_fields(min(means, default=1.0), max(means, default=1.0)), *figures],
    )


def _rows(grids: Sequence[tuple[str, Grid]]) -> list[dict[str, object]]:
    """``bright``: where a figure in the field has to be dark."""
    means = [mean for _, grid in grids for mean in grid.means.values() if mean > 0]
    middle = (min(means, default=1.0) * max(means, default=1.0)) ** 0.5
    return [
        {"cell": label, "record": record, "file": file, "v": float(f"{mean:.4g}")}
        | ({"bright": 1} if mean > middle else {})
        for label, grid in grids
        for (record, file), mean in grid.means.items()
        if mean > 0
    ]


def _choice(labels: Sequence[str]) -> Spec:
    param: Spec = {"name": "cell", "value": labels[0]}
    if len(labels) > 1:
        param["bind"] = {"input": "select", "options": list(labels), "name": "cell "}
    return param


def _sizes(field: str, title: str, order: Sequence[str], axis: Spec) -> Spec:
    scale = {"domain": list(order)}
    return {"field": field, "type": "ordinal", "scale": scale, "axis": {**axis, "title": title}}


def _fields(low: float, high: float) -> Spec:
    """The scale is logarithmic: memory is orders of magnitude faster than a disk."""
    scale = {"type": "log", "domain": [low, max(high, low * 1.01)], "scheme": "cividis"}
    colour = {"field": "v", "type": "quantitative", "scale": scale, "legend": None}
    return {"mark": {"type": "rect", "cornerRadius": 3}, "encoding": {"color": colour}}


def _figures() -> Spec:
    return {
        "mark": {"type": "text", "fontSize": 11},
        "encoding": {
            "text": {"field": "v", "type": "quantitative", "format": ".2~s"},
            "color": {"condition": {"test": "datum.bright", "value": "#111"}, "value": "#fff"},
        },
    }
