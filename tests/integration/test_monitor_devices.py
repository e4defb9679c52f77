"""The monitor and devices: flushes that really happen, disks and network devices that come and go.

Requires root, loop devices and fio.
"""

import csv
import fcntl
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diskproof.process.start import find_tool, run
from support.watching import DEADLINE, watching

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for devices"),
    pytest.mark.skipif(not Path("/dev/loop-control").exists(), reason="needs loop devices"),
]
LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81  # linux/loop.h
WRITES = 400


def loop_control(request: int, number: int) -> int:
    control = os.open("/dev/loop-control", os.O_RDWR)
    try:
        return fcntl.ioctl(control, request, number)
    finally:
        os.close(control)


@contextmanager
def own_loop() -> Iterator[tuple[str, int]]:
    """A loop device that only this test has: name and number."""
    number = 100 + os.getpid()
    loop_control(LOOP_CTL_ADD, number)
    try:
        yield f"loop{number}", number
    finally:
        if Path(f"/sys/block/loop{number}").exists():
            loop_control(LOOP_CTL_REMOVE, number)


@contextmanager
def attached(name: str, file: Path) -> Iterator[Path]:
    with file.open("wb") as stream:
        stream.truncate(16 << 20)
    device = Path("/dev", name)
    run(["losetup", str(device), str(file)], timeout=DEADLINE)
    try:
        yield device
    finally:
        run(["losetup", "--detach", str(device)], timeout=DEADLINE)


def counters(name: str) -> list[int]:
    for line in Path("/proc/diskstats").read_text().splitlines():
        if line.split()[2] == name:
            return [int(word) for word in line.split()[3:]]
    raise AssertionError(f"no {name}")


@pytest.mark.skipif(not find_tool("fio"), reason="needs fio")
def test_flushes_of_fio_are_all_seen(tmp_path: Path) -> None:
    """Rates times intervals give what /proc/diskstats counts before and after."""
    table = tmp_path / "run.csv"
    with own_loop() as (name, _), attached(name, tmp_path / "disk") as device:
        before = counters(name)
        with watching("-r", "--flush", "-d", "-D", name, "--csv", table, "0.05") as watched:
            watched.next_line()  # the display's header is written with the first line
            size = str(WRITES * 4096)
            job = ["--name=j", "--rw=write", "--bs=4k", "--fsync=1", "--direct=1"]
            run(["fio", *job, f"--filename={device}", f"--size={size}"], timeout=10 * DEADLINE)
            after = counters(name)
            wanted = len(table.read_text().splitlines()) + 2
            while len(table.read_text().splitlines()) < wanted:
                watched.next_line()
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    times = [float(row["time [s]"]) for row in rows]
    assert max(float(row[f"disk.{name}.flush [1/s]"]) for row in rows) > 0
    assert any(float(row[f"disk.{name}.flush_await [ms]"] or 0) > 0 for row in rows)
    # The first row's interval is not in the file; nothing happened in it.
    totals = {
        column: sum(
            float(row[f"disk.{name}.{column}"]) * (b - a)
            for row, a, b in zip(rows[1:], times, times[1:], strict=False)
        )
        for column in ("flush [1/s]", "write_iops [1/s]", "write [MiB/s]")
    }
    flushes, writes, sectors = (after[at] - before[at] for at in (15, 4, 6))
    # fio does not sync after its last write.
    assert flushes >= WRITES - 1 and writes >= WRITES
    # Two clocks are compared: the time of day is read a little later than the counters are.
    assert totals["flush [1/s]"] == pytest.approx(flushes, rel=0.05)
    assert totals["write_iops [1/s]"] == pytest.approx(writes, rel=0.05)
    assert totals["write [MiB/s]"] == pytest.approx(sectors / 2048, rel=0.05)


def test_a_disk_that_is_taken_away_and_comes_back() -> None:
    with own_loop() as (name, number):
        with watching("-r", "-D", f"{name},total", "--csv", "0.02") as watched:
            assert f"disk.{name}.read_iops [1/s]" in watched.next_line()
            assert watched.next_row()[1] == 0
            loop_control(LOOP_CTL_REMOVE, number)
            while watched.next_row()[1] is not None:
                pass
            loop_control(LOOP_CTL_ADD, number)
            while watched.next_row()[1] is None:
                pass
            watched.child.terminate()
            assert watched.end()[0] == 0


def test_a_network_device_that_comes_and_goes() -> None:
    one, other = f"dp{os.getpid() % 10**6}a", f"dp{os.getpid() % 10**6}b"
    add = ["ip", "link", "add", one, "type", "veth", "peer", "name", other]
    run(add, timeout=DEADLINE)
    try:
        with watching("-n", "-N", f"{one},total", "--csv", "0.02") as watched:
            assert f"net.{one}.receive [B/s]" in watched.next_line()
            assert watched.next_row()[1] == 0
            run(["ip", "link", "del", one], timeout=DEADLINE)
            while watched.next_row()[1] is not None:
                pass
            run(add, timeout=DEADLINE)
            while watched.next_row()[1] is None:
                pass
    finally:
        run(["ip", "link", "del", one], timeout=DEADLINE, check=False)
