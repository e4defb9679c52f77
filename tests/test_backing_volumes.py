"""Volumes, arrays and pools before they are made: sizes, arguments, notes, and what a study may
name."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.backings import lvm, md, zfs
from diskproof.backings.place import Place, choose_size, refuse_device
from diskproof.backings.volumes import NOTE, Volume, new_name, read_note, write_note
from diskproof.errors import HostError, UsageError
from diskproof.records import BackingSpec
from diskproof.study.load import parse_study
from support.volumes import MIB, backing, folder

GIB = 1 << 30


class Room(Place):
    """A place with so much room."""

    def free_bytes(self) -> int:
        return self.base_free or 0


def choose(free: int, kind: str, size: str = "", *, device: bool = False) -> int:
    base = Room(Path("/x"), device=Path("/dev/x") if device else None, base_free=free)
    spec = backing("lvm", type=kind, size=size)
    return choose_size(spec, base, lambda wanted: lvm.needed_bytes(kind, wanted), lvm.EXTENT)


@given(
    free=st.integers(256 * MIB, 1 << 44),
    kind=st.sampled_from(["linear", "snapshot", "thin"]),
    device=st.booleans(),
)
def test_without_a_size_a_volume_is_as_large_as_it_can_be(
    free: int, kind: str, device: bool
) -> None:
    size = choose(free, kind, device=device)
    room = free if device else min(free - 64 * MIB, 8 * GIB)
    assert size % lvm.EXTENT == 0
    assert lvm.needed_bytes(kind, size) <= room < lvm.needed_bytes(kind, size + lvm.EXTENT)


@given(st.integers(1, 1 << 44), st.sampled_from(["linear", "snapshot", "thin"]))
def test_what_a_volume_needs_leaves_room_for_lvm(size: int, kind: str) -> None:
    copies = 2 if kind == "snapshot" else 1
    assert lvm.needed_bytes(kind, size) >= copies * size + 2 * lvm.EXTENT


def test_a_size_is_rounded_up_and_refused_when_it_does_not_fit() -> None:
    assert choose(GIB, "linear", str(5 * MIB)) == 8 * MIB
    with pytest.raises(HostError, match="does not fit") as caught:
        choose(GIB, "snapshot", str(600 * MIB))
    assert "needed at the peak" in caught.value.why and "[backings.here]" in caught.value.hint
    with pytest.raises(HostError, match="does not fit"):
        choose(MIB, "linear")


def test_arguments_of_arrays() -> None:
    members = (Path("/dev/loop1"), Path("/dev/loop2"))
    spec = backing("md", level="1", members="2", bitmap="internal")
    start = ["--create", "/dev/md/diskproof_x", "--run", "--metadata=1.2", "--homehost=none"]
    assert md.create_args("diskproof_x", spec, members) == [
        *(*start, "--name=diskproof_x", "--level=1", "--raid-devices=2", "--data-offset=8192K"),
        *("--assume-clean", "--bitmap=internal", "/dev/loop1", "/dev/loop2"),
    ]
    spec = backing("md", level="0", chunk=str(64 << 10))
    assert md.create_args("diskproof_x", spec, members) == [
        *(*start, "--name=diskproof_x", "--level=0", "--raid-devices=2", "--data-offset=8192K"),
        *("--chunk=64K", "/dev/loop1", "/dev/loop2"),
    ]


def test_arguments_of_pools() -> None:
    targets = tuple(Path(f"/dev/loop{number}") for number in range(4))
    start = ["create", "-o", "cachefile=none", "-o", "ashift=12", "-O", "mountpoint=legacy", "p"]
    assert zfs.pool_args("p", backing("zfs"), targets[:1]) == [*start, str(targets[0])]
    spec = backing("zfs", vdev="raidz1", log="file")
    made = zfs.pool_args("p", spec, targets)
    assert made == [*start, "raidz1", *map(str, targets[:3]), "log", "/dev/loop3"]


def test_arguments_of_volumes_and_datasets() -> None:
    common = ["-o", "logbias=latency", "-o", "primarycache=all"]
    assert zfs.create_args("p", backing("zfs", sync="disabled"), GIB) == [
        *("create", "-s", "-V", str(GIB), "-o", "volblocksize=16384", "-o", "sync=disabled"),
        *("-o", "compression=on", *common, "p/disk"),
    ]
    assert "-s" not in zfs.create_args("p", backing("zfs", reserve="yes"), GIB)
    spec = backing("zfs", type="dataset", compression="off", atime="off", reserve="yes")
    assert zfs.create_args("p", spec, GIB) == [
        *("create", "-o", "recordsize=131072", "-o", "atime=off", "-o", "sync=standard"),
        *("-o", "compression=off", *common, "-o", f"quota={GIB}"),
        *("-o", f"refreservation={GIB}", "p/disk"),
    ]


@pytest.mark.parametrize(
    ("given", "sectors", "reserve"),
    [
        ({}, 4, 192),
        ({"volblocksize": "512"}, 8 * 4, 192),  # a sector of the pool for each block
        ({"vdev": "mirror"}, 8, 2 * 192),
        ({"vdev": "mirror", "members": "3"}, 12, 3 * 192),
        ({"vdev": "raidz1"}, 6, 3 * 96),
        ({"vdev": "raidz1", "members": "5"}, 6, 5 * 48),  # 4 and 1 of parity, padded
        ({"vdev": "raidz1", "volblocksize": "4096"}, 8, 3 * 96),  # as dear as a mirror
        ({"vdev": "raidz2"}, 9, 4 * 96),  # 4 and 4 of parity, padded
    ],
)
def test_what_a_pool_needs_counts_parity_and_padding(
    given: dict[str, str], sectors: int, reserve: int
) -> None:
    """Sectors of 4 KiB for 16 KiB that are written; the reserve in MiB."""
    spec = backing("zfs", **given)
    assert zfs.needed_bytes(spec, GIB) == GIB // 4 * sectors * 3 // 2 + reserve * MIB
    logged = backing("zfs", log="file", **given)
    assert zfs.needed_bytes(logged, GIB) == zfs.needed_bytes(spec, GIB) + zfs.LOG_BYTES


@pytest.mark.parametrize(
    ("given", "on", "why"),
    [
        ({"members": "2"}, None, "it has 2 members, single has 1"),
        ({"vdev": "raidz2", "members": "3"}, None, "it has 3 members, raidz2 has 4 or more"),
        ({"vdev": "mirror"}, Path("/dev/sdx"), "the members of mirror are files"),
    ],
)
def test_what_is_no_pool_is_refused(given: dict[str, str], on: Path | None, why: str) -> None:
    with pytest.raises(HostError) as caught:
        zfs.check_shape(backing("zfs", **given), Place(Path("/x"), device=on))
    assert caught.value.why == why and caught.value.hint


def test_versions_that_buffer_direct_io() -> None:
    told = ("0.8.6-1", "2.1.11-1+deb12u1", "2.2.7", "2.3.0-1", "2.10.1", "of unknown version")
    assert [zfs.is_buffering(version) for version in told] == [True] * 3 + [False] * 3


def test_a_note_comes_back(tmp_path: Path) -> None:
    volume = Volume("lvm", new_name(), (Path("/dev/sdb"), Path(os.fsdecode(b"/dev/a b\xff\n"))))
    write_note(tmp_path, volume)
    assert read_note(tmp_path) == volume
    with pytest.raises(FileExistsError):
        write_note(tmp_path, volume)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"lvm",
        b"lvm\0vg0\0/dev/sda",
        b"lvm\0diskproof_0123456789abcdef-x\0/dev/sda",
        b"lvm\0../diskproof_0123456789abcdef",
        b"shell\0diskproof_0123456789abcdef",
        b"\xff" * 100_000,
    ],
)
def test_a_note_that_is_not_ours_is_none(tmp_path: Path, text: bytes) -> None:
    (tmp_path / NOTE).write_bytes(text)
    assert read_note(tmp_path) is None


def test_a_note_that_is_no_file_of_ours_is_none(tmp_path: Path) -> None:
    assert read_note(tmp_path) is None
    write_note(tmp_path, Volume("md", new_name(), ()))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / NOTE).symlink_to(tmp_path / NOTE)
    assert read_note(tmp_path / "other") is None
    (tmp_path / "pipes").mkdir()
    os.mkfifo(tmp_path / "pipes" / NOTE)
    assert read_note(tmp_path / "pipes") is None
    if os.geteuid() == 0:
        os.chown(tmp_path / NOTE, 65534, 65534)
        assert read_note(tmp_path) is None


STUDY = 'workloads = "sync-write-4k"\n[factors]\nbacking = "b"\n[backings.b]\n'


def read_spec(text: str) -> BackingSpec:
    return parse_study(STUDY + text).backings[0]


def test_an_array_of_named_devices_needs_consent_as_a_device_does() -> None:
    assert read_spec('kind = "md"\npath = "/dev/sdb /dev/sdc"\nlevel = 1').targets
    assert not read_spec('kind = "md"\nlevel = 1').targets
    assert not read_spec('kind = "lvm"').targets
    assert not folder(Path("/images")).targets


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("md", "path", '"/dev/sdb;reboot"'),
        ("md", "level", "6"),
        ("md", "members", "1"),
        ("lvm", "type", '"mirror"'),
        ("lvm", "size", '"lots"'),
        ("zfs", "compression", '"on -o x"'),
    ],
)
def test_tables_that_cannot_be(kind: str, key: str, value: str) -> None:
    with pytest.raises(UsageError, match=f":6: backings.b.{key}: "):
        read_spec(f'kind = "{kind}"\n{key} = {value}')


def test_a_size_that_does_not_fit_names_the_backing_below() -> None:
    below = BackingSpec("fs", "filesystem", ())
    spec = BackingSpec("vol", "lvm", (("size", str(1 << 50)),), on=below)
    with pytest.raises(HostError, match="backing vol does not fit on backing fs"):
        choose_size(spec, Place(Path("/tmp")), lambda size: size)


def test_why_a_device_cannot_be_opened() -> None:
    denied = refuse_device("/dev/x", PermissionError(errno.EPERM, "Operation not permitted"))
    assert "devices of its own list" in denied.hint
    assert "run it as root" in refuse_device("/dev/x", PermissionError(errno.EACCES, "no")).hint
    busy = refuse_device("/dev/x", OSError(errno.EBUSY, "busy"))
    assert busy.why == "it is mounted, swap, or part of another device"
