"""What lies below an image: real mounts, loop devices and memory of this host.

Requires root, loop devices, e2fsprogs; with tgt, its programs.
"""

import os
from pathlib import Path

import pytest

from diskproof.advice import observed
from diskproof.advice.judge import judge_disk
from diskproof.backings.filesystem import make_file
from diskproof.backings.loop import start_loop
from diskproof.backings.mounting import start_mount
from diskproof.host.below import find_mount, parse_mounts, read_below, read_mounts
from diskproof.process.start import run
from diskproof.records.virtual_machines import DiskJudgement, Layer, Machine, MachineDisk

MACHINE = Machine("web", "none", "test", ())


def judge(image: Path | str) -> DiskJudgement:
    disk = MachineDisk("vda", str(image), "file", configured=Layer({"cache": "none"}, "test"))
    below = read_below(disk)
    assert below is not None
    return judge_disk(
        MachineDisk("vda", str(image), "file", configured=disk.configured, below=below), MACHINE
    )


def rules(judged: DiskJudgement) -> set[str]:
    return {remark.rule for remark in judged.disk.remarks}


def test_a_file_is_followed_down_to_the_disk(tmp_path: Path) -> None:
    image = tmp_path / "a.raw"
    image.touch()
    judged = judge(image)
    below = judged.disk.below
    assert below is not None
    mount = find_mount(read_mounts("/proc/self/mountinfo"), str(tmp_path))
    assert mount is not None
    assert dict(observed.mounts(below))[mount.point].startswith(mount.kind)
    if mount.source.startswith("/dev/"):
        assert any(key.startswith("queue ") for key in below.levels), below.levels


def test_memory_is_told(tmp_path: Path) -> None:
    with start_mount(["-t", "tmpfs", "none"], tmp_path / "mnt") as mnt:
        (mnt / "a.raw").touch()
        judged = judge(mnt / "a.raw")
        assert judged.effect == "loses" and rules(judged) == {"in-memory"}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
@pytest.mark.parametrize(("options", "planted"), [("barrier=0", True), ("barrier=1", False)])
def test_a_mount_without_barriers_is_found(tmp_path: Path, options: str, planted: bool) -> None:
    with start_loop(make_file(tmp_path, 8 << 20)) as loop:
        run(["mkfs.ext4", "-q", "-F", str(loop.path)], timeout=60)
        arguments = ["-t", "ext4", "-o", options, str(loop.path)]
        with start_mount(arguments, tmp_path / "mnt") as mnt:
            (mnt / "a.raw").touch()
            (tmp_path / "link").symlink_to(mnt / "a.raw")
            judged = judge(tmp_path / "link")
    below = judged.disk.below
    assert below is not None and f"queue {loop.path.name}" in below.levels
    assert len(list(observed.mounts(below))) == 2, "the file below the loop device lies somewhere"
    assert ("host-no-barrier" in rules(judged)) is planted
    assert judged.falls_short is planted, judged


@pytest.mark.skipif(os.geteuid() != 0, reason="loop devices need root")
def test_a_block_device_whose_cache_was_hidden(tmp_path: Path) -> None:
    with start_loop(make_file(tmp_path, 8 << 20)) as loop:
        judged = judge(loop.path)
        below = judged.disk.below
        assert below is not None and below.levels[f"queue {loop.path.name}"] == "write back"
        assert not judged.falls_short
        setting = Path("/sys/block", loop.path.name, "queue/write_cache")
        setting.write_text("write through")
        try:
            flipped = judge(loop.path)
        finally:
            setting.write_text("write back")
    assert flipped.effect == "loses" and rules(flipped) == {"host-write-cache"}


def test_what_is_not_there_is_unknown(tmp_path: Path) -> None:
    for image in (tmp_path / "none.raw", "/dev/none-of-it", ""):
        judged = judge(image)
        assert judged.effect == "unknown" and rules(judged) == {"backing-unseen"}


def test_mountinfo_is_read_as_the_kernel_writes_it() -> None:
    text = (
        "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"
        "40 36 0:44 / /mnt\\0402/nas rw - nfs4 nas:/vm rw,vers=4.2\n"
        "broken line\n"
    )
    mounts = tuple(parse_mounts(text))
    assert [each.point for each in mounts] == ["/mnt 2", "/mnt 2/nas"]
    assert "errors=continue" in mounts[0].options and mounts[0].device == "98:0"
    found = find_mount(mounts, "/mnt 2/nas/a.raw")
    assert found is not None and found.kind == "nfs4"
    assert find_mount(mounts, "/elsewhere") is None
