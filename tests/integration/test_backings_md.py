"""md arrays made for a study. Requires root, mdadm, and md in the kernel; where it is missing,
tests/vm/test_backings_guest.py runs this file in a guest that has it."""

import os
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from diskproof.backings import NO_CONSENT, start_place
from diskproof.backings.consent import give_consent
from diskproof.backings.md import require_md
from diskproof.backings.volumes import SYS, run_quietly
from diskproof.errors import HostError
from diskproof.records import BackingSpec
from support.volumes import (
    MIB,
    assert_clean,
    assert_doctor_made,
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

MISSING = find_missing(require_md)
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
LEVELS = ("0", "1", "5", "10")


def array(on: BackingSpec, **given: str) -> BackingSpec:
    chosen = {"level": "5", "members": "3", "size": str(24 * MIB), "chunk": str(64 << 10), **given}
    return backing("md", on, **chosen)


def read_md(device: Path, name: str) -> str:
    return (SYS / device.name / "md" / name).read_text().strip()


@pytest.mark.parametrize("level", LEVELS)
def test_it_is_made_used_and_gone(tmp_path: Path, level: str) -> None:
    before = volumes()
    with start_place(array(folder(tmp_path), level=level, members="4"), NO_CONSENT) as place:
        assert place.device and place.name.startswith(f"md level {level} ")
        assert "on 4 x a loop device" in place.name
        assert read_md(place.device, "level") == f"raid{level}"
        assert 24 * MIB <= place.free_bytes() < 28 * MIB
        assert len(place.below) == 4
        if level != "1":
            assert read_md(place.device, "chunk_size") == str(64 << 10)
        if level != "0":
            assert read_md(place.device, "sync_action") == "idle"
            assert read_md(place.device, "consistency_policy") == "resync"
        write_and_read(place)
    assert_clean(tmp_path, before)


def test_a_bitmap_arrives(tmp_path: Path) -> None:
    spec = array(folder(tmp_path), level="1", members="2", bitmap="internal")
    with start_place(spec, give_consent([spec])) as place:
        assert place.device and read_md(place.device, "consistency_policy") == "bitmap"
        assert "with a bitmap" in place.name


def test_parity_is_right_from_the_start(tmp_path: Path) -> None:
    with start_place(array(folder(tmp_path)), NO_CONSENT) as place:
        write_and_read(place)
        assert place.device
        (SYS / place.device.name / "md/sync_action").write_text("check")
        run_quietly(["mdadm", "--wait", str(place.device)])
        assert read_md(place.device, "mismatch_cnt") == "0"


def test_named_devices_are_left_as_empty_as_they_were(tmp_path: Path) -> None:
    before = volumes()
    with ExitStack() as stack:
        files = [tmp_path / f"lent{number}.img" for number in range(3)]
        devices = [stack.enter_context(lent_device(file)) for file in files]
        path = " ".join(map(str, devices))
        spec = array(folder(tmp_path / "images"), path=path, size="")
        assert spec.targets
        with start_place(spec, give_consent([spec])) as place:
            assert place.free_bytes() >= 2 * 48 * MIB
            with (
                pytest.raises(HostError, match="cannot be used"),
                start_place(spec, give_consent([spec])),
            ):
                pytest.fail("they are in use")
            write_and_read(place)
        with start_owner(spec):
            pass
        assert signatures(devices[0]) == "linux_raid_member"
        assert_sweep_cleans(tmp_path / "images", before)
        assert [signatures(device) for device in devices] == [""] * 3
    assert_clean(tmp_path, before)


def test_members_with_content_are_refused(tmp_path: Path) -> None:
    with lent_device(tmp_path / "a.img") as one, lent_device(tmp_path / "b.img") as two:
        run_quietly(["mkfs.ext4", "-q", "-L", "family", str(two)])
        spec = array(folder(tmp_path / "images"), level="1", path=f"{one} {two}")
        with (
            pytest.raises(HostError, match="not empty") as caught,
            start_place(spec, give_consent([spec])),
        ):
            pytest.fail("it was made over a file system")
        assert "ext4 family" in caught.value.why
        assert signatures(two) == "ext4"


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"size": str(1 << 50)}, "does not fit"),
        ({"members": "2"}, "no array"),
        ({"level": "0", "bitmap": "internal"}, "no array"),
        ({"path": "/dev/loop0 /dev/loop0", "level": "1"}, ""),
        ({"chunk": "5000"}, "no array"),
        ({"chunk": str(12 << 10)}, "mdadm cannot make"),
    ],
)
def test_what_cannot_be_made_says_why_and_leaves_nothing(
    tmp_path: Path, given: dict[str, str], what: str
) -> None:
    before = volumes()
    with (
        pytest.raises(HostError, match=what) as caught,
        start_place(array(folder(tmp_path), **given), NO_CONSENT),
    ):
        pytest.fail("it was made")
    assert caught.value.why
    assert_clean(tmp_path, before)


def test_who_opens_an_array_as_it_goes_does_not_bring_it_back(tmp_path: Path) -> None:
    """As udev, mdadm --monitor and a study beside do."""
    before, over = volumes(), threading.Event()

    def look() -> None:
        while not over.wait(0.0005):
            for entry in SYS.glob("md*"):
                with suppress(OSError):
                    os.close(os.open(Path("/dev") / entry.name, os.O_RDONLY | os.O_CLOEXEC))

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for number in range(8):
            spec = array(folder(tmp_path / str(number)), chunk=str(12 << 10))
            with pytest.raises(HostError, match="mdadm cannot"), start_place(spec, NO_CONSENT):
                pytest.fail("it was made")
    finally:
        over.set()
        looker.join()
    assert_clean(tmp_path, before)


@pytest.mark.parametrize("level", ["0", "5"])
def test_after_kill_9_a_sweep_removes_it(tmp_path: Path, level: str) -> None:
    before = volumes()
    with start_owner(array(folder(tmp_path), level=level)):
        pass
    assert len(volumes()) > len(before)
    assert_sweep_cleans(tmp_path, before)


def test_after_kill_9_a_stack_of_everything_goes(tmp_path: Path) -> None:
    """A file system on a thin volume on an array."""
    before = volumes()
    thin = backing("lvm", array(folder(tmp_path), size=str(64 * MIB)), type="thin", size="")
    spec = backing("filesystem", thin, fs="ext2")
    with start_owner(spec):
        pass
    assert len(volumes()) > len(before)
    assert_sweep_cleans(tmp_path, before)


def test_an_owner_that_dies_when_it_is_made_leaves_nothing_to_others(tmp_path: Path) -> None:
    before = volumes()
    with start_owner(array(folder(tmp_path)), die_at=1):
        pass
    assert_sweep_cleans(tmp_path, before)


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = volumes()

    def interrupted(argv: list[str]) -> object:
        done = run_quietly(argv)
        if "--create" in argv:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr("diskproof.backings.volumes.run_quietly", interrupted)
    with pytest.raises(KeyboardInterrupt), start_place(array(folder(tmp_path)), NO_CONSENT):
        pytest.fail("it was not interrupted")
    assert_clean(tmp_path, before)


def test_doctor_has_made_one_of_each(tmp_path: Path) -> None:
    before = volumes()
    assert_doctor_made("md", "level 0, 1, 5, 10", tmp_path)
    assert_clean(tmp_path, before)
