"""Runs that their store did not take: put aside whole, brought in once, read like a stranger's."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.errors import HostError
from diskproof.lab.course import JobStarted, Warned
from diskproof.measure.next import MeasureEvent
from diskproof.records import StudyRecord
from diskproof.store import Store, open_store
from diskproof.store.parts import KINDS, Run, kind_of
from diskproof.store.spool import bring_in, put_aside, spool_folder
from support.crashing import make_crash_run
from support.simulate import SIMULATED_HOST, SimulatedExecutor, run_study, start_store
from support.tile_stores import Made, make_tile_run, tile_cell
from test_lab import SCHEDULE, STUDY

TOLD = "the finished run is kept in "


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with start_store(tmp_path / "store.sqlite") as opened:
        opened.add_study(STUDY)
        yield opened


def a_run() -> Run:
    return SimulatedExecutor(STUDY.id).execute(SCHEDULE[0])


def of_every_kind() -> list[Run]:
    host = SIMULATED_HOST.id
    crash = make_crash_run(study_id=STUDY.id, host_id=host)
    tiles = replace(make_tile_run(Made(tile_cell(), 2, 1, study_id=STUDY.id)), host_id=host)
    return [a_run(), crash, tiles]


def troubles(store: Store) -> list[str]:
    return [found.trouble for found in bring_in(store, STUDY.id)]


@pytest.mark.parametrize("run", of_every_kind(), ids=lambda run: kind_of(run).name)
def test_every_kind_of_run_comes_back_as_it_was_and_once(store: Store, run: Run) -> None:
    path = put_aside(store, STUDY, SIMULATED_HOST, run)
    assert path.parent == spool_folder() and [path] == list(path.parent.iterdir())
    assert path.stat().st_mode & 0o077 == 0 or path.parent.stat().st_mode & 0o077 == 0
    copy = shutil.copy(path, path.parent / "copy")
    assert troubles(store) == [""] and not path.exists()
    assert store.run_of(kind_of(run), run.id) == run
    # Killed after it was stored and before its file was gone: the file is found again.
    Path(copy).rename(path)
    assert troubles(store) == [""] and troubles(store) == []
    assert [each.id for kind in KINDS for each in store.counted_runs(kind, STUDY.id)] == [run.id]


def test_what_it_belongs_to_comes_along(store: Store, tmp_path: Path) -> None:
    """The store itself is lost: the next one of its name gets the run with study and host."""
    put_aside(store, STUDY, SIMULATED_HOST, a_run())
    store.close()
    for path in tmp_path.glob("store.sqlite*"):
        path.unlink()
    with open_store(str(tmp_path / "store.sqlite"), create=True) as new:
        assert troubles(new) == [""]
        assert new.find_study(STUDY.id) == STUDY and new.hosts() == [SIMULATED_HOST]
        assert len(new.runs(STUDY.id)) == 1


def test_other_stores_and_studies_are_left_alone(store: Store, tmp_path: Path) -> None:
    put_aside(store, STUDY, SIMULATED_HOST, a_run())
    assert list(bring_in(store, "another")) == []
    with open_store(str(tmp_path / "other.sqlite"), create=True) as other:
        assert list(bring_in(other, STUDY.id)) == []


def test_another_run_that_counts_by_now_is_told(store: Store) -> None:
    path = put_aside(store, STUDY, SIMULATED_HOST, a_run())
    store.add_run(SimulatedExecutor(STUDY.id, started=2e9).execute(SCHEDULE[0]))
    (trouble,) = troubles(store)
    assert "another one counts already" in trouble and not path.exists()


@pytest.mark.parametrize("what", ["link", "second name", "fifo", "folder", "text", "cut", "study"])
def test_what_is_no_run_of_ours_is_told_and_stays(store: Store, tmp_path: Path, what: str) -> None:
    path = put_aside(store, STUDY, SIMULATED_HOST, a_run())
    kept = path.rename(tmp_path / "kept.sqlite")
    if what == "link":
        path.symlink_to(kept)
    elif what == "second name":
        path.hardlink_to(kept)
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "text":
        path.write_text("root:*:1\n" * 1000)
    elif what == "cut":
        path.write_bytes(kept.read_bytes()[:20_000])
    else:
        other = StudyRecord("0" * 12, "other", "run", "", 1, 1, ())
        with open_store(str(path), create=True) as foreign:
            foreign.add_study(other)
    (trouble,) = troubles(store)
    assert trouble and os.path.lexists(path)
    assert store.runs(STUDY.id) == []


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_write_in_is_not_used(store: Store, mode: int) -> None:
    path = put_aside(store, STUDY, SIMULATED_HOST, a_run())
    path.parent.chmod(mode)
    (trouble,) = troubles(store)
    assert "not a folder of ours alone" in trouble
    with pytest.raises(HostError, match="cannot be used"):
        put_aside(store, STUDY, SIMULATED_HOST, a_run())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_not_used(store: Store) -> None:
    path = put_aside(store, STUDY, SIMULATED_HOST, a_run())
    os.chown(path, 1234, 1234)
    (trouble,) = troubles(store)
    assert "not a file of ours" in trouble
    os.chown(path.parent, 1234, 1234)
    (trouble,) = troubles(store)
    assert "not a folder of ours alone" in trouble


def test_a_store_that_vanishes_ends_the_study_and_costs_no_run(tmp_path: Path) -> None:
    """SQLite would go on writing into a file that nobody finds again."""
    place = tmp_path / "store.sqlite"
    started = 0
    told: list[str] = []

    def note(event: MeasureEvent) -> None:
        nonlocal started
        started += isinstance(event, JobStarted)
        if isinstance(event, JobStarted) and started == 3:
            for path in tmp_path.glob("store.sqlite*"):
                path.unlink()
        if isinstance(event, Warned):
            told.append(event.text)

    with start_store(place) as store:
        with pytest.raises(HostError, match="is gone") as caught:
            run_study(STUDY, SCHEDULE, SimulatedExecutor(STUDY.id), store, on_event=note)
    assert TOLD in caught.value.why and not told
    with start_store(place) as store:
        outcome = run_study(STUDY, SCHEDULE[:5], SimulatedExecutor(STUDY.id), store, on_event=note)
        assert outcome.executed == 4 and len(store.runs(STUDY.id)) == 5
    assert len(told) == 1 and told[0].endswith("is stored now")


def test_a_run_that_cannot_be_put_aside_either_is_told(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")

    def note(event: MeasureEvent) -> None:
        if isinstance(event, JobStarted):
            (tmp_path / "store.sqlite").rename(tmp_path / "moved")

    with pytest.raises(HostError, match="is gone") as caught:
        run_study(STUDY, SCHEDULE, SimulatedExecutor(STUDY.id), store, on_event=note)
    assert "the run that had ended is lost" in caught.value.why
