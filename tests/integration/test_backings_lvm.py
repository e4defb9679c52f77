"""Logical volumes made for a study. Requires root, lvm2, and device mapper in the kernel; where it
is missing, tests/vm/test_backings_guest.py runs this file in a guest that has it."""

from pathlib import Path

import pytest

from diskproof.backings import NO_CONSENT, lvm, start_place
from diskproof.backings.consent import give_consent
from diskproof.backings.lvm import require_device_mapper
from diskproof.backings.place import start_run_dir
from diskproof.backings.volumes import find_named, run_quietly
from diskproof.errors import HostError
from diskproof.host.janitor import sweep
from diskproof.process.start import run
from diskproof.records import BackingSpec
from support.volumes import (
    MIB,
    assert_clean,
    assert_doctor_made,
    assert_last_close_drops_pages,
    assert_sweep_cleans,
    backing,
    find_missing,
    folder,
    lent_device,
    signatures,
    start_owner,
    volumes,
    write_and_read,
)

MISSING = find_missing(require_device_mapper)
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
TYPES = ("linear", "snapshot", "thin")


def volume(on: BackingSpec, kind: str = "linear", **given: str) -> BackingSpec:
    return backing("lvm", on, **{"type": kind, "size": str(12 * MIB), **given})


def query(device: Path, what: str) -> str:
    """A column of dmsetup's status of a device of a volume group."""
    return run(
        ["dmsetup", "status", "--", f"{device.name.rpartition('-')[0]}-{what}"], timeout=30
    ).text


@pytest.mark.parametrize("kind", TYPES)
def test_it_is_made_used_and_gone(tmp_path: Path, kind: str) -> None:
    before = volumes()
    with start_place(volume(folder(tmp_path), kind), NO_CONSENT) as place:
        assert place.device and place.name.startswith(f"LVM {kind} on a loop device ")
        assert place.free_bytes() == 12 * MIB
        assert place.below and all(path.is_file() for path in place.below)
        write_and_read(place)
        assert_last_close_drops_pages(place.device, 12 * MIB)
        group = place.device.name.partition("-")[0]
        assert len(find_named(group)) == {"linear": 1, "snapshot": 4, "thin": 5}[kind]
    assert_clean(tmp_path, before)


def test_the_first_write_after_a_snapshot_copies_and_each_run_has_a_new_one(tmp_path: Path) -> None:
    with start_place(
        volume(folder(tmp_path), "snapshot", chunk=str(64 << 10)), NO_CONSENT
    ) as place:
        assert "chunks of 64 KiB" in place.name and place.device

        def copied() -> int:
            assert place.device
            return int(query(place.device, lvm.SNAPSHOT).split()[3].partition("/")[0])

        empty = copied()
        write_and_read(place)
        after = copied()
        assert after >= empty + (MIB >> 9)
        with start_run_dir(place):
            assert copied() == empty


def test_a_thin_volume_takes_what_is_written_until_it_is_discarded(tmp_path: Path) -> None:
    with start_place(volume(folder(tmp_path), "thin"), NO_CONSENT) as place:
        assert place.device and "chunks of 64 KiB" in place.name
        assert query(place.device, "disk").split()[3] == "0"
        write_and_read(place)
        assert int(query(place.device, "disk").split()[3]) == MIB >> 9
        run(["blkdiscard", str(place.device)], timeout=30)
        assert query(place.device, "disk").split()[3] == "0"


def test_other_volume_groups_are_neither_seen_nor_touched(tmp_path: Path) -> None:
    with lent_device(tmp_path / "family.img") as device:
        run(["lvm", "vgcreate", "--quiet", "family", str(device)], timeout=60)
        content = device.read_bytes()
        spec = volume(folder(tmp_path / "images"))
        with start_place(spec, give_consent([spec])) as place:
            (config,) = (tmp_path / "images").glob("diskproof-run-*/lvm")
            seen = run_quietly(
                ["lvm", "vgs", "-o", "name", "--noheadings"], LVM_SYSTEM_DIR=str(config)
            )
            assert place.device
            assert seen.text.split() == [place.device.name.partition("-")[0]]
        assert device.read_bytes() == content


def test_a_named_device_is_left_as_empty_as_it_was(tmp_path: Path) -> None:
    before = volumes()
    with lent_device(tmp_path / "lent.img") as device:
        on = backing("device", folder(tmp_path / "images"), path=str(device))
        with start_place(volume(on, "thin", size=""), give_consent([on])) as place:
            assert signatures(device) == "LVM2_member"
            assert place.free_bytes() >= 40 * MIB
            write_and_read(place)
        assert signatures(device) == ""
    assert_clean(tmp_path, before)


