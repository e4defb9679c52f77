"""Folders for work beside the runs: what a killed owner leaves goes with the next sweep."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from diskproof.errors import HostError
from diskproof.host.janitor import sweep
from diskproof.process import scratch
from diskproof.process.scratch import scratch_home, start_scratch_dir

_OWNER = """
import time
from diskproof.process.scratch import start_scratch_dir
with start_scratch_dir() as folder:
    (folder / "file").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_a_killed_owners_folder_goes_and_those_of_the_living_stay(temporary: Path) -> None:
    owners = [
        subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    dead, living = (Path(owner.stdout.readline().strip()) for owner in owners if owner.stdout)
    owners[0].send_signal(signal.SIGKILL)
    owners[0].wait()
    assert dead.is_dir()
    with start_scratch_dir() as folder:
        assert [swept.path for swept in sweep([scratch_home()])] == [dead]
        assert set(temporary.iterdir()) == {living, folder}
        assert (living / "file").read_text() == "x"
    owners[1].kill()
    owners[1].wait()
    sweep([scratch_home()])
    assert list(temporary.iterdir()) == []


def test_a_lock_of_somebody_else_is_not_waited_for_for_ever(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_LOCK_SECONDS", 0.2)
    handle = os.open(temporary, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(HostError, match="cannot be used"), start_scratch_dir():
            pass
    finally:
        os.close(handle)
    with start_scratch_dir() as folder:
        assert folder.parent == temporary
