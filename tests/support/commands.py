"""The command line as a user starts it, in a process of its own."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from diskproof.process.start import Completed, Process, start_process
from support.forked import Forked

STUDY = """
name = "small"
workloads = ["sync-write-4k"]
[backings.here]
path = "images"
[factors]
frontend = ["host", "daemon"]
format = ["raw", "qcow2"]
[protocol]
blocks = 2
size = "16MiB"
runtime = "1s"
ramp = "0s"
"""


def write_study(folder: Path, text: str = STUDY) -> Path:
    """A study file whose images lie in ``folder``/images."""
    path = folder / "study.toml"
    (folder / "images").mkdir(exist_ok=True)
    path.write_text(text.replace('"images"', f'"{folder}/images"'))
    return path


def as_host(folder: Path) -> dict[str, str]:
    """What is started in a folder measures as on a host of its own."""
    return {**os.environ, "DISKPROOF_LOCK": str(folder)}


def diskproof(
    *arguments: str | Path, cwd: Path, timeout: float = 900.0, fresh: bool = False
) -> Completed:
    """Run a command to its end; ``fresh``: by an interpreter that has yet to import everything."""
    argv = [sys.executable, "-m", "diskproof", *map(str, arguments)]
    began = time.monotonic()
    ends = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    start = subprocess.Popen if fresh else Forked
    with start(argv, cwd=cwd, env=as_host(cwd), start_new_session=True, **ends) as child:
        try:
            out, err = child.communicate(timeout=timeout)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    return Completed(tuple(argv), child.returncode, out, err, time.monotonic() - began)


@contextmanager
def start_diskproof(*arguments: str | Path, cwd: Path) -> Iterator[Process]:
    """A command under way; what it prints goes to ``cwd``/log."""
    argv = [sys.executable, "-m", "diskproof", *map(str, arguments)]
    own = ["env", f"DISKPROOF_LOCK={cwd}"]
    with start_process([*own, *argv], name="diskproof", log=cwd / "log", cwd=cwd) as running:
        yield running
        if (
            running.poll() is None
        ):  # the end of the block waits 5 s, and a busy host cleans up longer
            os.killpg(running.pid, signal.SIGTERM)
            running.wait(120)


def left_behind(folder: Path) -> list[str]:
    """Images below ``folder`` and processes that work in it, ours apart."""
    # Of what goes meanwhile os.walk tells nothing, and Path.glob an error.
    folders = [Path(top, name) for top, names, _ in os.walk(folder) for name in names]
    images = [str(each) for each in folders if each.name.startswith("diskproof-run-")]
    processes = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder) and process.pid != os.getpid():
                processes.append(f"{process.pid} {process.name()}")
        except (psutil.Error, OSError):
            continue
    return images + processes


def let_everybody_in(*paths: Path) -> None:
    """Other users may go to these; parallel test runs have deeper folders than one."""
    top = Path(tempfile.gettempdir())
    for path in paths:
        for folder in (path, *path.parents):
            if folder != top and folder.is_relative_to(top):
                folder.chmod(folder.stat().st_mode | 0o755)
