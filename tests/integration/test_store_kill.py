"""kill -9 at any moment of a study, and a disk that fills up (that needs root and mkfs.ext4)."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from diskproof.errors import HostError
from diskproof.lab.course import JobFinished, JobStarted
from diskproof.measure.next import MeasureEvent
from diskproof.process import start as proc
from diskproof.records import RunRecord
from diskproof.store import open_store
from support.forked import Forked
from support.simulate import SimulatedExecutor, run_study, start_store
from test_lab import TEXT, make_record

pytestmark = pytest.mark.long

STUDY, SCHEDULE = make_record(TEXT.replace("blocks = 3", "blocks = 60"))
SEED = 20120301
MOMENTS = 30
DEADLINE = 120.0

# Says each run once the store has taken it. Kills itself before the n-th statement (COMMIT
# included) of this process, if n is not 0.
CHILD = """
import os, signal, sys
sys.path[:0] = sys.argv[3:]
from sqlalchemy import Engine, event
from diskproof.lab.course import JobFinished
from support.simulate import SIMULATED_HOST, SimulatedExecutor, run_study
from diskproof.store import open_store
from test_store_kill import STUDY, SCHEDULE

left = int(sys.argv[2])

def count(*ignored):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

event.listen(Engine, "before_cursor_execute", count)
event.listen(Engine, "commit", count)

def tell(happened):
    if isinstance(happened, JobFinished):
        print(happened.run.id, flush=True)

with open_store(sys.argv[1], create=True) as store:
    store.add_host(SIMULATED_HOST)
    started = 1e9 + 1e6 * len(store.runs(STUDY.id))
    executor = SimulatedExecutor(STUDY.id, started=started)
    run_study(STUDY, SCHEDULE, executor, store, on_event=tell)
"""


class Study:
    """A study in a child process that is killed and started again; keeps what it was told."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.sqlite"
        self.log = folder / "log"
        self.told: list[str] = []

    def run(self, *, lines: int = -1, seconds: float = 0.0, statement: int = 0) -> bool:
        """Run a child; kill it ``seconds`` after it told ``lines`` runs, or before a statement.

        Returns whether it came to its end by itself.
        """
        read, write = os.pipe()
        with os.fdopen(read) as pipe, os.fdopen(write, "wb") as sink:
            argv = [sys.executable, "-c", CHILD, str(self.path), str(statement)]
            argv += [str(Path(__file__).parent), *sys.path]
            with (
                self.log.open("wb") as log,
                Forked(
                    argv, stdin=subprocess.DEVNULL, stdout=sink, stderr=log, start_new_session=True
                ) as child,
            ):
                sink.close()
                for line in [next(pipe, "") for _ in range(lines)]:
                    self.told += line.split()
                ended = None
                if lines >= 0:
                    with suppress(subprocess.TimeoutExpired):
                        ended = child.wait(seconds)
                    child.kill()
                self.told += [line.strip() for line in pipe]
                status = child.wait(DEADLINE)
        assert status in (0, -signal.SIGKILL) and (ended in (None, status)), self.log.read_text()
        return status == 0

    def check(self) -> int:
        """What must hold at any time; returns how many runs are stored."""
        with open_store(str(self.path)) as store:
            stored = [run for run in store.runs(STUDY.id) if run.counted]
            places = {(run.block, run.cell.id) for run in stored}
            assert len(places) == len(stored), "a run was stored twice"
            ids = {run.id for run in stored}
            assert set(self.told) <= ids, "a run that was told as stored is gone"
            assert len(set(self.told)) == len(self.told)
            for run in stored[-2:]:
                assert_whole(store.run(run.id))
        return len(stored)

    def finish(self) -> None:
        """Run to the end: then every place is there once, and the database is sound."""
        assert self.run()
        assert self.check() == len(SCHEDULE)
        with open_store(str(self.path)) as store:
            assert store.finished_runs(STUDY.id) == {(r.block, r.cell.id) for r in SCHEDULE}
            for run in store.runs(STUDY.id):
                assert_whole(store.run(run.id))
        with sqlite3.connect(self.path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def assert_whole(run: RunRecord) -> None:
    """A simulated run has all of these; half a run lacks some."""
    assert run.metrics and run.series and run.histograms and run.artefacts and run.phases


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path)


