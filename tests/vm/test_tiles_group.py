"""Many guests at once: one that fails is named, the others end with it or without it.

Requires the built guest and qemu-system-x86_64.
"""

import dataclasses
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from diskproof.errors import RunFailure
from diskproof.guest.ours.boot_states import restorable, shape_of, start_boot_states
from diskproof.guest.ours.build import GuestFiles, render_initrd
from diskproof.process.native import require_native
from diskproof.qemu.machine import GuestMachine, NetworkCard
from diskproof.tiles import group
from diskproof.tiles.group import GuestKey, Member, start_group
from diskproof.tiles.network import mac_address, start_network
from support.running import find_offspring
from support.stopping import stop_whole

TCG = GuestMachine("tcg", memory_bytes=192 << 20)


def make_members(
    files: GuestFiles, folder: Path, keys: Sequence[GuestKey]
) -> dict[GuestKey, Member]:
    members = {}
    for tile, name in keys:
        run_dir = folder / f"{tile}-{name}"
        run_dir.mkdir()
        run_dir.chmod(0o711)
        members[tile, name] = Member(files, TCG, run_dir)
    return members


def test_a_guest_that_does_not_come_up_is_named(guest_files: GuestFiles, tmp_path: Path) -> None:
    initrd = tmp_path / "initrd"
    initrd.write_bytes(render_initrd(require_native("diskproof-poweroff").read_bytes(), None))
    members = make_members(guest_files, tmp_path, [(1, "web"), (2, "web")])
    dead = dataclasses.replace(guest_files, initrd=initrd)
    members[2, "web"] = dataclasses.replace(members[2, "web"], files=dead)
    with pytest.raises(RunFailure) as caught, start_group(members, deadline=200):
        pytest.fail("one of them is off")
    assert caught.value.kind == "guest"
    assert caught.value.what == "tile 2 web: the guest switched itself off"
    assert str(caught.value).startswith("tile 2 web: ")
    assert {name for name, _ in caught.value.evidence} == {"console", "qemu.log"}
    assert find_offspring() == []


def test_guests_that_are_slow_are_given_up(guest_files: GuestFiles, tmp_path: Path) -> None:
    members = make_members(guest_files, tmp_path, [(1, "a"), (1, "b")])
    with pytest.raises(RunFailure, match="tile 1 a: the guest is not up"):
        with start_group(members, deadline=0.2):
            pytest.fail("nothing boots so fast")
    assert find_offspring() == []


def test_a_qemu_that_cannot_start_is_named(guest_files: GuestFiles, tmp_path: Path) -> None:
    members = make_members(guest_files, tmp_path, [(1, "a"), (1, "b")])
    wrong = dataclasses.replace(TCG, disk_args=("-device", "no-such-device"))
    members[1, "b"] = dataclasses.replace(members[1, "b"], machine=wrong)
    with pytest.raises(RunFailure, match="tile 1 b: QEMU ended with status 1") as caught:
        with start_group(members, deadline=200):
            pytest.fail("one cannot start")
    assert caught.value.kind == "qemu" and "no-such-device" in caught.value.why
    assert find_offspring() == []


def test_one_that_hangs_and_one_that_died_keep_nobody_from_ending(
    guest_files: GuestFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "OFF_SECONDS", 3.0)
    keys: list[GuestKey] = [(1, "hangs"), (1, "well"), (1, "died")]
    statuses = {}
    members = make_members(guest_files, tmp_path, keys)
    with (
        start_boot_states(tmp_path) as states,
        start_group(members, deadline=200, states=states) as guests,
    ):
        assert set(guests) == set(keys)
        processes = {name: guests[1, name].process for _, name in keys}
        processes["died"].kill()
        stop_whole(processes["hangs"].pid)
    for name, process in processes.items():
        statuses[name] = process.wait(0.0)
    assert statuses["hangs"] == statuses["died"] == -signal.SIGKILL
    assert statuses["well"] in (0, -signal.SIGKILL), "an emulated guest may need longer"
    assert find_offspring() == []


def test_a_failure_in_the_block_ends_all_at_once(guest_files: GuestFiles, tmp_path: Path) -> None:
    processes = []
    with pytest.raises(RunFailure, match="^the work fails$"):
        with start_group(make_members(guest_files, tmp_path, [(1, "a")]), deadline=200) as guests:
            processes = [guest.process for guest in guests.values()]
            raise RunFailure("workload", "the work fails")
    assert [process.poll() for process in processes] == [-signal.SIGKILL]
    assert find_offspring() == []


UNIQUE = """
cat /proc/sys/kernel/random/uuid
for path in /sys/class/net/*; do [ "${path##*/}" = lo ] || cat "$path/address"; done
date +%s
dmesg
"""


def test_guests_go_on_from_where_one_was_booted(guest_files: GuestFiles, tmp_path: Path) -> None:
    """One boot for four guests; each has its own address, the time, random numbers of its own."""
    seats = [(1, 1), (2, 1)]
    numbers = set()
    with start_network(tmp_path, "switch", seats) as network, start_boot_states(tmp_path) as states:
        for turn in ("first", "second"):
            folder = tmp_path / turn
            folder.mkdir(mode=0o711)
            members = make_members(guest_files, folder, [(tile, "a") for tile, _ in seats])
            for tile, place in seats:
                machine = dataclasses.replace(TCG, card=network.port(tile, place))
                members[tile, "a"] = dataclasses.replace(members[tile, "a"], machine=machine)
            with start_group(members, deadline=200, states=states) as guests:
                for (tile, _), guest in guests.items():
                    before = time.time()
                    done = guest.channel.exec(["sh", "-c", UNIQUE], timeout=60)
                    number, address, moment, *log = done.stdout.decode().splitlines()
                    numbers.add(number)
                    assert address == mac_address(tile, 1)
                    assert before - 60 < float(moment) <= time.time() + 1
                    assert any("reseeded due to virtual machine fork" in line for line in log)
                    assert guest.booted.hello.kernel == guest_files.kernel_release
            assert {path.name for path in folder.rglob("*") if path.is_file()} == {"qemu.log"}
    assert len(numbers) == 4
    assert find_offspring() == []


def test_guests_of_other_shapes_are_booted_themselves(guest_files: GuestFiles) -> None:
    def shape(machine: GuestMachine) -> object:
        return shape_of(guest_files, restorable(machine))

    card = NetworkCard("52:54:00:4d:01:01", "tap", 5)
    joined = dataclasses.replace(TCG, card=card)
    again = dataclasses.replace(card, mac="52:54:00:4d:01:02", fd=6)
    assert shape(joined) == shape(dataclasses.replace(TCG, card=again))
    others = [
        TCG,
        dataclasses.replace(joined, memory_bytes=256 << 20),
        dataclasses.replace(joined, vcpus=2),
        dataclasses.replace(joined, bus="virtio-scsi"),
        dataclasses.replace(joined, card=dataclasses.replace(card, via="socket")),
        dataclasses.replace(joined, disk_args=("-device", "virtio-blk-pci,drive=x")),
    ]
    assert len({shape(joined), *map(shape, others)}) == 1 + len(others)
    for machine in (GuestMachine("kvm"), dataclasses.replace(TCG, bus="nvme")):
        assert restorable(machine) == machine and not machine.generation
