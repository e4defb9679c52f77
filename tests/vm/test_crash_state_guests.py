"""Guests that judge states in turn: who judges what, and what one state's disk leaves to the next.

Requires the built guest.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from diskproof.crash.writers.guest_slot import DEVICE
from diskproof.crash.writers.promised_rows import CORRUPTS, KEEPS, LOSES, Found
from diskproof.crash.writers.state_guests import Disk, StateGuests, start_state_guests
from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import Guest
from diskproof.process.start import run

BYTES = 1 << 20
Seen = list[tuple[int, bytes]]


def make_images(folder: Path, form: str, letters: str) -> list[Path]:
    """Disks of equal size, each full of its letter."""
    images = []
    for letter in letters:
        raw, image = folder / f"{letter}.raw", folder / letter / f"disk.{form}"
        raw.write_bytes(letter.encode() * BYTES)
        image.parent.mkdir()
        run(["qemu-img", "convert", "-q", "-O", form, str(raw), str(image)], timeout=60)
        raw.unlink()
        images.append(image)
    return images


def look_at(seen: Seen, verdict: Callable[[int], Found]) -> Callable[[Guest, str], Found]:
    """Reads a disk through the guest's cache, soils that, and says what the verdict of who came as
    how manieth guest is."""

    def look(guest: Guest, device: str) -> Found:
        pid = guest.process.pid
        read = ["sh", "-c", f"tr -s a-z < {device}; dd if=/dev/zero of={device} bs=64k count=1"]
        done = guest.channel.exec(read, timeout=60)
        assert done.exit.code == 0, done.stderr
        seen.append((pid, done.stdout))
        return verdict(len({pid for pid, _ in seen}))

    return look


@pytest.mark.parametrize("form", ["raw", "qcow2"])
def test_a_guest_judges_on_as_long_as_states_are_kept(tmp_path: Path, form: str) -> None:
    images = make_images(tmp_path, form, "abcdef")
    before = [image.read_bytes() for image in images]
    seen: Seen = []
    a, b, c, d, e, f = images

    def judge(guests: StateGuests, image: Path, verdict: Callable[[int], Found]) -> Found:
        return guests.judge(image, look_at(seen, verdict))

    with start_state_guests(Disk(form, "ext4", "tcg")) as guests:
        assert judge(guests, a, lambda _: Found(KEEPS)).code == KEEPS
        assert judge(guests, b, lambda _: Found(KEEPS)).code == KEEPS
        # Of one that has judged before no loss is believed: a fresh guest has the last word.
        word = judge(guests, c, lambda n: Found(LOSES if n == 1 else KEEPS, 1))
        assert word.code == KEEPS
        assert judge(guests, d, lambda _: Found(KEEPS)).code == KEEPS
        corrupt = judge(guests, e, lambda _: Found(CORRUPTS))
        assert corrupt.code == CORRUPTS
        assert judge(guests, f, lambda _: Found(KEEPS)).code == KEEPS
    assert [data for _, data in seen] == [b"a", b"b", b"c", b"c", b"d", b"e", b"e", b"f"]
    numbers = {pid: n for n, pid in enumerate(dict.fromkeys(pid for pid, _ in seen))}
    assert [numbers[pid] for pid, _ in seen] == [0, 0, 0, 1, 1, 1, 2, 3]
    assert [image.read_bytes() for image in images] == before


def test_a_disk_is_gone_from_the_guest_with_its_state(tmp_path: Path) -> None:
    (image,) = make_images(tmp_path, "raw", "a")
    guest_of: list[Guest] = []

    def look(guest: Guest, device: str) -> Found:
        assert device == DEVICE
        assert guest.channel.exec(["test", "-b", device], timeout=60).exit.code == 0
        guest_of.append(guest)
        return Found(KEEPS)

    with start_state_guests(Disk("raw", "ext4", "tcg")) as guests:
        guests.judge(image, look)
        channel = guest_of[0].channel
        assert channel.exec(["test", "-e", DEVICE], timeout=60).exit.code == 1
        listed = channel.exec(["cat", "/proc/partitions"], timeout=60).stdout
        assert b"vda" in listed and b"sda" not in listed


def test_a_guest_that_fails_or_may_not_stay_is_followed_by_a_fresh_one(tmp_path: Path) -> None:
    (image,) = make_images(tmp_path, "raw", "a")
    seen: Seen = []
    keep = look_at(seen, lambda _: Found(KEEPS))

    def fail_once(guest: Guest, device: str) -> Found:
        keep(guest, device)
        if guest.process.pid == seen[0][0]:
            raise RunFailure("guest", "the guest is not well")
        return Found(KEEPS)

    def complain(guest: Guest, device: str) -> Found:
        # A tainted kernel, as after a warning: any bit may be set by who is root.
        argv = ["sh", "-c", "echo 512 > /proc/sys/kernel/tainted"]
        assert guest.channel.exec(argv, timeout=60).exit.code == 0
        return keep(guest, device)

    with start_state_guests(Disk("raw", "ext4", "tcg")) as guests:
        guests.judge(image, keep)
        assert guests.judge(image, fail_once).code == KEEPS
        guests.judge(image, complain)
        guests.judge(image, keep)
        with pytest.raises(RunFailure, match="no word"):
            guests.judge(image, no_word)
    pids = [pid for pid, _ in seen]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    seen.clear()
    with start_state_guests(Disk("raw", "ext4", "tcg", stays=False)) as guests:
        guests.judge(image, keep)
        guests.judge(image, keep)
    assert seen[0][0] != seen[1][0]


def no_word(guest: Guest, device: str) -> Found:
    raise RunFailure("tool", "no word")
