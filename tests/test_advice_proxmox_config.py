"""Configurations of Proxmox VE: what runs, what waits, what a snapshot keeps; and hostile ones."""

import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.advice import proxmox_config
from diskproof.advice.dialect import Target
from diskproof.advice.dialects import READINGS
from diskproof.advice.proxmox import read
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Machine, MachineDisk
from diskproof.study.factors import CACHE_MODES, DIRECT

FIXTURES = Path(__file__).parent / "fixtures" / "machines" / "proxmox"
EXPECTED: dict[str, dict[str, list[str]]] = tomllib.loads((FIXTURES / "expected.toml").read_text())


def read_fixture(name: str) -> Machine:
    text = (FIXTURES / name).read_text()
    assert [each.name for each in READINGS if each.claims(text)] == ["proxmox"]
    (machine,) = proxmox_config.read_machines(text, f"/etc/pve/qemu-server/{name}")
    return machine


def disk_of(text: str, name: str) -> MachineDisk:
    (machine,) = proxmox_config.read_machines(text, "101.conf")
    return next(disk for disk in machine.disks if disk.name == name)


def rules_by_levels(disk: MachineDisk) -> set[str]:
    layers = [each.levels for each in disk.layers.values()]
    found = set()
    if disk.read_only:
        return {"read-only"}
    if any(levels.get("cache") == "unsafe" for levels in layers):
        found.add("no-flush")
    if any(each.get("aio") == "native" and each.get("cache") not in DIRECT for each in layers):
        found.add("native-without-direct")
    if disk.facts.get("driver") == "rbd" and disk.kind == "network":
        found |= {"rbd-cache", "unknown"}
    return found


@pytest.mark.parametrize("name", EXPECTED)
def test_every_planted_fault_is_named_and_nothing_else(name: str) -> None:
    machine = read_fixture(name)
    assert machine.id == name.partition(".")[0]
    assert {disk.name for disk in machine.disks} == set(EXPECTED[name])
    for disk in machine.disks:
        told = {remark.rule for remark in disk.remarks} - {"unknown-cache"}
        unknown = {"unknown" for remark in disk.remarks if remark.effect == "unknown"}
        assert told | unknown | rules_by_levels(disk) == set(EXPECTED[name][disk.name]), disk.name


@pytest.mark.parametrize("name", EXPECTED)
def test_a_disk_s_line_says_what_its_configuration_says(name: str) -> None:
    machine = read_fixture(name)
    for disk in machine.disks:
        if disk.configured is None or disk.name.startswith("args"):
            continue
        levels = read(disk.line, Target(disk=disk.name))
        same = {k: v for k, v in disk.configured.levels.items() if k not in ("iothread", "bus")}
        assert same.items() <= levels.items()


def test_every_change_is_a_whole_command() -> None:
    changes = [
        remark.change.text
        for name in EXPECTED
        for disk in read_fixture(name).disks
        for remark in disk.remarks
        if remark.change
    ]
    assert len(changes) >= 6
    assert all(text.startswith("qm ") and "VMID" not in text for text in changes)


def test_the_pending_section_is_not_what_runs() -> None:
    coming = disk_of(
        "scsi0: local:101/d.raw,iothread=1\n\n[PENDING]\nscsihw: virtio-scsi-single\n", "scsi0"
    )
    assert coming.configured and coming.configured.levels["iothread"] == "off"
    assert coming.pending and coming.pending.levels["iothread"] == "on"
    new = disk_of("name: a\n[PENDING]\nvirtio0: local:101/d.raw,cache=unsafe\n", "virtio0")
    assert new.configured is None
    assert new.pending and new.pending.levels["cache"] == "unsafe"
    assert [remark.rule for remark in new.remarks] == ["pending-change"]
    same = disk_of("scsi0: local:1/d.raw\n[PENDING]\nmemory: 2048\n", "scsi0")
    assert same.pending is None


def test_a_change_for_the_worse_is_taken_back_not_brought_into_force() -> None:
    (better,) = [each for each in read_fixture("105.conf").disks if each.name == "scsi0"]
    (worse,) = [each for each in read_fixture("106.conf").disks if each.name == "virtio1"]
    texts = [each.remarks[0].change.text for each in (better, worse) if each.remarks[0].change]
    assert texts == ["qm reboot 105", "qm set 106 --revert virtio1"]


def test_sections_that_are_no_part_of_the_machine_are_passed_over() -> None:
    text = "scsi0: local:1/d.raw\n[special:cloudinit]\nscsi1: local:1/e.raw\n[??]\nscsi2: x:y\n"
    (machine,) = proxmox_config.read_machines(text, "1.conf")
    assert [disk.name for disk in machine.disks] == ["scsi0"]


