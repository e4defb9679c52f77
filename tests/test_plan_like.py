"""Defaults of managers as cells: beside the matrix, never twice, named, left out with a reason."""

from dataclasses import replace
from typing import Any

import pytest

from diskproof.errors import StudyError
from diskproof.plan import Plan, make_crash_plan, make_plan, make_tile_plan
from diskproof.plan import like as plan_like
from diskproof.records import BackingFacts, Cell
from diskproof.study.like import find_defaults
from diskproof.study.load import parse_study
from support.plain_dialects import BY_ALL, use_plain_dialects
from support.planning import FACTS, facts_with


@pytest.fixture(autouse=True)
def dialects(monkeypatch: pytest.MonkeyPatch) -> None:
    use_plain_dialects(monkeypatch)


def plan(text: str, **changes: Any) -> Plan:
    return make_plan(parse_study(text), facts_with(**changes))


def by_name(cells: tuple[Cell, ...]) -> dict[tuple[str, ...], list[dict[str, str]]]:
    found: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for cell in cells:
        found.setdefault(cell.names, []).append(cell.levels_dict())
    return found


def test_a_default_is_a_cell_beside_the_matrix() -> None:
    text = """
like = "proxmox"
[factors]
frontend = "guest"
format = ["raw", "qcow2"]
memory = ["1G", "2G"]
cache = ["none", "writeback"]
"""
    without = plan(text.replace('like = "proxmox"', ""))
    found = plan(text)
    assert found.cells[:-1] == without.cells and len(without.cells) == 8
    last = found.cells[-1]
    assert last.names == ("proxmox 9",)
    # What the manager decides is so, all else is at the study's first level or its default.
    assert last.levels_dict() == BY_ALL | {
        "iothread": "on",
        "accel": "tcg",
        "backing": "directory",
        "discard": "ignore",
        "format": "raw",
        "frontend": "guest",
        "memory": "1G",
        "preallocation": "off",
        "vcpus": "1",
    }


def test_the_same_cell_is_there_once_and_bears_all_names() -> None:
    found = plan('like = ["qemu", "libvirt"]\n[factors]\ncache = ["writeback", "none"]')
    assert [cell.names for cell in found.cells] == [("qemu 9", "libvirt 9"), ()]
    plain = plan('[factors]\ncache = ["writeback", "none"]')
    assert [cell.id for cell in found.cells] == [cell.id for cell in plain.cells]


def test_a_device_of_a_guest_means_nothing_to_the_storage_daemon() -> None:
    found = plan('like = "proxmox"')
    (default,) = by_name(found.cells)["proxmox 9",]
    assert default["iothread"] == "off" and "bus" not in default
    assert default["cache"] == "none" and default["detect-zeroes"] == "on"


def test_every_frontend_with_settings_has_the_default() -> None:
    found = plan('like = "proxmox"\n[factors]\nfrontend = ["host", "daemon", "guest"]')
    frontends = [each["frontend"] for each in by_name(found.cells)["proxmox 9",]]
    assert frontends == ["daemon", "guest"]


BACKINGS = {
    "files": BackingFacts("/images", "ext4", True, "", 1 << 40),
    "cow": BackingFacts("/cow", "btrfs", True, "", 1 << 40),
    "disk": BackingFacts("/dev/vg/lv", "lvm", True, "", 1 << 40, device=True),
    "far": BackingFacts("nbd://h", "nbd", True, "", 1 << 40, network="nbd"),
}
TABLES = "".join(f'[backings.{name}]\npath = "/{name}"\n' for name in BACKINGS)


def test_each_backing_has_its_own_default() -> None:
    found = plan(f'like = "proxmox"\n{TABLES}', backings=BACKINGS)
    levels = {each["backing"]: each for each in by_name(found.cells)["proxmox 9",]}
    assert levels.keys() == {"files", "cow", "disk"}
    assert {name: each["cache"] for name, each in levels.items()} == {
        "files": "none",
        "cow": "writeback",
        "disk": "none",
    }
    assert (levels["files"]["format"], levels["disk"]["format"]) == ("qcow2", "raw")
    assert [d.backing for d in find_defaults(found.warnings)] == ["files", "cow", "disk"]
    reasons = {each.reason: each for each in found.dropped}
    left_out = reasons["what proxmox gives a disk over nbd is not known"]
    assert (left_out.count, left_out.example) == (1, (("backing", "far"),))


def test_what_does_not_run_here_is_left_out_with_its_reason() -> None:
    found = plan(
        'like = ["proxmox", "qemu"]\nworkloads = ["seq-read", "seq-write"]',
        aio=frozenset({"threads"}),
        reasons={"aio=io_uring": "seccomp"},
    )
    assert {cell.names for cell in found.cells} == {("qemu 9",)}
    (left_out,) = found.dropped
    assert left_out.reason == "proxmox 9 default: aio=io_uring does not work here: seccomp"
    assert left_out.count == 2 and dict(left_out.example)["aio"] == "io_uring"


