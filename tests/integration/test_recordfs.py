"""recordfs with real programs: what they did is in the log, and the log replays to what they left.

Requires root, /dev/fuse and the built diskproof-recordfs.
"""

import ctypes
import errno
import mmap
import os
import sqlite3
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from support.crash_logs import (
    DATA_ONLY,
    DIRECT,
    DIRECTORY,
    DSYNC,
    MAPPED,
    PUNCH_HOLE,
    RENAME_EXCHANGE,
    SYNC,
    ZERO_RANGE,
    Record,
    check_acks_follow_flushes,
)
from support.recording import make_places, needs_fuse, start_recording

pytestmark = needs_fuse

REMARKS = ("base", "note", "open", "release")
LIBC = ctypes.CDLL(None, use_errno=True)
MODES = pytest.mark.parametrize("options", [(), ("--page-cache",)], ids=["direct", "page-cache"])


def changes(records: list[Record]) -> list[Record]:
    return [record for record in records if record.kind not in REMARKS]


def call(name: str, *arguments: object) -> None:
    """A system call that Python has no function for."""
    numbers = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    if getattr(LIBC, name)(*numbers) != 0:
        raise OSError(ctypes.get_errno(), name)


def write_files(mount: Path) -> list[tuple[str, int]]:
    """Every kind of write and flush, and what the log must say of it: kind and flags."""
    fd = os.open(mount / "f", os.O_RDWR | os.O_CREAT, 0o640)
    os.pwrite(fd, b"x" * 10000, 0)
    os.pwritev(fd, [b"d"], 1, os.RWF_DSYNC)
    os.pwritev(fd, [b"s"], 2, os.RWF_SYNC)
    os.fdatasync(fd)
    os.fsync(fd)
    os.ftruncate(fd, 65536)
    os.posix_fallocate(fd, 65536, 4096)
    call("fallocate", fd, PUNCH_HOLE | 1, 0, 4096)
    call("fallocate", fd, ZERO_RANGE, 4096, 4096)
    os.close(fd)
    flags = (os.O_DIRECT, os.O_DSYNC, os.O_SYNC, os.O_APPEND)
    for flag in flags:
        fd = os.open(mount / "f", os.O_WRONLY | flag)
        with mmap.mmap(-1, 4096) as aligned:
            os.write(fd, aligned)
        os.close(fd)
    expected = [("create", 0), ("write", 0), ("write", DSYNC), ("write", SYNC | DSYNC)]
    expected += [("fsync", DATA_ONLY), ("fsync", 0), ("truncate", 0)]
    expected += [("fallocate", 0)] * 3
    return [*expected, *(("write", f) for f in (DIRECT, DSYNC, SYNC | DSYNC, 0))]


def change_names(mount: Path) -> list[tuple[str, int]]:
    """Every change of a name or attribute."""
    (mount / "d").mkdir(0o750)
    (mount / "d/s").symlink_to("../f")
    os.link(mount / "f", mount / "d/l")
    os.mkfifo(mount / "p", 0o600)
    (mount / "d/l").rename(mount / "g")
    call("renameat2", -100, bytes(mount / "p"), -100, bytes(mount / "f"), RENAME_EXCHANGE)
    (mount / "g").rename(mount / "p")  # two names of one file: nothing happens
    (mount / "g").unlink()
    (mount / "p").chmod(0o600)
    os.chown(mount / "p", 1000, 1000)
    os.setxattr(mount / "p", "user.a", b"1")
    os.removexattr(mount / "p", "user.a")
    (mount / "d/s").unlink()
    folder = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)
    (mount / "d").rmdir()
    with pytest.raises(FileNotFoundError):
        (mount / "nothing").unlink()
    kinds = "mkdir symlink link create rename rename unlink setattr setattr setxattr removexattr"
    expected = [(kind, 0) for kind in [*kinds.split(), "unlink"]]
    return [*expected, ("fsync", DIRECTORY), ("rmdir", 0), ("end", 0)]


