"""What a running crash study looks like: one live line on a terminal, a line a cell elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn

from diskproof.cli.terminal import count_text, progress_console
from diskproof.crash.course import CellFinished, CellStarted, Event
from diskproof.records import Cell
from diskproof.records.verdicts import CrashRun
from diskproof.report.durability import verdict_text
from diskproof.report.labels import cell_label, varying_factors
from diskproof.units import render_seconds

LINE_SECONDS = 10.0
"""How often a log hears of a search that goes on."""

Watcher = Callable[[Event], None]


@contextmanager
def start_watching(cells: Sequence[Cell], quiet: bool) -> Iterator[Watcher]:
    """A watcher fit for where stderr goes."""
    if quiet:
        yield lambda event: None
    elif sys.stderr.isatty():
        columns = (BarColumn(bar_width=20), TextColumn("{task.completed}/{task.total}"))
        text = TextColumn("{task.description}", markup=False)
        with Progress(*columns, text, console=progress_console(), transient=True) as progress:
            yield _Picture(cells, progress)
    else:
        yield _Lines(cells)


def run_line(run: CrashRun, factors: Sequence[str]) -> str:
    """One crash run in one line: cell, writer, what each fault leaves."""
    head = f"{cell_label(run.cell, factors)}  {run.writer}"
    if run.failure is not None:
        why = [f"  {line}" for line in f"{run.failure.why}\n{run.failure.hint}".split("\n") if line]
        return "\n".join([f"{head}  FAILED ({run.failure.kind}): {run.failure.what}", *why])
    return f"{head}  " + ", ".join(f"{v.fault}: {verdict_text(v)}" for v in run.verdicts)


class _Lines:
    """A line when a cell ends, and now and then one for a long search."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.factors = varying_factors(cells) or ("frontend",)
        self.began = self.told = time.monotonic()

    def __call__(self, event: Event) -> None:
        if isinstance(event, CellFinished):
            left = f"at most {render_seconds(event.eta_seconds)}"
            count = count_text(event.done, event.total, left, self.began)
            line = (
                f"{count} {run_line(event.run, self.factors)}  in {render_seconds(event.seconds)}"
            )
        elif not isinstance(event, CellStarted) and time.monotonic() - self.told > LINE_SECONDS:
            line = f"  {_search_text(event)}"
        else:
            return
        self.told = time.monotonic()
        print(line, file=sys.stderr, flush=True)


class _Picture:
    """A bar of verdicts with what is being looked for; finished cells scroll above."""

    def __init__(self, cells: Sequence[Cell], progress: Progress) -> None:
        self.factors = varying_factors(cells) or ("frontend",)
        self.progress = progress
        self.task = progress.add_task("", total=None)
        self.cell = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, CellStarted):
            self.cell = f"{cell_label(event.cell, self.factors)} {event.cell.workload.name}"
            text = f"{self.cell}: recording, at most {render_seconds(event.eta_seconds)} left"
            self._show(text, event.done, event.total)
        elif isinstance(event, CellFinished):
            line = f"{run_line(event.run, self.factors)}  in {render_seconds(event.seconds)}"
            self.progress.console.print(line, markup=False)
            self._show("", event.done, event.total)
        else:
            self._show(f"{self.cell}: {_search_text(event)}")

    def _show(self, text: str, done: int | None = None, total: int | None = None) -> None:
        self.progress.update(self.task, description=text, completed=done, total=total)


def _search_text(event: Event) -> str:
    assert not isinstance(event, CellStarted | CellFinished)
    found = event.found or "nothing lost so far"
    return f"{event.fault}: {event.states:,} states in {render_seconds(event.seconds)}, {found}"
