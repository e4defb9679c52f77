"""A recordfs of a test's own; whatever happens, its mount is gone at the end."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from diskproof.backings.mounting import enter_private_mounts
from diskproof.process.native import require_native
from diskproof.process.start import Process, run, start_process
from support.crash_logs import Record, check_same, read_log, read_tree, replay

DEADLINE = 30.0

needs_fuse = pytest.mark.skipif(
    os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK),
    reason="needs root and /dev/fuse",
)


@dataclass(frozen=True)
class Places:
    """Where a recording's parts are.

    ``base`` is a copy of the backing from before, ``messages`` takes the recorder's complaints.
    """

    backing: Path
    mount: Path
    log: Path
    base: Path
    messages: Path


@dataclass(frozen=True)
class Recording:
    """A running recordfs."""

    places: Places
    process: Process

    @property
    def mount(self) -> Path:
        return self.places.mount

    def unmount(self) -> None:
        """As somebody else would; the recorder then ends by itself."""
        run(["umount", str(self.mount)], timeout=DEADLINE)
        status = self.process.wait(DEADLINE)
        assert status == 0, f"{status}: {self.process.read_log().decode()}"

    def finish(self) -> list[Record]:
        """Unmount, then check that the log is complete and replays to the backing."""
        self.unmount()
        records = read_log(self.places.log)
        assert records[-1].kind == "end"
        check_same(replay(records, self.places.base), read_tree(self.places.backing))
        return records


def make_places(folder: Path) -> Places:
    """Fresh folders; what the backing shall hold is to be put there before the start."""
    folder.chmod(0o755)
    names = ("backing", "mount", "crash.log", "base", "messages")
    places = Places(*(folder / name for name in names))
    places.backing.mkdir()
    places.mount.mkdir()
    return places


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that everybody may look into; Pytest's own let nobody else in."""
    with tempfile.TemporaryDirectory(prefix="recordfs-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def is_mounted(path: Path) -> bool:
    table = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split(" ")[4] == str(path) for line in table)


def wait_until_unmounted(path: Path) -> None:
    """The kernel says when its table of mounts has changed."""
    deadline = time.monotonic() + DEADLINE
    with Path("/proc/self/mountinfo").open() as table:
        poller = select.poll()
        poller.register(table, select.POLLPRI)
        while is_mounted(path):
            assert time.monotonic() < deadline, f"{path} is still mounted"
            poller.poll(1000 * DEADLINE)


@contextmanager
def start_recording(
    places: Places, *options: str, fds: Sequence[int] = (), program: Sequence[str] = ()
) -> Iterator[Recording]:
    """Record for the length of a ``with`` block; ``program`` is another way to start recordfs."""
    if os.geteuid() == 0:  # a copy of the mount in others' would outlive its end
        enter_private_mounts()
    shutil.copytree(places.backing, places.base, symlinks=True)
    argv = [*(program or [str(require_native("diskproof-recordfs"))])]
    argv += [str(places.backing), str(places.mount)]
    argv += ["--log", str(places.log), "--foreground", *options]
    read, write = os.pipe()
    try:
        with (
            os.fdopen(read, "rb") as answers,
            os.fdopen(write, "wb") as stdout,
            start_process(
                argv,
                name="recordfs",
                log=places.messages,
                stdout=stdout,
                pass_fds=fds,
            ) as process,
        ):
            stdout.close()
            line = answers.readline()
            assert line and json.loads(line)["type"] == "ready", process.read_log().decode()
            yield Recording(places, process)
    finally:
        if is_mounted(places.mount):
            subprocess.run(["umount", "--lazy", str(places.mount)], check=True)
