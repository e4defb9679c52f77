"""Pictures of protocols: thin disks, caches that warm up and what they outlive, iozone's grids."""

from collections.abc import Sequence

from diskproof.report import vega
from diskproof.stats.intervals import Interval
from diskproof.store.curves import Curve
from diskproof.store.grids import Grid, size_of

PASS_COLOURS = {"first_write": "var(--c2)", "rewrite": "var(--c1)"}
PASS_WORDS = {"first_write": "first write", "rewrite": "rewrite"}
MAX_LIVES = 24
MAX_GRID_CELLS = 24
"""Cells that one chart lets choose from; the tables have all."""
_NAMED_COLUMNS = 9  # more are too narrow for a figure in each
_FIELD = 22
_LINE_LEGEND = {"symbolType": "stroke", "symbolOpacity": 1}


def curve_chart(curves: Sequence[Curve], highest: float) -> vega.Spec:
    """Both passes of one cell; ``highest`` is the end of the scale, the same in all its panels."""
    rows = [
        {"pass": PASS_WORDS[curve.name], "x": end, **_range_fields(interval)}
        for curve in curves
        for end, interval in curve.points
    ]
    colours = {PASS_WORDS[curve.name]: PASS_COLOURS[curve.name] for curve in curves}
    unit = curves[0].unit if curves else ""
    across = {"title": "% of the disk touched", "values": [0, 25, 50, 75, 100]}
    return _band_chart(
        rows,
        130,
        vega.amount("x", across, {"domain": [0, 100]}),
        {"title": unit, "scale": {"domain": [0, highest * 1.05], "clamp": True}},
        vega.choice("pass", colours, sort=list(colours), legend={"columns": 2}),
        "pass",
    )


def warm_up_chart(courses: Sequence[tuple[str, Sequence[tuple[float, Interval]]]]) -> vega.Spec:
    """Speed since a cold start, a line a cell: (label, (seconds, mean over the cell's runs))."""
    rows = [
        {"cell": vega.shorten(label), "x": round(second, 3), **_range_fields(interval)}
        for label, points in courses
        for second, interval in points
    ]
    # The intervals of a few wild runs must not press the means to the ground.
    highest = 1.4 * max((each.mean for _, points in courses for _, each in points), default=1.0)
    across = {"title": "seconds since the cold start", "tickCount": 6}
    return _band_chart(
        rows,
        200,
        vega.amount("x", across),
        {"title": "IOPS", "scale": {"domain": [0, highest], "clamp": True}},
        vega.line_colours("cell", [vega.shorten(label) for label, _ in courses]),
        "cell",
    )


def _range_fields(interval: Interval) -> dict[str, object]:
    half = interval.half_width
    ends = {} if half is None else {"low": max(0.0, interval.mean - half)}
    ends |= {} if half is None else {"high": interval.mean + half}
    fields: dict[str, float] = {"mean": interval.mean, **ends}
    return {name: vega.digits(value) for name, value in fields.items()}


def _band_chart(
    rows: Sequence[dict[str, object]],
    height: int,
    x: vega.Spec,
    y: vega.Spec,
    colour: vega.Spec,
    by: str,
) -> vega.Spec:
    """Lines of means with bands from ``low`` to ``high`` where there are any."""
    axis = {"title": y["title"], "format": "~s", "tickCount": 4}
    y = vega.amount("mean", axis, y["scale"])
    named = {**colour, "legend": {**colour.get("legend", {}), **_LINE_LEGEND}}
    band: vega.Spec = {
        "mark": {"type": "area", "opacity": 0.22, "clip": True},
        "transform": [{"filter": "isValid(datum.high)"}],
        "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
    }
    line: vega.Spec = {
        "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 16, "filled": True}},
        "encoding": {
            "y": y,
            "tooltip": vega.tooltip(by, "x", "mean", "low", "high"),
        },
    }
    layers = [*vega.interval_layer(rows, band), line]
    return vega.chart(rows, height, encoding={"x": x, "color": named}, layer=layers)


