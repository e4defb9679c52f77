"""The course of one loss, and how much of what decides was looked at."""

from collections.abc import Mapping, Sequence

from diskproof.records.verdicts import TraceEvent
from diskproof.report import vega
from diskproof.report.durability import Looked

_LANES = ("write", "name", "flush", "acknowledge")
_STATES = {
    "kept": "var(--c3)",
    "missing": "var(--c2)",
    "torn": "var(--c4)",
    "lost": "var(--c2)",
    "flush": "var(--c1)",
    "promise": "var(--c1)",
}
_BROKEN = ("missing", "torn", "lost")
_UNMARKED = {"write": "kept", "name": "kept", "flush": "flush", "acknowledge": "promise"}


def timeline_chart(events: Sequence[TraceEvent]) -> vega.Spec:
    """What happened before the cut: writes, flushes and promises, and what became of them."""
    rows = [
        {
            "ms": round(event.seconds * 1000, 4),
            "lane": event.kind,
            "state": event.state or _UNMARKED[event.kind],
            "what": event.text or event.kind,
        }
        for event in events
        if event.kind in _LANES
    ]
    cuts = [round(event.seconds * 1000, 4) for event in events if event.kind == "cut"]
    lanes = [name for name in _LANES if name != "name" or any(r["lane"] == name for r in rows)]
    lane = {"field": "lane", "type": "nominal", "sort": lanes, "title": None}
    time = {"title": "milliseconds", "tickCount": 5}
    seen = [state for state in _STATES if any(row["state"] == state for row in rows)]
    return vega.chart(
        rows,
        120,
        encoding={
            "x": vega.amount("ms", time),
            "y": {**lane, "scale": {"domain": lanes}},
            "color": vega.choice("state", {state: _STATES[state] for state in seen}),
            "tooltip": vega.tooltip("ms", "lane", "state", "what"),
        },
        layer=[
            {"mark": {"type": "tick", "thickness": 1.5, "height": 16}},
            {
                "mark": {"type": "tick", "thickness": 4, "height": 30},
                "transform": [{"filter": {"field": "state", "oneOf": list(_BROKEN)}}],
            },
            {
                "data": {"values": [{"ms": cut, "text": "crash"} for cut in cuts]},
                "mark": {"type": "rule", "strokeWidth": 2, "strokeDash": [4, 3]},
                "encoding": {"y": None, "color": None, "tooltip": [{"field": "text"}]},
            },
        ],
    )


_MEASURES = {
    "acknowledgements": ("at acknowledgements, without all that was not durable", "circle"),
    "changes": ("with a single change missing", "triangle-up"),
    "states": ("all states", "square"),
}


def coverage_chart(searches: Sequence[tuple[str, Sequence[Looked]]]) -> vega.Spec:
    """Searches by name: the share of each kind of state that was looked at."""
    names = [name for name, _ in searches]
    rows: list[dict[str, object]] = [
        {
            "place": place,
            "of": _MEASURES[measure][0],
            "percent": vega.digits(min(100.0, 100 * done / of)),
            "states": f"{done:,} of {of:,}",
            **({"whole": 100, **vega.name_fields(name)} if number == 0 else {}),
        }
        for place, (name, looked) in enumerate(searches)
        for number, (measure, done, of) in enumerate(looked)
    ]
    shapes = dict(_MEASURES.values())
    colours = dict(zip(shapes, vega.COLOURS, strict=False))
    share: Mapping[str, vega.Spec] = {
        "axis": {"title": "percent looked at", "tickCount": 5},
        "scale": {"domain": [0, 100]},
    }

    def layers(below: float) -> list[vega.Spec]:
        track = {"type": "bar", "height": 2, "color": "var(--grid)", "yOffset": below}
        mark = {"type": "point", "filled": True, "size": 90, "opacity": 0.7, "yOffset": below}
        encoding = {
            "x": vega.amount("percent", **share),
            "color": vega.choice("of", colours),
            "shape": vega.choice("of", shapes),
            "tooltip": vega.tooltip("of", "states", "percent"),
        }
        return [
            {
                "mark": track,
                "transform": [{"filter": "isValid(datum.whole)"}],
                "encoding": {"x": vega.amount("whole", **share)},
            },
            {"mark": mark, "encoding": encoding},
            *vega.name_layers(names, below),
        ]

    return vega.rows_chart(rows, names, layers)