def test_drives_without_a_guest_s_data_are_no_disks() -> None:
    names = [disk.name for disk in read_fixture("111.conf").disks]
    assert names == ["scsi0", "scsi1"]
    assert "ide0" not in [disk.name for disk in read_fixture("107.conf").disks]


def test_a_template_is_read_only() -> None:
    assert disk_of("template: 1\nscsi0: local:1/base-1-disk-0.raw,cache=unsafe", "scsi0").read_only


def test_sections_and_lines_that_stand_twice_are_read_as_proxmox_reads_them() -> None:
    """Held against parse_vm_config of qemu-server 9.2.6 on 6000 texts made of such lines."""
    text = (
        "scsi0: st:a\nscsi0: st:b\nscsi0: refused\ncdrom: none,media=cdrom\n"
        "[pending]\nscsi1: st:c\n[snap]\nscsi1: st:d\n[PENDING]  \nscsi2: st:e\n[snap]\n"
        "[9bad]\nscsi3: st:f"
    )
    found = proxmox_config.split_sections(text.splitlines())
    assert found.main == {"scsi0": "st:b", "ide2": "none,media=cdrom"}
    assert (found.pending, found.snapshots) == ({"scsi2": "st:e"}, {"snap": {}})


def test_lines_that_cannot_be_read_are_told() -> None:
    text = "scsi0: local:1/d.raw,cache=none,cache=unsafe\nscsi1: local:1/e.raw\n???\n"
    (machine,) = proxmox_config.read_machines(text, "1.conf")
    assert [disk.name for disk in machine.disks] == ["scsi1"]
    assert any("cache twice" in note for note in machine.notes)
    assert any("line 3" in note for note in machine.notes)
    refused = disk_of("sata0: local:1/d.raw,iothread=1", "sata0")
    assert [remark.rule for remark in refused.remarks] == ["line-refused"]


def test_what_qm_config_prints_is_read_too() -> None:
    text = "boot: order=scsi0\ndescription: a%0Ascsi9%3A x,cache=unsafe\nscsi0: local:1/d.raw\n"
    assert [disk.name for disk in proxmox_config.read_machines(text, "x")[0].disks] == ["scsi0"]


@pytest.mark.parametrize("cache", CACHE_MODES)
def test_each_cache_mode_is_read(cache: str) -> None:
    layer = disk_of(f"virtio0: local:1/d.raw,cache={cache}", "virtio0").configured
    assert layer and layer.levels["cache"] == cache
    assert "cache" not in layer.assumed


@given(st.text(max_size=300))
def test_any_text_is_a_machine_or_a_usage_error(text: str) -> None:
    for candidate in (text, f"ostype: l26\nscsi0: {text}\n[PENDING]\nscsi0: {text}\nargs: {text}"):
        try:
            proxmox_config.read_machines(candidate, "101.conf")
        except UsageError:
            continue


@given(st.sampled_from(sorted(EXPECTED)), st.integers(0, 2000), st.integers(0, 255))
def test_truncated_and_spoilt_files_are_read_or_refused(name: str, at: int, byte: int) -> None:
    raw = (FIXTURES / name).read_bytes()
    spoilt = raw[: at % len(raw)] + bytes([byte]) + raw[at % len(raw) + 1 :]
    for data in (raw[: at % len(raw)], spoilt):
        try:
            proxmox_config.read_machines(data.decode("utf-8", "replace"), name)
        except UsageError:
            continue


@pytest.mark.parametrize(
    "text",
    [
        "scsi0: " + " " * 1_000_000 + "x",
        "scsi0: local:1/d," + "," * 1_000_000,
        "scsi0: local:1/d" + ",a=b" * 500_000,
        "scsi0: x:y\n" + "[PENDING]\n" * 10_000,
        "scsi0: x:y\n" + "".join(f"[s{n}]\nscsi0: x:y,cache=unsafe\n" for n in range(9_000)),
        "".join(f"scsi{n}: x:y\n" for n in range(31)) + "args: " + "-drive a " * 400_000,
        "scsi0: x:y\nargs: " + '"' * 1_000_001,
        "[" * 4_000_000,
        "x" * ((4 << 20) + 1),
        "a\n" * 100_000,
    ],
    ids=range(10),
)
def test_large_and_hostile_texts_take_no_time(text: str) -> None:
    began = time.process_time()
    try:
        proxmox_config.claims(text)
        proxmox_config.read_machines(text, "1.conf")
    except UsageError:
        pass
    assert time.process_time() - began < 5
