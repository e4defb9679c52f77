"""From levels to pieces of QEMU command lines. Requires nothing."""

import json
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.drive import DiskImage
from diskproof.errors import UsageError
from diskproof.qemu import disk
from diskproof.records import Cell, WorkloadSpec
from diskproof.study.factors import FACTOR_BY_NAME


def image(name: str = "disk") -> DiskImage:
    return DiskImage(Path("/run") / name, "raw", 1 << 20)


def cell(**levels: str) -> Cell:
    named = ((name.replace("0", "-"), level) for name, level in levels.items())
    return Cell(tuple(sorted(named)), WorkloadSpec("w", "fio"))


def options(args: list[str], name: str) -> list[dict[str, object]]:
    """The JSON values of every ``name`` option."""
    return [json.loads(args[i + 1]) for i, part in enumerate(args) if part == name]


# direct, no-flush, write-through: the table of qemu(1), -drive cache=.
MEANING = {
    "none": (True, False, False),
    "writeback": (False, False, False),
    "writethrough": (False, False, True),
    "directsync": (True, False, True),
    "unsafe": (False, True, False),
}


@pytest.mark.parametrize("cache", FACTOR_BY_NAME["cache"].levels)
def test_cache_mode_reaches_both_nodes_the_export_and_the_device(cache: str) -> None:
    direct, no_flush, write_through = MEANING[cache]
    asked = cell(format="qcow2", cache=cache)
    daemon = disk.daemon_args(asked, image("disk.qcow2"), nbd_fd=7, qmp_fd=8)
    guest = disk.guest_disk_args(asked, image("disk.qcow2"))
    for args, option in ((daemon, "--blockdev"), (guest, "-blockdev")):
        nodes = options(args, option)
        assert [node["driver"] for node in nodes] == ["file", "qcow2"]
        for node in nodes:
            assert node["cache"] == {"direct": direct, "no-flush": no_flush}
    assert options(daemon, "--export")[0]["writethrough"] is write_through
    assert options(guest, "-device")[-1]["write-cache"] == ("off" if write_through else "on")


def test_nodes_of_a_full_cell() -> None:
    asked = cell(
        format="qcow2",
        cache="none",
        aio="native",
        discard="unmap",
        detect0zeroes="unmap",
        lazy_refcounts="on",
        l20cache0size="1M",
    )
    file_node, disk_node = disk.blockdev_nodes(asked, image("disk.qcow2"))
    shared = {
        "cache": {"direct": True, "no-flush": False},
        "discard": "unmap",
        "read-only": False,
        "auto-read-only": False,
    }
    assert file_node == {
        "driver": "file",
        "node-name": disk.FILE_NODE,
        "filename": "disk.qcow2",
        "aio": "native",
        "locking": "auto",
        **shared,
    }
    assert disk_node == {
        "driver": "qcow2",
        "node-name": disk.DISK_NODE,
        "file": disk.FILE_NODE,
        "detect-zeroes": "unmap",
        "lazy-refcounts": True,
        "l2-cache-size": 1 << 20,
        **shared,
    }


@pytest.mark.parametrize("form", ["raw", "qed"])
def test_other_formats_get_no_qcow2_option(form: str) -> None:
    _, node = disk.blockdev_nodes(cell(format=form), image())
    assert "l2-cache-size" not in node
    assert "lazy-refcounts" not in node


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ({"format": "raw", "preallocation": "full"}, {"preallocation": "full"}),
        (
            {"format": "qcow2", "preallocation": "metadata", "cluster_size": "2M"},
            {
                "preallocation": "metadata",
                "cluster_size": "2097152",
                "compat": "1.1",
                "lazy_refcounts": "off",
            },
        ),
        ({"format": "qed", "cluster_size": "64K"}, {"cluster_size": "65536"}),
        ({}, {"preallocation": "off"}),
    ],
)
def test_image_options(levels: dict[str, str], expected: dict[str, str]) -> None:
    assert disk.image_options(cell(**levels)) == expected


def test_create_image_args() -> None:
    assert disk.create_image_args(cell(format="raw", preallocation="falloc"), "disk.raw", 4096) == [
        *("create", "-q", "-f", "raw", "-o", "preallocation=falloc"),
        *("--", "disk.raw", "4096"),
    ]


DEVICES = {
    "virtio-blk": ["virtio-blk-pci"],
    "virtio-scsi": ["virtio-scsi-pci", "scsi-hd"],
    "ide": ["ide-hd"],
    "ahci": ["ich9-ahci", "ide-hd"],
    "nvme": ["nvme"],
}


@pytest.mark.parametrize("bus", FACTOR_BY_NAME["bus"].levels)
def test_every_bus_has_its_devices(bus: str) -> None:
    devices = options(disk.device_args(cell(bus=bus)), "-device")
    assert [device["driver"] for device in devices] == DEVICES[bus]
    assert devices[-1]["drive"] == disk.DISK_NODE
    assert devices[-1]["serial"] == "diskproof-disk"


@pytest.mark.parametrize("bus", FACTOR_BY_NAME["bus"].levels)
def test_iothread_goes_to_the_device_that_takes_it(bus: str) -> None:
    asked = cell(bus=bus, iothread="on")
    if not bus.startswith("virtio"):
        with pytest.raises(UsageError, match="iothread"):
            disk.device_args(asked)
        return
    args = disk.guest_disk_args(asked, image())
    assert args[:2] == ["-object", f"iothread,id={disk.IOTHREAD_ID}"]
    holders = [d["driver"] for d in options(args, "-device") if "iothread" in d]
    assert holders == [DEVICES[bus][0]]


def test_daemon_args() -> None:
    asked = cell(format="raw", cache="directsync", iothread="on")
    args = disk.daemon_args(asked, image("disk.raw"), nbd_fd=7, qmp_fd=8)
    nodes = disk.blockdev_args(asked, image("disk.raw"), "--blockdev")
    export = (
        '{"type":"nbd","id":"diskproof-export","node-name":"diskproof-disk","name":"disk",'
        '"writable":true,"writethrough":true,"iothread":"diskproof-iothread"}'
    )
    assert args == [
        "qemu-storage-daemon",
        *("--chardev", "socket,id=qmp,fd=8"),
        *("--monitor", "chardev=qmp,mode=control"),
        *("--object", "iothread,id=diskproof-iothread"),
        *nodes,
        *("--nbd-server", "addr.type=fd,addr.str=7"),
        *("--export", export),
    ]


@pytest.mark.parametrize("levels", [{"cache": "fast"}, {"bus": "sata"}])
def test_unknown_level_is_named(levels: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="unknown"):
        disk.guest_disk_args(cell(**levels), image())


@given(st.text(min_size=1, max_size=60).filter(lambda name: Path(name).name == name))
def test_no_file_name_can_add_an_option(name: str) -> None:
    nodes = options(disk.blockdev_args(cell(), image(name)), "-blockdev")
    assert nodes[0]["filename"] == name
    assert len(nodes) == 2


def test_every_choice_of_levels_gives_arguments() -> None:
    names = ("format", "cache", "aio", "discard", "bus")
    for levels in product(*(FACTOR_BY_NAME[name].levels for name in names)):
        assert disk.guest_disk_args(cell(**dict(zip(names, levels, strict=True))), image())
