"""Tables for the terminal, made for 80 columns: what matters is wrapped, never cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from diskproof.records import Dropped
from diskproof.report.crash.find import crash_labels, short_text, states_text, verdict_text
from diskproof.report.labels import (
    group_name,
    render_figure,
    render_half_width,
    render_short_latency,
)
from diskproof.report.ranking.words import HIGHER, metric_name
from diskproof.report.table_style import plain, start_table
from diskproof.report.view import WorkloadView, present_latencies

if TYPE_CHECKING:
    from rich.table import Table

    from diskproof.store import VerdictRow

_HEADS = {
    "latency_p50": "p50",
    "latency_p99": "p99",
    "latency_p99.9": "p99.9",
    "flush_p99": "flush",
}


CRASH_WIDTH = 16
CRASH_CAPTION = (
    "crash is the worst of power cut, QEMU killed and guest killed: acknowledged writes lost, and "
    "how long before the crash the oldest of them had been acknowledged"
)


def render_ranking(load: WorkloadView, *, best: int = 0) -> Table:
    """A workload's cells, best first. Rank ``1=`` is a tie, ``?`` cannot be placed."""
    present = present_latencies(load)
    table = start_table(f"{load.name}: {metric_name(load)}, {HIGHER[load.higher_is_better]}")
    table.add_column("#", no_wrap=True)
    table.add_column("cell", ratio=1, overflow="fold")
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("mean", justify="right", no_wrap=True)
    table.add_column("\u00b195%", justify="right", no_wrap=True)
    table.add_column("tie", no_wrap=True)
    for name in present:
        table.add_column(_HEADS[name], justify="right", no_wrap=True)
    judged = any(line.durability for line in load.lines)
    if judged:
        table.add_column("crash", overflow="fold", max_width=CRASH_WIDTH)
    shown = load.lines[:best] if best else load.lines
    for line in shown:
        ranked = line.ranked
        table.add_row(
            ranked.label,
            plain(line.label),
            str(ranked.interval.n),
            render_figure(ranked.interval.mean),
            render_half_width(ranked.interval),
            group_name(ranked.groups),
            *(render_short_latency(line.latencies.get(name)) for name in present),
            *([short_text(line.durability)] if judged else []),
            style="bold" if ranked.rank == 1 else None,
        )
    hidden = len(load.lines) - len(shown)
    table.caption = _caption(load, present, hidden)
    return table


def _caption(load: WorkloadView, present: Sequence[str], hidden: int) -> str:
    parts = ["# counts cells proved better; cells that share a letter under tie are not told apart"]
    if any(line.ranked.rank is None for line in load.lines):
        parts.append("? cannot be placed: a single run, or far more scatter than others")
    if present:
        parts.append("latencies are medians over runs")
    if "flush_p99" in present:
        parts.append("flush is its p99")
    if any(line.durability for line in load.lines):
        parts.append(CRASH_CAPTION)
    if hidden:
        parts.append(f"{hidden} more cells are not shown")
    return "; ".join(parts)


def render_verdicts(rows: Sequence[VerdictRow]) -> Table:
    """What each fault leaves of each crash cell; equal cells and writers are named once."""
    table = start_table("what a crash leaves")
    for name in ("cell", "writer", "fault"):
        table.add_column(name, overflow="fold")
    table.add_column("verdict", overflow="fold", ratio=1)
    table.add_column("states checked", justify="right", overflow="fold")
    before: tuple[str, str] | None = None
    for label, row in zip(crash_labels(rows), rows, strict=True):
        key = (label, row.cell.workload.name)
        named = ["", ""] if key == before else [plain(each) for each in key]
        text = " - ".join(filter(None, (verdict_text(row.verdict), row.verdict.reason)))
        bad = row.verdict.verdict in ("loses", "corrupts")
        fault, states = row.verdict.fault, states_text(row.verdict)
        table.add_row(*named, fault, plain(text), states, style="bold" if bad else None)
        before = key
    table.caption = (
        "loses N, T: N acknowledged writes are missing in the worst state, the oldest of them "
        "acknowledged T before the crash; states are different contents that the crash may leave"
    )
    return table


def render_dropped(dropped: Sequence[Dropped]) -> Table:
    """Combinations that were never run, and why."""
    table = start_table("combinations left out")
    table.add_column("cells", justify="right", no_wrap=True)
    table.add_column("reason", ratio=1, overflow="fold")
    for each in dropped:
        table.add_row(str(each.count), plain(each.reason))
    return table
