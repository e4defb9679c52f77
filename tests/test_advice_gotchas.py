"""Twelve ways in which a correct setting becomes a wrong line, and that none of them is printed.

Each is known from a manager's own source or from its users' threads; docs/advise.md tells of them.
"""

import json
import re

import pytest

from diskproof.advice.dialect import Target
from diskproof.advice.dialects import DIALECTS
from diskproof.report.advice.answer import Answer, find_answers, opening_lines
from diskproof.report.advice.choose import Wish
from diskproof.report.advice.words import answer_sentences
from diskproof.study.factors import CACHE_MODES, DIRECT
from support.advice_docs import PAGE, replace_mapping
from support.advice_views import EQUAL, advice_view

FILE = Target("/images/disk.qcow2")
CELLS = {
    "frontend": ("daemon",),
    "format": ("raw",),
    "cache": ("none", "writeback", "writethrough", "directsync", "unsafe"),
    "aio": ("threads",),
    "discard": ("unmap",),
    "detect-zeroes": ("off",),
}
FAST_CACHE = {("cache", "writeback"): 1.6, ("cache", "unsafe"): 3.0, ("cache", "directsync"): 0.3}


def answer_of(name: str, wish: Wish | None = None, target: Target = Target()) -> Answer:  # noqa: B008
    view = advice_view(CELLS, speeds=FAST_CACHE)
    (answer,) = find_answers(view, wish or Wish(), DIALECTS[name], target)
    return answer


@pytest.mark.parametrize(
    "name", [n for n in ("qemu", "libvirt", "virt-install", "proxmox") if n in DIALECTS]
)
@pytest.mark.parametrize("cache", CACHE_MODES)
def test_1_native_io_only_where_the_page_cache_is_bypassed(name: str, cache: str) -> None:
    gaps = DIALECTS[name].find_obstacles({"cache": cache, "aio": "native"}, Target())
    native = [gap for gap in gaps if gap.factor == "aio"]
    assert bool(native) == (cache not in DIRECT)
    assert all(gap.nearest == "threads" and gap.reason for gap in native)


def test_2_a_proxmox_line_is_whole_and_says_that_it_is_pending() -> None:
    line = "local-lvm:vm-100-disk-0,backup=0,discard=on,replicate=0,serial=abc,size=32G,ssd=1"
    target = Target(machine="100", disk="scsi0", existing=line)
    paste = DIALECTS["proxmox"].write({"cache": "writeback", "aio": "threads"}, target)
    assert all(part in paste.text for part in line.split(","))
    assert "cache=writeback" in paste.text and "[PENDING]" in paste.takes_effect


def test_2_an_iothread_on_proxmox_brings_the_controller_that_does_not_ignore_it() -> None:
    target = Target("local:100/vm-100-disk-0.raw", machine="100", disk="scsi0")
    paste = DIALECTS["proxmox"].write({"iothread": "on", "bus": "virtio-scsi"}, target)
    assert "--scsihw virtio-scsi-single" in paste.text and "iothread=1" in paste.text


def test_3_proxmox_detects_zeroes_by_itself() -> None:
    proxmox, target = DIALECTS["proxmox"], Target(disk="scsi0")
    default = dict(proxmox.defaults(target))
    assert default["detect-zeroes"] == "on"
    assert (default["cache"], default["aio"]) == ("none", "io_uring")
    assert proxmox.read("local-lvm:vm-1-disk-0,size=1G", target)["detect-zeroes"] == "on"
    unmap = proxmox.read("local-lvm:vm-1-disk-0,discard=on,size=1G", target)
    assert unmap["detect-zeroes"] == "unmap"
    off = proxmox.write({"detect-zeroes": "off"}, Target("local-lvm:vm-1-disk-0")).text
    assert "detect_zeroes=0" in off


def test_4_write_through_is_said_to_both_sides_and_the_guest_cannot_undo_it() -> None:
    levels = {"cache": "writethrough", "format": "raw", "bus": "virtio-blk"}
    text = DIALECTS["qemu"].write(levels, FILE).text
    assert "write-cache=off" in text and "config-wce=off" in text
    notes = " ".join(DIALECTS["libvirt"].write(levels, FILE).notes)
    assert "CONFIG_WCE" in notes


def test_5_incus_says_its_cache_for_a_block_device_whose_default_is_unsafe() -> None:
    target = Target("/dev/sdb", block=True, machine="vm", disk="data")
    incus = DIALECTS["incus"]
    assert dict(incus.defaults(target))["cache"] == "unsafe"
    answer = answer_of("incus", target=target)
    assert answer.paste is not None
    assert re.search(r"io\.cache=(none|writeback)\b", answer.paste.text)


