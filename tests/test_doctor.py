"""doctor's pure parts: QEMU's answers, what is made of them, and the table."""

import dataclasses
import json
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from diskproof.host.qemu_probe import find_buses, find_iothread_buses
from diskproof.host.storage_findings import STACKS, find_kernel_part
from diskproof.qemu.disk import BUSES
from diskproof.qemu.questions import QemuAnswer, parse_answers, render_commands
from diskproof.records import Finding
from diskproof.report.findings import render_findings, summarise

DISK = frozenset({"drive", "serial", "write-cache"})
EVERYTHING = {
    "virtio-blk-pci": DISK | {"iothread"},
    "virtio-scsi-pci": frozenset({"iothread"}),
    "scsi-hd": DISK,
    "ide-hd": DISK,
    "ich9-ahci": frozenset({"addr"}),
    "nvme": DISK,
}


def render(*findings: Finding, width: int = 80) -> list[str]:
    out = StringIO()
    Console(file=out, width=width, color_system=None).print(render_findings(findings))
    return [line.rstrip() for line in out.getvalue().splitlines()]


# -- QEMU's answers ---------------------------------------------------------------------------


def test_commands_are_numbered_and_the_last_one_ends_qemu() -> None:
    lines = [
        json.loads(line) for line in render_commands([("a", {"x": 1}), ("b", {})]).splitlines()
    ]
    assert lines == [
        {"execute": "qmp_capabilities"},
        {"execute": "a", "arguments": {"x": 1}, "id": 0},
        {"execute": "b", "arguments": {}, "id": 1},
        {"execute": "quit"},
    ]


def test_answers_among_greeting_events_and_noise() -> None:
    said = [
        b'{"QMP": {"version": {}}}',
        b'{"return": {}}',
        b'{"return": [1], "id": 0}',
        b"qemu: warning",
        b'{"event": "SHUTDOWN"}',
        b'{"error": {"class": "GenericError", "desc": "no"}, "id": 1}',
        b'{"return": 2, "id": "one of another\'s"}',
    ]
    assert parse_answers(b"\r\n".join(said)) == {0: QemuAnswer([1]), 1: QemuAnswer(error="no")}


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_read(text: bytes) -> None:
    parse_answers(text)


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists).flatmap(
    lambda value: st.fixed_dictionaries({"id": st.just(3), "error": st.just(value)})
))  # fmt: skip
def test_any_json_is_read(item: dict[str, object]) -> None:
    assert set(parse_answers(json.dumps(item).encode())) == {3}


# -- buses ------------------------------------------------------------------------------------


def test_a_complete_emulator_has_every_bus() -> None:
    assert find_buses(EVERYTHING).usable == set(BUSES)
    assert find_iothread_buses(EVERYTHING).usable == {"virtio-blk", "virtio-scsi"}


@pytest.mark.parametrize(
    ("device", "lost"),
    [
        ("ide-hd", {"ide", "ahci"}),
        ("ich9-ahci", {"ahci"}),
        ("virtio-scsi-pci", {"virtio-scsi"}),
        ("nvme", {"nvme"}),
    ],
)
def test_a_device_that_is_not_built_in(device: str, lost: set[str]) -> None:
    found = find_buses({**EVERYTHING, device: frozenset()})
    assert set(BUSES) - found.usable == lost == set(found.reasons)
    assert all(device in found.reasons[bus] for bus in lost)


def test_a_device_without_a_property_that_we_set() -> None:
    found = find_buses({**EVERYTHING, "nvme": DISK - {"write-cache"}})
    assert found.reasons == {"nvme": "nvme of this QEMU has no property write-cache"}


def test_a_device_that_lost_its_iothread() -> None:
    assert find_iothread_buses({**EVERYTHING, "virtio-blk-pci": DISK}).usable == {"virtio-scsi"}


# -- storage ----------------------------------------------------------------------------------


def test_a_kernel_part_is_seen_or_not() -> None:
    target = next(stack for stack in STACKS if not stack.module)
    assert find_kernel_part(target)
    strange = dataclasses.replace(target, module="diskproof_no_such_module")
    assert find_kernel_part(strange) == ""
    seen = dataclasses.replace(strange, sign=("/proc/filesystems", "proc"))
    assert find_kernel_part(seen) == "the kernel has it"


# -- the table --------------------------------------------------------------------------------

FIO = Finding("fio", "yes", "3.33", needed=True)
XFS = Finding("xfs on loop", "no", "mkfs.xfs is not installed", "apt-get install xfsprogs")
SLOW = Finding("accelerator", "limited", "TCG, slow emulation: " + "for some reason " * 10)
QEMU = Finding("qemu-img", "no", "it is not installed", "apt-get install qemu-utils", needed=True)


def test_words_without_colour_and_hints_on_their_own_line() -> None:
    lines = render(FIO, XFS)
    assert lines[0].split() == ["fio", "yes", "3.33"]
    assert lines[1].split() == ["xfs", "on", "loop", "no", "mkfs.xfs", "is", "not", "installed"]
    assert lines[2].strip() == "-> apt-get install xfsprogs"
    told = "a common study (guests, verdicts) lacks nothing"
    more = "1 other would allow further kinds of studies."
    assert summarise([FIO, XFS]) == f"diskproof can measure here: {told}; {more}"
    assert " ".join(lines).endswith(more)
    guest = dataclasses.replace(XFS, name="guest")
    assert summarise([FIO, guest]).endswith("a common study (guests, verdicts) lacks guest.")


def test_what_is_needed_is_marked_and_said_at_the_end() -> None:
    lines = render(FIO, XFS, QEMU)
    assert lines[3].split()[:2] == ["qemu-img", "no!"]
    assert lines[-1] == "no!: diskproof cannot measure here without qemu-img."
    assert summarise([FIO]) == "diskproof can measure here."


FINDINGS = st.builds(
    Finding,
    name=st.text(max_size=90),
    ok=st.sampled_from(["yes", "no", "limited"]),
    what=st.text(max_size=200),
    hint=st.text(max_size=90),
    needed=st.booleans(),
)


@given(st.lists(FINDINGS, max_size=5))
def test_nothing_is_wider_than_the_terminal_and_nothing_steers_it(found: list[Finding]) -> None:
    lines = render(*found, FIO, SLOW)
    assert max(map(cell_len, lines)) <= 80
    assert "\x1b" not in "".join(lines)


def test_markup_is_text() -> None:
    assert "[red]x[/]" in render(Finding("x", "yes", "[red]x[/]"))[0]
