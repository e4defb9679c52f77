"""What lies in the folder of a run while it lives: nobody else's to read. Requires root, FUSE."""

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from diskproof.lab.notes import RunNotes
from diskproof.process.run_user import OURS, PRIVATE_HOME, require_run_user
from support.crashing import make_real_run
from support.disks import run_fio, start_drive
from support.recording import needs_fuse

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has others to keep out")

FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@contextmanager
def watched(folder: Path) -> Iterator[dict[str, int]]:
    """Every file and socket that is seen below a folder while the block lasts, and its mode."""
    seen: dict[str, int] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            for parent, folders, names in os.walk(folder):
                for name in (*folders, *names):
                    path = Path(parent, name)
                    with suppress(OSError):
                        mode = path.lstat().st_mode
                        if not stat.S_ISLNK(mode):
                            seen[name] = seen.get(name, 0) | mode

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def assert_private(seen: dict[str, int]) -> None:
    for name, mode in seen.items():
        # The run's user passes the folders of root's; nobody lists them.
        allowed = stat.S_IXGRP if stat.S_ISDIR(mode) else 0
        assert mode & FOR_OTHERS & ~allowed == 0, (name, oct(mode))


@pytest.mark.parametrize("frontend", ["host", "daemon", "container"])
def test_nothing_in_a_living_run_is_for_others(tmp_path: Path, frontend: str) -> None:
    images = tmp_path / "images"
    with watched(images) as seen, RunNotes().whole_run(60.0):
        with start_drive(images, frontend=frontend, format="raw") as drive:
            assert run_fio(drive).returncode == 0
    assert {"disk.raw", "job.fio", "out.json"} <= set(seen)
    if frontend == "container":  # its own root, without anybody's content, is entered as somebody
        seen = {name: mode for name, mode in seen.items() if name in ("disk.raw", "job.fio")}
    assert_private(seen)


@needs_fuse
def test_nothing_of_a_recording_and_its_states_is_for_others(tmp_path: Path) -> None:
    images = tmp_path / "images"
    with watched(images) as seen:
        found = make_real_run(images, format="qcow2", cache="unsafe", frontend="daemon")
    assert found.failure is None
    expected = {"crash.log", "killed.log", "recordfs.log", "disk.qcow2", "explore-power.json"}
    assert expected <= set(seen)
    assert_private(seen)


def test_each_run_has_a_user_of_its_own_and_gives_it_back(tmp_path: Path) -> None:
    before, users = require_run_user(), []
    for number in range(2):
        notes = RunNotes()
        with notes.whole_run(60.0), start_drive(tmp_path / str(number), frontend="daemon") as drive:
            users.append(Path(f"/proc/{drive.facts.pids[0]}").stat().st_uid)
            assert (PRIVATE_HOME / "users" / str(users[-1])).exists()
        assert notes.failure is None
    assert len({before, *users}) == 3
    assert {before, *users} <= set(OURS)
    assert require_run_user() == before


def test_what_is_made_beside_a_run_has_the_modes_of_the_caller(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        with RunNotes().whole_run(60.0):
            (tmp_path / "inside").touch()
        (tmp_path / "outside").touch()
    finally:
        os.umask(mask)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("inside", "outside")]
    assert modes == [0o600, 0o644]
