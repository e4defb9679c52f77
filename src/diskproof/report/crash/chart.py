"""Durability beside speed, and the course of one loss."""

from collections.abc import Sequence

from diskproof.records.verdicts import TraceEvent
from diskproof.report import vega
from diskproof.report.durability import verdict_text
from diskproof.report.labels import render_figure
from diskproof.report.view import Line, WorkloadView

MAX_NAMED = 10
"""Points that are named in the picture; of more the names would hide each other."""

_VERDICTS = {
    "keeps": ("var(--c3)", "circle"),
    "loses": ("var(--c2)", "triangle-down"),
    "corrupts": ("var(--c4)", "cross"),
    "undecided": ("var(--bar)", "diamond"),
}
_LANES = ("write", "flush", "acknowledge")
_STATES = {
    "kept": "var(--c3)",
    "missing": "var(--c2)",
    "torn": "var(--c4)",
    "lost": "var(--c2)",
    "flush": "var(--c1)",
    "promise": "var(--c1)",
}
_BROKEN = ("missing", "torn", "lost")
_UNMARKED = {"write": "kept", "flush": "flush", "acknowledge": "promise"}


def durability_chart(load: WorkloadView) -> vega.Spec:
    """Each judged cell by its speed and by the acknowledged writes that its worst crash lost."""
    rows = [row for line in load.lines if (row := _point(line)) is not None]
    for place, row in enumerate(sorted(rows, key=lambda row: float(str(row["mean"])))):
        row["above"] = place % 2 == 0  # neighbours' names do not cover each other
    shapes = {
        name: each for name, each in _VERDICTS.items() if any(r["verdict"] == name for r in rows)
    }
    speed = {"title": f"{load.metric} ({load.unit})", "format": "~s", "tickCount": 4}
    layers: list[vega.Spec] = [
        {
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 0.85},
            "encoding": {
                "color": vega.choice("verdict", {name: each[0] for name, each in shapes.items()}),
                "shape": vega.choice("verdict", {name: each[1] for name, each in shapes.items()}),
                "tooltip": vega.tooltip("cell", "speed", "crash", "writer"),
            },
        }
    ]
    if len(rows) <= MAX_NAMED:
        layers += [_names(True, -6), _names(False, 14)]
    return vega.chart(
        rows,
        220,
        encoding={
            "x": vega.amount("mean", speed),
            "y": vega.amount(
                "lost",
                {"title": "acknowledged writes lost", "tickCount": 4, "format": "~s"},
                {"type": "symlog", "zero": True},
            ),
        },
        layer=layers,
    )


def _point(line: Line) -> dict[str, object] | None:
    worst = line.durability.worst if line.durability else None
    if worst is None:
        return None
    mean = line.ranked.interval.mean
    return {
        "cell": vega.shorten(line.label, 40),
        "mean": mean,
        "speed": render_figure(mean),
        "lost": worst.verdict.lost,
        "verdict": worst.verdict.verdict,
        "crash": f"{worst.verdict.fault}: {verdict_text(worst.verdict)}",
        "writer": worst.cell.workload.name,
    }


def _names(above: bool, dy: int) -> vega.Spec:
    return {
        "mark": {"type": "text", "align": "center", "dy": dy - 4, "fontSize": 10},
        "transform": [{"filter": f"datum.above == {str(above).lower()}"}],
        "encoding": {"text": {"field": "cell"}},
    }


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
    lane = {"field": "lane", "type": "nominal", "sort": list(_LANES), "title": None}
    time = {"title": "milliseconds", "tickCount": 5}
    seen = [state for state in _STATES if any(row["state"] == state for row in rows)]
    return vega.chart(
        rows,
        120,
        encoding={
            "x": vega.amount("ms", time),
            "y": {**lane, "scale": {"domain": list(_LANES)}},
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
