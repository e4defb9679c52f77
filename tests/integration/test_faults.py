"""What goes wrong in a run is its stored result, with evidence, and leaves nothing behind.

Requires fio (nbd), qemu-storage-daemon, qemu-img and the native sampler; some tests root.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from diskproof.drive import Drive
from diskproof.measure import run as executor_room
from diskproof.process.start import find_tool
from diskproof.records import RunRecord
from diskproof.workloads import fio_run
from support.running import (
    artefacts,
    assert_nothing_left,
    execute,
    make_spec,
    mounted,
    plan_run,
    start_executor,
    under_load,
)

_MISSING = [tool for tool in ("qemu-storage-daemon", "qemu-img", "fio") if not find_tool(tool)]
pytestmark = [pytest.mark.skipif(bool(_MISSING), reason=f"needs {_MISSING}"), pytest.mark.long]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")

DAEMON = {"frontend": "daemon", "format": "qcow2", "cache": "writeback"}
LONG = {"runtime": "60s", "ramp": "0s"}


def failed(record: RunRecord, kind: str) -> str:
    """The failure's text, of a record that is a failed one of that kind and has no figures."""
    assert record.failure is not None
    assert (record.status, record.failure.kind) == ("failed", kind), record.failure
    assert record.metrics == () and record.histograms == ()
    assert record.failure.what
    assert "audit.json" in artefacts(record)
    return "\n".join([record.failure.what, record.failure.why, record.failure.hint])


@pytest.mark.parametrize("levels", [{"frontend": "host"}, DAEMON], ids=["host", "daemon"])
def test_fio_killed_under_load(tmp_path: Path, levels: dict[str, str]) -> None:
    with under_load("fio", lambda fio: fio.send_signal(signal.SIGKILL)):
        record = execute(tmp_path / "images", make_spec("rand-write-4k-d32", **LONG), **levels)
    assert "SIGKILL" in failed(record, "killed")
    assert "fio.job" in artefacts(record)


def test_fio_that_is_asked_to_end_early_has_not_measured(tmp_path: Path) -> None:
    """fio takes SIGTERM for a wish and ends with figures and a bad status."""
    with under_load("fio", lambda fio: fio.send_signal(signal.SIGTERM)):
        record = execute(tmp_path / "images", make_spec("rand-write-4k-d32", **LONG), **DAEMON)
    failed(record, "workload")
    assert b"terminating on signal 15" in b"".join(artefacts(record).values())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_daemon_that_dies_under_load(tmp_path: Path, how: signal.Signals) -> None:
    with under_load("qemu-storage-daemon", lambda daemon: daemon.send_signal(how)):
        record = execute(tmp_path / "images", make_spec("rand-write-4k-d32", **LONG), **DAEMON)
    assert f"killed by signal {how:d}" in failed(record, "qemu")
    kept = artefacts(record)
    assert {"qemu-storage-daemon.log", "qemu-storage-daemon.argv.json", "stderr"} <= kept.keys()


def test_a_daemon_that_hangs_under_load_ends_at_the_deadline(tmp_path: Path) -> None:
    with under_load("qemu-storage-daemon", lambda daemon: daemon.send_signal(signal.SIGSTOP)):
        spec = make_spec("rand-write-4k-d32", **LONG)
        record = execute(tmp_path / "images", spec, timeout=25.0, **DAEMON)
    assert "fio did not end within" in failed(record, "timeout")


def test_a_sampler_that_dies_fails_the_run_and_the_answer_is_kept(tmp_path: Path) -> None:
    def kill(sampler: psutil.Process) -> None:
        sampler.send_signal(signal.SIGKILL)

    with under_load("diskproof-monitor", kill, lambda children: "fio" in children):
        spec = make_spec("rand-read-4k-d1", runtime="5s", ramp="0s")
        record = execute(tmp_path / "images", spec, frontend="host")
    assert "the sampler ended" in failed(record, "tool")
    assert "fio.json" in artefacts(record)


@contextmanager
def filled_before_the_load(folder: Path, left: int, monkey: pytest.MonkeyPatch) -> Iterator[None]:
    """Something else takes the space that was free when the run was let in."""
    real = executor_room.drop_cache

    def drop(path: Path) -> object:
        stat = os.statvfs(folder)
        with (folder / "other").open("wb") as other:
            os.posix_fallocate(other.fileno(), 0, stat.f_bavail * stat.f_frsize - left)
        return real(path)

    monkey.setattr(executor_room, "drop_cache", drop)
    yield