def test_every_system_call_is_in_the_log_once_and_in_order(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    (places.backing / "old").write_bytes(b"before")
    (places.backing / "folder").mkdir()
    (places.backing / "folder/link").symlink_to("../old")
    os.link(places.backing / "old", places.backing / "folder/second")
    with start_recording(places) as recording:
        expected = write_files(recording.mount) + change_names(recording.mount)
        records = recording.finish()
    assert [(record.kind, record.flags) for record in changes(records)] == expected
    bases = [record for record in records if record.kind == "base"]
    assert [base.names(32)[0] for base in bases] == ["", "folder", "old", "link", "second"]
    assert bases[2].file == bases[4].file
    assert all(record.error == 0 and record.begin_ns <= record.end_ns for record in records)


def test_what_page_cache_mode_adds_are_the_flushes_of_synchronous_writes(tmp_path: Path) -> None:
    with start_recording(make_places(tmp_path), "--page-cache") as recording:
        expected = write_files(recording.mount) + change_names(recording.mount)
        records = recording.finish()
    found = [(record.kind, record.flags) for record in changes(records)]
    assert [pair for pair in found if pair[0] != "fsync"] == [
        pair for pair in expected if pair[0] != "fsync"
    ]
    assert len(found) >= len(expected)


def test_o_direct_is_refused_where_the_backing_refuses_it(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    with start_recording(places) as recording:
        fd = os.open(recording.mount / "f", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        with mmap.mmap(-1, 8192) as aligned, memoryview(aligned) as view:
            assert os.pwrite(fd, view, 0) == 8192
            for offset, length in ((1, 4096), (0, 100)):
                with pytest.raises(OSError) as refused, view[:length] as part:
                    os.pwrite(fd, part, offset)
                assert refused.value.errno == errno.EINVAL
        os.close(fd)
        records = recording.finish()
    writes = [record for record in records if record.kind == "write"]
    assert [record.error for record in writes] == [0, errno.EINVAL, errno.EINVAL]


@MODES
def test_a_shared_mapping_is_recorded_when_it_is_flushed(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    with start_recording(make_places(tmp_path), *options) as recording:
        with (recording.mount / "f").open("w+b") as file:
            file.truncate(3 * 4096 + 5)
            with mmap.mmap(file.fileno(), 0) as mapping:
                mapping[4096:4100] = b"here"
                mapping.flush()
            assert os.pread(file.fileno(), 4, 4096) == b"here"
        records = changes(recording.finish())
    assert [record.kind for record in records[:4]] == ["create", "truncate", "write", "fsync"]
    assert records[2].flags == MAPPED
    assert records[2].payload[8:12] == b"here"
    assert records[2].end_ns <= records[3].begin_ns


def test_a_removed_file_that_is_open_keeps_its_own_id(tmp_path: Path) -> None:
    with start_recording(make_places(tmp_path)) as recording:
        path = recording.mount / "f"
        with path.open("wb", buffering=0) as old:
            old.write(b"old")
            path.unlink()
            path.write_bytes(b"new")
            old.write(b"er")
        records = changes(recording.finish())
    first, second = (record.file for record in records if record.kind == "create")
    assert first != second
    written = [(record.file, record.payload[8:]) for record in records if record.kind == "write"]
    assert written == [(first, b"old"), (second, b"new"), (first, b"er")]


def scribble(mount: Path, seed: int) -> None:
    """Random work on files that all threads share, and on names of its own."""
    random = Random(seed)
    for number in range(60):
        fd = os.open(mount / f"shared{random.randrange(3)}", os.O_RDWR | os.O_CREAT)
        data = bytes([seed]) * random.randrange(1, 9000)
        os.pwrite(fd, data, random.randrange(20000))
        if random.random() < 0.2:
            os.ftruncate(fd, random.randrange(20000))
        os.close(fd)
        own = mount / f"own{seed}-{number % 5}"
        own.write_bytes(data)
        own.replace(mount / f"both{number % 3}")


@MODES
def test_overlapping_writes_of_many_threads_replay_to_what_is_there(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    with start_recording(make_places(tmp_path), *options) as recording:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda seed: scribble(recording.mount, seed), range(6)))
        recording.finish()


@MODES
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_sqlite_runs_unchanged(tmp_path: Path, options: tuple[str, ...], journal: str) -> None:
    with start_recording(make_places(tmp_path), *options) as recording:
        acks = os.open(recording.mount / ".diskproof-ack", os.O_WRONLY)
        file = recording.mount / "db"
        writer, reader = sqlite3.connect(file), sqlite3.connect(file)
        assert writer.execute(f"PRAGMA journal_mode={journal}").fetchone() == (journal,)
        writer.execute("PRAGMA synchronous=FULL")
        writer.execute("CREATE TABLE t (n INTEGER)")
        for number in range(20):
            with writer:
                writer.execute("INSERT INTO t VALUES (?)", (number,))
            os.write(acks, f"{number}\n".encode())
            assert reader.execute("SELECT count(*) FROM t").fetchone() == (number + 1,)
        writer.close()
        reader.close()
        os.close(acks)
        records = changes(recording.finish())
    check_acks_follow_flushes(records)
    with sqlite3.connect(tmp_path / "backing/db") as left:
        assert left.execute("SELECT count(*) FROM t").fetchone() == (20,)


def test_copies_inside_the_mount_are_writes(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    (places.backing / "from").write_bytes(bytes(range(256)) * 20000)
    with start_recording(places) as recording:
        with (recording.mount / "from").open("rb") as source:
            with (recording.mount / "to").open("wb") as target:
                left = 256 * 20000
                while left:
                    left -= os.copy_file_range(source.fileno(), target.fileno(), left)
        records = recording.finish()
    data = b"".join(record.payload[8:] for record in records if record.kind == "write")
    assert data == (places.base / "from").read_bytes()


def test_holes_are_found(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    with (places.backing / "f").open("wb") as file:
        file.truncate(1 << 20)
        os.pwrite(file.fileno(), b"data", 1 << 19)
    plain = holes(places.backing / "f")
    with start_recording(places) as recording:
        assert holes(recording.mount / "f") == plain
        recording.finish()


def holes(path: Path) -> list[int]:
    with path.open("rb") as file:
        data = os.lseek(file.fileno(), 0, os.SEEK_DATA)
        return [data, os.lseek(file.fileno(), data, os.SEEK_HOLE)]


def test_names_beside_the_mount_stay_out(tmp_path: Path) -> None:
    """The magic file is in no listing, cannot be replaced, and nothing reaches its backing."""
    with start_recording(make_places(tmp_path)) as recording:
        mount, acks = recording.mount, recording.mount / ".diskproof-ack"
        (mount / "f").write_bytes(b"")
        assert [path.name for path in mount.iterdir()] == ["f"]
        with pytest.raises(PermissionError):
            (mount / "f").rename(acks)
        with pytest.raises(PermissionError):
            acks.unlink()
        with pytest.raises(OSError) as refused, acks.open("wb", buffering=0) as file:
            file.write(b"x" * 5000 + b"\n")
        assert refused.value.errno == errno.EMSGSIZE
        acks.write_bytes(b"one\n\ntwo")
        records = recording.finish()
    assert [record.text for record in records if record.kind == "acknowledge"] == ["one", "", "two"]


@MODES
def test_of_every_change_the_log_knows_who_asked_for_it(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """A shell that becomes another program has another name from then on, and the same number."""
    with start_recording(make_places(tmp_path), "--callers", *options) as recording:
        write_files(recording.mount)
        change_names(recording.mount)
        shell = "echo $$ >one; exec dd if=/proc/self/stat of=two status=none"
        subprocess.run(["sh", "-c", shell], cwd=recording.mount, check=True)
        with ThreadPoolExecutor(1) as pool:
            thread = pool.submit(threading.get_native_id).result()
            pool.submit((recording.mount / "three").write_bytes, b"x").result()
        (recording.mount / ".diskproof-ack").write_bytes(b"said")
        shown = int((recording.mount / "one").read_text())
        records = recording.finish()
    who = [each.by for each in changes(records) if each.kind not in ("acknowledge", "end")]
    own, comm = os.getpid(), Path("/proc/self/comm").read_text().strip()
    told = [(own, threading.get_native_id(), comm), (shown, shown, "sh"), (shown, shown, "dd")]
    assert list(dict.fromkeys(who)) == [*told, (own, thread, comm)]
    assert {each.by for each in records if each.kind in (*REMARKS, "acknowledge", "end")} == {None}
