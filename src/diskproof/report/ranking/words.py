"""Sentences on rankings: who won, how sure that is, how a rank is to be read."""

from diskproof.records.metrics import figure_unit
from diskproof.report.barred import Bars, is_unfit
from diskproof.report.durability import verdict_text
from diskproof.report.labels import render_figure
from diskproof.report.view import Line, WorkloadView


def winner_sentence(load: WorkloadView, bars: Bars) -> str:
    """Who is fastest of those that may be, and how sure that is; then who is faster and is not."""
    if not load.lines:
        return f"{load.name}: no run gave a result."
    fit = [line for line in load.lines if not _why_unfit(line, bars)]
    if not fit:
        first = load.lines[0]
        return f"No cell is fit for use: {first.label} {_why_unfit(first, bars)}."
    faster = load.lines[: load.lines.index(fit[0])]
    told = [f"{line.label} has a better mean and {_why_unfit(line, bars)}." for line in faster[:2]]
    return " ".join([_leader_sentence(load, fit), *told])


def _why_unfit(line: Line, bars: Bars) -> str:
    """Why a cell is no winner whatever its speed: a rule, or a loss that was found."""
    worst = line.durability.worst if line.durability else None
    if worst and worst.verdict.is_broken:
        return f"{verdict_text(worst.verdict)} in the worst crash"
    return "drops flushes" if is_unfit(line.ranked.cell, bars) else ""


def _leader_sentence(load: WorkloadView, fit: list[Line]) -> str:
    best = fit[0]
    value = f"{render_figure(best.ranked.interval.mean)} {figure_unit(load.metric, load.unit)}"
    if len(load.lines) == 1:
        return f"{best.label} is the only cell: {value}."
    if len(fit) == 1:
        return f"{best.label} is the only cell that does not lose what was promised: {value}."
    if best.ranked.interval.n < 2:
        return f"{best.label} is ahead with {value}, but a single run proves nothing."
    tied = sum(not best.ranked.is_apart(line.ranked) for line in fit[1:])
    if tied == 0:
        return f"{best.label} wins with {value}{_margin(load, best, fit[1])}."
    if tied == len(fit) - 1:
        return f"No cell is proved better than another; {best.label} has the best mean, {value}."
    others = "another cell is" if tied == 1 else f"{tied} others are"
    return f"{best.label} has the best mean, {value}; {others} not proved worse."


def _margin(load: WorkloadView, best: Line, second: Line) -> str:
    ratio = second.ranked.ratio.ratio / (best.ranked.ratio.ratio or 1.0)
    if not ratio > 0:
        return ""
    ahead = 1 / ratio - 1 if load.higher_is_better else ratio - 1
    return f", {ahead:.0%} ahead of {second.label}" if ahead >= 0.005 else ""


PROMISE = "at most 5 % of studies"

STOPPED_MARK = "~"
STOPPED = (
    "~ the race went on without it: a cell stops when it looks slow, so it is rather faster than "
    "its mean says"
)
SKEWED = (
    "these runs are skewed (most alike, some far off to one side): of few such runs the interval "
    "of a mean holds it in 68 to 93 % of studies, not in 95 %; ratios and ranks keep what they say"
)
READING = (
    "The number before a cell is 1 plus the count of cells proved better; = is a tie, ? a cell "
    "that cannot be placed: a single run, or far more scatter than the others. Cells that share a "
    "letter under tie are not told apart: B-D is B, C and D, not told apart from cells with any of "
    "them. All pairs of cells of all workloads are compared and corrected together, so that among "
    f"equal cells a false difference appears in {PROMISE}; the intervals of the ratio to the best "
    "hold for all cells at once. Means are geometric, in the order, the ratios and the claims "
    "alike, so that one wild run does not decide them."
)
RACE_READING = (
    "In a race the data decide which cells run on. What is said of its pairs holds all the same, "
    "at the race's own boundary, which pays for every look. The interval of a mean is an ordinary "
    "one, and where ~ stands the mean itself is rather too slow."
)