def test_killed_at_random_moments_no_run_is_lost_or_doubled(study: Study) -> None:
    """After a random number of runs and a random part of one more; every fifth time while the
    process is still starting."""
    rng = random.Random(SEED)
    open_store(str(study.path), create=True).close()
    assert not study.run(lines=1)  # from here on starting is quick
    began = time.monotonic()
    assert not study.run(lines=1)
    starting = min(0.5, time.monotonic() - began)
    for moment in range(MOMENTS):
        if moment % 5 == 0:
            killed = not study.run(lines=0, seconds=rng.uniform(0.0, starting))
        else:
            killed = not study.run(lines=rng.randrange(1, 8), seconds=rng.uniform(0.0, 0.02))
        assert killed
        study.check()
    assert len(study.told) > 2 * MOMENTS
    study.finish()


def test_killed_inside_its_transactions_a_run_is_whole_or_not_there(study: Study) -> None:
    """Before random statements: within the run's rows, before COMMIT, between two runs."""
    rng = random.Random(SEED)
    before = 0
    for _ in range(10):
        assert not study.run(statement=rng.randrange(30, 160))
        stored = study.check()
        assert stored >= before
        before = stored
    assert before > 10, "the children died before they stored anything"
    study.finish()


def test_killed_while_the_store_is_being_made(study: Study) -> None:
    """The tables are there all or none, and the next call makes them."""
    for statement in range(1, 40, 3):
        study.path.unlink(missing_ok=True)
        for log in ("-wal", "-shm"):
            study.path.with_name(study.path.name + log).unlink(missing_ok=True)
        assert not study.run(statement=statement)
        with open_store(str(study.path), create=True) as store:
            assert store.runs(STUDY.id) == []


# -- a disk that fills up -------------------------------------------------------------------


@contextmanager
def small_file_system(folder: Path, size: str) -> Iterator[Path]:
    image, point = folder / "disk.img", folder / "disk"
    point.mkdir()
    proc.run(["truncate", "-s", size, str(image)], timeout=10)
    proc.run(["mkfs.ext4", "-q", "-m", "0", "-b", "4096", str(image)], timeout=30)
    proc.run(["mount", "-o", "loop", str(image), str(point)], timeout=30)
    try:
        yield point
    finally:
        proc.run(["umount", str(point)], timeout=30)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")
@pytest.mark.skipif(proc.find_tool("mkfs.ext4") is None, reason="needs mkfs.ext4 (e2fsprogs)")
def test_on_a_full_disk_finished_runs_stay_readable_and_the_study_resumes(tmp_path: Path) -> None:
    with small_file_system(tmp_path, "8M") as disk:
        place, ballast = str(disk / "store.sqlite"), disk / "ballast"
        finished: list[str] = []

        def fill_up(event: MeasureEvent) -> None:
            if isinstance(event, JobFinished):
                finished.append(event.run.id)
            if isinstance(event, JobStarted) and len(finished) == 3:
                # What else is on the disk takes the rest of it, in the middle of a run.
                _fill(ballast)

        executor = SimulatedExecutor(STUDY.id)
        with start_store(place) as store:
            with pytest.raises(HostError, match="no space left for the store") as caught:
                run_study(STUDY, SCHEDULE, executor, store, on_event=fill_up)
            assert "kept" in caught.value.hint
            in_hand = int("the finished run is kept in" in caught.value.why)
            assert len(finished) >= 3
            assert [run.id for run in store.runs(STUDY.id)] == finished
        # Also for another process, while the disk is still full.
        with open_store(place) as store:
            assert [run.id for run in store.runs(STUDY.id)] == finished
            for run_id in finished:
                assert_whole(store.run(run_id))
        ballast.unlink()
        with open_store(place) as store:
            outcome = run_study(STUDY, SCHEDULE[:50], executor, store)
            assert (outcome.reason, outcome.executed) == ("done", 50 - len(finished) - in_hand)
            assert len(store.runs(STUDY.id)) == 50


def _fill(path: Path) -> None:
    with path.open("ab", buffering=0) as stream:
        for size in (1 << 16, 1 << 12):
            try:
                while stream.write(bytes(size)):
                    pass
            except OSError as error:
                assert error.strerror == "No space left on device"
