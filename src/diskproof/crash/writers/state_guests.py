"""Guests that judge one state after the other, as long as each was kept.

A state's image is a disk of its own, which comes into a guest that runs, and goes. What the guest
has seen of one, the kernel drops with it; but it is the same kernel. So of a guest that has judged
before only ``keeps`` is believed: all else is judged again by a fresh one, whose word counts. A
guest ends with the first state that is not kept, or when its kernel complains.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from diskproof.crash.writers.guest_disk import load_modules
from diskproof.crash.writers.guest_slot import start_disk
from diskproof.crash.writers.promised_rows import KEEPS, Found
from diskproof.errors import RunFailure
from diskproof.guest.ours import boot, boot_states
from diskproof.guest.ours.build import require_guest
from diskproof.process.owner import admit, hand_over
from diskproof.process.scratch import start_scratch_dir
from diskproof.process.start import run
from diskproof.qemu.machine import GuestMachine

STAYING = ("ext4", "xfs", "f2fs")
"""Their kernel forgets them when they are unmounted; btrfs remembers devices, ZFS pools."""
_SECONDS = 120.0  # for a copy, or a first answer of a guest, on a busy host
_TAINTED = "/proc/sys/kernel/tainted"
# Each program finds its code where the one before had it, so that an emulator knows it already.
_PARAMETERS = ("norandmaps",)
Look = Callable[[boot.Guest, str], Found]
"""Judges the disk of that device in a guest. Raises RunFailure when there is no verdict."""


@dataclass(frozen=True)
class StateGuest:
    """A guest in service, the folder of its QEMU, and what its kernel said of itself at first."""

    guest: boot.Guest
    folder: Path
    tainted: bytes


@dataclass(frozen=True)
class Disk:
    """What holds an image's contents, and the machine that looks at it: ``extra`` names what its
    root has. With ``stays`` guests judge one state after the other, where the file system allows
    that; else each judges one."""

    form: str
    file_system: str
    accel: str
    extra: str = ""
    stays: bool = True


class StateGuests:
    """The guests of one check; made by ``start_state_guests``."""

    def __init__(self, disk: Disk, states: boot_states.BootStates) -> None:
        self._disk, self._states = disk, states
        self._machine = GuestMachine(accel=disk.accel, slot=True, parameters=_PARAMETERS)
        self._stays = disk.stays and disk.file_system in STAYING
        self._standing: StateGuest | None = None
        self._life = ExitStack()
        self._number = 0

    def judge(self, image: Path, look: Look) -> Found:
        """Raises RunFailure ``guest`` or ``qemu`` when no guest runs."""
        if self._standing is not None:
            with suppress(RunFailure):  # a fresh one has the last word on that, too
                found = self._judge_in(self._standing, self._life.pop_all(), image, look)
                if found.code == KEEPS:
                    return found
        with ExitStack() as life:
            fresh = life.enter_context(self._start())
            return self._judge_in(fresh, life.pop_all(), image, look)

    def end(self) -> None:
        """End the guest that stays, if there is one."""
        self._standing = None
        self._life.close()

    def _judge_in(self, one: StateGuest, life: ExitStack, image: Path, look: Look) -> Found:
        """The guest lives on if it may; ``life`` ends it."""
        self._standing = None
        self._number += 1
        with life, copied_image(image, one.folder) as copy:
            with start_disk(one.guest, copy, self._disk.form, f"state-{self._number}") as device:
                found = look(one.guest, device)
            if self._stays and found.code == KEEPS and read_taint(one.guest) == one.tainted:
                self._standing, self._life = one, life.pop_all()
        return found

    @contextmanager
    def _start(self) -> Iterator[StateGuest]:
        """A fresh guest: it goes on from where the first was when it had root and drivers."""
        files = require_guest(self._disk.extra)

        def prepare(guest: boot.Guest) -> None:
            load_modules(guest, self._disk.file_system)

        with start_scratch_dir() as room, start_scratch_dir(large=True) as large:
            folder = large / "disk"
            folder.mkdir()
            admit(folder)
            with boot_states.start_guest_again(
                files, self._machine, self._states, prepare, run_dir=room, disk_folder=folder
            ) as guest:
                yield StateGuest(guest, folder, read_taint(guest))


@contextmanager
def start_state_guests(disk: Disk) -> Iterator[StateGuests]:
    """Guests for the length of a block; one is booted, when the first state is asked of."""
    with boot_states.start_boot_states(boot_states.find_state_folder()) as states:
        guests = StateGuests(disk, states)
        try:
            yield guests
        finally:
            guests.end()


@contextmanager
def copied_image(image: Path, folder: Path) -> Iterator[Path]:
    """A copy with the same holes that QEMU's user may write, removed at the end: a recovery writes,
    and states share files."""
    copy = folder / image.name
    try:
        argv = ["cp", "--reflink=auto", "--sparse=always", "--", str(image.absolute()), str(copy)]
        run(argv, timeout=_SECONDS)
        hand_over(copy)
        yield copy
    finally:
        copy.unlink(missing_ok=True)


def read_taint(guest: boot.Guest) -> bytes:
    """Changes when its kernel meets a bug of its own."""
    return guest.channel.read_file(_TAINTED, 64, _SECONDS)
