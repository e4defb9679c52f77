"""Sentences on what managers give: is it good?"""

from collections.abc import Iterator

from diskproof.records.metrics import figure_unit
from diskproof.report.barred import Bars, is_unfit
from diskproof.report.durability import short_text
from diskproof.report.ratios import ratio_text
from diskproof.report.view import Line, WorkloadView
from diskproof.stats.ranking import ratios_over


def default_sentences(load: WorkloadView, bars: Bars) -> Iterator[str]:
    """The speeds of managers' defaults beside the best that a disk could have in their place, and
    what they keep; those of which the same is to be said together. Of several disks of one manager
    (with other numbers of processors, say) the best is told."""
    told: set[str] = set()
    said: dict[str, list[str]] = {}
    for line in load.lines:
        if new := [name for name in line.ranked.cell.names if name not in told]:
            told.update(new)
            judged = short_text(line.durability)
            kept = "nobody has judged what it keeps" if judged == "-" else f"a crash: {judged}"
            kept = "it drops flushes" if is_unfit(line.ranked.cell, bars) else kept
            said.setdefault(f"{_place(line, load, bars)}; {kept}", []).extend(new)
    for what, names in said.items():
        yield f"Default{'s' * (len(names) > 1)} of {', '.join(names)}: {what}."


def _place(line: Line, load: WorkloadView, bars: Bars) -> str:
    best = _rival(line, load, bars)
    if line is best:
        return "the best mean"
    single = min(line.ranked.interval.n, best.ranked.interval.n) < 2
    if not single and not line.ranked.is_apart(best.ranked):
        return "not told apart from the best"
    places = [load.lines.index(each) for each in (best, line)]
    samples = [each.sample for each in load.lines]
    ratio = ratios_over(samples, places[0], load.higher_is_better, load.alpha)[places[1]]
    if not ratio.ratio > 0:
        return "no ratio to the best"
    unproved = ", which a single run does not prove" if single else ""
    unit = figure_unit(load.metric, load.unit)
    return f"{ratio_text(ratio)} times the {unit} of {best.label}{unproved}"


def _rival(line: Line, load: WorkloadView, bars: Bars) -> Line:
    """The best of those that are driven alike and carry out flushes: neither the bare host nor a
    disk that may be lost could take a default's place."""
    frontend = line.ranked.cell.level("frontend")
    alike = (each for each in load.lines if each.ranked.cell.level("frontend") == frontend)
    return next((each for each in alike if not is_unfit(each.ranked.cell, bars)), line)
