"""A signal ends a verb wherever it comes: also where what it raises would be thrown away."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

SWALLOWS = """
import os, signal
try:
    os.kill(os.getpid(), signal.{name})
    ended = False
except BaseException:
    ended = True  # as an extension does
"""
PROGRAM = """
import signal, time
from diskproof.cli.stops import Stops
stops = Stops()
stops.listen()
try:
    {lose}
    time.sleep(60)
except KeyboardInterrupt:
    print(stops.heard[0], flush=True)
"""
IMPORT = "import swallows; assert not swallows.ended"
DESTRUCTOR = """
    import os
    class Lost:
        def __del__(self):
            os.kill(os.getpid(), signal.{name})
            for _ in range(1000):
                pass
    Lost()
"""


def listen(here: Path, lose: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", PROGRAM.format(lose=lose)]
    return subprocess.run(argv, cwd=here, capture_output=True, text=True, timeout=50, check=False)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("lose", [IMPORT, DESTRUCTOR], ids=["import", "destructor"])
def test_none_is_lost(tmp_path: Path, lose: str, name: str) -> None:
    (tmp_path / "swallows.py").write_text(SWALLOWS.format(name=name))
    done = listen(tmp_path, lose.format(name=name))
    assert (done.stdout, done.stderr) == (f"{getattr(signal, name).value}\n", "")
    assert done.returncode == 0


def test_other_lost_errors_are_told(tmp_path: Path) -> None:
    raises = """
    class Bad:
        def __del__(self):
            raise ValueError("told")
    Bad()
    stops.heard.append(signal.SIGINT)
    raise KeyboardInterrupt
"""
    done = listen(tmp_path, raises)
    assert done.returncode == 0 and "told" in done.stderr
