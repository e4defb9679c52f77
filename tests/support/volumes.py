"""Volumes of the kernel for tests; light, for these tests also run inside a guest."""

import itertools
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from diskproof.backings import start_place
from diskproof.backings import volumes as commands
from diskproof.backings.consent import give_consent
from diskproof.backings.loop import find_loops, start_loop
from diskproof.backings.place import Place, find_device, start_run_dir
from diskproof.backings.volumes import SYS, run_quietly
from diskproof.errors import DiskproofError, HostError
from diskproof.host.cache import count_resident
from diskproof.host.janitor import sweep
from diskproof.host.storage_findings import STACKS, examine_stack
from diskproof.process.start import Completed, run
from diskproof.records import BackingSpec
from diskproof.study.backings import KINDS

MIB = 1 << 20
HERE = Path(__file__).parents[1]


def backing(kind: str, on: BackingSpec | None = None, **given: str) -> BackingSpec:
    """A backing with the defaults of its kind."""
    defaults = {key: option.default_text for key, option in KINDS[kind].options.items()}
    return BackingSpec("here", kind, tuple({**defaults, **given}.items()), on)


def folder(path: Path) -> BackingSpec:
    path.mkdir(parents=True, exist_ok=True)
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


def assert_last_close_drops_pages(device: Path, size: int) -> None:
    """What the host's page cache holds of a volume while it is open, and of what was closed since:
    as of any block device, so a QEMU that ends takes it along."""

    def count_pages() -> int:
        with device.open("rb", buffering=0) as stream:
            return count_resident(stream.fileno())

    with device.open("rb", buffering=0) as stream:
        while stream.read(MIB):
            pass
        assert count_pages() == size
    assert count_pages() == 0


def assert_doctor_made(kind: str, types: str, path: Path) -> None:
    """The doctor has tried each of a backing's types, and all of them work."""
    (stack,) = [stack for stack in STACKS if stack.backing == kind]
    finding = examine_stack(stack, path)
    assert (finding.ok, finding.hint) == ("yes", ""), finding.what
    assert finding.what.startswith(f"{types}: made")


def signatures(device: Path) -> str:
    return run(["wipefs", "--noheadings", "--output", "TYPE", str(device)], timeout=30).text.strip()


GONE_SECONDS = 60.0


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
    deadline = time.monotonic() + GONE_SECONDS
    while volumes() != before and time.monotonic() < deadline:
        time.sleep(0.05)  # the kernel takes a stopped array away in its own time
    assert volumes() == before
    assert find_loops(path) == ()
    assert list(path.glob("**/diskproof-*")) == []


@contextmanager
def start_owner(spec: BackingSpec, die_at: int = 0) -> Iterator[None]:
    """Another process that has made a backing, and is killed at the end of the block.

    With ``die_at`` it dies after that command of LVM or md.
    """
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        _own(spec, die_at, tell)
    os.close(tell)
    try:
        with os.fdopen(told, "rb") as stream:
            assert stream.read() == (b"" if die_at else b"made")
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _own(spec: BackingSpec, die_at: int, tell: int) -> NoReturn:
    """The life of an owner; it never comes back into the test."""
    steps = itertools.count(1)

    def step(argv: list[str], LVM_SYSTEM_DIR: str = "") -> Completed:
        done = run_quietly(argv, LVM_SYSTEM_DIR=LVM_SYSTEM_DIR)
        if next(steps) == die_at:
            os._exit(9)
        return done

    try:
        setattr(commands, "run_quietly", step)  # noqa: B010
        with start_place(spec, give_consent([spec])):
            os.write(tell, b"made")
            os.close(tell)
            signal.pause()
    except (DiskproofError, OSError):
        traceback.print_exc()
    finally:
        os._exit(1)


def assert_sweep_cleans(path: Path, before: set[str]) -> None:
    """A sweep takes away all that a dead study has left."""
    swept = sweep([path])
    assert swept and [each.kept for each in swept] == [""] * len(swept)
    assert_clean(path, before)
