"""The monitor's virtual machines on real guests: what the guest asked for beside what the host did.

Requires the built guest (``diskproof guest build``), qemu-system-x86_64 and, for the host's syncs,
root and tracepoints.
"""

import json
import os
import select
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from diskproof.drive import DiskImage
from diskproof.guest.ours.boot import Guest, start_guest
from diskproof.guest.ours.build import GuestFiles
from diskproof.process.native import require_native
from diskproof.process.start import Process, start_process
from diskproof.qemu.disk import guest_disk_args
from diskproof.qemu.machine import GuestMachine
from diskproof.records import Cell, WorkloadSpec

pytestmark = pytest.mark.long

SIZE = 16 << 20
DEADLINE = 120.0
SECONDS = 10
JOB = "--name=j --rw=randwrite --bs=4k --size=8m --direct=1 --fdatasync=1 --thread --ioengine=psync"

Row = dict[str, float | None]


@dataclass
class Watching:
    """A monitor whose JSON lines are read as they come."""

    lines: int
    pending: bytes = b""
    columns: tuple[str, ...] = ()

    def next_rows(self) -> tuple[float, dict[str, Row]]:
        """Time and virtual machines of the next sample."""
        message = self._next()
        if message["type"] == "header":
            self.columns = tuple(each["name"] for each in message["rows"]["columns"])
            message = self._next()
        rows = {
            name: dict(zip(self.columns, values, strict=True)) for name, *values in message["rows"]
        }
        return message["time"], rows

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + DEADLINE
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.lines], [], [], deadline - time.monotonic())
            chunk = os.read(self.lines, 1 << 16) if ready else b""
            assert chunk, "the monitor says nothing"
            self.pending += chunk
        line, _, self.pending = self.pending.partition(b"\n")
        return dict(json.loads(line))

    def read_until(self, name: str, wanted: Callable[[Row], bool]) -> list[tuple[float, Row]]:
        """The samples of one machine up to the first that is as wanted."""
        seen: list[tuple[float, Row]] = []
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            at, rows = self.next_rows()
            if name in rows:
                seen.append((at, rows[name]))
                if wanted(rows[name]):
                    return seen
        raise AssertionError(f"never as wanted: {seen[-3:]}")


@contextmanager
def start_monitor(folder: Path, *arguments: str) -> Iterator[Watching]:
    reader, writer = os.pipe()
    argv = [
        str(require_native("diskproof-monitor")),
        "--vm",
        *arguments,
        "--json",
        "-",
        "-q",
        "0.5",
    ]
    try:
        with os.fdopen(writer, "wb") as sink:
            started = start_process(argv, name="monitor", log=folder / "monitor.log", stdout=sink)
            with started:
                sink.close()
                yield Watching(reader)
    finally:
        os.close(reader)


@contextmanager
def start_named_guest(
    files: GuestFiles, folder: Path, name: str, cache: str, *more: str
) -> Iterator[Guest]:
    """A guest with named threads, a disk and a QMP socket as a management tool would have it."""
    images = folder / name
    images.mkdir(mode=0o777)
    images.chmod(0o777)
    image = images / "disk.img"
    with image.open("wb") as stream:
        stream.truncate(SIZE)
    image.chmod(0o666)
    levels = {"frontend": "guest", "format": "raw", "bus": "virtio-blk", "cache": cache}
    cell = Cell(tuple(sorted(levels.items())), WorkloadSpec("none", "fio"))
    args = (
        *guest_disk_args(cell, DiskImage(image, "raw", SIZE)),
        *("-name", f"guest={name},process=renamed,debug-threads=on"),
        *("-qmp", "unix:monitor.sock,server=on,wait=off"),
        *more,
    )
    machine = GuestMachine("tcg", memory_bytes=256 << 20, bus="virtio-blk", disk_args=args)
    try:
        with start_guest(files, machine, run_dir=folder, disk_folder=images) as guest:
            yield guest
    finally:
        shutil.rmtree(images)


def write_and_sync(guest: Guest) -> int:
    """fio in the guest; gives how many syncs it counted."""
    assert guest.started.disk is not None
    argv = ["fio", f"--filename={guest.started.disk.device}", *JOB.split()]
    argv += ["--time_based", f"--runtime={SECONDS}", "--output-format=json"]
    done = guest.channel.exec(argv, timeout=DEADLINE)
    assert done.exit.code == 0, done.stderr
    text = done.stdout
    (job,) = json.loads(text[text.index(b"{\n") :])["jobs"]
    return int(job["sync"]["lat_ns"]["N"])


def asked_flushes(guest: Guest) -> int:
    """What QEMU itself has counted on all disks."""
    stats: Any = guest.qmp.execute("query-blockstats")
    return sum(each["stats"]["flush_operations"] for each in stats)


def total(samples: list[tuple[float, Row]], column: str) -> float:
    """A rate summed up over time."""
    spans = zip(samples, samples[1:], strict=False)
    return sum((b - a) * (row[column] or 0.0) for (a, _), (b, row) in spans)


def quiet(column: str) -> Callable[[Row], bool]:
    return lambda row: row[column] == 0.0