def test_filters_are_of_the_matrix_where_the_manager_decides() -> None:
    text = """
like = "proxmox"
[factors]
frontend = ["daemon", "guest"]
cache = ["writethrough", "directsync"]
[[only]]
frontend = "guest"
cache = "directsync"
"""
    found = plan(text)
    assert {(cell.level("frontend"), cell.names) for cell in found.cells} == {
        ("guest", ()),
        ("guest", ("proxmox 9",)),
    }
    text += '[[exclude]]\ndetect-zeroes = "off"\nworkload = "rand-read-4k-d32"'
    assert {cell.names for cell in plan(text).cells} == {("proxmox 9",)}


def test_an_exclude_holds_for_a_default_too() -> None:
    text = """
like = "qemu"
[factors]
cache = ["none", "writeback"]
[[exclude]]
cache = "writeback"
"""
    found = plan(text)
    assert [cell.names for cell in found.cells] == [()]
    reasons = {each.reason for each in found.dropped}
    assert reasons == {"excluded by the study", "qemu 9 default: excluded by the study"}


def test_virt_manager_makes_disks_as_virt_install_does() -> None:
    found = plan('like = "virt-manager"')
    assert by_name(found.cells)["virt-manager 9",][0]["discard"] == "unmap"


def test_the_plan_tells_version_levels_and_source() -> None:
    (default,) = find_defaults(plan('like = "qemu"').warnings)
    assert default.sentence == (
        "a new disk of qemu 9 on directory: cache=writeback aio=threads discard=ignore "
        "detect-zeroes=off (qemu's source)"
    )


def test_whole_defaults_of_guests_are_named_unasked() -> None:
    """Of the daemon's cells most would be somebody's; a guest's disk is one with its bus."""
    text = '[factors]\nfrontend = ["daemon", "guest"]\nbus = ["virtio-blk", "ide"]\n'
    found = plan(text)
    guests = {c.level("bus"): c.names for c in found.cells if c.level("frontend") == "guest"}
    assert guests["virtio-blk"] == ("qemu 9", "libvirt 9") and guests["ide"] == ("qemu 9",)
    assert plan('[factors]\nfrontend = "daemon"').cells[0].names == ()


def test_writers_have_the_same_defaults() -> None:
    study = parse_study('like = ["proxmox", "qemu"]\n[factors]\nfrontend = ["host", "daemon"]')
    cells, _ = make_crash_plan(study, FACTS)
    assert [cell.names for cell in cells] == [(), ("qemu 9",), ("proxmox 9",)]
    assert [cell.workload.name for cell in cells] == ["ledger"] * 3
    told = find_defaults(plan_like.tell_of_names(study, cells, FACTS))
    assert [each.name for each in told] == ["qemu 9", "proxmox 9"]


def test_tiles_have_the_same_defaults() -> None:
    facts = facts_with(memory_bytes=1 << 40)
    text = 'like = "proxmox"\n[factors]\ncache = "writeback"\n[tiles]\nscale = "1/200"\nmost = 1\n'
    found = make_tile_plan(parse_study(text), facts)
    assert [cell.names for cell in found.cells] == [(), ("proxmox 9",)]
    assert found.cells[1].level("bus") == "virtio-scsi" and not found.cells[1].level("vcpus")
    assert [each.name for each in find_defaults(found.warnings)] == ["proxmox 9"]


def test_a_race_has_them_as_racers() -> None:
    found = plan('like = "proxmox"\n[protocol]\nstop = "decided"')
    assert len(found.cells) == 2


def test_where_nothing_is_left_the_reason_names_the_manager() -> None:
    text = 'like = "proxmox"\n[factors]\naio = "io_uring"'
    with pytest.raises(StudyError, match="proxmox 9 default: aio=io_uring does not work here"):
        plan(text, aio=frozenset({"threads"}))


def test_names_are_no_part_of_a_cell() -> None:
    one, other = plan('like = "qemu"').cells[0], plan("").cells[0]
    assert one == other and one.id == other.id and one.names != other.names
    assert replace(other, names=one.names) == one


def test_a_plan_tells_whose_default_a_level_is() -> None:
    text = f'[factors]\nfrontend = "daemon"\ncache = ["none", "unsafe"]\n{TABLES}'
    study, facts = parse_study(text), facts_with(backings=BACKINGS)
    owners = plan_like.find_owners(study, make_plan(study, facts).cells, facts)
    everywhere = " on files cow disk"  # far is over a network
    assert list(owners.items()) == [
        (("cache", "none"), ("proxmox on files disk",)),
        (
            ("aio", "threads"),
            tuple(f"{m}{everywhere}" for m in ("qemu", "libvirt", "virt-manager")),
        ),
        (("discard", "ignore"), tuple(f"{m}{everywhere}" for m in ("qemu", "libvirt"))),
        (
            ("detect-zeroes", "off"),
            tuple(f"{m}{everywhere}" for m in ("qemu", "libvirt", "virt-manager")),
        ),
    ]
    one = parse_study("")
    owners = plan_like.find_owners(one, make_plan(one, FACTS).cells, FACTS)
    assert owners["cache", "writeback"] == ("qemu", "libvirt", "virt-manager")
    assert ("iothread", "on") not in owners and ("bus", "virtio-blk") not in owners
    host = parse_study('[factors]\nfrontend = "host"')
    assert plan_like.find_owners(host, make_plan(host, FACTS).cells, FACTS) == {}
