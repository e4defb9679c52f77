"""The page's charts."""

from diskproof.report.charts.bars import MAX_BARS, bars_chart
from diskproof.report.charts.base import Spec, draw
from diskproof.report.charts.drift import drift_chart
from diskproof.report.charts.effects import (
    effects_chart,
    interaction_chart,
    interaction_factors,
)
from diskproof.report.charts.heat import heat_chart, heat_factors
from diskproof.report.charts.lines import MAX_POINTS, series_chart, tail_chart
from diskproof.report.charts.race import MAX_LANES, race_chart

__all__ = [
    "MAX_BARS",
    "MAX_LANES",
    "MAX_POINTS",
    "Spec",
    "bars_chart",
    "draw",
    "drift_chart",
    "effects_chart",
    "heat_chart",
    "heat_factors",
    "interaction_chart",
    "interaction_factors",
    "race_chart",
    "series_chart",
    "tail_chart",
]
