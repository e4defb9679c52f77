"""Backings that a study makes: file systems on loop devices, in memory, nested; named devices.

Requires root, fio, qemu-storage-daemon, qemu-img; a file system is skipped where its mkfs is not.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diskproof.backings import NO_CONSENT, probe_backing, start_place
from diskproof.backings.consent import give_consent
from diskproof.errors import HostError
from diskproof.host.janitor import sweep
from diskproof.process.start import find_tool, run
from diskproof.records import BackingSpec
from support.patience import await_true
from support.running import assert_nothing_left, execute, make_spec
from support.volumes import MIB, backing, folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")


def filesystem(path: Path, fs: str = "ext4", **given: str) -> BackingSpec:
    return backing("filesystem", folder(path), fs=fs, size=str(320 * MIB), **given)


@contextmanager
def loop_device(file: Path) -> Iterator[Path]:
    with file.open("wb") as stream:
        stream.truncate(160 * MIB)
    device = run(["losetup", "--find", "--show", str(file)], timeout=30).text.strip()
    try:
        yield Path(device)
    finally:
        run(["losetup", "--detach", device], timeout=30)


def loops_below(path: Path) -> list[str]:
    """Loop devices whose files lie below a folder."""
    text = run(["losetup", "--noheadings", "--output", "BACK-FILE"], timeout=30).text
    return [line for line in text.splitlines() if line.strip().startswith(str(path))]


@pytest.mark.parametrize("fs", ["ext2", "ext3", "ext4", "xfs", "btrfs"])
def test_a_file_system_is_made_used_and_gone(tmp_path: Path, fs: str) -> None:
    if not find_tool(f"mkfs.{fs}"):
        pytest.skip(f"mkfs.{fs} is not installed")
    with start_place(filesystem(tmp_path, fs), NO_CONSENT) as place:
        (place.folder / "file").write_bytes(b"kept there")
        told = run(["findmnt", "-n", "-o", "FSTYPE", "-T", str(place.folder)], timeout=60).text
        assert told.strip() == fs
        assert place.name.startswith(f"{fs} on a loop device with direct I/O (rw")
        assert 0 < place.free_bytes() < 320 * MIB
        assert len(loops_below(tmp_path)) == 1
    assert list(tmp_path.iterdir()) == []
    await_true(lambda: loops_below(tmp_path) == [])


def test_mkfs_and_mount_options_arrive(tmp_path: Path) -> None:
    made = filesystem(tmp_path, mkfs="-O ^has_journal -b 1024", mount="noatime,sync")
    with start_place(made, give_consent([made])) as place:
        assert "noatime" in place.name and "sync" in place.name
        assert os.statvfs(place.folder).f_bsize == 1024


def test_backings_nest(tmp_path: Path) -> None:
    upper = backing("filesystem", filesystem(tmp_path), fs="ext2", size=str(100 * MIB))
    with start_place(upper, give_consent([upper])) as place:
        assert place.name.startswith("ext2")
        assert len(loops_below(tmp_path)) == 2
    assert list(tmp_path.iterdir()) == []
    await_true(lambda: loops_below(tmp_path) == [])


def test_nobody_else_sees_the_mount(tmp_path: Path) -> None:
    with start_place(filesystem(tmp_path), NO_CONSENT) as place:
        seen = Path("/proc/1/mountinfo").read_text()
        assert str(place.folder) not in seen
        assert str(place.folder) in Path("/proc/self/mountinfo").read_text()


@pytest.mark.parametrize(
    "levels",
    [
        {"frontend": "host"},
        {"frontend": "daemon", "format": "qcow2", "cache": "none"},
    ],
    ids=lambda levels: levels["frontend"],
)
@pytest.mark.parametrize("kind", ["filesystem", "tmpfs", "device"])
def test_runs_on_each_kind(tmp_path: Path, kind: str, levels: dict[str, str]) -> None:
    images = tmp_path / "images"
    spec = make_spec("sync-write-4k", size="16MiB", runtime="1s")
    with loop_device(tmp_path / "lent.img") as device:
        given = {
            "filesystem": {"size": str(160 * MIB)},
            "tmpfs": {"size": str(160 * MIB)},
            "device": {"path": str(device)},
        }
        record = execute(images, spec, on=backing(kind, **given[kind]), **levels)
    assert record.failure is None
    assert [check.name for check in record.checks if not check.ok] == []
    assert [metric.name for metric in record.metrics if metric.primary] == ["iops"]


def test_a_raw_device_is_the_disk_and_has_the_size_asked_for(tmp_path: Path) -> None:
    with loop_device(tmp_path / "lent.img") as device:
        on = backing("device", path=str(device))
        spec = make_spec("seq-write", size="16MiB")
        levels = {"frontend": "daemon", "format": "raw", "cache": "none", "aio": "native"}
        record = execute(tmp_path / "images", spec, on=on, **levels)
    assert record.failure is None
    told = {check.name: check.effective for check in record.checks}
    assert told["file: drv"] == "host_device"
    assert told["disk: image.virtual-size"] == str(16 * MIB)
    assert told["O_DIRECT"] == "on"


def test_what_was_probed(tmp_path: Path) -> None:
    facts = probe_backing(filesystem(tmp_path), NO_CONSENT)
    assert facts.o_direct and not facts.device
    assert facts.filesystem.startswith("ext4 on a loop device")
    with loop_device(tmp_path / "lent.img") as device:
        facts = probe_backing(on(device), give_consent([on(device)]))
        assert facts.device and facts.free_bytes == 160 * MIB
    assert [path.name for path in tmp_path.iterdir()] == ["lent.img"]


def test_a_device_in_use_or_with_content_is_refused(tmp_path: Path) -> None:
    with loop_device(tmp_path / "lent.img") as device:
        run(["mkfs.ext4", "-q", "-L", "family", str(device)], timeout=60)
        with (
            pytest.raises(HostError, match="not empty") as caught,
            start_place(on(device), give_consent([on(device)])),
        ):
            pass
        assert "ext4 family" in caught.value.why and "wipefs" in caught.value.hint
        mounted = tmp_path / "mounted"
        mounted.mkdir()
        run(["mount", str(device), str(mounted)], timeout=30)
        try:
            with (
                pytest.raises(HostError, match="cannot be used") as caught,
                start_place(on(device), give_consent([on(device)])),
            ):
                pass
            assert "mounted" in caught.value.why
        finally:
            run(["umount", str(mounted)], timeout=30)
        assert run(["fsck.ext4", "-fn", str(device)], timeout=60).returncode == 0


def on(device: Path) -> BackingSpec:
    return backing("device", folder(device.parent), path=str(device))


@pytest.mark.parametrize(
    ("made", "what"),
    [
        ({"fs": "nosuchfs"}, "mkfs.nosuchfs is not installed"),
        ({"size": str(1 << 50)}, "does not fit"),
        ({"mkfs": "--no-such-option"}, "mkfs.ext4 failed"),
        ({"mount": "nosuchoption=1"}, "mount"),
    ],
)
def test_what_cannot_be_made_says_why_and_leaves_nothing(
    tmp_path: Path, made: dict[str, str], what: str
) -> None:
    spec = backing("filesystem", folder(tmp_path), **{"size": str(64 * MIB), **made})
    with pytest.raises(HostError, match=what) as caught, start_place(spec, NO_CONSENT):
        pass
    assert caught.value.why
    assert list(tmp_path.iterdir()) == []
    await_true(lambda: loops_below(tmp_path) == [])


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from integration.test_backings import filesystem
from diskproof.backings import NO_CONSENT, start_place
with start_place(filesystem(Path(sys.argv[2])), NO_CONSENT) as place:
    (place.folder / "file").write_bytes(b"x" * 4096)
    print(place.folder, flush=True)
    sys.stdin.read()
"""


def test_nothing_is_left_after_kill_9(tmp_path: Path) -> None:
    tests = Path(__file__).parent.parent
    argv = [sys.executable, "-c", KILLED, str(tests), str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout and owner.stdout.readline().startswith(bytes(tmp_path))
        assert len(loops_below(tmp_path)) == 1
        owner.send_signal(signal.SIGKILL)
    await_true(lambda: loops_below(tmp_path) == [])
    (swept,) = sweep([tmp_path])
    assert not swept.kept
    assert_nothing_left(tmp_path)
