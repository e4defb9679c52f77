"""Places where a verb is called: all that it may touch is private, and seen before and after."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import psutil

from diskproof.guest.ours.build import build_guest
from diskproof.process import start as proc
from diskproof.process.kept import cache_home
from diskproof.report.vega import bundle_scripts
from support.forked import Forked
from support.simulated_stores import fill, simulated_cells
from support.tile_stores import fill_tiles
from support.watching import monitor

DEADLINE = 600.0
COLUMNS, ROWS = 80, 40
GOLDEN = Path(__file__).parents[1] / "golden"
CONTROL = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")
COLOUR = re.compile(r"\x1b\[([0-9;]*;)?(3[0-8]|4[0-8]|9[0-7]|10[0-7])(;[0-9;]*)?m")

STUDY = """
name = "small"
workloads = ["sync-write-4k"]
[backings.here]
path = "images"
[factors]
frontend = ["host", "daemon"]
format = "raw"
[crash]
records = 16
states = 300
seconds = "1s"
explore_seconds = "1s"
[protocol]
blocks = 2
size = "16MiB"
runtime = "1s"
ramp = "0s"
"""
GUESTS = STUDY.replace('"small"', '"guests"').replace('["host", "daemon"]', '"guest"')
TILES = """
name = "pairs"
[backings.here]
path = "images"
[factors]
format = "raw"
[tiles]
tile = "tile.toml"
counts = [1]
runs = 2
"""
TILE = """
[guests.writer]
memory = "192MiB"
disk = "32MiB"
[workloads.write]
from = "writer"
command = ["dd", "if=/dev/zero", "of=/mnt/written", "bs=64k", "count=32", "conv=fsync"]
check = ["sh", "-c", "test $(stat -c %s /mnt/written) -eq 2097152"]
"""
LOST = STUDY.replace('"small"', '"lost"').replace("records = 16", "records = 17")
FILES = {"study.toml": STUDY, "lost.toml": LOST, "guests.toml": GUESTS, "tiles.toml": TILES}
MACHINE = """
<domain type='qemu'><name>web</name><devices><disk type='file' device='disk'>
<driver name='qemu' type='qcow2' cache='none' io='native'/><source file='/srv/web.qcow2'/>
<target dev='vda' bus='virtio'/></disk></devices></domain>
"""
FILES |= {"tile.toml": TILE, "machine.xml": MACHINE}


@dataclass(frozen=True)
class Call:
    """How a call ended, and what it left of processes, mounts, loop devices and files."""

    code: int
    out: str
    err: str
    left: tuple[str, ...] = ()

    def assert_no_traceback(self) -> None:
        for text in (self.out, self.err):
            assert "Traceback" not in text and "Exception ignored" not in text, text[-2000:]
        assert "BrokenPipe" not in self.err and "Errno 32" not in self.err, self.err


@dataclass(frozen=True)
class Place:
    """``here`` is the current folder of calls; home, caches and temporary files are beside it."""

    root: Path

    @property
    def here(self) -> Path:
        return self.root / "here"

    @property
    def store(self) -> Path:
        return self.here / "diskproof.sqlite"

    def copy(self, to: Path) -> Place:
        shutil.copytree(self.root, to, symlinks=True)
        return Place(to)

    def environment(self, **more: str) -> dict[str, str]:
        wild = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "DISKPROOF_STORE"}
        given = {name: text for name, text in os.environ.items() if name not in wild}
        own = {f"XDG_{each.upper()}_HOME": str(self.root / each) for each in _FOLDERS}
        home = {"HOME": str(self.root / "home"), "TMPDIR": str(self.root / "tmp")}
        path = f"{sys.prefix}/bin:{os.environ['PATH']}"
        return {**given, **own, **home, "PATH": path, "TERM": "xterm-256color", **more}

    def start(
        self, arguments: Sequence[str], *, fresh: bool = False, **options: object
    ) -> subprocess.Popen[bytes]:
        """A call under way; ``fresh``: by an interpreter that has yet to import everything."""
        argv = [sys.executable, "-m", "diskproof", *self.filled(arguments)]
        settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                    "stderr": subprocess.PIPE, "env": self.environment(), **options}  # fmt: skip
        start = subprocess.Popen if fresh else Forked
        return start(argv, cwd=self.here, start_new_session=True, **settings)  # type: ignore[call-overload,no-any-return]

    def filled(self, arguments: Sequence[str]) -> list[str]:
        """RUN stands for the crash run that lost something."""
        if "RUN" not in arguments:
            return list(arguments)
        run = (self.root / "run").read_text()
        return [run if word == "RUN" else word for word in arguments]

    def call(
        self,
        arguments: Sequence[str],
        makes: Sequence[str] = (),
        *,
        fresh: bool = False,
        **more: str,
    ) -> Call:
        """A call through pipes to its end."""
        before = self.seen()
        with self.start(arguments, fresh=fresh, env=self.environment(**more)) as child:
            out, err = child.communicate(timeout=DEADLINE)
        return Call(child.returncode, out.decode(), err.decode(), self.left(before, makes))

    def call_on_terminal(self, arguments: Sequence[str], **more: str) -> Call:
        """A call that sees terminals of 80 columns, one for stdout and one for stderr."""
        before = self.seen()
        screens = (_Screen(), _Screen())
        with self.start(
            arguments, stdout=screens[0].end, stderr=screens[1].end, env=self.environment(**more)
        ) as child:
            out, err = (screen.read_all() for screen in screens)
            code = child.wait(DEADLINE)
        return Call(code, out, err, self.left(before))

    def shell(self, line: str, **more: str) -> Call:
        """A line as somebody pastes it into a shell."""
        before = self.seen()
        argv = ["/bin/sh", "-c", line]
        done = subprocess.run(
            argv, cwd=self.here, env=self.environment(**more), capture_output=True, check=False
        )
        return Call(done.returncode, done.stdout.decode(), done.stderr.decode(), self.left(before))

    def seen(self) -> set[str]:
        """Mounts, loop devices and files below this place, and processes of ours."""
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        found = {f"mount {line.split()[4]}" for line in mounts if str(self.root) in line}
        for path in Path("/sys/block").glob("loop*/loop/backing_file"):
            file = ""
            with suppress(OSError):  # another's, that is just taken away
                file = path.read_text().strip()
            found |= {f"loop device on {file}"} if file.startswith(str(self.root)) else set()
        for child in psutil.Process().children(recursive=True):
            found |= _living(child)
        # Of what goes meanwhile os.walk tells nothing, and Path.rglob an error.
        return found | {
            str((Path(top) / name).relative_to(self.root))
            for top, folders, files in os.walk(self.root)
            for name in (*folders, *files)
        }

    def left(self, before: set[str], makes: Sequence[str] = ()) -> tuple[str, ...]:
        """What is there beside ``makes``; a process that was just ended may take a moment."""
        known = [f"here/{each}" for each in makes]
        deadline = time.monotonic() + GONE_SECONDS
        while True:
            more = sorted(self.seen() - before)
            left = tuple(each for each in more if not any(fnmatch(each, one) for one in known))
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.05)


GONE_SECONDS = 30.0
_FOLDERS = ("cache", "config", "data", "state")


def _living(child: psutil.Process) -> set[str]:
    try:
        dead = child.status() == psutil.STATUS_ZOMBIE
        return set() if dead else {f"process {child.pid} {' '.join(child.cmdline())}"}
    except psutil.NoSuchProcess:
        return set()


class _Screen:
    """A terminal: ``end`` is what a program writes to."""

    def __init__(self) -> None:
        self._ours, self.end = pty.openpty()
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._read = bytearray()
        self._reader = threading.Thread(target=self._pump)
        self._reader.start()

    def _pump(self) -> None:
        while True:
            try:
                self._read += os.read(self._ours, 1 << 16)
            except OSError:  # EIO: nobody has the other end any more
                return

    def read_all(self) -> str:
        """All that was written, once everybody has closed their end."""
        os.close(self.end)
        self._reader.join(DEADLINE)
        os.close(self._ours)
        return self._read.decode()


def plain_lines(text: str) -> list[str]:
    """The lines as they stood on the screen, without control sequences."""
    return re.split(r"[\r\n]+", CONTROL.sub("", text))


def make_place(root: Path) -> Place:
    """A place with studies, files to import and a store in which every verb finds something."""
    place = Place(root)
    for name in ("here", "tmp", "home", *_FOLDERS):
        (root / name).mkdir(parents=True)
    (place.here / "images").mkdir()
    _fill_cache(root / "cache" / "diskproof")
    for name, text in FILES.items():
        (place.here / name).write_text(text)
    shutil.copy(GOLDEN / "kvm-perf-sample.txt", place.here / "kvm-perf.txt")
    monitor("--quiet", "--json", str(place.here / "recording.jsonl"), "0.05", "2")
    _run_fio(place.here / "fio.json")
    fill(place.store, simulated_cells(), blocks=3)
    fill_tiles(place.store)
    assert place.call(["doctor"]).code in (0, 3)  # what it probes of KVM is remembered
    done = place.call(["crash", "lost.toml", "--quiet", "--json"])
    assert done.code == 0, done.err
    lost = next(row for row in json.loads(done.out) if row["verdict"] == "loses")
    (root / "run").write_text(lost["reproduce"].split()[3])
    return place


def _fill_cache(cache: Path) -> None:
    """The guest that is built and the scripts that are bundled already: each place is spared it."""
    cache.mkdir()
    (cache / "guest").symlink_to(build_guest().kernel.parents[1])
    bundle_scripts()
    for kept in cache_home().glob("vega-*.js"):
        shutil.copy(kept, cache)


def _run_fio(output: Path) -> None:
    job = ["--name=job", "--size=1m", "--rw=write", f"--filename={output}.data"]
    proc.run(["fio", "--output-format=json", f"--output={output}", *job], timeout=60)
    Path(f"{output}.data").unlink()
