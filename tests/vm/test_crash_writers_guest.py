"""Writers in a real guest under a real recorder, checked in a fresh one.

Requires the built guest, root and /dev/fuse.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.backings import NO_CONSENT
from diskproof.crash.flush_audit import Route, audit_flushes
from diskproof.crash.writers.guest_disk import run_promising
from diskproof.drive import RunContext
from diskproof.errors import RunFailure
from diskproof.frontends import load_frontend
from diskproof.frontends.guest import GuestDrive
from diskproof.process.owner import admit
from diskproof.process.start import run
from diskproof.qemu.images import create_image
from diskproof.recording.folder import Recording, start_recording
from diskproof.recording.log import ACKNOWLEDGE, FSYNC, WRITE, read_frames
from diskproof.records import BackingSpec
from diskproof.study.crash import CrashRules
from support.recording import needs_fuse
from support.written import RULES, ask_check, make_cell, read_acks, run_check, start_written

pytestmark = [needs_fuse, pytest.mark.long]
FILE_SYSTEMS = {"ext4": 0, "xfs": 320 << 20, "btrfs": 128 << 20}  # the smallest disks they take


def test_a_ledger_on_the_guests_disk(tmp_path: Path) -> None:
    """Each promise stands in the log after the host's flush that it rests on, and before the next
    record, which its writer writes as soon as it has promised."""
    rules = CrashRules(records=40, seconds=60.0, depth=1, flush_every=1)
    cell = make_cell("ledger", "guest", rules, cache="none", bus="virtio-blk")
    with start_written(cell, tmp_path) as recorded:
        acks = read_acks(recorded)
        assert acks[-1].endswith(" 40")
        flushed = written = 0
        for frame in read_frames(recorded.killed):
            flushed += frame.kind == FSYNC
            written += frame.kind == WRITE
            if frame.kind == ACKNOWLEDGE and frame.payload.startswith(b"ledger"):
                words = frame.payload.split()
                assert len(words) > 3 or int(words[2]) <= flushed
                assert int(words[2]) == written
        kept = run_check(cell, recorded.files, acks, recorded.room)
        assert (kept.returncode, kept.text) == (0, "0\n"), kept.error_text
        lost = run_check(cell, recorded.base, acks, recorded.room)
        assert (lost.returncode, lost.text) == (1, "20\n")


@contextmanager
def start_promising(room: Path) -> Iterator[tuple[Recording, GuestDrive]]:
    """A guest with a recorded disk, and with the console that promises are written to."""
    files = room / "files"
    files.mkdir()
    admit(files)
    cell = make_cell("ledger", "guest", cache="none", bus="virtio-blk")
    made = create_image(files, cell, 16 << 20)
    with (
        start_recording(files, room) as recording,
        recording.open_promises() as promises,
    ):
        image = replace(made, path=recording.folder / made.path.name)
        context = RunContext(cell, image, room, "tcg", promises=promises.descriptor)
        with load_frontend("guest").start(context) as drive:
            assert isinstance(drive, GuestDrive)
            yield recording, drive


HALF = "printf 'one\\ntwo'"
ENDS = {
    "by itself": (HALF, ["one", "two"]),
    "by a signal": (f"{HALF}; kill -9 $$", ["one", "two"]),
    "when its time is over": (f"{HALF}; sleep 1000", ["one"]),
    "after the longest line": ("head -c 4096 /dev/zero | tr '\\0' x; echo", ["x" * 4096]),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_line_that_a_writer_did_not_end(tmp_path: Path, how: str) -> None:
    """It counts when the writer ended by itself, and not when it was killed before that."""
    script, promised = ENDS[how]
    with start_promising(tmp_path) as (recording, drive):
        done = run_promising(drive, ["sh", "-c", script], 8.0 if "time" in how else 100.0)
        assert done.exit.timed_out == (how == "when its time is over")
    assert promised_in(recording.log) == promised


def promised_in(log: Path) -> list[str]:
    return [each.payload.decode() for each in read_frames(log) if each.kind == ACKNOWLEDGE]


def test_what_a_guest_that_is_killed_had_promised(tmp_path: Path) -> None:
    def kill(recording: Recording, drive: GuestDrive) -> None:
        while b"one" not in recording.log.read_bytes():
            time.sleep(0.02)
        drive.guest.process.kill()

    with pytest.raises(RunFailure, match="QEMU was killed"):
        with start_promising(tmp_path) as (recording, drive):
            threading.Thread(target=kill, args=(recording, drive)).start()
            run_promising(drive, ["sh", "-c", f"{HALF}; sleep 1000"], 100.0)
    assert promised_in(recording.log) == ["one"]


@pytest.mark.parametrize("kind", FILE_SYSTEMS)
def test_a_ledger_of_files(tmp_path: Path, kind: str) -> None:
    """Kept in the end; lost by one that was promised more; not mountable without its blocks."""
    cell = make_cell(
        "ledger-fs",
        "guest",
        size=FILE_SYSTEMS[kind],
        cache="none",
        bus="virtio-blk",
        filesystem=kind,
    )
    with start_written(cell, tmp_path) as recorded:
        acks = read_acks(recorded)
        assert acks[0].count(" ") == 5 and acks[-1].endswith(f" {RULES.records}")
        kept = run_check(cell, recorded.files, acks, recorded.room)
        assert kept.returncode == 0, kept.error_text
        more = f"{acks[-1].rpartition(' ')[0]} {RULES.records + 3}"
        lost = run_check(cell, recorded.files, [*acks, more], recorded.room)
        assert (lost.returncode, lost.text) == (1, "3\n"), lost.error_text
        corrupt = run_check(cell, recorded.base, acks, recorded.room)
        assert corrupt.returncode == 2 and "cannot be mounted" in corrupt.error_text
        assert run_check(cell, recorded.base, acks[:1], recorded.room).returncode == 0


def test_guests_that_go_on_from_one_boot_see_their_own_states(tmp_path: Path) -> None:
    """One after the other, whatever the ones before have shown: what a guest knew is not kept."""
    cell = make_cell("ledger-fs", "guest", cache="none", bus="virtio-blk")
    with start_written(cell, tmp_path) as recorded:
        acks, image = read_acks(recorded), recorded.files / "disk.raw"
        damaged = recorded.room / "damaged"
        damaged.mkdir()
        run(["cp", "--sparse=always", str(image), str(damaged / image.name)], timeout=60)
        run(["e2fsck", "-fy", str(damaged / image.name)], timeout=60, check=False)
        run(["debugfs", "-w", "-R", "rm /slot-000003", str(damaged / image.name)], timeout=60)
        order = [recorded.files, recorded.base, damaged, recorded.files, damaged, recorded.base]
        answers = ask_check(cell, order, acks, recorded.room)
        kept, empty, lost = answers[0], answers[1], answers[2]
        assert kept == "0" and "cannot be mounted" in empty and lost.startswith("1 1 ")
        assert answers[3:] == [kept, lost, empty]


def test_a_file_system_that_is_damaged_is_corrupt(tmp_path: Path) -> None:
    """It mounts and its files are there, but its count of free blocks lies: only fsck sees it."""
    cell = make_cell("ledger-fs", "guest", cache="none", bus="virtio-blk")
    with start_written(cell, tmp_path) as recorded:
        acks = read_acks(recorded)
        image = str(recorded.files / "disk.raw")
        run(["e2fsck", "-fy", image], timeout=60, check=False)
        run(["debugfs", "-w", "-R", "clri /slot-000023", image], timeout=60)
        assert run_check(cell, recorded.files, acks[:1], recorded.room).returncode == 0
        corrupt = run_check(cell, recorded.files, acks, recorded.room)
        assert corrupt.returncode == 2, corrupt.error_text


def test_a_disk_that_is_too_small_for_its_file_system(tmp_path: Path) -> None:
    cell = make_cell("ledger-fs", "guest", cache="none", bus="virtio-blk", filesystem="xfs")
    with pytest.raises(RunFailure, match=r"mkfs.xfs failed") as caught:
        with start_written(cell, tmp_path):
            pass
    assert "300MB" in caught.value.why


def test_sqlite_in_the_guest(tmp_path: Path) -> None:
    cell = make_cell("sqlite", "guest", cache="none", bus="virtio-scsi")
    with start_written(cell, tmp_path) as recorded:
        acks = read_acks(recorded)
        assert [ack for ack in acks if ack.startswith("sqlite ")] == [
            f"sqlite {n}" for n in range(1, RULES.records + 1)
        ]
        assert recorded.summary.counts["flushes"] >= RULES.records
        kept = run_check(cell, recorded.files, acks, recorded.room)
        assert kept.returncode == 0, kept.error_text
        lost = run_check(cell, recorded.files, [*acks, "sqlite 50"], recorded.room)
        assert (lost.returncode, lost.text) == (1, "2\n"), lost.error_text


ROUTES = (Route(), Route("ext4"), Route("ext4", "barrier=0"))


@pytest.mark.parametrize(
    ("cache", "findings"),
    [
        ("none", ["passed on to the host", "passed on to the host", "the guest sends none"]),
        ("unsafe", ["QEMU carries out none", "QEMU carries out none", "the guest sends none"]),
        ("writethrough", ["the host is flushed after each write"] * 3),
    ],
)
def test_where_flushes_end(tmp_path: Path, cache: str, findings: list[str]) -> None:
    cell = make_cell("ledger", "guest", cache=cache, bus="virtio-blk")
    backing = BackingSpec("d", "directory", (("path", str(tmp_path)),))
    rows = audit_flushes(cell, backing, NO_CONSENT, "tcg", ROUTES)
    assert [row.finding for row in rows] == findings, rows
    assert [row.route for row in rows] == ["raw disk", "ext4", "ext4 barrier=0"]
    if cache == "none":
        assert {rows[0].asked, rows[0].guest, rows[0].qemu, rows[0].host} == {32}
