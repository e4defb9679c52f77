"""Tables about tiles for the terminal, made for 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from diskproof.report.table_style import plain, printable, start_table
from diskproof.report.tiles.find import TileView
from diskproof.report.tiles.rows import time_rows
from diskproof.report.tiles.words import (
    HOST_CAPTION,
    MISSED_CAPTION,
    SCORE_CAPTION,
    against_best,
    capacity_sentence,
    capacity_text,
    count,
    failure_line,
    headline,
    host_text,
)

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

NUMBERS_A_TABLE = 3
"""Columns of numbers of tiles that 80 columns hold; more go into a further table."""

MAX_FAILURES = 20
_Columns = tuple[tuple[str, str], ...]
_WORK_COLUMNS: _Columns = (
    ("usr", "cpu_user"),
    ("sys", "cpu_system"),
    ("wait", "cpu_wait"),
    ("load", "true_load"),
    ("read", "disk_read"),
    ("write", "disk_write"),
    ("util", "disk_util"),
    ("eff", "efficiency"),
)
_WORK_CAPTION = f"CPU and util in percent, read and write in MiB/s; {HOST_CAPTION}"
_MEMORY_COLUMNS: _Columns = (
    ("read", "read_await"),
    ("write", "write_await"),
    ("flush", "flush_await"),
    ("memory", "memory"),
    ("and cache", "memory_cached"),
    ("KSM saves", "ksm_saved"),
    ("ksmd %", "ksmd_cpu"),
)
_MEMORY_CAPTION = (
    "read, write and flush: how long they waited (await), in ms; memory without and with the page "
    "cache, and saved by KSM, in GiB; ksmd: percent of one CPU that merging took"
)


def render_tiles(view: TileView) -> Group:
    """All that a study of tiles ends with."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(printable(headline(view)), style="bold"),
        Text(printable(capacity_sentence(view))),
        Text(),
        render_capacity(view),
    ]
    for start in range(0, len(view.counts), NUMBERS_A_TABLE):
        parts += [Text(), render_times(view, view.counts[start : start + NUMBERS_A_TABLE])]
    parts += [Text(MISSED_CAPTION, style="dim"), Text(SCORE_CAPTION, style="dim")]
    for table in render_host(view):
        parts += [Text(), table]
    if any(at.guests for cell in view.cells for at in cell.at):
        parts += [Text(), render_guests(view)]
    parts += [Text(), render_failed(view)] if view.failed else []
    return Group(*parts)


def render_capacity(view: TileView) -> Table:
    """How many tiles each cell carries, with the 95 % interval."""
    table = start_table("how many tiles the host carries")
    table.add_column("cell", overflow="fold")
    table.add_column("carries", overflow="fold")
    table.add_column("sure", justify="right", no_wrap=True)
    if len(view.cells) > 1:
        table.add_column("", no_wrap=True)
    table.add_column("because", overflow="fold", ratio=1)
    for cell in view.cells:
        stands = against_best(cell, view.cells)
        table.add_row(
            plain(cell.label),
            plain(capacity_text(cell.capacity, len(view.guests))),
            f"{cell.capacity.confidence:.0%}",
            *([stands] if len(view.cells) > 1 else []),
            plain(cell.capacity.reason),
            style="bold" if stands in ("best", "") else None,
        )
    table.caption = "[a, b]: the numbers of tiles that the runs cannot exclude (95 %)".replace(
        "[", r"\["
    )
    return table


def render_times(view: TileView, numbers: Sequence[int]) -> Table:
    """Wall time, time and latency of each workload, score and fairness by number of tiles; a line
    for each cell."""
    table = start_table("times and score")
    table.add_column("figure", overflow="fold")
    table.add_column("cell", overflow="fold", ratio=1)
    for number in numbers:
        table.add_column(count(number, "tile"), justify="right", no_wrap=True)
    before = ""
    for title, label, texts in time_rows(view, numbers):
        table.add_row("" if title == before else plain(title), plain(label), *texts)
        before = title
    table.caption = (
        "means over runs (of workloads: over runs and tiles) with 95 % intervals; # is the place "
        "among the cells, = a tie"
    )
    return table


def render_host(view: TileView) -> list[Table]:
    """What the host did during the load; what nobody sampled has no column."""
    return [
        *_host_table(view, "CPU and disk of the host", _WORK_COLUMNS, _WORK_CAPTION),
        *_host_table(view, "waits and memory of the host", _MEMORY_COLUMNS, _MEMORY_CAPTION),
    ]


def _host_table(view: TileView, title: str, columns: _Columns, caption: str) -> list[Table]:
    rows = [(cell, at) for cell in view.cells for at in cell.at if at.host]
    sampled = [each for each in columns if any(each[1] in at.host for _, at in rows)]
    if not sampled:
        return []
    table = start_table(title)
    table.add_column("cell", overflow="fold", ratio=1)
    table.add_column("tiles", justify="right", no_wrap=True)
    for head, _ in sampled:
        table.add_column(head, justify="right", no_wrap=True)
    before = ""
    for cell, at in rows:
        texts = [host_text(at, name) for _, name in sampled]
        table.add_row("" if cell.label == before else plain(cell.label), str(at.tiles), *texts)
        before = cell.label
    table.caption = caption
    return [table]


def render_guests(view: TileView) -> Table:
    """What each guest takes, at the largest number of tiles that went well."""
    table = start_table("what a guest takes of the host, mean over tiles")
    table.add_column("cell", overflow="fold", ratio=1)
    table.add_column("tiles", justify="right", no_wrap=True)
    table.add_column("guest", overflow="fold")
    for head in ("CPUs", "of all", "read", "written", "memory", "KSM"):
        table.add_column(head, justify="right", no_wrap=True)
    for cell in view.cells:
        at = next((each for each in reversed(cell.at) if each.guests), None)
        for place, share in enumerate(at.guests if at else ()):
            named = [plain(cell.label), str(at.tiles if at else 0)] if place == 0 else ["", ""]
            table.add_row(
                *named,
                plain(share.guest),
                f"{share.cpus:.2f}",
                f"{share.share:.0%}",
                *(f"{rate / 2**20:.3g}" for rate in (share.read_rate, share.write_rate)),
                *(f"{size / 2**20:.0f}" for size in (share.memory, share.ksm)),
            )
    table.caption = (
        "of all: part of the CPU time of all guests; read and written in MiB/s, memory (largest "
        "resident set) and what of it KSM shares in MiB"
    )
    return table


def render_failed(view: TileView) -> Table:
    """Failed runs: which, what failed, and the last line it said."""
    table = start_table("failed runs")
    table.add_column("cell", overflow="fold")
    table.add_column("tiles", justify="right", no_wrap=True)
    table.add_column("run", justify="right", no_wrap=True)
    table.add_column("reason", ratio=1, overflow="fold")
    for label, run in view.failed[:MAX_FAILURES]:
        if run.failure is not None:
            row = (str(run.tiles), str(run.repeat), plain(failure_line(run.failure)))
            table.add_row(plain(label), *row)
    hidden = len(view.failed) - MAX_FAILURES
    table.caption = f"{hidden} more are in --json" if hidden > 0 else None
    return table
