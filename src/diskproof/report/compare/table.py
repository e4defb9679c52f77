"""A comparison for the terminal and for programs: what ``compare`` prints."""

from diskproof.report import layout
from diskproof.report.compare.find import ALL_CELLS, Compared, Comparison
from diskproof.report.labels import finite, percent, render_figure
from diskproof.report.output_analyses import ComparedJson, ComparisonJson
from diskproof.report.ratios import CANNOT_TELL, is_untold
from diskproof.stats.histograms import CellFigure
from diskproof.stats.speed_verdict import MOST_RUNS

_STYLES = {"faster": "green", "slower": "red", "same": "", "undecided": "yellow"}
MAX_NAMED = 12
"""Cells without a partner that are named; of the others only the number is told."""


def render_comparison(found: Comparison) -> layout.Shown:
    """The two sides, a table a workload, what has no partner, and the verdict in a sentence."""
    sides = [f"A: {found.a.title}", f"B: {found.b.title}"]
    loads: dict[tuple[str, str], list[Compared]] = {}
    for line in found.lines:
        loads.setdefault((line.workload, line.metric), []).append(line)
    alone = (("A", found.only_a), ("B", found.only_b))
    return layout.paragraphs(
        [
            [
                *(layout.line(side, "bold") for side in sides),
                *(layout.line(f"note: {note}", "yellow") for note in found.notes),
            ],
            *([_table(own)] for own in loads.values()),
            *([layout.line(_missing(name, labels))] for name, labels in alone if labels),
            [
                layout.line(conclusion(found), "bold"),
                *(layout.line(told, "yellow") for told in [dropping_sentence(found)] if told),
            ],
        ]
    )


def _table(lines: list[Compared]) -> layout.Shown:
    first = lines[0]
    better = "higher" if first.higher_is_better else "lower"
    table = layout.start_table(
        f"{first.workload}: {first.metric} in {first.unit}, {better} is better; {_kind(first)}",
        *("*cell", ">n", ">A", ">B", ">B/A", ">95 %", "-B is"),
    )
    for line in lines:
        table.add_row(
            line.label,
            f"{len(line.a.values)}+{len(line.b.values)}",
            *(render_figure(shown_value(each)) for each in line.told),
            f"{line.verdict.ratio.ratio:.3f}",
            _interval(line),
            outcome_words(line),
            style=_STYLES[line.verdict.outcome] or None,
        )
    kept = _kept_text(lines)
    table.caption = layout.plain(f"in a crash: {kept}") if kept else None
    return table


def shown_value(figure: CellFigure) -> float:
    """What B/A is the ratio of: a geometric mean, or a percentile; a plain mean where a value is
    nought. Whoever has no figure has no line."""
    told = figure.value if figure.geomean is None else figure.geomean
    assert told is not None
    return told


def _kind(line: Compared) -> str:
    """What A and B are."""
    return "of all operations" if line.told[0].pooled else "geometric means"


def _interval(line: Compared) -> str:
    ratio = line.verdict.ratio
    if ratio.low is None or ratio.high is None:
        return "?"
    if is_untold(ratio.low, ratio.high):
        return CANNOT_TELL
    return f"{ratio.low:.3f}-{ratio.high:.3f}"


def outcome_words(line: Compared) -> str:
    """``faster``, ``slower``, ``same``, or ``undecided`` with what it would take."""
    verdict = line.verdict
    if verdict.outcome != "undecided":
        return verdict.outcome
    if verdict.p_corrected is None:
        few = min(len(line.a.values), len(line.b.values)) < 2
        return "undecided: a single run" if few else "undecided: a value of nought"
    if line.a.looked or line.b.looked:
        return "undecided by the race's runs"
    if verdict.further_runs is None:
        return f"undecided, > {MOST_RUNS} more runs"
    return f"undecided, {verdict.further_runs} more runs"


def _kept_text(lines: list[Compared]) -> str:
    """What both sides keep in a crash, cell by cell; empty where nothing is known."""
    told = dict.fromkeys(line.kept for line in lines if any(line.kept))
    several = len(told) > 1
    names = {kept: [line.label for line in lines if line.kept == kept] for kept in told}
    return "; ".join(
        f"{', '.join(names[a, b][:MAX_NAMED])}: {_both(a, b)}" if several else _both(a, b)
        for a, b in told
    )


def _both(a: str, b: str) -> str:
    return f"A and B: {a}" if a == b else f"A: {a or 'not judged'}, B: {b or 'not judged'}"


def dropping_sentence(found: Comparison) -> str:
    """Which side's speed is that of a disk that may be lost; empty where neither is."""
    names = [name for place, name in enumerate("AB") if _drops(found, place)]
    what = "drop flushes: what a program was promised may be lost there, however fast it is"
    return f"Cells of {' and '.join(names)} {what}." if names else ""


def _drops(found: Comparison, place: int) -> bool:
    return any(line.drops_flushes[place] for line in found.lines)


def _missing(name: str, labels: tuple[str, ...]) -> str:
    shown = "; ".join(labels[:MAX_NAMED])
    rest = len(labels) - MAX_NAMED
    return f"only in {name}: {shown}" + (f"; and {rest} more" if rest > 0 else "")


def conclusion(found: Comparison) -> str:
    """One sentence; it agrees with the exit code."""
    counts = dict.fromkeys(_STYLES, 0)
    for line in found.lines:
        if line.label != ALL_CELLS:
            counts[line.verdict.outcome] += 1
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    within = f"same means within {percent(found.delta)}"
    if found.regressions:
        together = all(line.label == ALL_CELLS for line in found.regressions)
        where = " (all cells together)" if together else ""
        return f"B is slower than A{where}: {told}; {within}"
    return f"No regression is proved: {told}; {within}"


def comparison_json(found: Comparison) -> ComparisonJson:
    """Plain JSON. ``ratio`` is B over A in the metric, of geometric means (``geomean_a``; null for
    a percentile, which is ``mean_a``); ``further_runs`` a side."""
    return {
        "a": {"asked": found.a.asked, "is": found.a.title},
        "b": {"asked": found.b.asked, "is": found.b.title},
        "delta": found.delta,
        "regression": bool(found.regressions),
        "comparisons": [_line_json(line) for line in found.lines],
        "only_in_a": list(found.only_a),
        "only_in_b": list(found.only_b),
        "notes": list(found.notes),
    }


def _line_json(line: Compared) -> ComparedJson:
    verdict = line.verdict
    return {
        "workload": line.workload,
        "metric": line.metric,
        "unit": line.unit,
        "higher_is_better": line.higher_is_better,
        "label": line.label,
        "cell_a": line.cell_a.levels_dict() if line.cell_a else None,
        "cell_b": line.cell_b.levels_dict() if line.cell_b else None,
        "n_a": len(line.a.values),
        "n_b": len(line.b.values),
        "mean_a": line.told[0].value,
        "mean_b": line.told[1].value,
        "geomean_a": line.told[0].geomean,
        "geomean_b": line.told[1].geomean,
        "ratio": finite(verdict.ratio.ratio),
        "low": finite(verdict.ratio.low),
        "high": finite(verdict.ratio.high),
        "method": verdict.ratio.method,
        "p_corrected": verdict.p_corrected,
        "verdict": verdict.outcome,
        "further_runs": verdict.further_runs,
        "crash_a": line.kept[0] or None,
        "crash_b": line.kept[1] or None,
        "drops_flushes": list(line.drops_flushes),
    }
