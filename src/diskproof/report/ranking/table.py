"""Tables for the terminal, made for 80 columns: what matters is wrapped, never cut."""

from collections.abc import Sequence

from diskproof.records.metrics import MetricRow
from diskproof.report import layout
from diskproof.report.barred import DROPS_FLUSHES, MARK, Bars, is_unfit
from diskproof.report.durability import is_lossy, short_text
from diskproof.report.labels import (
    TOO_FEW,
    group_name,
    render_figure,
    render_half_width,
    render_percentile,
    spell_groups,
    too_few_text,
)
from diskproof.report.ranking.words import SKEWED, STOPPED, STOPPED_MARK
from diskproof.report.view import Line, WorkloadView, present_latencies
from diskproof.stats.histograms import LEAST_BEYOND

CRASH_WIDTH = 16
CRASH_CAPTION = (
    "crash is the worst of power cut, QEMU killed and guest killed: acknowledged writes lost, and "
    "how long before the crash the oldest of them had been acknowledged"
)


def render_ranking(load: WorkloadView, bars: Bars, *, best: int = 0) -> layout.Shown:
    """A workload's cells, best first. Rank ``1=`` is a tie, ``?`` cannot be placed, ``!`` drops
    flushes."""
    present, judged = present_latencies(load), any(line.durability for line in load.lines)
    table = layout.start_table(
        f"{load.name}: {load.measured}",
        *("!#", "*cell"),
        *(">n", ">geomean", ">\u00b195%", "!tie"),
        *(f">{row.narrow or row.label}" for row in present),
        *(["-crash"] if judged else []),
    )
    if judged:
        table.columns[-1].max_width = CRASH_WIDTH
    shown = load.lines[:best] if best else load.lines
    for line in shown:
        ranked, unfit = line.ranked, is_unfit(line.ranked.cell, bars)
        table.add_row(
            ranked.label,
            line.label + MARK * unfit,
            f"{ranked.interval.n}{STOPPED_MARK * ranked.stopped}",
            render_figure(ranked.interval.mean),
            render_half_width(ranked.interval),
            group_name(ranked.groups),
            *(_latency(line, row.name) for row in present),
            *([short_text(line.durability)] if judged else []),
            style=_style(line, unfit),
        )
    hidden = len(load.lines) - len(shown)
    table.caption = _caption(load, present, hidden)
    if any(is_unfit(line.ranked.cell, bars) for line in shown):
        table.caption = f"{DROPS_FLUSHES}; {table.caption}"
    return table


def _latency(line: Line, name: str) -> str:
    figure = line.latencies.get(name)
    return TOO_FEW if figure and figure.reason else render_percentile(figure)[0]


def _style(line: Line, unfit: bool) -> str | None:
    """A cell that loses what was promised is no winner, however fast."""
    if is_lossy(line.durability):
        return "red"
    return "dim" if unfit else "bold" if line.ranked.rank == 1 else None


def _read_letters(groups: Sequence[Sequence[int]]) -> list[str]:
    """How letters that stand together are read, by the most of them that are shown."""
    most = max(groups, key=len, default=())
    if len(most) < 2:
        return []
    return [
        f"{group_name(most)} is {spell_groups(most)}: not told apart from cells with any of them"
    ]


def _caption(load: WorkloadView, present: Sequence[MetricRow], hidden: int) -> str:
    parts = ["# counts cells proved better; cells that share a letter under tie are not told apart"]
    parts += _read_letters([line.ranked.groups for line in load.lines])
    if any(line.ranked.rank is None for line in load.lines):
        parts.append("? cannot be placed: a single run, or far more scatter than others")
    if any(line.ranked.stopped for line in load.lines):
        parts.append(STOPPED)
    if load.skewed:
        parts.append(SKEWED)
    if present:
        parts.append("latencies are percentiles of all operations of a cell's runs")
    if any(each.reason for line in load.lines for each in line.latencies.values()):
        parts.append(f"{TOO_FEW} operations: fewer than {LEAST_BEYOND} lie beyond the percentile")
    parts += [f"{row.narrow} is its p99" for row in present if row.narrow]
    parts += filter(None, [too_few_text(line.ranked.interval for line in load.lines)])
    if any(line.durability for line in load.lines):
        parts.append(CRASH_CAPTION)
    if any(short_text(line.durability).endswith("?") for line in load.lines):
        parts.append("of ?: so many states were checked, and how many there are is not known")
    if hidden:
        parts.append(f"{hidden} more cells are not shown")
    return "; ".join(parts)
