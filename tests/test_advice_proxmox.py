"""Proxmox VE's property strings: each gotcha, and cell -> line -> cell for all that can be said."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.advice import proxmox
from diskproof.advice.dialect import Target
from diskproof.advice.proxmox_drive import (
    Storage,
    check_drive,
    find_levels,
    is_drive_key,
    parse_drive,
    read_storages,
    render_drive,
)
from diskproof.errors import UsageError
from diskproof.study.factors import CACHE_MODES, FACTOR_BY_NAME

GOLDEN = Path(__file__).parent / "golden" / "proxmox" / "drive-9.2.6.jsonl"
STORAGES = read_storages(
    "dir: local\n\tpath /var/lib/vz\n\ncifs: cifs-store\n\tserver 127.0.0.42\n\n"
    "rbd: krbd-store\n\tpool cpool\n\tkrbd 1\n\nrbd: rbd-store\n\tpool cpool\n\n"
    "lvm: lvm-store\n\tvgname veegee\n\nbtrfs: cow\n\tpath /butter\n\n"
    "btrfs: nocow\n\tpath /bread\n\tnocow 1\n\nzfs: over-iscsi\n\tpool tank\n"
)
BUS_OF = {"scsi0": "virtio-scsi", "virtio0": "virtio-blk", "ide0": "ide", "sata0": "ahci"}
EXISTING = "local-lvm:vm-101-disk-0,backup=0,mbps_rd=120.5,serial=A%2CB,size=32G,ssd=1,replicate=0"


# What config_to_command of qemu-server 9.2.6 makes of such lines (its tests aio, simple-btrfs,
# simple-rbd, simple-lvm): (volume, properties) -> cache mode, aio (empty: none is given).
IN_FORCE = [
    ("local:101/d.raw", "", "none", "io_uring"),
    ("local:101/d.raw", "aio=threads", "none", "threads"),
    ("local:101/d.raw", "aio=native", "none", "native"),
    ("local:101/d.raw", "cache=writeback", "writeback", "io_uring"),
    ("cifs-store:101/d.raw", "", "none", "native"),
    ("cifs-store:101/d.raw", "aio=io_uring", "none", "io_uring"),
    ("cifs-store:101/d.raw", "cache=writeback", "writeback", "threads"),
    ("cifs-store:101/d.raw", "cache=directsync", "directsync", "native"),
    ("krbd-store:vm-101-disk-0", "", "none", "io_uring"),
    ("krbd-store:vm-101-disk-0", "cache=writeback", "writeback", "threads"),
    ("krbd-store:vm-101-disk-0", "cache=writethrough", "writethrough", "threads"),
    ("krbd-store:vm-101-disk-0", "cache=writeback,aio=io_uring", "writeback", "io_uring"),
    ("rbd-store:vm-101-disk-0", "", "none", ""),
    ("rbd-store:vm-101-disk-0", "aio=io_uring", "none", ""),
    ("lvm-store:vm-101-disk-0", "", "none", "native"),
    ("lvm-store:vm-101-disk-0", "cache=writethrough", "writethrough", "threads"),
    ("lvm-store:vm-101-disk-0", "aio=io_uring", "none", "io_uring"),
    ("cow:101/d.raw", "", "writeback", "io_uring"),
    ("cow:101/d.raw", "cache=directsync", "directsync", "io_uring"),
    ("nocow:101/d.raw", "", "none", "io_uring"),
    ("over-iscsi:vm-101-disk-0", "cache=writeback", "writeback", ""),
    ("/dev/sda", "", "none", "io_uring"),
    ("/mnt/file.raw", "", "none", "io_uring"),
]


@pytest.mark.parametrize(("volume", "told", "cache", "aio"), IN_FORCE)
def test_what_is_in_force_is_what_qemu_server_makes_of_it(
    volume: str, told: str, cache: str, aio: str
) -> None:
    drive = parse_drive("scsi0", f"{volume},{told}" if told else volume)
    levels, assumed = find_levels(drive, "virtio-scsi-pci", STORAGES)
    assert (levels["cache"], levels.get("aio", "")) == (cache, aio)
    assert ("cache" in assumed) == ("cache" not in told)


def test_proxmox_s_own_parser_says_the_same() -> None:
    """Rows: lines of our own making, and what qemu-server 9.2.6 answered when its Drive.pm was run
    on them (``parse_drive``, ``drive_uses_cache_direct``, ``aio_cmdline_option``,
    ``detect_zeroes_cmdline_option``); null where it refused the line."""
    rows = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    assert len(rows) > 200
    for row in rows:
        key, _, text = row["line"].partition(": ")
        drive = parse_drive(key, text)
        assert bool(check_drive(drive)) == (row["answer"] is None), row
        if row["answer"] is None:
            continue
        levels, _ = find_levels(drive, "virtio-scsi-single", read_storages(row["storage"]))
        said = {
            "direct": CACHE_MODES[levels["cache"]].direct,
            "aio": levels["aio"],
            "detect-zeroes": levels["detect-zeroes"],
            "discard": levels["discard"],
            "iothread": levels["iothread"] == "on",
        }
        assert said == row["answer"], row


@pytest.mark.parametrize(
    ("told", "discard", "zeroes"),
    [
        ("", "ignore", "on"),
        ("discard=ignore", "ignore", "on"),
        ("discard=on", "unmap", "unmap"),
        ("discard=on,detect_zeroes=1", "unmap", "unmap"),
        ("detect_zeroes=1", "ignore", "on"),
        ("detect_zeroes=0", "ignore", "off"),
        ("discard=on,detect_zeroes=0", "unmap", "off"),
        ("detect_zeroes=off", "ignore", "off"),
    ],
)
def test_gotcha_3_detect_zeroes_is_on_by_itself_and_follows_discard(
    told: str, discard: str, zeroes: str
) -> None:
    levels = proxmox.read(f"scsi0: local:101/d.raw,{told}".rstrip(","), Target())
    assert (levels["discard"], levels["detect-zeroes"]) == (discard, zeroes)


def test_gotcha_3_unmap_with_plain_on_cannot_be_said() -> None:
    (found,) = proxmox.find_obstacles({"discard": "unmap", "detect-zeroes": "on"}, Target())
    assert (found.factor, found.nearest) == ("detect-zeroes", "unmap")
    with pytest.raises(ValueError, match="detect_zeroes"):
        proxmox.write({"discard": "unmap", "detect-zeroes": "on"}, Target())


def test_gotcha_2_the_whole_property_string_is_written() -> None:
    target = Target(machine="101", disk="scsi0", existing=f"{EXISTING},cache=unsafe")
    paste = proxmox.write({"cache": "none", "aio": "native"}, target)
    assert paste.text == f"qm set 101 --scsi0 '{EXISTING},cache=none,aio=native'"
    assert "[PENDING]" in paste.takes_effect
    assert "stop and start" in paste.takes_effect


def test_gotcha_2_an_io_thread_of_scsi_brings_its_controller() -> None:
    for hardware in ("", "\nscsihw: virtio-scsi-pci", "\nscsihw: lsi"):
        target = Target(machine="101", existing=f"scsi0: {EXISTING}{hardware}")
        paste = proxmox.write({"iothread": "on"}, target)
        assert paste.text.splitlines() == [
            "qm set 101 --scsihw virtio-scsi-single",
            f"qm set 101 --scsi0 '{EXISTING},iothread=1'",
        ]
        assert "Windows" in "".join(paste.notes)
    there = Target(machine="101", existing=f"scsi0: {EXISTING}\nscsihw: virtio-scsi-single")
    assert "scsihw" not in proxmox.write({"iothread": "on"}, there).text
    virtio = Target(machine="101", existing=f"virtio0: {EXISTING.replace(',ssd=1', '')}")
    assert "scsihw" not in proxmox.write({"iothread": "on"}, virtio).text


def test_the_words_of_the_web_interface_stand_beside_the_line() -> None:
    cell = {"cache": "writeback", "aio": "threads", "discard": "unmap", "iothread": "on"}
    (told,) = [note for note in proxmox.write(cell, Target()).notes if "web interface" in note]
    assert told.endswith("Cache: Write back, Async IO: threads, Discard ticked, IO thread ticked")


def test_gotcha_1_native_needs_a_direct_cache() -> None:
    for cache in CACHE_MODES:
        found = proxmox.find_obstacles({"cache": cache, "aio": "native"}, Target())
        assert bool(found) == (cache not in ("none", "directsync"))


def test_an_io_thread_is_ignored_without_its_controller() -> None:
    text = "scsi0: local:101/d.raw,iothread=1"
    for hardware, level in (("virtio-scsi-single", "on"), ("virtio-scsi-pci", "off")):
        assert proxmox.read(f"{text}\nscsihw: {hardware}", Target())["iothread"] == level
    assert "iothread" not in proxmox.read(text, Target())  # not known: neither on nor off
    assert proxmox.read("virtio3: local:101/d.raw,iothread=1", Target())["iothread"] == "on"


@pytest.mark.parametrize(
    ("levels", "nearest"),
    [
        ({"bus": "nvme"}, "virtio-scsi"),
        ({"format": "qed"}, "qcow2"),
        ({"l2-cache-size": "64M"}, "32M"),
        ({"bus": "ide", "iothread": "on"}, "off"),
        ({"discard": "ignore", "detect-zeroes": "unmap"}, "on"),
    ],
)
def test_what_cannot_be_said_is_refused_with_the_nearest(
    levels: dict[str, str], nearest: str
) -> None:
    (found,) = proxmox.find_obstacles(levels, Target())
    assert found.nearest == nearest
    assert found.reason


CELLS = [
    dict(zip(("cache", "aio", "discard", "detect-zeroes", "iothread", "bus"), cell, strict=True))
    for cell in itertools.product(
        CACHE_MODES,
        FACTOR_BY_NAME["aio"].levels,
        ("ignore", "unmap"),
        ("off", "on", "unmap"),
        ("off", "on"),
        BUS_OF.values(),
    )
]


@pytest.mark.parametrize(
    "existing",
    [
        "",
        f"scsi0: {EXISTING}",
        "virtio2: local:101/vm-101-disk-0.raw,cache=unsafe,discard=on,iothread=1,size=8G",
        "sata1: tank:101/vm-101-disk-0.qcow2,detect_zeroes=0,size=8G",
        "scsi3: s1:vm-101-disk-0,cache=writethrough,aio=threads\nscsihw: virtio-scsi-single",
        "scsi1: lvm-store:vm-101-disk-1,aio=native,iothread=1\nscsihw: lsi\nlvm: lvm-store",
        "ide0: cow:101/vm-101-disk-1.raw,model=X\nbtrfs: cow",
    ],
)
def test_every_cell_that_can_be_said_is_read_back(existing: str) -> None:
    target = Target(machine="101", existing=existing)
    sayable = [cell for cell in CELLS if not proxmox.find_obstacles(cell, target)]
    assert len(sayable) == 12 * 4 * 6  # cache and aio, discard and zeroes, bus and I/O thread
    for cell in sayable:
        text = proxmox.write(cell, target).text
        assert cell.items() <= proxmox.read(text, target).items(), text


@given(st.sampled_from(CELLS))
def test_what_was_written_once_is_not_changed_again(cell: dict[str, str]) -> None:
    target = Target(machine="101", existing=f"scsi0: {EXISTING}")
    if proxmox.find_obstacles(cell, target):
        return
    text = proxmox.write(cell, target).text
    again = proxmox.write(cell, Target(machine="101", existing=text)).text
    assert again == text.splitlines()[-1]


@given(
    cell=st.sampled_from(CELLS),
    others=st.dictionaries(
        st.sampled_from(("size", "backup", "serial", "mbps_wr", "replicate", "iops", "shared")),
        st.from_regex(r"[0-9A-Za-z%.]{1,12}", fullmatch=True),
    ),
    key=st.sampled_from(tuple(BUS_OF)),
)
def test_what_no_cell_says_stays(cell: dict[str, str], others: dict[str, str], key: str) -> None:
    text = ",".join(("store:vm-7-disk-0", *(f"{name}={value}" for name, value in others.items())))
    target = Target(machine="7", existing=f"{key}: {text}")
    if proxmox.find_obstacles(cell, target):
        return
    last = proxmox.write(cell, target).text.splitlines()[-1]
    drive = parse_drive("scsi0", last.split("'")[1])
    assert drive.volume == "store:vm-7-disk-0"
    assert {name: drive.properties.get(name) for name in others} == others


def test_nothing_changes_where_all_is_in_force_already() -> None:
    target = Target(machine="101", existing=f"virtio0: {EXISTING}")
    usual = {"cache": "none", "discard": "ignore", "detect-zeroes": "on", "iothread": "off"}
    assert proxmox.write(usual, target).text == f"qm set 101 --virtio0 '{EXISTING}'"


def test_another_bus_moves_the_disk_without_what_it_cannot_have() -> None:
    existing = "scsi3: local:101/d.raw,ssd=1,queues=4,iothread=1,size=8G\nscsihw: lsi"
    paste = proxmox.write({"bus": "virtio-blk"}, Target(machine="101", existing=existing))
    assert paste.text.splitlines() == [
        "qm set 101 --delete scsi3",
        "qm set 101 --virtio3 'local:101/d.raw,iothread=1,size=8G'",
    ]
    assert "boot order" in paste.notes[0]


def test_a_new_disk_is_allocated_and_image_settings_come_from_a_command() -> None:
    plain = proxmox.write({"cache": "none", "format": "qcow2"}, Target())
    assert plain.text == "qm set VMID --scsi0 'STORAGE:SIZE_IN_GIB,format=qcow2,cache=none'"
    assert not plain.create
    made = proxmox.write({"format": "qcow2", "cluster_size": "2M", "cache": "none"}, Target())
    assert made.create.startswith("qemu-img create -f qcow2 -o cluster_size=2M")
    assert "STORAGE:VMID/vm-VMID-disk-0.qcow2" in made.create
    assert "STORAGE:VMID/vm-VMID-disk-0.qcow2" in made.text
    assert proxmox.read(made.text, Target())["format"] == "qcow2"
    raw = Target(machine="1", existing="scsi0: local:1/vm-1-disk-0.raw,size=8G")
    assert "qm disk move 1 scsi0" in proxmox.write({"format": "qcow2"}, raw).notes[-1]


def test_defaults_are_those_of_a_new_linux_guest() -> None:
    assert proxmox.find_defaults(Target()) == {
        "cache": "none",
        "aio": "io_uring",
        "discard": "ignore",
        "detect-zeroes": "on",
        "iothread": "on",
        "bus": "virtio-scsi",
        "format": "qcow2",
        "preallocation": "metadata",
    }
    assert proxmox.find_defaults(Target(filesystem="btrfs"))["cache"] == "writeback"
    assert proxmox.find_defaults(Target(filesystem="lvm"))["aio"] == "native"


def test_a_level_that_depends_on_an_unknown_storage_is_left_out() -> None:
    assert "cache" not in proxmox.read("scsi0: tank:101/vm-101-disk-0.qcow2", Target())
    assert "aio" not in proxmox.read("scsi0: tank:vm-101-disk-0", Target())
    assert proxmox.read("scsi0: tank:vm-101-disk-0", Target())["cache"] == "none"


@given(st.text(max_size=80))
def test_a_property_string_is_read_or_refused(text: str) -> None:
    try:
        drive = parse_drive("scsi0", text)
    except ValueError:
        return
    assert parse_drive("scsi0", render_drive(drive)) == drive
    assert isinstance(check_drive(drive), list)


@given(st.text(max_size=200))
def test_any_text_is_a_disk_or_a_usage_error(text: str) -> None:
    try:
        levels = proxmox.read(text, Target())
    except UsageError:
        return
    assert set(levels) <= set(FACTOR_BY_NAME)


def test_a_shell_gets_one_word_whatever_the_line_holds() -> None:
    hostile = "local:101/d.raw,serial=$(reboot)'; rm -rf /"
    text = proxmox.write({"cache": "none"}, Target(machine="1", existing=f"scsi0: {hostile}")).text
    assert proxmox.read(text, Target())["cache"] == "none"
    assert text.endswith("serial=$(reboot)'\\''; rm -rf /'") or "'\\''" in text
    (found,) = proxmox.find_obstacles({"cache": "none"}, Target(image="a b'c"))
    assert found.factor == "image"


@pytest.mark.parametrize(
    ("key", "known"),
    [("scsi30", True), ("scsi31", False), ("virtio15", True), ("virtio16", False), ("ide4", False),
     ("sata5", True), ("unused0", False), ("efidisk0", False), ("scsi", False), ("net0", False)],
)  # fmt: skip
def test_keys_of_disks(key: str, known: bool) -> None:
    assert is_drive_key(key) is known


def test_what_proxmox_refuses_is_told() -> None:
    assert check_drive(parse_drive("sata0", "local:1/d.raw,iothread=1"))
    assert check_drive(parse_drive("scsi0", "local:1/d.raw,cache=off"))
    fine = "local:1/d.raw,mbps_rd=2,mbps_rd_max=4,bps_rd_length=1,werror=report,ssd=1"
    assert not check_drive(parse_drive("scsi0", fine))


def test_storages_are_read() -> None:
    assert STORAGES["krbd-store"] == Storage("krbd-store", "rbd", {"pool": "cpool", "krbd": "1"})
    assert STORAGES["krbd-store"].krbd
    assert STORAGES["cow"].copies_on_write
    assert not STORAGES["nocow"].copies_on_write
    assert read_storages("nonsense\n\tpath /x\nnvme: y\n") == {}


def test_the_mapping_has_a_row_for_each_factor_of_a_disk() -> None:
    told = {factor for factor, _, _ in proxmox.MAPPING}
    assert told >= {"cache", "aio", "discard", "detect-zeroes", "iothread", "bus", "format"}
