"""The page's charts."""

from diskproof.report.charts.bars import MAX_BARS, bars_chart
from diskproof.report.charts.base import Spec, draw
from diskproof.report.charts.cache_life import MAX_LIVES, cache_life_chart
from diskproof.report.charts.crash import durability_chart, timeline_caption, timeline_chart
from diskproof.report.charts.curves import PASS_WORDS, curve_chart, warm_up_chart
from diskproof.report.charts.drift import drift_chart
from diskproof.report.charts.effects import effects_chart, interaction_chart, interaction_factors
from diskproof.report.charts.grid import MAX_GRID_CELLS, grid_chart
from diskproof.report.charts.heat import heat_chart, heat_factors
from diskproof.report.charts.lines import MAX_POINTS, series_chart, tail_chart
from diskproof.report.charts.pareto import front_cells, pareto_chart
from diskproof.report.charts.race import MAX_LANES, race_chart
from diskproof.report.charts.ratios import RatioChart, ratio_chart

__all__ = [
    "MAX_BARS",
    "MAX_GRID_CELLS",
    "MAX_LANES",
    "MAX_LIVES",
    "MAX_POINTS",
    "PASS_WORDS",
    "RatioChart",
    "Spec",
    "bars_chart",
    "cache_life_chart",
    "curve_chart",
    "draw",
    "drift_chart",
    "durability_chart",
    "effects_chart",
    "front_cells",
    "grid_chart",
    "heat_chart",
    "heat_factors",
    "interaction_chart",
    "interaction_factors",
    "pareto_chart",
    "race_chart",
    "ratio_chart",
    "series_chart",
    "tail_chart",
    "timeline_caption",
    "timeline_chart",
    "warm_up_chart",
]
