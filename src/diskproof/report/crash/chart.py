"""The course of one loss."""

from collections.abc import Sequence

from diskproof.records.verdicts import TraceEvent
from diskproof.report import vega

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
