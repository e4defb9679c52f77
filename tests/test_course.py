"""The one loop, watcher and conclusion: with each experiment's own campaign, whose runs are made up
here, and with a further experiment, `trim`, that is nothing but a campaign and its words."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Never

import pytest
import typer
from rich.console import Console

from diskproof.cli import options
from diskproof.cli.conduct import Order, conduct
from diskproof.cli.crash import CrashWords
from diskproof.cli.measure import MeasureWords
from diskproof.cli.terminal import print_json
from diskproof.cli.tiles import TileWords
from diskproof.cli.watch import Picture, Words, failure_lines, start_watching
from diskproof.errors import HostError
from diskproof.lab.course import (
    Activity,
    Campaign,
    JobFinished,
    JobStarted,
    Standing,
    Stopped,
    Tell,
    is_running,
    run_course,
)
from diskproof.measure.next import MeasureCampaign
from diskproof.records import Failure, HostRecord, StudyRecord
from diskproof.report.progress import study_status
from diskproof.store import Store, open_store
from support.simulate import SIMULATED_HOST, SimulatedExecutor
from test_crash_course import MadeUp
from test_crash_course import make_campaign as make_crash_campaign
from test_lab import SCHEDULE, STUDY, Stopping
from test_tile_search import HOST, MadeUpHost
from test_tile_search import make_campaign as make_tile_campaign

LONG = " of a very long name" * 5
TRIM = StudyRecord("t1", "disks", "run", "", 1, 1, ())


@dataclass(frozen=True)
class Trimmed:
    disk: int
    failure: Failure | None = None


@dataclass
class Shelf:
    """Where trimmed disks are kept; ``act`` is called with the campaign while one is made."""

    kept: dict[int, Trimmed] = field(default_factory=dict)
    made: list[int] = field(default_factory=list)
    bad: frozenset[int] = frozenset()
    act: Callable[[TrimCampaign, int], None] = lambda campaign, disk: None


class TrimCampaign(Campaign[int, Trimmed, Never]):
    """Three disks, each to be trimmed in two seconds."""

    def __init__(self, store: Store, shelf: Shelf) -> None:
        self.study, self.store, self.shelf = TRIM, store, shelf

    def begin(self, retry: bool) -> None:
        if retry:
            kept = self.shelf.kept
            self.shelf.kept = {disk: run for disk, run in kept.items() if not run.failure}

    def next(self) -> int | None:
        return next((disk for disk in range(3) if disk not in self.shelf.kept), None)

    def expect(self, job: int) -> float:
        return 2.0

    def execute(self, job: int, tell: Tell) -> Trimmed:
        tell(Activity(f"{job} blocks", f"discard: disk {job}"))
        self.shelf.act(self, job)
        self.shelf.made.append(job)
        return Trimmed(job, Failure("tool", "no room") if job in self.shelf.bad else None)

    def keep(self, run: Trimmed) -> None:
        self.shelf.kept[run.disk] = run

    def learn(self, run: Trimmed, seconds: float) -> Sequence[Never]:
        return ()

    def standing(self) -> Standing:
        kept = self.shelf.kept.values()
        failed = sum(run.failure is not None for run in kept)
        return Standing(len(kept), failed, 3, 2.0 * (3 - len(kept)))


class TrimWords(Words[int, Trimmed, Never]):
    def __init__(self, campaign: TrimCampaign) -> None:
        self.campaign: TrimCampaign = campaign

    def label(self, job: int) -> str:
        return f"disk {job}{LONG}"

    def line(self, run: Trimmed) -> str:
        head = f"disk {run.disk}"
        return failure_lines(head, run.failure) if run.failure else head

    def rows(self) -> Sequence[tuple[str, str]]:
        return [("largest so far: " + "disk " * 30, "green")]

    def print_results(self, as_json: bool) -> None:
        print_json(sorted(self.campaign.shelf.kept))


# -- a further experiment: the whole way ------------------------------------------------------


@dataclass
class TrimVerb:
    """``diskproof trim`` as a verb of its own, on one shelf."""

    folder: Path
    shelf: Shelf = field(default_factory=Shelf)
    judge: Callable[[Store], AbstractContextManager[TrimWords]] | None = None

    def __call__(self, *typed: str) -> int:
        app = typer.Typer()

        @app.callback()
        def verbs() -> None: ...

        @app.command()
        def trim(
            context: typer.Context,
            store: options.StoreOption = options.DEFAULT_STORE,
            budget: options.BudgetOption = None,
            retry: options.RetryOption = False,
            quiet: options.QuietOption = False,
        ) -> int:
            order = Order(context, store, budget, retry, quiet, as_json=True)
            return conduct(order, self.start, self.judge)

        words: Any = list(typed)
        return int(app(args=words, standalone_mode=False, obj=words))

    @contextmanager
    def start(self, store: Store) -> Iterator[TrimWords]:
        yield TrimWords(TrimCampaign(store, self.shelf))


@pytest.fixture
def trim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrimVerb:
    monkeypatch.chdir(tmp_path)
    return TrimVerb(tmp_path)


def interrupt(campaign: TrimCampaign, disk: int) -> None:
    if disk == 1:
        signal.raise_signal(signal.SIGINT)


def test_a_further_experiment_needs_no_loop_of_its_own(
    trim: TrimVerb, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trim("trim") == 0
    told = capsys.readouterr()
    assert told.out == "[\n 0,\n 1,\n 2\n]\n"
    lines = told.err.splitlines()
    assert lines[0] == "  discard: disk 0" and len(lines) == 6
    assert re.fullmatch(r"\[1/3, 4\.0 s left\] disk 0  in \S+ \S+", lines[1])
    assert re.fullmatch(r"\[3/3, took \S+ \S+\] disk 2  in \S+ \S+", lines[5])
    assert trim("trim", "--quiet") == 0
    assert trim.shelf.made == [0, 1, 2] and capsys.readouterr().err == ""


def test_ctrl_c_says_how_to_go_on_and_that_does(
    trim: TrimVerb, capsys: pytest.CaptureFixture[str]
) -> None:
    trim.shelf.act = interrupt
    assert trim("trim", "--store", "a b.sqlite", "--retry") == 130
    told = capsys.readouterr()
    assert "interrupted; every finished run is stored. To go on: " in told.err
    assert told.out == "[\n 0\n]\n"
    trim.shelf.act = lambda campaign, disk: None
    program, *again = shlex.split(told.err.partition("To go on: ")[2])
    assert (program, again) == ("diskproof", ["trim", "--store", "a b.sqlite"])
    assert trim(*again) == 0 and trim.shelf.made == [0, 1, 2]


def test_a_budget_leaves_the_rest(trim: TrimVerb, capsys: pytest.CaptureFixture[str]) -> None:
    assert trim("trim", "--budget", "1s") == 0
    assert "the budget is spent, 3 runs are left. To go on: diskproof" in capsys.readouterr().err
    assert trim.shelf.made == []
    assert trim("trim", "--budget", "1h") == 0 and trim.shelf.made == [0, 1, 2]


def test_what_is_judged_afterwards_ends_in_the_same_answer(
    trim: TrimVerb, capsys: pytest.CaptureFixture[str]
) -> None:
    """In what is left of the budget, not after Ctrl-C, and told of by the first experiment."""
    judged = Shelf()

    @contextmanager
    def judge(store: Store) -> Iterator[TrimWords]:
        assert trim.shelf.made == [0, 1, 2], "all is measured before anything is judged"
        yield TrimWords(TrimCampaign(store, judged))

    trim.judge = judge
    assert trim("trim", "--budget", "1s") == 0 and judged.made == []
    trim.shelf.act = interrupt
    assert trim("trim") == 130 and judged.made == []
    trim.shelf.act = lambda campaign, disk: None
    capsys.readouterr()
    assert trim("trim") == 0 and judged.made == [0, 1, 2]
    assert capsys.readouterr().out == "[\n 0,\n 1,\n 2\n]\n"
    judged.kept.clear()
    judged.bad = frozenset({2})
    assert trim("trim", "--quiet") == 1 and trim.shelf.made == [0, 1, 2]


def test_what_cannot_be_judged_is_shown_all_the_same(
    trim: TrimVerb, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def judge(store: Store) -> Iterator[TrimWords]:
        raise HostError("nothing can be recorded on this host", "/dev/fuse is not there", "try")
        yield

    trim.judge = judge
    assert trim("trim", "--quiet") == 1
    told = capsys.readouterr()
    assert told.out == "[\n 0,\n 1,\n 2\n]\n"
    assert told.err.splitlines() == [
        "diskproof: the cells are not judged: nothing can be recorded on this host",
        "  /dev/fuse is not there",
        "  try",
    ]


def test_what_failed_tells_in_the_exit_code_until_a_retry(trim: TrimVerb) -> None:
    trim.shelf.bad = frozenset({1})
    assert (trim("trim"), trim("trim")) == (1, 1)
    trim.shelf.bad = frozenset()
    assert trim("trim", "--retry") == 0
    assert trim.shelf.made == [0, 1, 2, 1]


def test_nothing_measures_beside_it(trim: TrimVerb) -> None:
    seen = []

    def look(campaign: TrimCampaign, disk: int) -> None:
        seen.append(campaign.store.progress())
        with pytest.raises(HostError, match=f"process {os.getpid()} on .* is measuring into"):
            trim("trim")

    trim.shelf.act = look
    assert trim("trim") == 0
    assert [(each.current, each.done, each.eta_seconds) for each in seen if each] == [
        ("disk 0" + LONG, 0, 6.0),
        ("disk 1" + LONG, 1, 4.0),
        ("disk 2" + LONG, 2, 2.0),
    ]


def test_the_picture_fits_a_narrow_terminal_and_needs_no_colour(
    trim: TrimVerb, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = TrimWords(TrimCampaign(open_store("s.sqlite", create=True), trim.shelf))
    picture = Picture(words)
    for colour in (True, False):
        if not colour:
            monkeypatch.setenv("NO_COLOR", "1")
        console = Console(file=io.StringIO(), force_terminal=True, width=80, highlight=False)
        picture(JobStarted(1, Standing(1, 1, 3, 4.0, at_most=True)))
        picture(Activity("4 blocks"))
        with console.capture() as drawn:
            console.print(picture)
        text = drawn.get()
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert ("\x1b[3" in text) is colour
        assert all(len(line) <= 80 for line in plain.splitlines())
        head, now, activity, best = plain.splitlines()
        assert head.startswith("disks ") and "1/3" in head and "at most 4.0 s left" in head
        assert "1 failed" in head and now.startswith("now: disk 1 ") and now.endswith("…")
        assert activity.rstrip() == "  4 blocks" and best.startswith("largest so far: ")


# -- every experiment's campaign --------------------------------------------------------------

Make = Callable[[Store, int], Words[Any, Any, Any]]
"""A campaign's words, whose ``stop_at``-th run is interrupted."""


