"""A directory as backing. Requires nothing; read-only and small file systems need root."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.backings import NO_CONSENT, Consent, load_backing, probe_backing, start_disk_dir
from diskproof.backings.place import find_filesystem
from diskproof.errors import HostError, UsageError
from diskproof.host.backing_ground import add_ground
from diskproof.process.run_user import require_run_user
from diskproof.process.scratch import LOCK_NAME, PREFIX
from diskproof.process.start import run
from diskproof.records import BackingSpec
from support.memory_disks import start_memory_disk


def spec(path: Path) -> BackingSpec:
    return BackingSpec("here", "directory", (("path", str(path)),), make=True)


def free_bytes(path: Path) -> int:
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def test_probe_of_an_existing_directory(tmp_path: Path) -> None:
    before = free_bytes(tmp_path)
    facts = probe_backing(spec(tmp_path), NO_CONSENT)
    after = free_bytes(tmp_path)
    assert facts.path == str(tmp_path)
    told = run(["findmnt", "-n", "-o", "FSTYPE", "-T", str(tmp_path)], timeout=60).text
    assert facts.filesystem == told.strip()
    assert facts.o_direct is (facts.o_direct_reason == "")
    assert min(before, after) - (1 << 30) < facts.free_bytes < max(before, after) + (1 << 30)
    assert list(tmp_path.iterdir()) == []


def test_probe_leaves_no_directory_that_was_not_there(tmp_path: Path) -> None:
    facts = probe_backing(spec(tmp_path / "new" / "deep"), NO_CONSENT)
    assert facts.free_bytes > 0
    assert list(tmp_path.iterdir()) == []


def test_probe_keeps_a_directory_that_was_there(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    probe_backing(spec(tmp_path / "old" / "new"), NO_CONSENT)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_run_dir_is_private_locked_and_gone_at_the_end(tmp_path: Path) -> None:
    with start_disk_dir(spec(tmp_path / "new"), NO_CONSENT) as folder:
        assert folder.parent == tmp_path / "new"
        assert folder.name.startswith(PREFIX)
        stat = folder.stat()
        assert stat.st_uid == os.geteuid()
        if os.geteuid() == 0:  # QEMU's user may enter, no more
            assert (stat.st_mode & 0o777, stat.st_gid) == (0o710, require_run_user())
        else:
            assert stat.st_mode & 0o777 == 0o700
        with (folder / LOCK_NAME).open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (folder / "left").mkdir()
        (folder / "left" / "over").touch()
    assert list(tmp_path.iterdir()) == []


def test_run_dir_is_gone_after_a_failure_and_others_stay(tmp_path: Path) -> None:
    with start_disk_dir(spec(tmp_path), NO_CONSENT) as other:
        with pytest.raises(KeyboardInterrupt), start_disk_dir(spec(tmp_path), NO_CONSENT):
            raise KeyboardInterrupt
        assert list(tmp_path.iterdir()) == [other]


def test_an_error_of_the_block_is_not_taken_for_one_of_the_backing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        with start_disk_dir(spec(tmp_path), NO_CONSENT):
            (tmp_path / "nothing").read_bytes()


@pytest.mark.parametrize("below", ["", "below"])
def test_a_file_is_no_directory(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    for use in (probe_backing, enter_run_dir):
        with pytest.raises(HostError) as caught:
            use(spec(tmp_path / "file" / below), NO_CONSENT)
        assert caught.value.why == "Not a directory"
        assert "[backings.NAME]" in caught.value.hint


def enter_run_dir(what: BackingSpec, consent: Consent) -> None:
    with start_disk_dir(what, consent):
        pass


def test_a_read_only_file_system_is_named(tmp_path: Path) -> None:
    with start_memory_disk(tmp_path, "ro", required=False):
        for use in (probe_backing, enter_run_dir):
            for path in (tmp_path, tmp_path / "new"):
                with pytest.raises(HostError) as caught:
                    use(spec(path), NO_CONSENT)
                assert "read-only" in caught.value.hint


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """Permissions do not bind root: for this test it is somebody else."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(require_run_user())
    yield
    os.seteuid(before)


def test_no_permission_is_named(ordinary_user: None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o500)
        for path in (Path(folder), Path(folder) / "new"):
            with pytest.raises(HostError) as caught:
                probe_backing(spec(path), NO_CONSENT)
            assert "may not write" in caught.value.hint


def test_a_file_system_without_direct_io_is_found_out(tmp_path: Path) -> None:
    with start_memory_disk(tmp_path, kind="ramfs", required=False):
        facts = probe_backing(spec(tmp_path), NO_CONSENT)
        assert facts.filesystem == "ramfs"
        assert not facts.o_direct
        assert "ramfs" in facts.o_direct_reason
        assert list(tmp_path.iterdir()) == []


def test_the_file_system_is_that_of_the_last_mount(tmp_path: Path) -> None:
    inside = tmp_path / "with space"
    with start_memory_disk(inside, "size=1M", required=False):
        assert find_filesystem(inside) == "tmpfs"
        assert probe_backing(spec(inside), NO_CONSENT).free_bytes <= 1 << 20
    assert find_filesystem(Path("/proc")) == "proc"


def test_unknown_kind() -> None:
    with pytest.raises(UsageError, match="unknown"):
        load_backing("../directory")


def test_a_path_that_is_not_there_is_refused_unless_it_may_be_made(tmp_path: Path) -> None:
    missing = tmp_path / "not" / "mounted"
    with pytest.raises(HostError) as refused:
        probe_backing(replace(spec(missing), make=False), NO_CONSENT)
    assert str(missing) in refused.value.what and f"{tmp_path} is on " in refused.value.why
    assert "--make" in refused.value.hint and list(tmp_path.iterdir()) == []


def test_what_a_backing_lies_on_is_told(tmp_path: Path) -> None:
    """As findmnt and lsblk have it."""
    facts = add_ground(spec(tmp_path), probe_backing(spec(tmp_path), NO_CONSENT))
    argv = ["findmnt", "-n", "-o", "FSTYPE,OPTIONS", "-T", str(tmp_path)]
    kind, options = run(argv, timeout=60).text.split()
    assert facts.ground.startswith(f"in {tmp_path}: {kind} (")
    assert set(options.split(",")) & set(facts.ground.split("(")[1].split(")")[0].split(","))
    assert facts.trims is ("discard" in options.split(","))
    assert facts.disks == () or all(Path("/sys/block", name).exists() for name in facts.disks)


def test_a_disk_in_memory_has_no_device(tmp_path: Path) -> None:
    with start_memory_disk(tmp_path, "size=16m", required=False):
        facts = add_ground(spec(tmp_path), probe_backing(spec(tmp_path), NO_CONSENT))
    assert facts.ground.startswith(f"in {tmp_path}: tmpfs (") and facts.disks == ()
