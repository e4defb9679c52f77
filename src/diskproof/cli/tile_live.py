"""What a running tile study looks like: a live picture on a terminal, a line a run elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from diskproof.cli.terminal import count_text, progress_console
from diskproof.records import Cell
from diskproof.records.tiles import TileRun
from diskproof.report.labels import cell_label, varying_factors
from diskproof.stats.capacity import Capacity
from diskproof.study.tiles import TileRules
from diskproof.tiles.engine import PhaseProgress
from diskproof.tiles.search import Event, RunFinished, RunStarted, Standing
from diskproof.units import render_seconds

MAX_STEPS = 6
"""Steps that are named at a time."""


class Watcher(Protocol):
    """Takes the events of a study, and which steps run."""

    def __call__(self, event: Event) -> None: ...

    def on_step(self, progress: PhaseProgress) -> None: ...


@contextmanager
def start_watching(
    name: str, cells: Sequence[Cell], rules: TileRules, quiet: bool
) -> Iterator[Watcher]:
    """A watcher fit for where stderr goes."""
    if quiet:
        yield Silence()
    elif sys.stderr.isatty():
        picture = Picture(name, cells, rules)
        console = progress_console()
        with Live(picture, console=console, refresh_per_second=2, transient=True) as live:
            picture.live = live
            yield picture
    else:
        yield Lines(cells, rules)


def count_tiles(tiles: int) -> str:
    """``1 tile``, ``3 tiles``."""
    return f"{tiles} tile{'s' * (tiles != 1)}"


def run_line(run: TileRun, factors: Sequence[str], seconds: float) -> str:
    """One finished run: cell, number of tiles, the load's time."""
    head = f"{cell_label(run.cell, factors)}  {count_tiles(run.tiles)}, run {run.repeat}"
    if run.failure is not None:
        why = [f"  {line}" for line in run.failure.why.splitlines()[:3] if line]
        return "\n".join([f"{head}  FAILED ({run.failure.kind}): {run.failure.what}", *why])
    return f"{head}  load {render_seconds(run.seconds)}  in {render_seconds(seconds)}"


def capacity_text(capacity: Capacity) -> str:
    """``carries 2 tiles (2 held, 3 did not)``, or how far a search is."""
    if capacity.decided:
        return f"carries {count_tiles(capacity.tiles)} ({capacity.reason})"
    return f"carries {count_tiles(capacity.tiles)} so far ({capacity.reason})"


def step_text(progress: PhaseProgress) -> str:
    """What runs in which guest: ``load 3/12: tile 1 web web.run, ...``."""
    running = [" ".join((f"tile {tile}", guest, step)) for tile, guest, step in progress.running]
    more = f" and {len(running) - MAX_STEPS} more" if len(running) > MAX_STEPS else ""
    named = ", ".join(running[:MAX_STEPS])
    return f"{progress.phase} {progress.done}/{progress.total}: {named}{more}"


class Silence:
    """For ``--quiet``."""

    def __call__(self, event: Event) -> None:
        return None

    def on_step(self, progress: PhaseProgress) -> None:
        return None


class Lines:
    """For logs: a line when a run begins, when each of its phases does, and when it ends."""

    def __init__(self, cells: Sequence[Cell], rules: TileRules) -> None:
        self.factors = varying_factors(cells) or ("cache",)
        self.rules = rules
        self.phase, self.began = "", time.monotonic()

    def __call__(self, event: Event) -> None:
        self.phase = ""
        standing = event.standing
        if isinstance(event, RunStarted):
            guests = event.tiles * len(self.rules.tile.guests)
            label = cell_label(event.cell, self.factors)
            self._print(f"  now: {label}  {count_tiles(event.tiles)}, {guests} guests: starting")
            return
        left = f"at most {render_seconds(standing.eta_seconds)}"
        count = count_text(standing.done, standing.total, left, self.began)
        self._print(f"{count} {run_line(event.run, self.factors, event.seconds)}")
        if event.capacity is not None:
            self._print(
                f"  {cell_label(event.run.cell, self.factors)} {capacity_text(event.capacity)}"
            )

    def on_step(self, progress: PhaseProgress) -> None:
        if progress.phase != self.phase:
            self.phase = progress.phase
            self._print(f"  {progress.phase}: {progress.total} steps")

    def _print(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class Picture:
    """Progress, what runs now in which guest, what each cell carries so far; finished runs
    scroll by above it."""

    def __init__(self, name: str, cells: Sequence[Cell], rules: TileRules) -> None:
        self.name, self.rules = name, rules
        self.factors = varying_factors(cells) or ("cache",)
        self.live: Live | None = None
        self.standing: Standing | None = None
        self.current: RunStarted | None = None
        self.progress: PhaseProgress | None = None
        self.known: dict[str, Text] = {}
        self.began = self.run_began = self.updated = time.monotonic()

    def __call__(self, event: Event) -> None:
        self.standing, self.updated = event.standing, time.monotonic()
        self.progress = None
        if isinstance(event, RunStarted):
            self.current, self.run_began = event, time.monotonic()
            return
        self.current = None
        self._tell(event)

    def _tell(self, event: RunFinished) -> None:
        label = cell_label(event.run.cell, self.factors)
        if event.capacity is not None:
            text = f"{label}: {capacity_text(event.capacity)}"
            self.known[event.run.cell.id] = Text(text, style="green", overflow="ellipsis")
        if self.live is not None:
            style = "red" if event.run.failure is not None else ""
            line = run_line(event.run, self.factors, event.seconds)
            self.live.console.print(Text(line, style=style))

    def on_step(self, progress: PhaseProgress) -> None:
        self.progress = progress

    def __rich__(self) -> RenderableType:
        if self.standing is None:
            return Text("starting ...")
        return Group(*self._rows(self.standing))

    def _rows(self, standing: Standing) -> list[RenderableType]:
        now = time.monotonic()
        left = max(0.0, standing.eta_seconds - (now - self.updated))
        head = Table.grid(padding=(0, 1), expand=False)
        head.add_row(
            Text(self.name, style="bold"),
            ProgressBar(total=max(1, standing.total), completed=standing.done, width=24),
            f"{standing.done}/{standing.total}",
            f"{render_seconds(now - self.began)}, at most {render_seconds(left)} left",
            Text(f"{standing.failed} failed", style="red") if standing.failed else "",
        )
        rows: list[RenderableType] = [head]
        if self.current is not None:
            rows.append(Text(self._now(self.current, now - self.run_began), overflow="ellipsis"))
        if self.progress is not None:
            rows.append(Text(f"  {step_text(self.progress)}", overflow="ellipsis"))
        return rows + list(self.known.values())

    def _now(self, event: RunStarted, seconds: float) -> str:
        guests = event.tiles * len(self.rules.tile.guests)
        label = cell_label(event.cell, self.factors)
        doing = "" if self.progress else ", starting"
        return (
            f"now: {label}  {count_tiles(event.tiles)}, {guests} guests, run {event.repeat}"
            f"{doing}  {render_seconds(seconds)}"
        )
