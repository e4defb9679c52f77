"""Writers on real stacks under a real recorder, and their checks on what is left.

Requires root, /dev/fuse, qemu-storage-daemon, and for one test PostgreSQL.
"""

import json
from pathlib import Path

import pytest

from diskproof.crash.writers.command import PYTHON
from diskproof.process.native import require_native
from diskproof.process.start import run
from diskproof.recording.folder import ACK_FILE, start_recording
from diskproof.recording.log import ACKNOWLEDGE, FSYNC, read_frames
from diskproof.study.crash import CrashRules
from support.databases import find_programs
from support.disks import start_drive
from support.recording import needs_fuse
from support.written import RULES, make_cell, read_acks, run_check, start_written

pytestmark = needs_fuse
UNLINK, DIRECTORY = 6, 32  # a kind and a flag of docs/crash-log.md
needs_postgres = pytest.mark.skipif(find_programs() is None, reason="needs PostgreSQL")


@pytest.mark.parametrize("frontend", ["host", "daemon"])
def test_a_ledger_is_written_flushed_and_promised(tmp_path: Path, frontend: str) -> None:
    cell = make_cell("ledger", frontend, cache="none")
    with start_written(cell, tmp_path) as recorded:
        counts, acks = recorded.summary.counts, read_acks(recorded)
        assert counts["writes"] == RULES.records
        assert 0 < counts["flushes"] <= counts["acknowledgements"]
        assert acks[0].endswith(" 0 0 24 0000000000000001")
        assert acks[-1].endswith(f" {RULES.records}")
        kept = run_check(cell, recorded.files, acks, recorded.room)
        assert (kept.returncode, kept.text) == (0, "0\n"), kept.error_text
        lost = run_check(cell, recorded.base, acks, recorded.room)
        assert (lost.returncode, lost.text) == (1, "24\n")


@pytest.mark.parametrize(
    ("cache", "durable", "flushed"),
    [
        ("none", "flush", True),
        ("unsafe", "flush", False),
        ("none", "write", False),
        ("none", "fua", True),
        ("directsync", "write", True),
    ],
)
def test_what_a_promise_rests_on(tmp_path: Path, cache: str, durable: str, flushed: bool) -> None:
    """Each way to be promised something, as the host's file sees it. (qcow2 flushes by itself.)"""
    rules = CrashRules(records=16, seconds=30.0, durable=durable)
    cell = make_cell("ledger", "daemon", rules, cache=cache)
    with start_written(cell, tmp_path) as recorded:
        counts = recorded.summary.counts
        assert counts["acknowledgements"] > 1
        assert bool(counts["flushes"] + counts["sync_writes"]) == flushed


@pytest.mark.parametrize("form", ["raw", "qcow2", "qed"])
def test_a_ledger_is_read_through_the_daemon(tmp_path: Path, form: str) -> None:
    """Written and verified over NBD; what is cut out of the disk is missed."""
    program = str(require_native("diskproof-ledger"))
    with start_drive(tmp_path, frontend="daemon", format=form, cache="none") as drive:
        uri = drive.facts.fio["uri"]
        how = ["--records", "40", "--slots", "32", "--offset", "65536", "--depth", "8"]
        acks = tmp_path / "acks"
        done = drive.execute([program, "write", uri, *how, "--acks", str(acks)], timeout=60)
        said = json.loads(done.stdout)
        assert said["records"] == said["acknowledged"] == 40
        verify = [program, "verify", uri, "--acks", str(acks), "--json"]
        assert drive.execute(verify, timeout=60).returncode == 0
        trim = ["qemu-io", "-f", "raw", "-c", f"write -z {65536 + 8 * 4096} 8192", uri]
        assert drive.execute(trim, timeout=60).returncode == 0
        done = drive.execute(verify, timeout=60)
        assert done.returncode == 1
        assert json.loads(done.stdout)["lost_sequences"] == [[9, "missing"], [10, "missing"]]


def test_sqlite_on_the_host(tmp_path: Path) -> None:
    cell = make_cell("sqlite", "host")
    with start_written(cell, tmp_path) as recorded:
        acks = read_acks(recorded)
        assert acks == [f"sqlite {n}" for n in range(1, RULES.records + 1)]
        assert recorded.summary.counts["flushes"] >= RULES.records
        kept = run_check(cell, recorded.files, acks, recorded.room)
        assert kept.returncode == 0, kept.error_text
        lost = run_check(cell, recorded.files, [*acks, "sqlite 50"], recorded.room)
        assert (lost.returncode, lost.text) == (1, "2\n")
        lost = run_check(cell, recorded.base, acks, recorded.room)
        assert (lost.returncode, lost.text) == (1, f"{RULES.records}\n")


