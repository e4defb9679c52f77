"""The dialect of QEMU's command line, both ways. Requires nothing."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.advice.dialect import Target
from diskproof.advice.dialects import require_dialect
from diskproof.advice.qemu import DIALECT, MAPPING, disk_name
from diskproof.advice.qemu_options import read_keys
from diskproof.drive import DiskImage
from diskproof.errors import UsageError
from diskproof.qemu import disk
from diskproof.records import Cell, WorkloadSpec
from diskproof.study.factors import FACTOR_BY_NAME

TARGET = Target(image="/var/lib/vm images/web,1.qcow2", disk="web")
SIZES = {"cluster_size": ("4K", "64K", "2M"), "l2-cache-size": ("64K", "1M", "32M", "4G")}


@st.composite
def cells(draw: st.DrawFn) -> dict[str, str]:
    """Levels of a cell that QEMU can have."""
    levels = {"format": draw(st.sampled_from(FACTOR_BY_NAME["format"].levels))}
    for row in MAPPING[1:]:
        factor = FACTOR_BY_NAME[row.factor]
        if factor.formats and levels["format"] not in factor.formats:
            continue
        if levels["format"] == "qed" and row.factor == "preallocation":
            continue
        levels[row.factor] = draw(st.sampled_from(factor.levels or SIZES[row.factor]))
    for obstacle in DIALECT.find_obstacles(levels, TARGET):
        levels[obstacle.factor] = obstacle.nearest
    return levels


@given(cells())
def test_a_cell_survives_its_lines(levels: dict[str, str]) -> None:
    assert DIALECT.find_obstacles(levels, TARGET) == ()
    paste = DIALECT.write(levels, TARGET)
    assert DIALECT.read(f"{paste.create}\n{paste.text}", TARGET) == levels
    whole = f"qemu-system-x86_64 -m 512 \\\n {paste.text}"
    assert DIALECT.read(f"{paste.create}\n{whole}", TARGET) == levels


def words(text: str, option: str) -> list[str]:
    parts = shlex.split(text.replace("\\\n", " "))
    return [parts[i + 1] for i, word in enumerate(parts) if word == f"-{option}"]


def unnamed(keys: Mapping[str, object]) -> dict[str, str]:
    """Options without names, places on buses and how errors are told."""
    dropped = {"node-name", "file", "filename", "id", "drive", "serial", "werror", "rerror"}
    spelt = {key: value for key, value in keys.items() if key not in dropped}
    return {k: "X" if k in ("iothread", "bus") else str(value) for k, value in spelt.items()}


@given(cells())
def test_the_lines_are_what_is_measured(levels: dict[str, str]) -> None:
    cell = Cell(tuple(sorted(levels.items())), WorkloadSpec("w", "fio"))
    text = DIALECT.write(levels, TARGET).text
    measured = disk.guest_disk_args(cell, DiskImage(Path("/x/disk"), levels["format"], 1 << 20))
    nodes = [json.loads(word) for word in measured if '"node-name"' in word]
    devices = [json.loads(word) for word in measured if word.startswith('{"driver"')]
    devices = [device for device in devices if "node-name" not in device]
    ours = [unnamed(json.loads(word)) for word in words(text, "blockdev")]
    assert ours == [unnamed(node) for node in nodes]
    written = [unnamed(read_keys("device", word)) for word in words(text, "device")]
    through = levels["cache"] in ("writethrough", "directsync")
    assert [device.pop("config-wce", "on") for device in written][-1] == (
        "off" if through and levels["bus"] == "virtio-blk" else "on"
    )
    assert written == [unnamed(device) for device in devices]
    assert len(words(text, "object")) == ("iothread" in " ".join(measured))


@pytest.mark.parametrize(
    ("levels", "target", "obstacle"),
    [
        ({"aio": "native"}, TARGET, ("aio", "native", "threads")),
        ({"aio": "native", "cache": "writethrough"}, TARGET, ("aio", "native", "threads")),
        ({"detect-zeroes": "unmap", "discard": "ignore"}, TARGET, ("detect-zeroes", "unmap", "on")),
        ({"iothread": "on", "bus": "ide"}, TARGET, ("iothread", "on", "off")),
        ({"iothread": "on", "bus": "nvme"}, TARGET, ("iothread", "on", "off")),
        ({"preallocation": "metadata"}, TARGET, ("preallocation", "metadata", "off")),
        ({"cache": "fast"}, TARGET, ("cache", "fast", "")),
        (
            {"preallocation": "full", "format": "raw"},
            Target("/dev/vg/web", block=True),
            ("preallocation", "full", "off"),
        ),
        ({"aio": "threads"}, Target("nbd://host/disk"), ("aio", "threads", "")),
        ({"cache": "none"}, Target("gluster://host/v/i"), ("backing", "gluster://host/v/i", "")),
    ],
)
def test_what_cannot_be_said_is_refused_with_the_nearest(
    levels: dict[str, str], target: Target, obstacle: tuple[str, str, str]
) -> None:
    (found,) = DIALECT.find_obstacles(levels, target)
    assert (found.factor, found.level, found.nearest) == obstacle
    assert found.reason
    with pytest.raises(ValueError, match=obstacle[0]):
        DIALECT.write(levels, target)


@pytest.mark.parametrize(
    ("image", "driver"),
    [
        ("nbd://h:10810/d", "nbd"),
        ("nbd+unix:///d?socket=/run/s", "nbd"),
        ("rbd:pool/image", "rbd"),
        ("iscsi://h/iqn.2026-11.x:y/1", "iscsi"),
        ("/dev/vg/web", "host_device"),
    ],
)
def test_disks_that_are_no_files(image: str, driver: str) -> None:
    target = Target(image, block=image.startswith("/dev"))
    paste = DIALECT.write({"cache": "none", "format": "raw"}, target)
    assert json.loads(words(paste.text, "blockdev")[0])["driver"] == driver
    assert paste.create == ""
    assert DIALECT.read(paste.text, target)["cache"] == "none"


@given(st.builds(Target, image=st.text(max_size=80), disk=st.text(max_size=40)))
def test_any_image_and_any_name_give_lines_that_read_back(target: Target) -> None:
    if "\0" in target.image or DIALECT.find_obstacles({"cache": "none"}, target):
        return
    paste = DIALECT.write({"cache": "none"}, target)
    name = disk_name(target)
    assert name[0].isalpha()
    assert len(f"{name}-iothread") < 32
    assert DIALECT.read(paste.text, Target(disk=name))["cache"] == "none"
    if target.image and not target.image.startswith(("nbd", "rbd", "iscsi", "http")):
        assert json.loads(words(paste.text, "blockdev")[0])["filename"] == target.image


def test_the_defaults_are_a_cell_of_their_own() -> None:
    for target in (Target(), Target("/x.qcow2")):
        levels = DIALECT.defaults(target)
        paste = DIALECT.write(levels, target)
        assert DIALECT.read(f"{paste.create}\n{paste.text}", target) == levels
    drive = "qemu-system-x86_64 -drive file=/x.qcow2,format=qcow2"
    found = DIALECT.read(drive, Target())
    assert found.items() <= DIALECT.defaults(Target("/x.qcow2")).items()
    assert require_dialect("qemu") is DIALECT


def test_lines_without_a_disk_are_refused() -> None:
    for text in ("qemu-system-x86_64 -m 512", "", "echo hello"):
        with pytest.raises(UsageError):
            DIALECT.read(text, Target())
    with pytest.raises(UsageError, match="no disk 'b'"):
        DIALECT.read("-drive file=/a,format=raw,id=a", Target(disk="b"))


NODE = {"driver": "file", "filename": "/a,b", "node-name": "f", "locking": "off"}
TOP = {"driver": "qcow2", "node-name": "d", "file": "f", "backing": None, "cache": {"direct": True}}
EXISTING = {
    "drive": "-drive 'file=/a,,b,format=qcow2,if=virtio,cache=none,bps=1000'",
    "hda": "-hda /a.qcow2",
    "none": "-drive file=/a,format=qcow2,if=none,id=d,file.aio=native,cache.direct=on "
    "-device virtio-blk-pci,drive=d,serial=KEEP,write-cache=off",
    "dotted": "-blockdev driver=qcow2,node-name=d,file.driver=file,file.filename=/a,discard=unmap "
    "-device scsi-hd,drive=d,serial=KEEP -device virtio-scsi-pci,id=s",
    "json": f"-blockdev '{json.dumps(NODE)}' -blockdev '{json.dumps(TOP)}' "
    """-device '{"driver":"virtio-blk-pci","drive":"d","id":"v","serial":"KEEP"}'""",
}
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "cache": st.sampled_from(FACTOR_BY_NAME["cache"].levels),
        "aio": st.sampled_from(["threads", "io_uring"]),
        "discard": st.sampled_from(["ignore", "unmap"]),
        "detect-zeroes": st.sampled_from(["off", "on"]),
        "iothread": st.sampled_from(["off", "on"]),
    },
)


@pytest.mark.parametrize("form", EXISTING)
@given(CHANGES)
def test_a_line_is_changed_and_keeps_all_else(form: str, changes: dict[str, str]) -> None:
    existing = EXISTING[form]
    before = DIALECT.read(existing, Target())
    if changes.get("cache") and "aio" not in changes and before["aio"] == "native":
        changes = {**changes, "aio": "threads"}
    if "iothread" in changes and form in ("drive", "hda"):
        changes = {key: level for key, level in changes.items() if key != "iothread"}
    image = "/a,b" if form in ("drive", "json") else "/a"
    text = DIALECT.write(changes, Target(image, existing=existing)).text
    after = DIALECT.read(text, Target())
    assert after == {**before, **changes}
    assert ("KEEP" in text) == ("KEEP" in existing)
    assert ("bps=1000" in text) == ("bps" in existing)
    assert ('"backing":null' in text.replace(" ", "")) == (form == "json")
    again = DIALECT.write(changes, Target(image, existing=text)).text
    assert (len(again), DIALECT.read(again, Target())) == (len(text), after)


def test_what_stays_in_a_line_counts_too() -> None:
    target = Target("/a", existing=EXISTING["none"])
    assert DIALECT.find_obstacles({"aio": "native"}, target) == ()
    (found,) = DIALECT.find_obstacles({"cache": "writeback"}, target)
    assert (found.factor, found.nearest) == ("aio", "threads")


def test_a_changed_line_is_spelt_as_it_was() -> None:
    existing = "-drive file=/a,if=none,id=d -device virtio-blk-pci,drive=d"
    text = DIALECT.write({"cache": "directsync"}, Target("/a", existing=existing)).text
    assert text == (
        "-drive file=/a,if=none,id=d,cache=directsync \\\n"
        "-device virtio-blk-pci,drive=d,config-wce=off"
    )


def test_another_bus_is_written_anew() -> None:
    target = Target("/a", existing=EXISTING["none"])
    text = DIALECT.write({"bus": "nvme", "cache": "none", "format": "qcow2"}, target).text
    assert "nvme" in text
    assert "KEEP" not in text
