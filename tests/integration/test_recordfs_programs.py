"""QEMU and PostgreSQL on a recorded folder, unchanged; their logs replay to what they left.

Requires root, /dev/fuse, the built diskproof-recordfs, QEMU's storage daemon with fio, PostgreSQL.
"""

from collections import Counter
from itertools import product
from pathlib import Path

import psycopg
import pytest

from diskproof.process.start import find_tool, run
from support.crash_logs import DIRECT, Record, check_acks_follow_flushes
from support.databases import make_cluster, start_server
from support.disks import run_fio, start_drive
from support.recording import Places, make_places, needs_fuse, start_recording

_MISSING = [tool for tool in ("qemu-storage-daemon", "qemu-img", "fio") if not find_tool(tool)]
pytestmark = needs_fuse
needs_qemu = pytest.mark.skipif(bool(_MISSING), reason=f"needs {_MISSING}")
WRITES = 64
DISKS = [
    (form, cache, aio)
    for form, cache, aio in product(
        ("raw", "qcow2"), ("none", "writeback", "writethrough"), ("threads", "native", "io_uring")
    )
    if aio != "native" or cache == "none"
]


@needs_qemu
@pytest.mark.parametrize(("form", "cache", "aio"), DISKS)
def test_the_storage_daemon_runs_unchanged(tmp_path: Path, form: str, cache: str, aio: str) -> None:
    levels = {"format": form, "cache": cache, "aio": aio}
    with start_recording(make_places(tmp_path)) as recording:
        with start_drive(recording.mount, frontend="daemon", **levels) as drive:
            run_fio(drive, iodepth="8", end_fsync="1")
        records = recording.finish()
    check_disk_writes(records, direct=cache == "none", through=cache == "writethrough")


def check_disk_writes(records: list[Record], *, direct: bool, through: bool) -> None:
    """The load's writes came with the flags of the cache mode, and with its flushes."""
    [(image, _)] = Counter(r.file for r in records if r.kind == "write").most_common(1)
    writes = [r for r in records if r.kind == "write" and r.file == image]
    flushes = [r for r in records if r.kind == "fsync" and r.file == image]
    load = [record for record in writes if len(record.payload) == 8 + 4096]
    assert len(load) >= WRITES
    load = load[-WRITES:]  # before them qemu-img made the image, through the page cache
    assert {bool(record.flags & DIRECT) for record in load} == {direct}
    assert any(all(w.end_ns <= f.begin_ns for w in load) for f in flushes)
    if through:
        assert len(flushes) >= WRITES / 8


@needs_qemu
@pytest.mark.parametrize("cache", ["none", "writeback", "unsafe"])
def test_qemu_img_runs_unchanged(tmp_path: Path, cache: str) -> None:
    places = make_places(tmp_path)
    (places.backing / "raw").write_bytes(bytes(1 << 20) + bytes(range(256)) * 4096)
    with start_recording(places) as recording:
        both = [str(recording.mount / "raw"), str(recording.mount / "image")]
        run(["qemu-img", "convert", "-t", cache, "-O", "qcow2", *both], timeout=60)
        run(["qemu-img", "compare", "-f", "raw", "-F", "qcow2", *both], timeout=60)
        run(["qemu-img", "resize", "-q", "--shrink", "-f", "raw", both[0], "1M"], timeout=60)
        records = recording.finish()
    assert "truncate" in {record.kind for record in records}


def test_postgresql_runs_unchanged(tmp_path: Path) -> None:
    with make_cluster() as folder:
        ours = (tmp_path / name for name in ("log", "base", "messages"))
        places = Places(folder / "backing", folder / "data", *ours)
        (folder / "data").rename(places.backing)
        (folder / "data").mkdir()
        with start_recording(places) as recording:
            with start_server(folder) as server:
                with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
                    write_rows(connection, places.mount)
            records = recording.finish()
        with start_server(folder_of_base(folder, places)) as server:
            with psycopg.connect(server.url("postgres")) as connection:
                assert connection.execute("SELECT count(*) FROM t").fetchone() == (20,)
    check_acks_follow_flushes(records)


def folder_of_base(folder: Path, places: Places) -> Path:
    """The backing where a server looks for it."""
    places.mount.rmdir()
    places.backing.rename(places.mount)
    return folder


def write_rows(connection: psycopg.Connection, mount: Path) -> None:
    """Commits, each acknowledged when it is done."""
    connection.execute("CREATE TABLE t (n INTEGER, filler TEXT)")
    with (mount / ".diskproof-ack").open("wb", buffering=0) as acks:
        for number in range(20):
            connection.execute("INSERT INTO t VALUES (%s, repeat('x', 3000))", (number,))
            acks.write(b"%d\n" % number)