def test_a_state_is_no_program(tmp_path: Path) -> None:
    """Files of a state named as modules of Python are not run by its check."""
    for name in ("sqlite3.py", "argparse.py", "diskproof.py"):
        (tmp_path / name).write_text("raise SystemExit(0)\n")
    cell = make_cell("sqlite", "host")
    lost = run_check(cell, tmp_path, ["sqlite 7"], tmp_path)
    assert (lost.returncode, lost.text) == (1, "7\n")


def test_sqlite_syncs_the_removal_of_its_journal_only_when_told_to(tmp_path: Path) -> None:
    """``journal_mode=DELETE`` commits by an unlink: FULL leaves it unsynced, EXTRA does not."""
    synced = {}
    for synchronous in ("full", "extra"):
        room = tmp_path / synchronous
        (room / "files").mkdir(parents=True)
        with start_recording(room / "files", room) as recording:
            settings = ["--set", "journal_mode=delete", "--set", f"synchronous={synchronous}"]
            acks = ["--acks", str(recording.folder / ACK_FILE), "--records", "5"]
            argv = [*PYTHON, "diskproof.crash.writers.sqlite", "write"]
            run([*argv, str(recording.folder / "db"), *acks, *settings], timeout=60)
        unsynced, promised_unsynced = 0, 0
        for frame in read_frames(recording.log):
            if frame.kind == UNLINK:
                unsynced += 1
            elif frame.kind == FSYNC and frame.flags & DIRECTORY:
                unsynced = 0
            elif frame.kind == ACKNOWLEDGE:
                promised_unsynced += unsynced > 0
        synced[synchronous] = promised_unsynced
    assert synced == {"full": 5, "extra": 0}


@needs_postgres
def test_postgres_on_the_host(public: Path) -> None:
    """The cluster is there before the recording, where its user may pass; recovery brings back each
    promised row."""
    rules = CrashRules(records=12, seconds=60.0)
    cell = make_cell("postgres", "host", rules)
    with start_written(cell, public) as recorded:
        acks = read_acks(recorded)
        assert acks == [f"postgres {n}" for n in range(1, 13)]
        assert recorded.summary.counts["flushes"] >= rules.records
        kept = run_check(cell, recorded.files, acks, recorded.room)
        assert kept.returncode == 0, kept.error_text
        lost = run_check(cell, recorded.base, acks, recorded.room)
        assert (lost.returncode, lost.text) == (1, "12\n"), lost.error_text
        (recorded.files / "postgres" / "global" / "pg_control").write_bytes(bytes(8192))
        corrupt = run_check(cell, recorded.files, acks, recorded.room)
        assert corrupt.returncode == 2 and "does not come up" in corrupt.error_text


@needs_postgres
def test_postgres_without_fsync_flushes_nothing_for_a_commit(public: Path) -> None:
    rules = CrashRules(records=12, seconds=60.0, durable="write")
    with start_written(make_cell("postgres", "host", rules), public) as recorded:
        assert len(read_acks(recorded)) == 12
        assert recorded.summary.counts["flushes"] < 3  # its start may sync a file


def test_a_device_in_use_is_refused(tmp_path: Path) -> None:
    """The kernel does not open a mounted block device exclusively."""
    image, mount = tmp_path / "image", tmp_path / "mount"
    with image.open("wb") as stream:
        stream.truncate(4 << 20)
    mount.mkdir()
    run(["mkfs.ext4", "-q", str(image)], timeout=60)
    loop = run(["losetup", "--find", "--show", str(image)], timeout=60).text.strip()
    try:
        run(["mount", loop, str(mount)], timeout=60)
        try:
            program = str(require_native("diskproof-ledger"))
            done = run([program, "write", loop, "--records", "1"], timeout=60, check=False)
            assert done.returncode == 3 and "busy" in done.error_text
        finally:
            run(["umount", str(mount)], timeout=60)
    finally:
        run(["losetup", "--detach", loop], timeout=60)
