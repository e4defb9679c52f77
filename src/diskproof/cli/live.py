"""What a running study looks like: a live picture on a terminal, a line a run elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from diskproof.cli.terminal import count_text, progress_console
from diskproof.lab.course import (
    Best,
    BlockJudged,
    Event,
    RaceCount,
    RunFinished,
    RunStarted,
    Standing,
    Stopped,
)
from diskproof.records import PlannedRun, RunRecord, StudyRecord
from diskproof.records.metrics import figure_unit
from diskproof.report.labels import cell_label, render_figure, varying_factors
from diskproof.report.race.words import drop_sentence, verdict_sentence
from diskproof.units import render_seconds


class Watcher(Protocol):
    """Takes the events of a study."""

    def __call__(self, event: Event) -> None: ...


@contextmanager
def start_watching(study: StudyRecord, quiet: bool) -> Iterator[Watcher]:
    """A watcher fit for where stderr goes."""
    if quiet:
        yield lambda event: None
    elif sys.stderr.isatty():
        picture = Picture(study)
        console = progress_console()
        with Live(picture, console=console, refresh_per_second=2, transient=True) as live:
            picture.live = live
            yield picture
    else:
        yield Lines(study)


def run_line(study: StudyRecord, record: RunRecord, seconds: float) -> str:
    """One finished run in one line."""
    label = cell_label(record.cell, varying_factors(study.cells))
    where = f"block {record.block + 1}  {record.cell.workload.name}  {label}"
    if record.failure is not None:
        return f"{where}  FAILED ({record.failure.kind}): {record.failure.what}"
    figures = [
        f"{render_figure(metric.value)} {figure_unit(metric.name, metric.unit)}"
        for metric in record.metrics
        if metric.primary
    ]
    return f"{where}  {', '.join(figures)}  in {render_seconds(seconds)}"


def race_count(count: RaceCount) -> str:
    """How many cells of a workload are still in its race."""
    if count.over:
        return f"{count.workload}: {'decided' if count.settled else 'undecided'}"
    resting = f", {count.resting} resting" if count.resting else ""
    return f"{count.workload}: {count.racing} of {count.cells} cells still in the race{resting}"


def block_lines(study: StudyRecord, event: BlockJudged) -> list[str]:
    """Who left the race after a block, and why; then where it stands."""
    race, verdict = event.race, event.race.verdict
    assert verdict is not None, "a block was judged"
    told = [f"out: {drop_sentence(race, drop, study)}" for drop in verdict.dropped]
    (count,) = (each for each in event.standing.races if each.workload == race.workload)
    return [*told, f"{race_count(count)}; {verdict_sentence(race, study)}"]


def time_left(standing: Standing) -> str:
    """A race may end before: what remains is then a bound."""
    racing = any(not count.over for count in standing.races)
    return ("at most " if racing else "") + render_seconds(standing.eta_seconds)


class Lines:
    """One line a run, for logs."""

    def __init__(self, study: StudyRecord) -> None:
        self.study, self.began = study, time.monotonic()

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            standing = event.standing
            line = run_line(self.study, event.record, event.seconds)
            count = (standing.done, standing.total, time_left(standing), self.began)
            self._print(f"{count_text(*count)} {line}")
        elif isinstance(event, BlockJudged):
            for line in block_lines(self.study, event):
                self._print(line)

    def _print(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class Picture:
    """Progress, what runs now and the best so far; failures scroll by above it."""

    def __init__(self, study: StudyRecord) -> None:
        self.study = study
        self.factors = varying_factors(study.cells)
        self.live: Live | None = None
        self.standing: Standing | None = None
        self.current: PlannedRun | None = None
        self.began = self.run_began = self.updated = time.monotonic()

    def __call__(self, event: Event) -> None:
        self.standing = event.standing
        self.updated = time.monotonic()
        if isinstance(event, RunStarted):
            self.current, self.run_began = event.planned, time.monotonic()
        elif isinstance(event, RunFinished) and event.record.failure is not None and self.live:
            line = run_line(self.study, event.record, event.seconds)
            self.live.console.print(Text(line, style="red"))
        elif isinstance(event, Stopped):
            self.current = None

    def __rich__(self) -> RenderableType:
        if self.standing is None:
            return Text("starting ...")
        return Group(*self._rows(self.standing))

    def _rows(self, standing: Standing) -> list[RenderableType]:
        now = time.monotonic()
        left = max(0.0, standing.eta_seconds - (now - self.updated))
        bound = "at most" if any(not count.over for count in standing.races) else "about"
        head = Table.grid(padding=(0, 1), expand=False)
        head.add_row(
            Text(self.study.name, style="bold"),
            ProgressBar(total=max(1, standing.total), completed=standing.done, width=24),
            f"{standing.done}/{standing.total}",
            f"{render_seconds(now - self.began)}, {bound} {render_seconds(left)} left",
            Text(f"{standing.failed} failed", style="red") if standing.failed else "",
        )
        rows: list[RenderableType] = [head]
        if self.current is not None:
            rows.append(Text(self._now(self.current, now - self.run_began), overflow="ellipsis"))
        rows += [Text(race_count(count), style="cyan") for count in standing.races]
        rows += [Text(self._best(best), style="green") for best in standing.best]
        return rows

    def _now(self, planned: PlannedRun, seconds: float) -> str:
        label = cell_label(planned.cell, self.factors)
        block = f"block {planned.block + 1}/{self.study.blocks}"
        return f"now: {planned.cell.workload.name}  {label}  {block}  {render_seconds(seconds)}"

    def _best(self, best: Best) -> str:
        figure = f"{render_figure(best.mean)} {figure_unit(best.metric, best.unit)}"
        label = cell_label(best.cell, self.factors)
        runs = "run" if best.runs == 1 else "runs"
        return f"best so far, {best.cell.workload.name}: {label}  {figure} ({best.runs} {runs})"
