"""A race over its blocks: which cells ran when, and when each of them left."""

from diskproof.records import StudyRecord
from diskproof.report import vega
from diskproof.report.labels import cell_label, varying_factors
from diskproof.report.race.words import fate
from diskproof.stats.study_race import RaceState

MAX_LANES = 24
LANE_HEIGHT = 26


def race_chart(race: RaceState, study: StudyRecord) -> vega.Spec:
    """A lane a cell, those that stayed longest first; a dot for each block in which it ran."""
    places = race_order(race)[:MAX_LANES]
    rows = [_lane(race, study, lane, place) for lane, place in enumerate(places)]
    last = max(1, len(race.course.verdicts))
    axis = {"tickMinStep": 1, "format": "d", "grid": False}
    x = vega.amount("block", axis, {"domain": [0.5, last + 0.5], "nice": False}, title="block")
    point = {"type": "point", "filled": True, "size": 36, "opacity": 1, "yOffset": 6}
    return vega.chart(
        rows,
        LANE_HEIGHT * max(1, len(rows)),
        padding={"left": 4, "right": 6, "top": 0, "bottom": 4},
        encoding={"y": {"field": "lane", "type": "ordinal", "axis": None}},
        layer=[
            {
                "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.5, "yOffset": 6},
                "encoding": {
                    "x": {**x, "field": "first"},
                    "x2": {"field": "last"},
                    "color": vega.own_colour(),
                },
            },
            {
                "mark": point,
                "transform": [{"flatten": ["blocks"], "as": ["block"]}],
                "encoding": {
                    "x": x,
                    "color": vega.own_colour(),
                    "tooltip": vega.tooltip("label", "fate"),
                },
            },
            {
                "mark": {"type": "text", "align": "left", "baseline": "bottom", "yOffset": 1},
                "encoding": {"x": {"value": 0}, "text": {"field": "title"}},
            },
        ],
    )


def race_order(race: RaceState) -> list[int]:
    """Cells by how far they came: leaders, open and tied ones, then the last to leave."""
    verdict = race.verdict
    stayed = [*verdict.leaders, *verdict.open, *verdict.tied] if verdict else []
    left = sorted(race.course.drops, key=lambda drop: (-drop.block, -drop.at_most))
    known = dict.fromkeys([*stayed, *(drop.cell for drop in left)])
    return [*known, *(place for place in range(len(race.cells)) if place not in known)]


def _lane(race: RaceState, study: StudyRecord, lane: int, place: int) -> dict[str, object]:
    ran = [
        number + 1
        for number, entries in enumerate(race.course.entries[: len(race.course.verdicts)])
        if place in entries
    ]
    verdict = race.verdict
    colour = "var(--bar)"
    if verdict is not None:
        groups = (verdict.leaders, verdict.open, verdict.tied)
        colours = ("var(--best)", "var(--c2)", "var(--c3)")
        colour = next((c for c, g in zip(colours, groups, strict=True) if place in g), colour)
    label = cell_label(race.cells[place], varying_factors(study.cells))
    return {
        "lane": lane,
        "label": label,
        "title": vega.shorten(label),
        "fate": fate(race, place, study),
        "blocks": ran,
        "first": 1,
        "last": max(ran, default=1),
        "colour": colour,
    }
