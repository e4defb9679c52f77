"""Sentences on rankings: who won, how sure that is, how a rank is to be read."""

from diskproof.records.metrics import figure_unit
from diskproof.report.labels import render_figure
from diskproof.report.view import Line, WorkloadView


def winner_sentence(load: WorkloadView) -> str:
    """Who is fastest, and how sure that is."""
    if not load.lines:
        return f"{load.name}: no run gave a result."
    best = load.lines[0]
    value = f"{render_figure(best.ranked.interval.mean)} {figure_unit(load.metric, load.unit)}"
    if len(load.lines) == 1:
        return f"{best.label} is the only cell: {value}."
    if best.ranked.interval.n < 2:
        return f"{best.label} is ahead with {value}, but a single run proves nothing."
    tied = sum(line.ranked.tied_with_best and line.ranked.interval.n > 1 for line in load.lines[1:])
    if tied == 0:
        return f"{best.label} wins with {value}{_margin(load, load.lines[1])}."
    if tied == len(load.lines) - 1:
        return f"No cell is proved better than another; {best.label} has the best mean, {value}."
    others = "another cell is" if tied == 1 else f"{tied} others are"
    return f"{best.label} has the best mean, {value}; {others} not proved worse."


def _margin(load: WorkloadView, second: Line) -> str:
    ratio = second.ranked.ratio.ratio
    if not ratio > 0:
        return ""
    ahead = 1 / ratio - 1 if load.higher_is_better else ratio - 1
    return f", {ahead:.0%} ahead of {second.label}" if ahead >= 0.005 else ""


READING = (
    "The number before a cell is 1 plus the count of cells proved better; = is a tie, ? a cell "
    "that cannot be placed: a single run, or far more scatter than the others. Cells that share a "
    "letter under tie are not told apart. All pairs of cells are compared and corrected together, "
    "so that among equal cells a false difference appears in at most 5 % of studies; the "
    "intervals of the ratio to the best hold for all cells at once."
)