def test_6_kubevirt_is_told_its_cache_in_words() -> None:
    """What virt-launcher makes of a disk without one, no object shows."""
    answer = answer_of("kubevirt", Wish(migrates=True))
    assert answer.paste is not None and "cache: none" in answer.paste.text
    assert "unsafe" not in answer.paste.text


@pytest.mark.parametrize("name", DIALECTS)
def test_7_who_migrates_bypasses_the_page_cache(name: str) -> None:
    answer = answer_of(name, Wish(migrates=True))
    assert answer.paste is not None
    assert DIALECTS[name].read(answer.paste.text, Target())["cache"] in DIRECT
    assert "only cache none and directsync" in dict(answer.conditions)["migrates"]
    if answer.found.chosen is not None:
        told = " ".join(answer_sentences(answer.found))
        assert "a machine that migrates needs a cache mode that bypasses the page cache" in told


def test_8_files_of_libvirt_have_qemu_s_defaults_not_virt_install_s() -> None:
    default = dict(DIALECTS["libvirt"].defaults(FILE))
    assert (default["cache"], default["aio"]) == ("writeback", "threads")
    if "virt-install" in DIALECTS:
        block = DIALECTS["virt-install"].defaults(Target("/dev/vg/disk", block=True))
        assert (block["cache"], block["aio"], block["discard"]) == ("none", "native", "unmap")


def test_9_metadata_caches_of_libvirt_are_in_bytes_and_hold_more_than_l2() -> None:
    levels = {"format": "qcow2", "l2-cache-size": "32M", "cluster_size": "64K"}
    paste = DIALECTS["libvirt"].write(levels, FILE)
    found = re.search(r"<max_size unit='bytes'>(\d+)<", paste.text)
    assert found is not None and int(found[1]) > 32 << 20
    assert DIALECTS["libvirt"].read(paste.text, FILE)["l2-cache-size"] == "32M"
    assert any("all metadata caches" in note for note in paste.notes)


@pytest.mark.parametrize(
    ("name", "image"), [("libvirt", "rbd:pool/image"), ("qemu", "nbd://host/export")]
)
def test_10_verdicts_about_files_are_not_said_of_disks_behind_a_client(
    name: str, image: str
) -> None:
    answer = answer_of(name, target=Target(image))
    assert "do not carry over" in dict(answer.conditions)["elsewhere"]


@pytest.mark.parametrize("name", DIALECTS)
def test_11_every_line_has_its_conditions_and_its_ties(name: str) -> None:
    answer = answer_of(name)
    told = dict(answer.conditions)
    assert {
        "QEMU",
        "kernel",
        "disk on",
        "guest",
        "workload",
        "speed",
        "verdict",
        "measured",
    } <= set(told)
    assert "120 of 120 states" in told["verdict"] and "5 runs" in told["speed"]
    view = advice_view({**CELLS, "lazy_refcounts": ("off", "on")}, speeds=EQUAL)
    (tied,) = find_answers(view, Wish(), DIALECTS["qemu"], Target())
    assert "lazy_refcounts=on" in dict(tied.conditions)["tied with"]


@pytest.mark.parametrize("name", DIALECTS)
def test_12_unsafe_needs_a_disposable_disk_and_its_loss_stands_beside(name: str) -> None:
    answer = answer_of(name)
    assert answer.paste is not None and "unsafe" not in answer.paste.text
    faster = answer.found.next_faster
    assert faster is not None and faster.cell.level("cache") == "unsafe"
    assert "loses 64 acknowledged writes" in " ".join(answer_sentences(answer.found))
    given = answer_of(name, Wish(keep="none", disposable=True))
    chosen = given.found.chosen
    assert chosen is not None and given.paste is not None
    if chosen.cell.level("cache") == "unsafe":
        told = " ".join(opening_lines(given))
        assert "It is not safe: it loses 64 acknowledged writes in a power cut" in told
        read = DIALECTS[name].read(given.paste.text, Target())
        assert read.get("cache", "unsafe") == "unsafe", json.dumps(dict(read))
    else:
        assert given.unsaid is not None  # this manager has no word for it


def test_the_mapping_in_the_document_is_that_of_the_dialects() -> None:
    page = PAGE.read_text()
    assert page == replace_mapping(page), "PYTHONPATH=src:tests python -m support.advice_docs"
    assert all(f"(`--for {name}`)" in page for name in DIALECTS)