@needs_root
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@pytest.mark.parametrize(
    "levels",
    [{"frontend": "host"}, {"frontend": "daemon", "format": "raw", "cache": "writeback"}, DAEMON],
    ids=["host", "raw", "qcow2"],
)
def test_the_disk_fills_up_under_load(
    tmp_path: Path, levels: dict[str, str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "small"
    with mounted(folder, *small_filesystem(tmp_path, kind)):
        with filled_before_the_load(folder, 16 << 20, monkeypatch):
            record = execute(folder / "images", make_spec("seq-write"), **levels)
    assert "No space left" in failed(record, "space")
    assert {"fio.json", "fio.stderr", "fio.job"} <= artefacts(record).keys()


def small_filesystem(folder: Path, kind: str) -> list[str]:
    """What to mount for 160 MiB of a file system; a loop device goes with its mount."""
    if kind == "tmpfs":
        return ["-t", "tmpfs", "-o", "size=160M", "diskproof-test"]
    image = folder / "small.ext4"
    with image.open("wb") as stream:
        stream.truncate(160 << 20)
    from diskproof.process.start import run

    run(["mkfs.ext4", "-q", "-m", "0", "-F", str(image)], timeout=60)
    return ["-o", "loop", str(image)]


@needs_root
def test_a_disk_that_would_not_fit_is_not_even_made(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    with mounted(folder, "-t", "tmpfs", "-o", "size=32M", "diskproof-test"):
        record = execute(folder / "images", make_spec("seq-write"), frontend="host")
    assert "no space for the disk under test" in failed(record, "space")
    assert [name for name, _ in record.phases] == ["folder", "create"]


@needs_root
def test_a_read_only_directory(tmp_path: Path) -> None:
    folder = tmp_path / "readonly"
    with mounted(folder, "-t", "tmpfs", "-o", "ro", "diskproof-test"):
        record = execute(folder, make_spec("seq-write"), frontend="host")
    assert "read-only" in failed(record, "tool")


@needs_root
def test_a_directory_without_direct_io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host baseline is buffered and says so; a cell that needs direct I/O fails."""
    folder = tmp_path / "ram"
    with mounted(folder, "-t", "ramfs", "diskproof-test"):
        monkeypatch.setattr(
            "diskproof.qemu.images.require_space", lambda *_: None
        )  # ramfs tells none
        host = execute(folder / "images", make_spec("seq-read"), frontend="host")
        levels = {"frontend": "daemon", "format": "raw", "cache": "none"}
        direct = execute(folder / "images", make_spec("seq-write"), **levels)
    assert host.failure is None
    assert "O_DIRECT is refused" in {c.name: c.effective for c in host.checks}["direct"]
    assert "O_DIRECT" in failed(direct, "qemu")


def test_no_fio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "diskproof.process.start.find_tool", lambda name: None if name == "fio" else find_tool(name)
    )
    record = execute(tmp_path / "images", make_spec("seq-write"), **DAEMON)
    assert "apt-get install fio" in failed(record, "tool")


def test_output_that_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipe from fio ends in the middle of its answer."""
    monkeypatch.setattr("diskproof.process.start.MAX_OUTPUT", 4096)
    record = execute(tmp_path / "images", make_spec("rand-read-4k-d1"), frontend="host")
    assert "cannot be read" in failed(record, "workload")
    assert len(artefacts(record)["fio.json"]) == 4096


@pytest.mark.parametrize("levels", [{"frontend": "host"}, DAEMON], ids=["host", "daemon"])
def test_ctrl_c_passes_through_and_nothing_is_left(tmp_path: Path, levels: dict[str, str]) -> None:
    images = tmp_path / "images"
    main = threading.main_thread()

    def interrupt(_: psutil.Process) -> None:
        signal.pthread_kill(main.ident or 0, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        with under_load("fio", interrupt), start_executor(images) as executor:
            executor.execute(plan_run(make_spec("rand-write-4k-d32", **LONG), **levels))
    assert_nothing_left(images)
    assert not images.exists()


def test_a_defect_of_ours_is_not_taken_for_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Drive:
        raise ZeroDivisionError

    monkeypatch.setattr(fio_run, "parse_fio_output", broken)
    with pytest.raises(ZeroDivisionError):
        execute(tmp_path / "images", make_spec("seq-write"), **DAEMON)
    assert_nothing_left(tmp_path / "images")
