"""Tables for the terminal, made for 80 columns: what matters is wrapped, never cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from diskproof.records import Dropped
from diskproof.report.durability import crash_labels, short_text, states_text, verdict_text
from diskproof.report.failure_tables import render_failures
from diskproof.report.labels import (
    group_name,
    render_figure,
    render_half_width,
    render_short_latency,
)
from diskproof.report.race_words import verdict_sentence
from diskproof.report.table_style import plain, printable, start_table
from diskproof.report.view import LATENCIES, StudyView, WorkloadView
from diskproof.report.words import HIGHER, accelerator_note, headline, metric_name, warnings

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text

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


def render_study(view: StudyView, *, best: int = 0) -> Group:
    """All a run ends with: rankings, failures, what was left out. ``best`` cuts each ranking."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(printable(headline(view)), style="bold")]
    note = accelerator_note(view)
    parts += [Text(f"note: {note}", style="yellow")] if note else []
    parts += [Text(f"warning: {printable(text)}", style="yellow") for text in warnings(view)]
    for load in view.workloads:
        parts += [Text(), render_ranking(load, best=best), *race_lines(view, load)]
    # Beside speeds the column says it; a list as long as theirs would hide them.
    lone = view.verdicts and not view.workloads
    parts += [Text(), render_verdicts(view.verdicts)] if lone else []
    parts += [Text(), render_failures(view.study, view.failures)] if view.failures else []
    parts += [Text(), render_dropped(view.study.dropped)] if view.study.dropped else []
    return Group(*parts)


def race_lines(view: StudyView, load: WorkloadView) -> list[Text]:
    """What a workload's race says, or nothing where there is none."""
    from rich.text import Text

    race = view.races.get(load.name)
    return [Text(f"race: {printable(verdict_sentence(race, view.study))}")] if race else []


def render_ranking(load: WorkloadView, *, best: int = 0) -> Table:
    """A workload's cells, best first. Rank ``1=`` is a tie, ``?`` cannot be placed."""
    present = [name for name in LATENCIES if any(name in line.latencies for line in load.lines)]
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
        fault, states = row.verdict.fault, states_text(row.verdict)
        table.add_row(
            *named, fault, plain(text), states, style="bold" if row.verdict.is_broken else None
        )
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