def make_measure(store: Store, stop_at: int) -> MeasureWords:
    executor = Stopping(SimulatedExecutor(STUDY.id), stop_at)
    return MeasureWords(MeasureCampaign(STUDY, SCHEDULE, executor.execute, store))


def make_crash(store: Store, stop_at: int) -> CrashWords:
    return CrashWords(make_crash_campaign(store, MadeUp(stop_at)))


def make_tiles(store: Store, stop_at: int) -> TileWords:
    return TileWords(make_tile_campaign(store, MadeUpHost(stop_at=stop_at)), HOST, "a page")


EVERY = pytest.mark.parametrize("make", [make_measure, make_crash, make_tiles])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "store.sqlite"), create=True) as opened:
        for host in (SIMULATED_HOST, HOST, HostRecord("h1", "lab", {})):
            opened.add_host(host)
        yield opened


@EVERY
def test_its_lines_count_and_the_last_says_what_it_took(
    store: Store, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    words = make(store, -1)
    with start_watching(words, quiet=False) as watcher:
        outcome = run_course(words.campaign, describe=words.label, on_event=watcher)
    assert outcome.reason == "done"
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    assert len(lines) == outcome.executed and all(" left] " in line for line in lines[:-1])
    total = outcome.standing.total
    assert re.match(rf"\[{total}/{total}, took \S+ m?s\] ", lines[-1])
    assert outcome.standing.done == total


@EVERY
@pytest.mark.parametrize("after", [0, 1, 3])
def test_ctrl_c_discards_the_run_in_flight_and_the_same_call_resumes(
    store: Store, tmp_path: Path, make: Make, after: int
) -> None:
    events: list[Any] = []
    outcome = run_course(make(store, after).campaign, describe=str, on_event=events.append)
    assert (outcome.reason, outcome.executed) == ("interrupted", after)
    told = [
        type(event) for event in events if isinstance(event, JobStarted | JobFinished | Stopped)
    ]
    assert told == [JobStarted, JobFinished] * after + [JobStarted, Stopped]
    assert store.progress() is None
    again = run_course(make(store, -1).campaign, describe=str, on_event=events.append)
    with open_store(str(tmp_path / "whole.sqlite"), create=True) as other:
        for host in store.hosts():
            other.add_host(host)
        whole = run_course(make(other, -1).campaign, describe=str, on_event=lambda event: None)
    assert again.executed == whole.executed - after
    assert (again.reason, again.standing) == ("done", whole.standing)
    jobs = [event.job for event in events if isinstance(event, JobStarted)]
    assert len(jobs) == whole.executed + 1 and jobs[after] == jobs[after + 1]


@EVERY
def test_a_spent_budget_starts_nothing_and_keeps_the_study(store: Store, make: Make) -> None:
    words, events = make(store, -1), list[Any]()
    outcome = run_course(
        words.campaign, describe=words.label, on_event=events.append, budget_seconds=0.01
    )
    assert (outcome.reason, outcome.executed) == ("budget", 0)
    (stopped,) = events
    assert stopped.reason == "budget" and stopped.next_seconds > 0.01
    assert words.left(outcome.standing).endswith((" runs", " verdicts"))
    assert store.find_study(words.campaign.study.id) is not None


@EVERY
def test_other_terminals_see_what_runs(store: Store, make: Make) -> None:
    seen = []

    def look(event: object) -> None:
        if isinstance(event, JobStarted):
            seen.append((store.progress(), event))

    words = make(store, -1)
    outcome = run_course(words.campaign, describe=words.label, on_event=look)
    assert len(seen) == outcome.executed and store.progress() is None
    for progress, event in seen:
        assert progress is not None and is_running(progress)
        assert progress.current == words.label(event.job)
        standing = event.standing
        told = (progress.done, progress.failed, progress.total, progress.eta_seconds)
        assert told == (standing.done, standing.failed, standing.total, standing.eta_seconds)
        assert progress.pid == os.getpid()
    (study,), (first, _) = store.studies(), seen[0]
    status = study_status(study, store.counts(study.id), first, first.updated)
    assert (status.state, status.done, status.current) == ("running", 0, first.current)


@EVERY
def test_its_picture_fits_and_shows_what_is_known(store: Store, make: Make) -> None:
    words = make(store, -1)
    picture = Picture(words)
    console = Console(file=io.StringIO(), width=80, highlight=False)
    frames = []

    def draw(event: Any) -> None:
        picture(event)
        if isinstance(event, JobStarted | JobFinished):
            with console.capture() as drawn:
                console.print(picture)
            frames.append(drawn.get().splitlines())

    outcome = run_course(words.campaign, describe=words.label, on_event=draw)
    assert len(frames) == 2 * outcome.executed
    assert all(len(line) <= 80 for frame in frames for line in frame)
    assert all(frame[1].startswith("now: ") for frame in frames[::2])
    head, *known = frames[-1]
    assert f"{outcome.standing.total}/{outcome.standing.total} " in head and " left" not in head
    shown = zip(known, words.rows(), strict=True)
    assert all(row.startswith(line.rstrip("… ")) for line, (row, _) in shown)