def test_a_file_system_on_a_volume(tmp_path: Path) -> None:
    before = volumes()
    made = backing("filesystem", volume(folder(tmp_path)), fs="ext2")
    with start_place(made, give_consent([made])) as place:
        assert place.name.startswith("ext2 on LVM linear on a loop device")
    assert_clean(tmp_path, before)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"size": str(1 << 50)}, "does not fit"),
        ({"kind": "snapshot", "chunk": str(MIB)}, "lvcreate"),
    ],
)
def test_what_cannot_be_made_says_why_and_leaves_nothing(
    tmp_path: Path, given: dict[str, str], what: str
) -> None:
    before = volumes()
    with (
        pytest.raises(HostError, match=what) as caught,
        start_place(volume(folder(tmp_path), **given), NO_CONSENT),
    ):
        pass
    assert caught.value.why
    assert_clean(tmp_path, before)


@pytest.mark.parametrize("kind", ["snapshot", "thin"])
def test_after_kill_9_a_sweep_removes_it(tmp_path: Path, kind: str) -> None:
    before = volumes()
    with start_owner(volume(folder(tmp_path), kind)):
        assert len(volumes()) > len(before)
    assert len(volumes()) > len(before)
    assert_sweep_cleans(tmp_path, before)


def test_after_kill_9_a_named_device_is_emptied(tmp_path: Path) -> None:
    before = volumes()
    with lent_device(tmp_path / "lent.img") as device:
        on = backing("device", folder(tmp_path / "images"), path=str(device))
        with start_owner(volume(on)):
            pass
        assert signatures(device) == "LVM2_member"
        assert_sweep_cleans(tmp_path / "images", before)
        assert signatures(device) == ""


def test_after_kill_9_volumes_in_and_below_private_mounts_go(tmp_path: Path) -> None:
    before = volumes()
    hidden = backing("filesystem", folder(tmp_path), fs="ext2", size=str(128 * MIB))
    with start_owner(backing("filesystem", volume(hidden), fs="ext2")):
        pass
    assert len(volumes()) > len(before)
    assert_sweep_cleans(tmp_path, before)


@pytest.mark.parametrize("step", [1, 4])
def test_an_owner_that_dies_on_the_way_leaves_nothing_to_others(tmp_path: Path, step: int) -> None:
    before = volumes()
    with start_owner(volume(folder(tmp_path), "snapshot"), die_at=step):
        pass
    assert_sweep_cleans(tmp_path, before)


@pytest.mark.parametrize("step", [4])
def test_an_interrupt_on_the_way_leaves_nothing(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, done = volumes(), []

    def interrupted(argv: list[str], LVM_SYSTEM_DIR: str = "") -> object:
        done.append(argv)
        if len(done) == step:
            raise KeyboardInterrupt
        return run_quietly(argv, LVM_SYSTEM_DIR=LVM_SYSTEM_DIR)

    monkeypatch.setattr("diskproof.backings.volumes.run_quietly", interrupted)
    with (
        pytest.raises(KeyboardInterrupt),
        start_place(volume(folder(tmp_path), "thin"), NO_CONSENT),
    ):
        pytest.fail("it was not interrupted")
    assert_clean(tmp_path, before)


def test_what_somebody_else_has_put_on_it_is_kept_and_named(tmp_path: Path) -> None:
    """A device of somebody else that also uses a dead study's volume is not ours to remove."""
    before = volumes()
    images = tmp_path / "images"
    with lent_device(tmp_path / "theirs.img") as theirs:
        with start_owner(volume(folder(images))):
            (disk,) = Path("/dev/mapper").glob("diskproof_*-disk")
            table = f"0 2048 linear {disk} 0\n2048 2048 linear {theirs} 0\n"
            run(["dmsetup", "create", "theirs", "--noudevsync"], stdin=table.encode(), timeout=30)
        try:
            assert any("dm-" in swept.kept for swept in sweep([images]))
            assert run(["dmsetup", "info", "theirs"], timeout=30).returncode == 0
        finally:
            run_quietly(["dmsetup", "remove", "theirs"])
    assert_sweep_cleans(images, before)


def test_doctor_has_made_one_of_each(tmp_path: Path) -> None:
    before = volumes()
    assert_doctor_made("lvm", "type linear, snapshot, thin", tmp_path)
    assert_clean(tmp_path, before)
