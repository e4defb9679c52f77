"""What goes wrong while crashes are recorded and explored: a clear error, nothing left behind.

Requires root, /dev/fuse, qemu-storage-daemon and the native programs.
"""

import json
import os
import select
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from diskproof.cli import run_command_line
from diskproof.crash.explore import StateSearch, explore
from diskproof.crash.record import MARK, cut_at_mark
from diskproof.crash.verdict import judge
from diskproof.errors import HostError, RunFailure
from diskproof.host.janitor import sweep
from diskproof.process.start import start_process
from diskproof.recording import folder as recording_room
from diskproof.recording.folder import start_recording
from diskproof.recording.log import copy_log, read_frames, summarise_log
from support.crashing import RULES, make_real_run
from support.recording import needs_fuse
from support.running import Children, find_offspring, mounted, under_load

pytestmark = needs_fuse
STUDY = '[factors]\nformat = "raw"\ncache = "writeback"\n[crash]\nrecords = 64\n'
LONG = replace(RULES, records=100_000, seconds=200.0)


def no_mounts_below(folder: Path) -> bool:
    return str(folder) not in Path("/proc/self/mountinfo").read_text()


# -- the host -------------------------------------------------------------------------------


def test_a_host_without_fuse_says_so_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recording_room, "FUSE_DEVICE", tmp_path / "fuse")
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(STUDY)
    assert run_command_line(["crash", "s.toml"]) == 3
    told = capsys.readouterr().err
    assert "nothing can be recorded on this host" in told and "modprobe fuse" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.toml"]


def test_a_folder_that_cannot_be_recorded_is_named(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / ".diskproof-ack").touch()  # the recorder's own name
    with pytest.raises(HostError, match="cannot be recorded") as caught:
        with start_recording(tmp_path / "files", tmp_path):
            pass
    assert ".diskproof-ack" in caught.value.why
    assert no_mounts_below(tmp_path) and find_offspring() == []


def test_a_full_disk_is_a_stored_failure(tmp_path: Path) -> None:
    rules = replace(LONG, size=64 << 20)
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=90m", "tmpfs") as small:
        found = make_real_run(small, rules=rules, format="raw", cache="writeback")
        assert no_mounts_below(small / "images")
    assert found.failure is not None
    assert found.failure.kind == "space", found.failure
    assert {verdict.verdict for verdict in found.verdicts} == {"undecided"}
    assert all(verdict.reason.startswith("space: ") for verdict in found.verdicts)


# -- processes that die ---------------------------------------------------------------------


def is_writing(children: Children) -> bool:
    return "diskproof-ledger" in children


def kill_eldest(process: psutil.Process) -> None:
    """The recorder has a child of its own name, which takes the mount away if it dies."""
    parent = process.parent()
    assert parent is not None
    (parent if parent.name() == process.name() else process).kill()


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("qemu-storage-daemon", {"qemu", "workload"}),
        ("diskproof-ledger", {"workload"}),
        ("diskproof-recordfs", {"qemu", "workload", "log"}),
    ],
)
def test_whoever_is_killed_it_is_a_failure_and_nothing_hangs(
    tmp_path: Path, name: str, kinds: set[str]
) -> None:
    began = time.monotonic()
    with under_load(name, kill_eldest, is_writing):
        found = make_real_run(tmp_path, rules=LONG, format="raw", cache="none")
    assert found.failure is not None and found.failure.kind in kinds, found.failure
    assert {verdict.verdict for verdict in found.verdicts} == {"undecided"}
    assert time.monotonic() - began < LONG.seconds - 20
    assert no_mounts_below(tmp_path)


def test_kill_9_leaves_no_mount_and_the_next_start_cleans_up(tmp_path: Path) -> None:
    """The whole command is killed while it records."""
    (tmp_path / "s.toml").write_text(STUDY.replace("64", "100000") + 'seconds = "60s"\n')
    argv = [sys.executable, "-m", "diskproof", "crash", "s.toml"]
    with start_process(argv, name="crash", log=tmp_path / "log", cwd=tmp_path) as process:
        wait_for_mounts(tmp_path, there=True)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        wait_for_mounts(tmp_path, there=False)
    images = tmp_path / "diskproof-images"
    assert len(list(images.glob("diskproof-run-*"))) == 1
    assert [swept.kept for swept in sweep([images])] == [""]
    assert list(images.iterdir()) == []


def wait_for_mounts(folder: Path, *, there: bool) -> None:
    """Until something below a folder is mounted, or nothing is any more; proc(5) lets one poll."""
    with Path("/proc/self/mountinfo").open() as table:
        poll = select.poll()
        poll.register(table, select.POLLPRI)
        deadline = time.monotonic() + 60
        while no_mounts_below(folder) == there:
            assert time.monotonic() < deadline
            poll.poll(1000)


# -- logs -----------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A room with a small log of a file that was written, synced and promised."""
    (tmp_path / "files").mkdir()
    (tmp_path / "base").mkdir()
    with start_recording(tmp_path / "files", tmp_path) as recording:
        with (recording.folder / "file").open("wb") as stream:
            for number in range(20):
                stream.write(bytes([number]) * 4096)
                stream.flush()
                os.fsync(stream.fileno())
                recording.acknowledge(f"line {number}")
        recording.acknowledge(MARK)
    return tmp_path


def search(room: Path, log: Path) -> StateSearch:
    check = {"kind": "command", "argv": ["true"], "timeout_seconds": 5.0}
    return StateSearch(log, room / "base", "power", check, 20, 512, 1, 50, 5.0)


@pytest.mark.parametrize("at", [3, 40, 64 + 8, 64 + 60, -30])
def test_a_damaged_log_is_an_error_with_its_place(recorded: Path, at: int) -> None:
    log = recorded / "crash.log"
    content = bytearray(log.read_bytes())
    content[at] ^= 0x55
    log.write_bytes(content)
    with pytest.raises(RunFailure, match="crash log is damaged at byte"):
        summarise_log(log)
    verdict = judge(explore(search(recorded, log), recorded, lambda found: None))
    assert verdict.verdict == "undecided" and verdict.reason


def test_a_log_that_ends_within_a_record_is_read_up_to_there(recorded: Path) -> None:
    log = recorded / "crash.log"
    whole = summarise_log(log)
    assert whole.complete and whole.counts["acknowledgements"] == 21
    frames = list(read_frames(log))
    os.truncate(log, frames[-3].end_offset - 5)
    assert summarise_log(log).frames == whole.frames - 3
    assert not summarise_log(log).complete


def test_without_the_mark_a_log_is_not_whole(recorded: Path) -> None:
    log, part = recorded / "crash.log", recorded / "part.log"
    copy_log(log, part, list(read_frames(log))[5])
    with pytest.raises(RunFailure, match="no mark"):
        cut_at_mark(part, recorded / "killed.log")


def test_a_check_that_fails_leaves_it_undecided(recorded: Path) -> None:
    check = {"kind": "command", "argv": ["/no/such/check"], "timeout_seconds": 5.0}
    failing = replace(search(recorded, recorded / "crash.log"), check=check)
    verdict = judge(explore(failing, recorded, lambda found: None))
    assert verdict.verdict == "undecided" and "/no/such/check" in verdict.reason
    assert json.loads((recorded / "explore-power.json").read_text())["fault"] == "power"