def cache_life_chart(
    moments: Sequence[str], cells: Sequence[tuple[str, Sequence[float]]]
) -> vega.Spec:
    """``cells`` are (label, percent of the disk at each of the ``moments``)."""
    shown = cells[:MAX_LIVES]
    tallest = max((len(vega.wrap(label)) for label, _ in shown), default=1)
    below = vega.LINE_HEIGHT * tallest / 2
    axis = {"labelAngle": 0, "domain": False, "ticks": False, "title": None, "orient": "top"}
    scale = {"domain": [0, 100], "scheme": "cividis"}
    field = {
        "mark": {"type": "rect", "height": _FIELD, "yOffset": below, "cornerRadius": 3},
        "encoding": {
            "color": vega.amount("v", scale=scale, legend=None),
            "tooltip": vega.tooltip("cell", "moment", "v"),
        },
    }
    figure = {
        "mark": {"type": "text", "yOffset": below, "fontWeight": "bold"},
        "encoding": {
            "text": vega.amount("v", format=".3~g"),
            "color": {"condition": {"test": "datum.v > 50", "value": "#111"}, "value": "#fff"},
        },
    }
    return vega.chart(
        _life_rows(moments, shown),
        24 + (_FIELD + 10 + vega.LINE_HEIGHT * tallest) * len(shown),
        encoding={
            "x": {
                "field": "moment",
                "type": "nominal",
                "sort": list(moments),
                "axis": axis,
                "scale": {"paddingInner": 0.02},
            },
            "y": {"field": "place", "type": "ordinal", "axis": None},
        },
        layer=[
            field,
            figure,
            *vega.name_layers([label for label, _ in shown], below - _FIELD / 2 + 5),
        ],
    )


def _life_rows(
    moments: Sequence[str], cells: Sequence[tuple[str, Sequence[float]]]
) -> list[dict[str, object]]:
    """The name of a cell stands with its first field only."""
    return [
        {"place": place, "cell": label, "moment": moment, "v": float(f"{share:.3g}")}
        | (vega.name_fields(label) if number == 0 else {})
        for place, (label, shares) in enumerate(cells)
        for number, (moment, share) in enumerate(zip(moments, shares, strict=True))
    ]


def grid_chart(grids: Sequence[tuple[str, Grid]]) -> vega.Spec:
    """One test of several cells by label, the first one shown. All have one scale of colours."""
    shown = grids[:MAX_GRID_CELLS]
    files = sorted({file for _, grid in shown for file in grid.files}, key=size_of)
    records = sorted({record for _, grid in shown for record in grid.records}, key=size_of)
    means = [mean for _, grid in shown for mean in grid.means.values() if mean > 0]
    axis = {"labelAngle": 0, "domain": False, "ticks": False}
    figures = [_figures()] if len(files) <= _NAMED_COLUMNS else []
    return vega.chart(
        _grid_rows(shown),
        40 + 24 * len(records),
        params=[vega.drop_down("cell", [label for label, _ in shown])],
        transform=[{"filter": "datum.cell === cell"}],
        encoding={
            "x": _sizes("file", "file size", files, axis),
            "y": _sizes("record", "record size", records, axis),
        },
        layer=[_fields(min(means, default=1.0), max(means, default=1.0)), *figures],
    )


def _grid_rows(grids: Sequence[tuple[str, Grid]]) -> list[dict[str, object]]:
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


def _sizes(field: str, title: str, order: Sequence[str], axis: vega.Spec) -> vega.Spec:
    scale = {"domain": list(order)}
    return {"field": field, "type": "ordinal", "scale": scale, "axis": {**axis, "title": title}}


def _fields(low: float, high: float) -> vega.Spec:
    """The scale is logarithmic: memory is orders of magnitude faster than a disk."""
    scale = {"type": "log", "domain": [low, max(high, low * 1.01)], "scheme": "cividis"}
    colour = vega.amount("v", scale=scale, legend=None)
    return {"mark": {"type": "rect", "cornerRadius": 3}, "encoding": {"color": colour}}


def _figures() -> vega.Spec:
    return {
        "mark": {"type": "text", "fontSize": 11},
        "encoding": {
            "text": vega.amount("v", format=".2~s"),
            "color": {"condition": {"test": "datum.bright", "value": "#111"}, "value": "#fff"},
        },
    }
