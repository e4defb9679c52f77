"""What every guest of a run was doing when: a lane a guest, a bar a step."""

from collections.abc import Sequence
from dataclasses import dataclass

from diskproof.records.tiles import StepRun, TileRun
from diskproof.report import vega

MAX_GUEST_LANES = 48
MAX_TIMELINES = 16
MAX_STEPS = 4000
"""Bars of one picture, over all runs that can be chosen; the longest of each run stay."""

_SETUP = "setting up"
_CHECK = "checking"
_ENDS: vega.Spec = {"x2": {"field": "to"}, "y2": {"field": "bottom"}}
_LANE_HEIGHT = 34
_TITLE = 0.42
"""The part of a lane's height that its name takes; bars stand below it."""
_SHOWN_SETUP = 0.35
"""At most so much of the load's time is shown of what was before it."""


@dataclass(frozen=True)
class Timeline:
    """A run that can be chosen, by what it is called."""

    name: str
    run: TileRun


def tile_timeline(timelines: Sequence[Timeline], works: Sequence[str]) -> vega.Spec:
    """The first run, and with scripts on any of the others. Steps at the same time share a lane's
    height; what did not end or failed has a frame."""
    shown = timelines[:MAX_TIMELINES]
    most = max(1, MAX_STEPS // max(1, len(shown)))
    rows = [row for each in shown for row in _rows(each, most)]
    lanes = max((len(_lanes(each.run)) for each in shown), default=1)
    axis = {"title": "seconds since the load began", "tickCount": 6, "grid": False}
    x = vega.amount("from", axis, {"nice": False})
    y = {**vega.amount("top", scale={"reverse": True, "nice": False, "zero": True}), "axis": None}
    return vega.chart(
        [*rows, *(row for each in shown for row in _names(each))],
        _LANE_HEIGHT * min(lanes, MAX_GUEST_LANES),
        params=[vega.drop_down("chosen", [each.name for each in shown], text="run")],
        transform=[{"filter": "datum.run === chosen"}],
        encoding={"x": x, "y": y},
        layer=[_bars([_SETUP, *works, _CHECK]), _begin(), _titles()],
    )


def _bars(kinds: Sequence[str]) -> vega.Spec:
    colours = ["var(--bar)", *(vega.COLOURS[n % len(vega.COLOURS)] for n in range(len(kinds) - 2))]
    named = dict(zip(kinds, [*colours, "var(--soft)"], strict=True))
    legend = {"columns": 3, "labelLimit": 100, "symbolStrokeWidth": 0}
    broken = {"test": "datum.status != 'ok'"}
    return {
        "mark": {"type": "rect"},
        "transform": [{"filter": "isValid(datum.step)"}],
        "encoding": {
            **_ENDS,
            "color": vega.choice("kind", named, sort=list(kinds), legend=legend),
            "stroke": {"condition": {**broken, "value": "var(--warn)"}, "value": None},
            "strokeWidth": {"condition": {**broken, "value": 3}, "value": 0},
            "tooltip": vega.tooltip("lane", "step", "started", "ended", "status"),
        },
    }


def _begin() -> vega.Spec:
    """Where the load began."""
    return {
        "data": {"values": [{"from": 0}]},
        "mark": {"type": "rule", "strokeDash": [4, 3], "opacity": 0.5},
        "encoding": {"y": None},
    }


def _titles() -> vega.Spec:
    """The name of a guest above its lane."""
    return {
        "mark": {"type": "text", "align": "left", "baseline": "top", "fontSize": 11},
        "transform": [{"filter": "isValid(datum.name)"}],
        "encoding": {"x": {"value": 0}, "text": {"field": "name"}},
    }


def _lanes(run: TileRun) -> list[tuple[int, str]]:
    """(tile, guest) in the order of the tiles, and in them of their first steps."""
    found = dict.fromkeys((step.tile, step.guest) for step in run.steps)
    return sorted(found, key=lambda lane: lane[0])


def _rows(timeline: Timeline, most: int) -> list[dict[str, object]]:
    run = timeline.run
    places = {lane: place for place, lane in enumerate(_lanes(run)[:MAX_GUEST_LANES])}
    earliest = -_SHOWN_SETUP * max(run.seconds, 1.0)
    steps = [step for step in run.steps if step.ended > earliest]
    steps = [step for step in steps if (step.tile, step.guest) in places]
    steps = sorted(steps, key=lambda step: step.started - step.ended)[:most]
    slots = _slots(steps)
    return [
        {
            "run": timeline.name,
            "lane": f"tile {step.tile} {step.guest}",
            **_extent(places[step.tile, step.guest], *slots[step]),
            "kind": _kind(step),
            "step": step.step,
            "from": round(max(step.started, earliest), 3),
            "to": round(step.ended, 3),
            "started": f"{step.started:.2f} s",
            "ended": f"{step.ended:.2f} s",
            "status": _status(step),
        }
        for step in steps
    ]


def _extent(place: int, slot: int, slots: int) -> dict[str, float]:
    """Where a bar stands: in its lane, below the name, one of so many slots."""
    height = (1 - _TITLE) / slots
    top = place + _TITLE + slot * height
    return {"top": round(top, 4), "bottom": round(top + height * 0.9, 4)}


def _names(timeline: Timeline) -> list[dict[str, object]]:
    lanes = _lanes(timeline.run)[:MAX_GUEST_LANES]
    return [
        {"run": timeline.name, "name": f"tile {tile} {guest}"[:48], "top": place + 0.04}
        for place, (tile, guest) in enumerate(lanes)
    ]


def _kind(step: StepRun) -> str:
    if step.phase == "load":
        return step.work or step.step
    return _SETUP if step.phase == "setup" else _CHECK


def _status(step: StepRun) -> str:
    if step.status is None:
        return "did not end"
    return "ok" if step.status == 0 else f"status {step.status}"


def _slots(steps: Sequence[StepRun]) -> dict[StepRun, tuple[int, int]]:
    """(slot, slots of its lane) of each step: steps of one guest at the same time stand below each
    other, each in the first slot that is free when it begins."""
    free: dict[tuple[int, str], list[float]] = {}
    slots = {}
    for step in sorted(steps, key=lambda each: (each.started, each.ended, each.step)):
        ends = free.setdefault((step.tile, step.guest), [])
        slot = next((n for n, end in enumerate(ends) if end <= step.started), len(ends))
        ends[slot : slot + 1] = [step.ended]
        slots[step] = slot
    return {step: (slot, len(free[step.tile, step.guest])) for step, slot in slots.items()}
