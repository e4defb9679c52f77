"""Every experiment in its one loop: its lines, Ctrl-C, a budget, its picture."""

import io
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from diskproof.cli.crash import CrashWords
from diskproof.cli.measure import MeasureWords
from diskproof.cli.tiles import TileWords
from diskproof.cli.watch import Picture, Words, start_watching
from diskproof.lab.course import (
    JobFinished,
    JobStarted,
    Stopped,
    is_running,
    run_course,
)
from diskproof.measure.next import MeasureCampaign
from diskproof.records import HostRecord
from diskproof.report.progress import study_status
from diskproof.store import Store, open_store
from support.simulate import SIMULATED_HOST, SimulatedExecutor
from test_crash_course import MadeUp
from test_crash_course import make_campaign as make_crash_campaign
from test_lab import SCHEDULE, STUDY, Stopping
from test_tile_search import HOST, MadeUpHost
from test_tile_search import make_campaign as make_tile_campaign

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


def test_the_line_of_a_run_names_what_was_long_beside_the_load(store: Store) -> None:
    words = make_measure(store, stop_at=0)
    run = SimulatedExecutor(STUDY.id).execute(SCHEDULE[0])
    long = replace(run, phases=(("make_data", 0.9), ("workload", 30.0), ("remove", 9.5)))
    assert words.took(long, 49.0) == "in 49 s (remove 9.5 s)"
    assert words.took(replace(run, phases=(("workload", 1.0), ("stop", 0.5))), 2.0) == "in 2.0 s"


def test_backings_are_told_before_the_first_run(store: Store) -> None:
    words = make_measure(store, stop_at=0)
    told = ("backing a lies in /a: ext4 (rw) on sda (disk)", "a warning")
    words.campaign.study = replace(STUDY, warnings=told)
    assert list(words.opening()) == [told[0]]
