"""fio straight on the backing. Requires qemu-img and fio; the buffered case needs root."""

import os
from pathlib import Path

import psutil
import pytest

from diskproof.drive import MAX_COLLECTED, DiskImage, RunContext
from diskproof.errors import RunFailure, UsageError
from diskproof.frontends import load_frontend
from diskproof.process.owner import hand_over
from support.disks import SIZE, make_cell, read_ios, run_fio, start_context, start_drive
from support.memory_disks import start_memory_disk


def test_direct_io_on_the_file(tmp_path: Path) -> None:
    with start_drive(tmp_path / "images", frontend="host") as drive:
        assert (drive.facts.size, list(drive.facts.pids)) == (SIZE, [])
        options = drive.facts.fio
        assert (options["ioengine"], options["direct"]) == ("libaio", "1")
        done = run_fio(drive)
        assert done.returncode == 0, done.stderr
        assert read_ios(done, "write") == 64
        assert all(check.ok for check in drive.read_back())
        assert [check.effective for check in drive.read_back() if check.name == "direct"] == ["on"]
    assert list(tmp_path.iterdir()) == []
    assert psutil.Process().children() == []


def test_a_colon_in_the_path_is_no_separator(tmp_path: Path) -> None:
    with start_drive(tmp_path / "a:b", frontend="host") as drive:
        assert run_fio(drive).returncode == 0
        assert (tmp_path / "a").exists() is False


def test_without_direct_io_the_check_says_buffered(tmp_path: Path) -> None:
    """A file system that refuses O_DIRECT: ramfs, whose files live in the page cache."""
    with start_memory_disk(tmp_path, kind="ramfs", required=False):
        image = DiskImage(tmp_path / "disk.raw", "raw", SIZE)
        image.path.write_bytes(bytes(SIZE))
        hand_over(image.path)
        context = RunContext(make_cell(frontend="host"), image, tmp_path, "tcg")
        with load_frontend("host").start(context) as drive:
            direct = next(check for check in drive.read_back() if check.name == "direct")
            assert direct.effective.startswith("buffered: O_DIRECT is refused")
            assert run_fio(drive).returncode == 0


def test_an_image_of_the_wrong_size_is_a_mismatch(tmp_path: Path) -> None:
    with start_context(tmp_path / "images", make_cell(frontend="host")) as context:
        with load_frontend("host").start(context) as drive:
            os.truncate(context.image.path, SIZE // 2)
            assert [check.name for check in drive.read_back() if not check.ok] == ["size"]


def test_only_raw_images(tmp_path: Path) -> None:
    cell = make_cell(frontend="host", format="qcow2")
    with start_context(tmp_path / "images", cell) as context:
        with pytest.raises(RunFailure, match="qcow2") as caught:
            with load_frontend("host").start(context):
                pass
        assert caught.value.kind == "mismatch"


def test_a_file_too_large_to_bring_back(tmp_path: Path) -> None:
    with start_drive(tmp_path / "images", frontend="host") as drive:
        argv = ["truncate", "-s", str(MAX_COLLECTED + 1), "large"]
        with pytest.raises(RunFailure, match="large"):
            drive.execute(argv, timeout=60, collect=["large"])


def test_files_and_status_of_a_command(tmp_path: Path) -> None:
    with start_drive(tmp_path / "images", frontend="host") as drive:
        done = drive.execute(
            ["cp", "in/a", "b"], timeout=60, files={"in/a": b"x"}, collect=["b", "c"]
        )
        assert (done.returncode, done.files) == (0, {"b": b"x"})
        assert drive.execute(["cp", "a", "b"], timeout=60).returncode == 1


@pytest.mark.parametrize("name", ["gost", "commands", "effective", "../host", ""])
def test_an_unknown_frontend_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="unknown frontend"):
        load_frontend(name)
