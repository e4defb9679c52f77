"""Volumes of the kernel for tests; light, for these tests also run inside a guest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from diskproof.backing_rules import KINDS
from diskproof.backings.block_tree import SYS
from diskproof.backings.loop import find_loops, start_loop
from diskproof.backings.place import Place
from diskproof.backings.run_dir import find_device, start_run_dir
from diskproof.errors import HostError
from diskproof.janitor import sweep
from diskproof.proc import run
from diskproof.records import BackingSpec

MIB = 1 << 20
HERE = Path(__file__).parent


def backing(kind: str, on: BackingSpec | None = None, **given: str) -> BackingSpec:
    """A backing with the defaults of its kind."""
    defaults = {key: option.default_text for key, option in KINDS[kind].options.items()}
    return BackingSpec("here", kind, tuple({**defaults, **given}.items()), on)


def folder(path: Path) -> BackingSpec:
    return backing("directory", path=str(path))


def find_missing(require: Callable[[], None]) -> str:
    """Why a kind of backing cannot be tried here, or nothing."""
    if os.geteuid() != 0:
        return "needs root"
    try:
        require()
    except HostError as error:
        return f"{error.what}: {error.why}"
    return ""


@contextmanager
def lent_device(file: Path, size: int = 64 * MIB) -> Iterator[Path]:
    """A device that is not the study's."""
    with file.open("xb") as stream:
        stream.truncate(size)
    with start_loop(file) as loop:
        yield loop.path
    file.unlink()


def write_and_read(place: Place) -> None:
    """What is written to the disk of a run is there."""
    data = os.urandom(MIB)
    with start_run_dir(place) as room:
        node = find_device(room)
        assert node
        with node.open("r+b", buffering=0) as stream:
            stream.seek(5 * MIB)
            assert stream.write(data) == MIB
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            stream.seek(5 * MIB)
            assert stream.read(MIB) == data


def signatures(device: Path) -> str:
    return run(["wipefs", "--noheadings", "--output", "TYPE", str(device)], timeout=30).text.strip()


def volumes() -> set[str]:
    """All that is there of device mapper and md, in the kernel and in /dev."""
    nodes = [
        *Path("/dev/mapper").glob("*"),
        *Path("/dev/md").glob("*"),
        *Path("/dev").glob("disk*"),
    ]
    devices = [*SYS.glob("dm-*"), *SYS.glob("md*")]
    return {str(path) for path in [*nodes, *devices]} - {"/dev/mapper/control"}


def assert_clean(path: Path, before: set[str]) -> None:
    """No volume, no loop device and no folder is left."""
    assert volumes() == before
    assert find_loops(path) == ()
    assert list(path.glob("**/diskproof-*")) == []


OWNER = """
import os, sys
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
import volumes
from diskproof.backings import block_tree, lvm, md, start_place
from diskproof.records import BackingSpec
spec, die_at = eval(sys.argv[3]), int(sys.argv[4])
steps = 0
def step(argv, **settings):
    global steps
    steps += 1
    done = block_tree.run_quietly(argv, **settings)
    if steps == die_at:
        os._exit(9)
    return done
lvm.run_quietly = md.run_quietly = step
with start_place(spec) as place:
    print(place.device or place.folder, flush=True)
    sys.stdin.read()
"""


@contextmanager
def start_owner(spec: BackingSpec, die_at: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has made a backing, and is killed at the end of the block.

    With ``die_at`` it dies after that command of LVM or md.
    """
    source = HERE.parent / "src"
    argv = [sys.executable, "-c", OWNER, str(HERE), str(source), repr(spec), str(die_at)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe) as owner:
        assert owner.stdout
        told = owner.stdout.readline()
        assert bool(told) != bool(die_at)
        yield owner
        owner.send_signal(signal.SIGKILL)


def assert_sweep_cleans(path: Path, before: set[str]) -> None:
    """A sweep takes away all that a dead study has left."""
    swept = sweep([path])
    assert swept and [each.kept for each in swept] == [""] * len(swept)
    assert_clean(path, before)
