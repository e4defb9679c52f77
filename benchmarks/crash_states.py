"""Crash states built and checked a second, against copying the image and replaying the log.

The plain loop is what users of dm-log-writes run: copy the image from before, replay the log up to
a point, check what is there, next point. Both sides get the same log and the same points, in turns:
a raw image that is judged in process, and a qcow2 image that QEMU's own driver opens. Prints states
a second and their ratio; exits with 1 when a ratio is below its bar.

Requires root, /dev/fuse, QEMU and the built native programs.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.process.native import require_native
from diskproof.process.start import run, start_process

BARS = {"raw": 100.0, "qcow2": 10.0}
HEADER, FRAME = 64, struct.Struct("<IIIBBHQQQQ")
WRITE, ACKNOWLEDGE = 9, 18
DEADLINE = 120.0


@dataclass(frozen=True)
class Recorded:
    """A recording of a ledger on an image: its log, the copy from before, and their format."""

    format: str
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def base(self) -> Path:
        return self.folder / "base"

    @property
    def image(self) -> str:
        return f"disk.{self.format}"


@dataclass(frozen=True)
class Point:
    """A place in the log: the writes before it, and what had been acknowledged."""

    writes: tuple[tuple[int, bytes], ...]
    acknowledged: int


@contextmanager
def start_recording(place: Recorded) -> Iterator[Path]:
    """The recorded directory, for the length of a ``with`` block."""
    mount, acks = place.folder / "mount", place.folder / "acks"
    mount.mkdir()
    argv = [str(require_native("diskproof-recordfs")), str(place.folder / "backing"), str(mount)]
    run([*argv, "--log", str(place.log), "--acks", str(acks)], timeout=DEADLINE)
    try:
        yield mount
    finally:
        run(["umount", str(mount)], timeout=DEADLINE)


@contextmanager
def start_daemon(image: Path, format_name: str, folder: Path) -> Iterator[str]:
    """The image's disk behind QEMU's driver: an NBD address."""
    path = folder / "nbd"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        descriptor = listener.fileno()
        argv = ["qemu-storage-daemon"]
        argv += ["--blockdev", f"driver=file,node-name=file,filename={image}"]
        argv += ["--blockdev", f"driver={format_name},node-name=disk,file=file"]
        argv += ["--nbd-server", f"addr.type=fd,addr.str={descriptor}"]
        argv += ["--export", "type=nbd,id=disk,node-name=disk,name=disk,writable=on"]
        starting = start_process(
            argv, name="daemon", log=folder / "messages", pass_fds=[descriptor]
        )
        try:
            with starting:
                yield f"nbd+unix:///disk?socket={path}"
        finally:
            path.unlink()


def record(place: Recorded, records: int) -> None:
    """A ledger on a new image of the format, in a storage daemon on a recorded directory."""
    backing = place.folder / "backing"
    backing.mkdir(parents=True)
    argv = ["qemu-img", "create", "-q", "-f", place.format, str(backing / place.image), "64M"]
    run(argv, timeout=DEADLINE)
    shutil.copytree(backing, place.base)
    ledger = [str(require_native("diskproof-ledger")), "write", "--records", str(records)]
    with (
        start_recording(place) as mount,
        start_daemon(mount / place.image, place.format, place.folder) as disk,
    ):
        acks = ["--acks", str(place.folder / "acks")]
        run([*ledger, disk, *acks], timeout=DEADLINE, check=True)


def read_points(log: Path) -> list[Point]:
    """Every acknowledgement, with the writes before it (data only: these logs change no sizes)."""
    content = log.read_bytes()
    at, writes, points = HEADER, list[tuple[int, bytes]](), list[Point]()
    while at < len(content):
        crc, _, length, kind, *_ = FRAME.unpack_from(content, at)
        assert crc == zlib.crc32(content[at + 4 : at + FRAME.size])
        payload = content[at + FRAME.size : at + FRAME.size + length]
        if kind == WRITE:
            writes.append((int.from_bytes(payload[:8], "little"), payload[8:]))
        elif kind == ACKNOWLEDGE:
            points.append(Point(tuple(writes), int(payload.split()[2])))
        at += FRAME.size + (length + 7) // 8 * 8
    return points


def check_plainly(place: Recorded, point: Point, room: Path) -> None:
    """One turn of the plain loop: copy, replay, check."""
    image = room / place.image
    run(["cp", str(place.base / place.image), str(image)], timeout=DEADLINE, check=True)
    with image.open("r+b", buffering=0) as disk:
        for offset, data in point.writes:
            os.pwrite(disk.fileno(), data, offset)
    verify = [str(require_native("diskproof-ledger")), "verify"]
    wanted = ["--acknowledged", str(point.acknowledged), "--json"]
    if place.format == "raw":
        run([*verify, str(image), *wanted], timeout=DEADLINE, check=True)
    else:
        with start_daemon(image, place.format, room) as disk_address:
            run([*verify, disk_address, *wanted], timeout=DEADLINE, check=True)
    image.unlink()


def measure_plain(place: Recorded, points: list[Point], seconds: float) -> float:
    """States a second of the plain loop, from the middle of the log on."""
    room = place.folder / "plain"
    room.mkdir(exist_ok=True)
    began, done = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        check_plainly(place, points[(len(points) // 2 + done) % len(points)], room)
        done += 1
    return done / (time.monotonic() - began)


def measure_explorer(place: Recorded, seconds: float, seed: int) -> tuple[float, float]:
    """States built, and distinct states checked, a second: reading the log is in the time."""
    request = {
        "log": str(place.log),
        "base": str(place.base),
        "fault": "power",
        "sector": 512,
        "seed": seed,
        "check": {"kind": "ledger", "target": place.image, "format": place.format},
        "budget": {"states": 1 << 40, "seconds": seconds},
    }
    path = place.folder / "request.json"
    path.write_text(json.dumps(request))
    argv = [str(require_native("diskproof-states")), "explore", str(path)]
    answer = run(argv, timeout=seconds + DEADLINE, check=True)
    summary = json.loads(answer.text.splitlines()[-1])
    assert summary["type"] == "summary" and summary["verdict"] == "keeps", summary
    states, took = summary["states"], summary["seconds"]
    return states["built"] / took, states["checked"] / took


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=5.0, help="of each side in a round")
    options.add_argument("--records", type=int, default=1000)
    chosen = options.parse_args()
    short = False
    with tempfile.TemporaryDirectory(prefix="diskproof-states-") as folder:
        for format_name, bar in BARS.items():
            place = Recorded(format_name, Path(folder) / format_name)
            record(place, chosen.records)
            points = read_points(place.log)
            plain, built, checked = [], [], []
            for seed in range(chosen.rounds):
                plain.append(measure_plain(place, points, chosen.seconds))
                rates = measure_explorer(place, chosen.seconds, seed)
                built.append(rates[0])
                checked.append(rates[1])
            slow, fast = statistics.median(plain), statistics.median(checked)
            short |= fast / slow < bar
            print(
                f"{format_name}: plain loop {slow:.1f} states/s, explorer {fast:.0f} checked/s "
                f"({statistics.median(built):.0f} built/s): {fast / slow:.0f} times (bar {bar:.0f})"
            )
    return int(short)


if __name__ == "__main__":
    sys.exit(main())
