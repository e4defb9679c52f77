"""Servers of network disks: their command lines, QEMU's way to them, flushes counted in a log."""

from pathlib import Path

import pytest

from diskproof.backings.flush_proof import FlushProof, count_durable
from diskproof.backings.iscsi import STORES, target_args
from diskproof.backings.nbd import server_args
from diskproof.drive import DiskImage, NetworkDisk
from diskproof.qemu.disk import blockdev_nodes, image_opts
from diskproof.qemu.images import network_image
from diskproof.recording.log import ACKNOWLEDGE, FSYNC, SYNC_WRITE, WRITE, Frame
from diskproof.records import Cell, WorkloadSpec
from support.volumes import backing

DISK = NetworkDisk(
    "nbd", {"server": {"type": "unix", "path": "a,b"}, "export": "disk"}, "a,b", Path("/room")
)
CELL = Cell((("cache", "none"), ("format", "raw")), WorkloadSpec("w", "fio"))


def test_nodes_of_a_disk_over_a_network() -> None:
    both = {
        "cache": {"direct": True, "no-flush": False},
        "discard": "ignore",
        "read-only": False,
        "auto-read-only": False,
    }
    image = network_image(DISK, 4096)
    assert blockdev_nodes(CELL, image) == (
        {"driver": "nbd", "node-name": "diskproof-file", **DISK.options, **both},
        {
            "driver": "raw",
            "node-name": "diskproof-disk",
            "file": "diskproof-file",
            "detect-zeroes": "off",
            "size": 4096,
            **both,
        },
    )
    assert image.local == () and image.path.parent == DISK.folder
    assert DiskImage(Path("/disk"), "raw", 4096).local == (Path("/disk"),)


def test_a_network_disk_for_qemus_tools() -> None:
    assert image_opts(DISK) == "driver=nbd,server.type=unix,server.path=a,,b,export=disk"
    assert image_opts(DISK, 512) == (
        "driver=raw,size=512,file.driver=nbd,"
        "file.server.type=unix,file.server.path=a,,b,file.export=disk"
    )


def test_qemu_nbd_is_told_everything() -> None:
    spec = backing("nbd", cache="none", aio="native", discard="ignore")
    assert server_args(spec, "../disk.raw") == [
        *("--socket", "/proc/self/cwd/server.sock", "--persistent", "--shared", "16"),
        *("--export-name", "disk", "--format", "raw", "--cache", "none", "--aio", "native"),
        *("--discard", "ignore", "--detect-zeroes", "off", "--", "../disk.raw"),
    ]


@pytest.mark.parametrize(
    ("store", "made", "cached"),
    [
        ("fileio", ["--bstype", "rdwr"], False),
        ("fileio-wb", ["--bstype", "rdwr"], True),
        ("blockio", ["--bstype", "rdwr", "--bsoflags", "direct"], True),
        ("aio", ["--bstype", "aio"], True),
        ("nullio", ["--bstype", "null"], True),
    ],
)
def test_what_tgtadm_is_told_of_a_store(store: str, made: list[str], cached: bool) -> None:
    told = target_args(STORES[store], "../disk.raw")
    disk = told[1]
    assert disk[disk.index("--bstype") : disk.index("--backing-store")] == made
    assert ([args[1] for args in told] == ["new", "new", "bind"]) == cached
    assert told[-1][-2:] == ["--initiator-address", "127.0.0.1"]


def frame(kind: int, payload: bytes = b"", flags: int = 0, errno: int = 0) -> Frame:
    return Frame(kind, flags, errno, 1, 0, 0, 2, payload, 0)


MARK, END = frame(ACKNOWLEDGE, b"way"), frame(ACKNOWLEDGE, b"end")
W, F = frame(WRITE), frame(FSYNC)
LOST_SYNC, DURABLE = frame(FSYNC, errno=5), frame(WRITE, flags=SYNC_WRITE)


@pytest.mark.parametrize(
    ("frames", "durable"),
    [
        ([W, F] * 5 + [W], 5),
        ([W] * 6 + [F, F], 0),  # on closing: nobody had asked for it by then
        ([W, F, F, W, W, W, F, W, W], 2),
        ([F, W, LOST_SYNC, W, W, W, W, W], 0),
        ([DURABLE] * 6, 5),
        ([], 0),
    ],
)
def test_writes_that_were_durable_before_the_next(frames: list[Frame], durable: int) -> None:
    assert dict(count_durable([W, F, MARK, *frames, END])) == {"way": durable}


def test_a_proof_in_words_and_checks() -> None:
    proof = FlushProof({"flushes passed on": 3})
    assert str(proof) == "flushes passed on: 3 of 5"
    (check,) = proof.as_checks()
    assert (check.name, check.effective, check.ok) == ("server: flushes passed on", "3 of 5", True)
    (check,) = FlushProof(obstacle="no FUSE").as_checks()
    assert (check.effective, check.source) == ("not measured", "no FUSE")