@pytest.mark.skipif(os.geteuid() != 0, reason="counting another's system calls needs root")
def test_what_guests_flush_and_what_the_host_makes_of_it(
    guest_files: GuestFiles, run_dir: Path, tmp_path: Path
) -> None:
    """With cache=unsafe a guest flushes, and the host does nothing about it."""
    with (
        start_named_guest(guest_files, run_dir, "kept", "writeback") as kept,
        start_named_guest(guest_files, run_dir, "unsafe", "unsafe") as unsafe,
        start_monitor(tmp_path, "--qmp") as watching,
    ):
        for name, guest in (("kept", kept), ("unsafe", unsafe)):
            for _ in range(3):  # a QEMU that was late once is left alone for a while
                samples, told = watch_flushes(watching, name, guest)
                if all(row["vm.guest_flush"] is not None for _, row in samples):
                    break
            # Answers come each second, on a busy host later; until then the last one stands.
            assert total(samples, "vm.guest_flush") == pytest.approx(told, rel=0.4)
            synced = total(samples, "vm.host_fdatasync")
            assert synced == (0.0 if name == "unsafe" else pytest.approx(told, rel=0.15))
            check_row(samples, guest.process.pid)
        check_other_client(run_dir / "kept" / "monitor.sock", watching)


def watch_flushes(
    watching: Watching, name: str, guest: Guest
) -> tuple[list[tuple[float, Row]], int]:
    """What the monitor tells while a guest writes and syncs, and how many flushes QEMU had."""
    before = asked_flushes(guest)
    idle = watching.read_until(name, quiet("vm.guest_flush"))
    done = write_and_sync(guest)
    ended = time.time()
    busy = watching.read_until(name, lambda row: (row["vm.guest_flush"] or 0) > 0)
    after = watching.read_until(name, quiet("vm.guest_flush"))
    while after[-1][0] < ended:  # on a busy host the guest rested in between
        after += watching.read_until(name, quiet("vm.guest_flush"))
    told = asked_flushes(guest) - before
    assert done > 0 and abs(told - done) <= 0.02 * done
    return [idle[-1], *busy, *after], told


def check_other_client(path: Path, watching: Watching) -> None:
    """The monitor neither holds the socket nor comes near it while another uses it."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(DEADLINE)
        client.connect(str(path))
        stream = client.makefile("rwb")
        assert "QMP" in json.loads(stream.readline())
        stream.write(b'{"execute":"qmp_capabilities"}\n')
        stream.flush()
        assert json.loads(stream.readline()) == {"return": {}}
        watching.read_until("kept", lambda row: row["vm.guest_flush"] is None)
        stream.write(b'{"execute":"query-status"}\n')
        stream.flush()
        assert json.loads(stream.readline())["return"]["running"]
    assert connected(path) == 0


def connected(path: Path) -> int:
    """How many ends of this socket somebody holds, as far as this network namespace shows."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return sum(line.endswith(f" {path}") and line.split()[5] == "03" for line in lines)


BARE = ("-machine", "pc,accel=tcg", "-m", "32", "-nodefaults", "-display", "none", "-S")


@contextmanager
def start_bare(folder: Path, name: str, *arguments: str) -> Iterator[Process]:
    """A QEMU whose guest has not started."""
    argv = ["qemu-system-x86_64", *BARE, *arguments]
    with start_process(argv, name=name, log=folder / f"{name}.log") as process:
        yield process


def test_machines_come_and_go(tmp_path: Path) -> None:
    uuid = "12345678-0000-4000-8000-123456789abc"
    with start_monitor(tmp_path) as watching, ExitStack() as stack:
        name = f"plain-{os.getpid()}"
        plain = stack.enter_context(start_bare(tmp_path, "plain", "-name", name))
        named = ("-name", "debug-threads=on", "-uuid", uuid)
        other = stack.enter_context(start_bare(tmp_path, "other", *named))
        row = watching.read_until(name, lambda row: row["vm.vcpu"] is not None)[-1][1]
        assert row["vm.pid"] == plain.pid
        assert row["vm.wait"] is None and row["vm.emulator"] is None, "threads have no names"
        assert row["vm.guest_flush"] is None, "it was not asked"
        row = watching.read_until(uuid, lambda row: row["vm.emulator"] is not None)[-1][1]
        assert row["vm.pid"] == other.pid and row["vm.wait"] is not None
        plain.kill()
        while "plain" in (rows := watching.next_rows()[1]):
            pass
        assert uuid in rows


def check_row(samples: list[tuple[float, Row]], pid: int) -> None:
    assert max(row["vm.vcpu"] or 0.0 for _, row in samples) > 10
    assert max(row["vm.guest_flush_await"] or 0.0 for _, row in samples) > 0
    last = samples[-1][1]
    assert last["vm.pid"] == pid
    assert 50 < (last["vm.rss"] or 0.0) < 600
    for column in ("vm.wait", "vm.emulator", "vm.read", "vm.write", "vm.swap", "vm.ksm"):
        assert last[column] is not None, column
