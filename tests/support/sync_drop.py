"""sync drop started for a test, and the programs under it, compiled when they are asked for."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from diskproof.process.native import require_native
from diskproof.process.start import Completed, run
from support import sync_programs as programs

DEADLINE = 300.0
NARROW = ("-m32", "-nostdlib", "-static", "-fno-stack-protector", "-fno-pic", "-no-pie")
BUILDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "dynamic": (programs.FAMILY, ()),
    "static": (programs.FAMILY, ("-static",)),
    "threads": (programs.THREADS, ()),
    "static-threads": (programs.THREADS, ("-static",)),
    "signals": (programs.SIGNALS, ("-static",)),
    "cancel": (programs.CANCEL, ()),
    "spawn": (programs.SPAWN, ()),
    "narrow": (programs.NARROW, NARROW),
    "ring": (programs.RING, ()),
    "closes": (programs.CLOSES, ()),
}
Build = Callable[[str], Path]


def make_build(folder: Path) -> Build:
    """Programs by name, each compiled in the folder when it is first asked for."""
    built: dict[str, Path] = {}

    def find(name: str) -> Path:
        if name not in built:
            source, flags = BUILDS[name]
            built[name] = programs.compile_program(folder, name, source, *flags)
        return built[name]

    return find


def drop_args(*words: str | Path) -> list[str]:
    return [str(require_native("diskproof-sync-drop")), *map(str, words)]


def drop(*words: str | Path, cwd: Path, env: dict[str, str] | None = None) -> Completed:
    """A command to its end; what it printed is in the record, whatever its code."""
    return run(drop_args(*words), timeout=DEADLINE, check=False, cwd=cwd, env=env)


def read_counts(counts: Path) -> dict[str, int]:
    found = json.loads(counts.read_text())["dropped"]
    assert isinstance(found, dict)
    return found


@contextmanager
def start_drop(*words: str | Path, cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command under way, in a process group of its own, to be sent signals."""
    with subprocess.Popen(
        drop_args(*words), cwd=cwd, stdout=subprocess.PIPE, process_group=0
    ) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)


def wait_for(happened: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not happened():
        assert time.monotonic() < end, what
        time.sleep(0.005)


SYNC_EACH = """
import os, sys
for name in sys.argv[1:]:
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x")
    os.fsync(fd)
    os.close(os.open(name + "-o", os.O_RDWR | os.O_CREAT | os.O_SYNC))
os.sync()
"""


def sync_words(*files: str) -> list[str]:
    """A command that syncs each file once."""
    return ["/usr/bin/python3", "-I", "-S", "-c", SYNC_EACH, *files]
