"""What managers give a new disk: as their own sources say it, and as docs/managers.md tells it."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from diskproof.advice.dialect import Target
from diskproof.plan.like import dialect_of
from diskproof.study.factors import FACTOR_BY_NAME
from diskproof.study.like import MANAGERS, DiskDefault, find_default

DOCUMENT = (Path(__file__).parent.parent / "docs" / "managers.md").read_text()
PLACES = {
    "a file": Target(filesystem="ext4"),
    "a file on Btrfs": Target(filesystem="btrfs"),
    "a file on ZFS": Target(filesystem="zfs"),
    "a file without O_DIRECT": Target(filesystem="tmpfs", direct=False),
    "a block device": Target(block=True),
    "LVM": Target(block=True, filesystem="lvm"),
    "LVM-thin": Target(block=True, filesystem="lvmthin"),
    "a zvol": Target(block=True, filesystem="zfs"),
}
COLUMNS = ("format", "cache", "aio", "discard", "detect-zeroes", "iothread", "bus")
FILE, BTRFS, TMPFS = "a file", "a file on Btrfs", "a file without O_DIRECT"
BLOCK, LVM, ZVOL = "a block device", "LVM", "a zvol"


def levels_of(text: str) -> dict[str, str]:
    return dict(zip(COLUMNS, text.split(), strict=True))


SAID = {
    # qemu(1) 7.2: -drive: "cache=writeback is the default", "aio=threads" where nothing is said,
    # if=ide of the pc machine; block-drivers: discard=ignore, detect-zeroes=off.
    ("qemu", FILE): levels_of("raw writeback threads ignore off off ide"),
    # libvirt, formatdomain.rst: an attribute that is absent is the hypervisor's default; the type
    # of a source without one is raw; a target needs a bus or a name that tells one.
    ("libvirt", FILE): levels_of("raw writeback threads ignore off off -"),
    # virt-install 4.1 as it ran against a libvirtd 9.0 session (--osinfo debian11 --disk size=1):
    # <driver name='qemu' type='qcow2' discard='unmap'/>, bus='virtio', lazy refcounts: true,
    # 16384 of 16384 clusters allocated; storage.py validate and install, disk.py set_defaults.
    ("virt-manager", FILE): levels_of("qcow2 writeback threads unmap off off virtio-blk")
    | {"lazy_refcounts": "on", "preallocation": "metadata"},
    # disk.py set_defaults: of a block device cache none, io native, discard unmap.
    ("virt-manager", BLOCK): levels_of("raw none native unmap off off virtio-blk"),
    # qemu-server Drive.pm aio_ and detect_zeroes_cmdline_option, drive_uses_cache_direct;
    # qm.adoc: virtio-scsi-single with an I/O thread for new Linux machines; pve-manager
    # DiskStorageSelector.js: qcow2 where the storage has it; Plugin.pm: metadata.
    ("proxmox", FILE): levels_of("qcow2 none io_uring ignore on on virtio-scsi")
    | {"preallocation": "metadata"},
    ("proxmox", BTRFS): levels_of("raw writeback io_uring ignore on on virtio-scsi"),
    ("proxmox", LVM): levels_of("raw none native ignore on on virtio-scsi"),
    ("proxmox", ZVOL): levels_of("raw none io_uring ignore on on virtio-scsi"),
    # Incus driver_qemu.go addDriveConfig: none and io_uring from a pool that takes O_DIRECT,
    # writeback and threads on Btrfs and ZFS, unsafe where no pool says that it does; unmap always.
    ("incus", FILE): levels_of("raw none io_uring unmap off off virtio-scsi"),
    ("incus", BTRFS): levels_of("raw writeback threads unmap off off virtio-scsi"),
    ("incus", BLOCK): levels_of("raw unsafe threads unmap off off virtio-scsi"),
    # KubeVirt converter.go SetDriverCacheMode, SetOptimalIOMode: native on block with cache none.
    ("kubevirt", FILE): levels_of("raw none threads unmap off off ahci"),
    ("kubevirt", BLOCK): levels_of("raw none native unmap off off ahci"),
    # Nova virt/libvirt/driver.py, imagebackend.py, conf/libvirt.py.
    ("nova", FILE): levels_of("qcow2 none threads ignore off off virtio-blk"),
    ("kubevirt", TMPFS): levels_of("raw writethrough threads unmap off off ahci"),
    ("nova", TMPFS): levels_of("qcow2 writeback threads ignore off off virtio-blk"),
    ("nova", BLOCK): levels_of("raw none native ignore off off virtio-blk"),
}


def given(manager: str, place: str) -> Mapping[str, str]:
    dialect = dialect_of(manager)
    return dialect.defaults(PLACES[place])


@pytest.mark.parametrize(("manager", "place"), SAID)
def test_a_default_is_what_the_manager_s_source_says(manager: str, place: str) -> None:
    found = given(manager, place)
    for factor, level in SAID[manager, place].items():
        assert found.get(factor, "-") == level, factor


@pytest.mark.parametrize("manager", MANAGERS)
def test_every_manager_has_a_version_a_source_and_known_levels(manager: str) -> None:
    dialect = dialect_of(manager)
    assert dialect.version and dialect.source
    for place in PLACES:
        levels = given(manager, place)
        assert {"cache", "aio", "discard", "detect-zeroes", "format"} <= levels.keys()
        for name, level in levels.items():
            known = FACTOR_BY_NAME[name].levels
            assert level in known or not known, (place, name, level)
        default = DiskDefault(manager, dialect.version, "b", tuple(levels.items()), dialect.source)
        assert find_default(default.sentence) == default


# -- the document ---------------------------------------------------------------------------


def rows_of(manager: str) -> Iterator[str]:
    """The rows of a manager: places that get the same stand in one."""
    dialect = dialect_of(manager)
    places: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for place in PLACES:
        places.setdefault(tuple(sorted(given(manager, place).items())), []).append(place)
    for pairs, where in places.items():
        levels = dict(pairs)
        image = ", ".join(
            f"`{name}={level}`"
            for name, level in pairs
            if name not in COLUMNS and level != FACTOR_BY_NAME[name].default
        )
        cells = (f"`{levels[name]}`" if name in levels else "-" for name in COLUMNS)
        place = ", ".join(where) if len(places) > 1 else "any"
        name = f"{manager} {dialect.version}"
        yield "| " + " | ".join([name, place, *cells, image or "-"]) + " |"


def test_the_document_tells_what_the_dialects_give() -> None:
    head = "| manager | on | " + " | ".join(f"`{name}`" for name in COLUMNS) + " | image |"
    wanted = [head, "|" + "---|" * (len(COLUMNS) + 3)]
    wanted += [row for manager in MANAGERS for row in rows_of(manager)]
    told = [line for line in DOCUMENT.splitlines() if line.startswith("|")]
    assert told == wanted, "docs/managers.md is to hold\n" + "\n".join(wanted)


@pytest.mark.parametrize("manager", MANAGERS)
def test_the_document_names_the_source(manager: str) -> None:
    dialect = dialect_of(manager)
    assert f"- {manager}: {dialect.source}\n" in DOCUMENT
