"""Writes that are durable when they return, many at once: no promise of theirs is lost.

Requires root, /dev/fuse and the built diskproof-recordfs.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from support.crash_logs import DATA_ONLY, DIRECTORY, DSYNC, Record
from support.recording import Recording, make_places, needs_fuse, start_recording

pytestmark = needs_fuse

WRITERS, ROUNDS, SLOT = 32, 12, 512
SHARED = WRITERS * SLOT


def content(writer: int, number: int) -> bytes:
    """What only this write can have written."""
    return f"{writer:08}{number:08}".encode() * (SLOT // 16)


def write_promised(mount: Path, writer: int) -> None:
    """Durable writes of four kinds to a place of its own, each promised and read back."""
    random = Random(writer)
    extra = (os.O_DSYNC, os.O_SYNC, 0, 0)[writer % 4]
    call = (0, 0, os.RWF_DSYNC, 0)[writer % 4]
    fd = os.open(mount / "file", os.O_RDWR | extra)
    acks = os.open(mount / ".diskproof-ack", os.O_WRONLY)
    for number in range(ROUNDS):
        data = content(writer, number)
        assert os.pwritev(fd, [data], writer * SLOT, call) == SLOT
        if writer % 4 == 3:
            os.fdatasync(fd)
        os.write(acks, f"{writer} {number}\n".encode())
        assert os.pread(fd, SLOT, writer * SLOT) == data
        os.pwrite(fd, data[: random.randrange(1, SLOT)], SHARED + random.randrange(3 * SLOT))
    os.close(acks)
    os.close(fd)


def check_promises(records: list[Record]) -> int:
    """Every acknowledged write is durable wherever after it the power is cut; how many were."""
    durable: set[bytes] = set()
    unsynced: list[Record] = []
    promises = 0
    for record in records:
        assert record.begin_ns <= record.end_ns
        assert not record.error
        if record.kind == "write":
            (durable.add(record.payload) if record.flags & DSYNC else unsynced.append(record))
        elif record.kind == "fsync" and not record.flags & DIRECTORY:
            assert record.flags & DATA_ONLY
            covered = [write for write in unsynced if write.end_ns <= record.begin_ns]
            durable |= {write.payload for write in covered}
        elif record.kind == "acknowledge":
            writer, number = map(int, record.text.split())
            place = (writer * SLOT).to_bytes(8, "little")
            assert place + content(writer, number) in durable, record.text
            promises += 1
    return promises


def run_writers(recording: Recording, write: Callable[[Path, int], None]) -> list[Record]:
    (recording.mount / "file").write_bytes(bytes(SHARED + 4 * SLOT))
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda writer: write(recording.mount, writer), range(WRITERS)))
    return recording.finish()


@pytest.mark.parametrize("threads", ["1", "8", "64"])
def test_promises_of_many_writers_hold_at_every_cut(tmp_path: Path, threads: str) -> None:
    with start_recording(make_places(tmp_path), "--threads", threads) as recording:
        records = run_writers(recording, write_promised)
    assert check_promises(records) == WRITERS * ROUNDS


def write_overlapping(mount: Path, writer: int) -> None:
    """Durable and other writes, reads, truncations and flushes of the same few bytes."""
    random = Random(writer)
    fd = os.open(mount / "file", os.O_RDWR)
    for _ in range(ROUNDS):
        length = random.choice((1, 700, 5000, 200_000))
        data, offset = bytes([writer + 1]) * length, random.randrange(9000)
        assert os.pwritev(fd, [data], offset, random.choice((0, os.RWF_DSYNC))) == length
        assert set(os.pread(fd, 4096, offset)) <= set(range(WRITERS + 1))
        if random.random() < 0.1:
            random.choice((os.fsync, os.fdatasync))(fd)
        if random.random() < 0.1:
            os.ftruncate(fd, random.randrange(9000))
    os.close(fd)


@pytest.mark.parametrize("threads", ["1", "8"])
def test_durable_writes_that_overlap_replay_to_what_is_there(tmp_path: Path, threads: str) -> None:
    with start_recording(make_places(tmp_path), "--threads", threads) as recording:
        records = run_writers(recording, write_overlapping)
    assert any(record.flags & DSYNC for record in records if record.kind == "write")
