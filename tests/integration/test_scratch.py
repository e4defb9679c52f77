"""Folders for work beside the runs: what a killed owner leaves goes with the next sweep."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from diskproof.errors import HostError
from diskproof.host.janitor import sweep
from diskproof.process import run_user, scratch
from diskproof.process.scratch import scratch_homes, start_scratch_dir
from support.patience import in_time

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
        assert [swept.path for swept in sweep([temporary])] == [dead]
        assert set(temporary.iterdir()) == {living, folder}
        assert (living / "file").read_text() == "x"
    owners[1].kill()
    owners[1].wait()
    sweep([temporary])
    assert list(temporary.iterdir()) == []


def test_a_lock_of_somebody_else_holds_nothing_up(temporary: Path) -> None:
    handle = os.open(temporary, os.O_RDONLY)

    def start() -> Path:
        with start_scratch_dir() as folder:
            return folder

    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert in_time(5, start).parent == temporary
    finally:
        os.close(handle)


_SWEEPER = """
import sys
from pathlib import Path
from diskproof.host import janitor
janitor.fcntl.flock = lambda handle, how, real=janitor.fcntl.flock: (
    None if Path(f"/proc/self/fd/{handle}").resolve().is_dir() else real(handle, how))
print("ready", flush=True)
while True:
    janitor.sweep([Path(sys.argv[1])])
"""


def test_what_a_sweep_takes_while_it_is_made_is_made_again(temporary: Path) -> None:
    """The sweeper ignores the parent's lock, as it would for who does not get that lock."""
    argv = [sys.executable, "-c", _SWEEPER, str(temporary)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as sweeper:
        try:
            assert sweeper.stdout and sweeper.stdout.readline() == "ready\n"
            for number in range(300):
                with start_scratch_dir() as folder:
                    (folder / "file").write_text(str(number))
                    assert (folder / "file").read_text() == str(number)
            assert sweeper.poll() is None
        finally:
            sweeper.kill()
    sweep([temporary])
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has no folder in /run")
def test_roots_folder_is_its_own_unless_named_or_large(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = temporary / "run"
    for module in (scratch, run_user):
        monkeypatch.setattr(module, "PRIVATE_HOME", home)
    with start_scratch_dir() as named:
        assert named.parent == temporary and not home.exists()
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    home.mkdir(0o777)
    home.chmod(0o777)
    with start_scratch_dir() as own, start_scratch_dir(large=True) as large:
        assert (own.parent, large.parent) == (home, temporary)
        assert stat.S_IMODE(home.stat().st_mode) == 0o711
        assert stat.S_IMODE(own.stat().st_mode) == 0o710
    assert home in scratch_homes()
    os.chown(home, 12345, 12345)
    with pytest.raises(HostError, match="not root's"), start_scratch_dir():
        pass
