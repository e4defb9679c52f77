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
from diskproof.cli.terminal import print_json
from diskproof.cli.watch import Picture, Words, failure_lines
from diskproof.errors import HostError
from diskproof.lab.course import (
    Activity,
    Campaign,
    JobStarted,
    Standing,
    Tell,
)
from diskproof.records import Failure, StudyRecord
from diskproof.store import Store, open_store

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
    expected: Callable[[int], float] = lambda disk: 2.0


class TrimCampaign(Campaign[int, Trimmed, Never]):
    """Three disks, each to be trimmed, in two seconds if nothing else is expected."""

    def __init__(self, store: Store, shelf: Shelf) -> None:
        self.study, self.store, self.shelf = TRIM, store, shelf

    def begin(self, retry: bool) -> None:
        if retry:
            kept = self.shelf.kept
            self.shelf.kept = {disk: run for disk, run in kept.items() if not run.failure}

    def next(self) -> int | None:
        return next((disk for disk in range(3) if disk not in self.shelf.kept), None)

    def expect(self, job: int) -> float:
        return self.shelf.expected(job)

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
    trim.shelf.expected = lambda disk: 2.0 if disk == 0 else 7200.0
    assert trim("trim", "--budget", "1h") == 0
    assert "the budget is spent, 2 runs are left. To go on: diskproof" in capsys.readouterr().err
    assert trim.shelf.made == [0]
    assert trim("trim", "--budget", "5h") == 0 and trim.shelf.made == [0, 1, 2]


def test_a_budget_in_which_nothing_fits_is_no_success(
    trim: TrimVerb, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trim("trim", "--budget", "1s") == 1 and trim.shelf.made == []
    told = capsys.readouterr().err
    assert "nothing was made, the budget is too small" in told and "To go on" not in told
    assert re.search(r"takes about 2\.\d s: give --budget more", told)


def test_what_failed_says_how_to_try_again(
    trim: TrimVerb, capsys: pytest.CaptureFixture[str]
) -> None:
    trim.shelf.bad = frozenset({1})
    assert trim("trim", "--quiet") == 1
    assert trim("trim", "--quiet") == 1, "the same command makes nothing again, and says so, too"
    trim.shelf.bad = frozenset()
    *_, said, again = capsys.readouterr().err.splitlines()[-1].partition("To try again: ")
    assert said and trim(*shlex.split(again)[1:]) == 0
    assert trim.shelf.made == [0, 1, 2, 1]


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
    assert trim("trim", "--budget", "1s") == 1 and judged.made == []
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
