"""The page's charts."""

from diskproof.report.charts.bars import MAX_BARS, bars_chart
from diskproof.report.charts.base import Spec, draw
from diskproof.report.charts.heat import heat_chart, heat_factors
from diskproof.report.charts.lines import MAX_POINTS, series_chart, tail_chart

__all__ = [
    "MAX_BARS",
    "MAX_POINTS",
    "Spec",
    "bars_chart",
    "draw",
    "heat_chart",
    "heat_factors",
    "series_chart",
    "tail_chart",
]
