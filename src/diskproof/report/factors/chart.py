"""Factors as pictures: each level against its base, and two factors that act together."""

import math

from diskproof.report import vega
from diskproof.report.factors.find import WorkloadFactors
from diskproof.report.factors.words import ALPHA, effect_words, speeds
from diskproof.report.ratios import CANNOT_TELL, WIDEST, drawn_interval
from diskproof.stats.factor_analysis import FactorAnalysis

MAX_EFFECTS = 24
ROW_HEIGHT = 34


def effects_chart(load: WorkloadFactors, analysis: FactorAnalysis) -> vega.Spec:
    """Speed of each level over that of its base level with its 95 % interval, on a log axis."""
    rows = _effect_rows(load, analysis)
    scale = {"type": "log", "nice": False, "padding": 12}
    axis = {"title": "speed over the base level's", "tickCount": 5, "format": "~r"}
    shown = {"condition": {"test": "datum.proved", "value": "var(--best)"}, "value": "var(--bar)"}
    x = vega.amount("ratio", axis, scale)
    whisker = {
        "mark": {"type": "rule", "strokeWidth": 3, "yOffset": 7},
        "transform": [{"filter": "isValid(datum.low)"}],
        "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": shown},
    }
    point = {"type": "point", "filled": True, "size": 70, "opacity": 1, "yOffset": 7}
    return vega.chart(
        rows,
        ROW_HEIGHT * max(1, len(rows)) + 30,
        encoding={"y": {"field": "place", "type": "ordinal", "axis": None}},
        layer=[
            vega.line_at_one(axis, scale, strokeWidth=2),
            *vega.interval_layer(rows, whisker),
            {
                "mark": point,
                "encoding": {"x": x, "color": shown, "tooltip": vega.tooltip("level", "effect")},
            },
            {
                "mark": {"type": "text", "align": "left", "baseline": "bottom", "yOffset": 0},
                "encoding": {"x": {"value": 0}, "text": {"field": "level"}},
            },
        ],
    )


def _effect_rows(load: WorkloadFactors, analysis: FactorAnalysis) -> list[dict[str, object]]:
    told = [(effect, *speeds(effect, load.higher_is_better)) for effect in analysis.effects]
    shown = [each for each in told[:MAX_EFFECTS] if math.isfinite(each[1]) and each[1] > 0]
    ratios = [1.0, *(ratio for _, ratio, _, _ in shown)]
    edges = min(ratios) / WIDEST, max(ratios) * WIDEST
    rows: list[dict[str, object]] = []
    for effect, ratio, low, high in shown:
        begin, end = drawn_interval(low, high, edges)
        untold = f", {CANNOT_TELL}" if begin is None and low is not None else ""
        level = f"{effect.factor}: {effect.level} over {effect.base}{untold}"
        rows.append(
            {
                "place": len(rows),
                "level": vega.shorten(level),
                "effect": effect_words(effect, load.higher_is_better),
                "ratio": vega.digits(ratio),
                "low": begin,
                "high": end,
                "proved": effect.p_corrected is not None and effect.p_corrected <= ALPHA,
            }
        )
    return rows


def interaction_factors(analysis: FactorAnalysis) -> tuple[str, str] | None:
    """The two factors that explain most together beyond what each explains alone; the one with
    more levels first (along the axis). None with a single factor."""
    pairs = [each for each in analysis.terms if len(each.term) == 2]
    if not pairs:
        return None
    strongest = max(pairs, key=lambda each: (each.share, each.at_most))
    first, second = sorted(strongest.term, key=lambda name: -len(analysis.factors[name]))
    return (first, second) if len(analysis.factors[second]) <= len(vega.COLOURS) else None


def interaction_chart(
    load: WorkloadFactors, analysis: FactorAnalysis, along: str, apart: str
) -> vega.Spec:
    """Geometric mean of the cells by two factors: parallel lines mean that they do not interact."""
    rows = _interaction_rows(load, along, apart)
    lines = list(analysis.factors[apart])
    axis = {"title": along, "labelAngle": -30, "labelLimit": 120}
    value = {"title": f"{load.metric} ({load.unit})", "format": "~s", "tickCount": 5}
    colours = dict(zip(lines, vega.COLOURS, strict=False))
    return vega.chart(
        rows,
        200,
        mark={"type": "line", "point": {"size": 50, "filled": True}, "strokeWidth": 2},
        encoding={
            "x": {
                "field": "x",
                "type": "nominal",
                "sort": list(analysis.factors[along]),
                "axis": axis,
                "scale": {"type": "point", "padding": 0.5},
            },
            "y": vega.amount("mean", value, {"type": "log", "nice": False, "padding": 8}),
            "color": vega.choice("line", colours, sort=lines, legend={"title": apart}),
            "tooltip": vega.tooltip("x", "line", "mean"),
        },
    )


def _interaction_rows(load: WorkloadFactors, along: str, apart: str) -> list[dict[str, object]]:
    logs: dict[tuple[str, str], list[float]] = {}
    for cell, mean in load.means:
        key = (cell.level(along), cell.level(apart))
        if all(key):
            logs.setdefault(key, []).append(math.log(mean))
    return [
        {"x": x, "line": line, "mean": vega.digits(math.exp(math.fsum(each) / len(each)))}
        for (x, line), each in logs.items()
    ]
