"""One bound for the whole of a run, whatever the run is doing when it is reached."""

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from diskproof.lab import deadline as room
from diskproof.lab.notes import RunNotes
from support.patience import in_time


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(room, "HARD_SECONDS", 0.1)
    monkeypatch.setattr(room, "CLEANUP_SECONDS", 0.3)
    before = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def drip() -> None:
    """A peer that always has one byte more: no answer is ever late."""
    ours, theirs = socket.socketpair()
    ours.settimeout(5.0)
    with ours, theirs:
        while True:
            theirs.send(b".")
            ours.recv(1)
            time.sleep(0.01)


def reckon() -> None:
    while True:
        pass


def take_for_ones_own() -> None:
    """What is about errors of its own must not end the interruption."""
    while True:
        with suppress(Exception):
            time.sleep(60)


def wait_for_a_thread() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait, daemon=True)
    thread.start()
    try:
        thread.join()
    finally:
        done.set()


@pytest.mark.parametrize("work", [drip, reckon, take_for_ones_own, wait_for_a_thread])
def test_whatever_has_no_end_is_ended_and_its_phase_named(work: Callable[[], None]) -> None:
    def run() -> RunNotes:
        notes = RunNotes()
        with notes.whole_run(1.0):
            with notes.phase("folder"):
                pass
            with notes.phase("workload"):
                work()
        return notes

    notes = in_time(5, run)
    assert notes.failure and notes.failure.kind == "timeout"
    assert notes.failure.why == "in the phase workload" and "run_timeout" in notes.failure.hint
    assert [name for name, _ in notes.phases] == ["folder", "workload"]


def test_a_part_that_ends_by_itself_keeps_its_own_words() -> None:
    notes = RunNotes()
    with notes.whole_run(0.05) as deadline, notes.phase("fill"):
        time.sleep(0.06)
        deadline.left()
    assert notes.failure and notes.failure.why == "in the phase fill"


def test_cleaning_up_goes_on_past_a_step_that_hangs() -> None:
    notes, done = RunNotes(), []
    with notes.whole_run(0.1), ExitStack() as stack, notes.phase("workload"):
        stack.callback(done.append, "last")
        stack.callback(time.sleep, 60)
        stack.callback(done.append, "first")
        time.sleep(60)
    assert done == ["first", "last"]
    assert notes.failure and notes.failure.why == "in the phase workload"


def test_what_has_time_of_its_own_takes_none_of_the_runs() -> None:
    notes = RunNotes()
    with notes.whole_run(1.0) as deadline:
        with deadline.apart(30.0), notes.phase("explore"):
            time.sleep(1.3)
        assert 0 < deadline.left() <= 1.0
    assert notes.failure is None
    with notes.whole_run(30.0) as deadline, deadline.apart(0.1), notes.phase("explore"):
        time.sleep(60)
    assert notes.failure and notes.failure.kind == "timeout"


def test_a_run_that_ends_in_time_is_left_alone() -> None:
    notes = RunNotes()
    with notes.whole_run(30.0), notes.phase("workload"):
        pass
    assert notes.failure is None


def test_in_another_thread_parts_have_their_own_bounds_only() -> None:
    notes = RunNotes()

    def make() -> None:
        with notes.whole_run(0.05) as deadline, notes.phase("fill"):
            time.sleep(0.2)
            deadline.left()

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    assert notes.failure and notes.failure.kind == "timeout"
