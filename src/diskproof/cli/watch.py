"""What a running experiment looks like: a live picture on a terminal, a line a run elsewhere."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from diskproof.cli.terminal import progress_console
from diskproof.lab import course
from diskproof.lab.course import Event, Job, JobFinished, JobStarted, News, Run, Standing
from diskproof.records import Failure
from diskproof.study.ground import find_grounds
from diskproof.units import render_seconds

LINE_SECONDS = 10.0
"""How often a log hears of what goes on."""


class Words(ABC, Generic[Job, Run, News]):
    """How one experiment speaks, on its way and at its end.

    ``one`` is what a job makes. With ``scrolls`` every finished run is told above the picture,
    else only those that failed.
    """

    campaign: course.Campaign[Job, Run, News]
    one = "run"
    scrolls = True

    @abstractmethod
    def label(self, job: Job) -> str:
        """What runs now, here and in ``diskproof status``."""

    @abstractmethod
    def line(self, run: Run) -> str:
        """A finished run."""

    def took(self, run: Run, seconds: float) -> str:
        """How long it was, the store included."""
        return f"in {render_seconds(seconds)}"

    def opening(self) -> Sequence[str]:
        """What is told before the first job: what the disks under test lie on."""
        return [each.sentence for each in find_grounds(self.campaign.study.warnings)]

    def starting(self, job: Job) -> Sequence[str]:
        """What a log is told when a job begins."""
        return ()

    def news(self, news: News) -> Sequence[str]:
        return ()

    def rows(self) -> Sequence[tuple[str, str]]:
        """What the picture shows besides, each with its style: the best so far."""
        return ()

    def left(self, standing: Standing) -> str:
        """What a spent budget leaves to do."""
        return f"{'at most ' * standing.at_most}{standing.total - standing.done} runs"

    @abstractmethod
    def print_results(self, as_json: bool) -> None: ...

    def closing(self, outcome: course.Outcome, resume: str) -> Sequence[str]:
        """What is told at the end of a call that nobody interrupted."""
        return ()

    def falls_short(self, outcome: course.Outcome) -> bool:
        """Whether the exit code tells that something failed."""
        return outcome.standing.failed > 0


def failure_lines(head: str, failure: Failure, more: int | None = None) -> str:
    """A failed run: what failed, and up to ``more`` lines why, and what helps."""
    reasons = f"{failure.why}\n{failure.hint}".splitlines()
    why = [f"  {line}" for line in list(filter(None, reasons))[:more]]
    return "\n".join([f"{head}  FAILED ({failure.kind}): {failure.what}", *why])


@contextmanager
def start_watching(
    words: Words[Job, Run, News], quiet: bool
) -> Iterator[Callable[[Event[Job, Run, News]], None]]:
    """A watcher fit for where stderr goes."""
    if quiet:
        yield lambda event: None
    elif sys.stderr.isatty():
        picture = Picture(words)
        console = progress_console()
        with Live(picture, console=console, refresh_per_second=2, transient=True) as live:
            picture.live = live
            yield picture
    else:
        yield Lines(words)


class Lines(Generic[Job, Run, News]):
    """For logs: a line when a run ends, and now and then one for what takes long."""

    def __init__(self, words: Words[Job, Run, News]) -> None:
        self.words = words
        self.began = self.told = time.monotonic()

    def __call__(self, event: Event[Job, Run, News]) -> None:
        for line in self._lines(event):
            self.told = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    def _lines(self, event: Event[Job, Run, News]) -> Sequence[str]:
        if isinstance(event, JobStarted):
            return self.words.starting(event.job)
        if isinstance(event, JobFinished):
            line = _finished(self.words, event)
            return [f"{count_text(event.standing, self.began)} {line}"]
        if isinstance(event, course.Noted):
            return self.words.news(event.news)
        if isinstance(event, course.Warned):
            return [f"diskproof: {event.text}"]
        if isinstance(event, course.Activity) and event.phase:
            return [f"  {event.phase}"]
        if isinstance(event, course.Activity) and time.monotonic() - self.told > LINE_SECONDS:
            return [f"  {event.text}"]
        return ()


def _finished(words: Words[Job, Run, News], event: JobFinished[Run]) -> str:
    took = "" if event.run.failure else f"  {words.took(event.run, event.seconds)}"
    return words.line(event.run) + took


def count_text(standing: Standing, began: float) -> str:
    """How far an experiment is: ``[2/3, at most 20 s left]``, at its end ``[3/3, took 42 s]``.

    ``began`` is when this call began, of time.monotonic().
    """
    left = f"{'at most ' * standing.at_most}{render_seconds(standing.eta_seconds)} left"
    took = f"took {render_seconds(time.monotonic() - began)}"
    open_still = standing.done < standing.total
    return f"[{standing.done}/{standing.total}, {left if open_still else took}]"


class Picture(Generic[Job, Run, News]):
    """Progress, what runs now and what is known so far; finished runs scroll by above it."""

    def __init__(self, words: Words[Job, Run, News]) -> None:
        self.words = words
        self.live: Live | None = None
        self.standing: Standing | None = None
        self.now = self.activity = ""
        self.began = self.job_began = self.updated = time.monotonic()

    def __call__(self, event: Event[Job, Run, News]) -> None:
        if isinstance(event, course.Activity):
            self.activity = event.text
        elif isinstance(event, course.Warned):
            if self.live:
                self.live.console.print(Text(f"diskproof: {event.text}", style="yellow"))
        elif not isinstance(event, course.Noted):
            self._advance(event)

    def _advance(self, event: JobStarted[Job] | JobFinished[Run] | course.Stopped) -> None:
        self.standing, self.updated = event.standing, time.monotonic()
        self.now = self.activity = ""
        if isinstance(event, JobStarted):
            self.now, self.job_began = self.words.label(event.job), time.monotonic()
        elif isinstance(event, JobFinished) and self.live:
            failed = event.run.failure is not None
            if failed or self.words.scrolls:
                line = _finished(self.words, event)
                self.live.console.print(Text(line, style="red" if failed else ""))

    def __rich__(self) -> RenderableType:
        if self.standing is None:
            return Text("starting ...")
        return Group(*self._rows(self.standing))

    def _rows(self, standing: Standing) -> list[RenderableType]:
        now = time.monotonic()
        spent = render_seconds(now - self.began)
        if standing.done < standing.total:
            left = render_seconds(max(0.0, standing.eta_seconds - (now - self.updated)))
            spent += f", {'at most' if standing.at_most else 'about'} {left} left"
        head = Table.grid(padding=(0, 1), expand=False)
        head.add_row(
            Text(self.words.campaign.study.name, style="bold"),
            ProgressBar(total=max(1, standing.total), completed=standing.done, width=24),
            f"{standing.done}/{standing.total}",
            spent,
            Text(f"{standing.failed} failed", style="red") if standing.failed else "",
        )
        rows = [("  " + self.activity, "")] if self.activity else []
        if self.now:
            rows.insert(0, (f"now: {self.now}  {render_seconds(now - self.job_began)}", ""))
        rows += self.words.rows()
        return [head, *(Text(row, style, no_wrap=True, overflow="ellipsis") for row, style in rows)]
