"""What of a disk is left in the host's page cache, a row a cell, a column a moment."""

from __future__ import annotations

from collections.abc import Sequence

from diskproof.report.charts import Spec, vega_chart
from diskproof.report.row_text import LINE_HEIGHT, name_fields, name_layers, wrap

MAX_LIVES = 24
_FIELD = 22


def cache_life_chart(moments: Sequence[str], cells: Sequence[tuple[str, Sequence[float]]]) -> Spec:
    """``cells`` are (label, percent of the disk at each of the ``moments``)."""
    shown = cells[:MAX_LIVES]
    tallest = max((len(wrap(label)) for label, _ in shown), default=1)
    below = LINE_HEIGHT * tallest / 2
    axis = {"labelAngle": 0, "domain": False, "ticks": False, "title": None, "orient": "top"}
    scale = {"domain": [0, 100], "scheme": "cividis"}
    field = {
        "mark": {"type": "rect", "height": _FIELD, "yOffset": below, "cornerRadius": 3},
        "encoding": {
            "color": {"field": "v", "type": "quantitative", "scale": scale, "legend": None},
            "tooltip": [{"field": name} for name in ("cell", "moment", "v")],
        },
    }
    figure = {
        "mark": {"type": "text", "yOffset": below, "fontWeight": "bold"},
        "encoding": {
            "text": {"field": "v", "type": "quantitative", "format": ".3~g"},
            "color": {"condition": {"test": "datum.v > 50", "value": "#111"}, "value": "#fff"},
        },
    }
    return vega_chart(
        _rows(moments, shown),
        24 + (_FIELD + 10 + LINE_HEIGHT * tallest) * len(shown),
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
        layer=[field, figure, *name_layers(tallest, below - _FIELD / 2 + 5)],
    )


def _rows(
    moments: Sequence[str], cells: Sequence[tuple[str, Sequence[float]]]
) -> list[dict[str, object]]:
    """The name of a cell stands with its first field only."""
    return [
        {"place": place, "cell": label, "moment": moment, "v": float(f"{share:.3g}")}
        | (name_fields(label) if number == 0 else {})
        for place, (label, shares) in enumerate(cells)
        for number, (moment, share) in enumerate(zip(moments, shares, strict=True))
    ]
