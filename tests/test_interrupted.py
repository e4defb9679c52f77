"""Ctrl-C in the middle of what must be whole: a run's folder, a child."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from diskproof.process import child, scratch, start
from diskproof.process.scratch import start_locked_dir
from diskproof.process.start import run, start_process

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def interrupting(act: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with a Ctrl-C before it and one when it is done."""

    def acted(*args: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        done = act(*args, **options)
        os.kill(os.getpid(), signal.SIGINT)
        return done

    return acted


def test_a_runs_folder_is_removed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch.shutil, "rmtree", interrupting(shutil.rmtree))
    with pytest.raises(KeyboardInterrupt), start_locked_dir(tmp_path) as folder:
        (folder / "images").mkdir()
        (folder / "images" / "disk").touch()
    assert list(tmp_path.iterdir()) == []


def test_a_runs_folder_is_made_whole_or_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch.tempfile, "mkdtemp", interrupting(scratch.tempfile.mkdtemp))
    with pytest.raises(KeyboardInterrupt), start_locked_dir(tmp_path):
        pytest.fail("it was begun")
    assert list(tmp_path.iterdir()) == []


def test_a_child_ends_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child.os, "killpg", interrupting(os.killpg))
    (tmp_path / "mount").touch()
    end = "[time.sleep(0.2), os.remove('mount'), os._exit(0)]"
    program = (
        f"import os, signal, time; signal.signal(signal.SIGTERM, lambda *_: {end}); "
        "open('begun', 'w'); time.sleep(60)"
    )
    argv = [sys.executable, "-c", program]
    with pytest.raises(KeyboardInterrupt):
        with start_process(argv, name="it", log=tmp_path / "log", cwd=tmp_path):
            while not (tmp_path / "begun").exists():
                time.sleep(0.01)
    assert not (tmp_path / "mount").exists()


class Interrupted(subprocess.Popen[bytes]):
    """Ctrl-C when the child is there, and nobody has it yet."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        os.kill(os.getpid(), signal.SIGINT)


def test_a_child_that_starts_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start.subprocess, "Popen", Interrupted)
    before = psutil.Process().children()
    with pytest.raises(KeyboardInterrupt):
        run(SLEEP, timeout=60)
    with pytest.raises(KeyboardInterrupt):
        with start_process(SLEEP, name="sleep", log=tmp_path / "log"):
            pytest.fail("it was begun")
    assert psutil.Process().children() == before
