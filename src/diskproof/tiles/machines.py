"""The guests of all tiles as machines: a folder and a disk each, what is in force, what they
said last."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from diskproof.backings import Place
from diskproof.backings.place import start_run_dir
from diskproof.drive import DiskImage
from diskproof.errors import HostError, RunFailure, tells_no_space
from diskproof.frontends.effective import read_command_line, read_guest
from diskproof.frontends.guest import check_disk
from diskproof.guest.ours import boot
from diskproof.guest.ours.boot import Guest
from diskproof.guest.ours.build import require_guest
from diskproof.lab import disk_errors
from diskproof.lab.deadline import Deadline
from diskproof.lab.setup import FULL_BYTES
from diskproof.plan.tile_costs import TRANSLATED_BYTES
from diskproof.qemu.disk import guest_disk_args
from diskproof.qemu.images import create_image, full_size, inspect_image
from diskproof.qemu.machine import GuestMachine
from diskproof.records import Artefact, Cell, Check
from diskproof.study.tiles import Tile, TileGuest
from diskproof.tiles.group import GuestKey, Member
from diskproof.tiles.network import Network
from diskproof.tiles.step_run import KILLED, Station
from diskproof.tiles.steps import step_environment
from diskproof.units import render_bytes

KEPT = 64 << 10
"""Bytes of each log that are kept of a run that failed."""
RESERVED = ("falloc", "full")
_EVENT_SECONDS = 0.01
_TROUBLE = ("BLOCK_IO_ERROR", "STOP")
_LAST_WORDS = 5.0
"""Seconds: the kernel kills first and says so then, which may come after the agent's word."""
_OUT_OF_MEMORY = re.compile(rb"Out of memory: Killed process \d+ \([^)\n]*\)")


@dataclass(frozen=True)
class Bay:
    """Where a guest's QEMU works, with the disk under test in it. ``place`` in its tile is from
    1."""

    tile: int
    place: int
    guest: TileGuest
    folder: Path
    image: DiskImage

    @property
    def key(self) -> GuestKey:
        return self.tile, self.guest.name


def make_bays(
    stack: ExitStack, backing: Place, cell: Cell, tile: Tile, tiles: int, deadline: Deadline
) -> tuple[Bay, ...]:
    """A folder of its own with a fresh disk for each guest; ``stack`` removes them.

    Raises RunFailure ``space`` when disks that are reserved as a whole do not fit together, or
    one does not on its own; HostError for a backing that has no folder for disks.
    """
    if backing.device or backing.service:
        what = "the guests of a tile cannot have their disks there"
        raise HostError(what, "the backing is one disk, and each guest has its own")
    if cell.level("preallocation") in RESERVED:
        _require_room(backing, sum(full_size(guest.disk) for guest in tile.guests) * tiles)
    bays = []
    for number in range(1, tiles + 1):
        for place, guest in enumerate(tile.guests, 1):
            folder = stack.enter_context(start_run_dir(backing))
            image = create_image(folder, cell, guest.disk, timeout=deadline.left())
            bays.append(Bay(number, place, guest, folder, image))
    return tuple(bays)


def _require_room(backing: Place, needed: int) -> None:
    free = backing.free_bytes()
    if free < needed:
        raise RunFailure(
            "space",
            f"no space for the disks of all guests in {backing.folder}",
            f"they take {render_bytes(needed)} together, {render_bytes(free)} are free",
            "make the disks of the tile smaller, or name a backing with more room",
        )


def check_images(bays: Sequence[Bay], cell: Cell) -> tuple[Check, ...]:
    """What all images are against what was asked for."""
    return tuple(
        check for bay in bays for check in _qualified(bay.key, inspect_image(bay.image, cell))
    )


def make_members(
    bays: Sequence[Bay], cell: Cell, network: Network, accel: str
) -> dict[GuestKey, Member]:
    """The guests to start. Raises HostError when a root is not built."""
    return {bay.key: _make_member(bay, cell, network, accel) for bay in bays}


def _make_member(bay: Bay, cell: Cell, network: Network, accel: str) -> Member:
    machine = GuestMachine(
        accel=accel,
        vcpus=bay.guest.vcpus,
        memory_bytes=bay.guest.memory,
        bus=cell.level("bus", "virtio-blk"),
        disk_args=tuple(guest_disk_args(cell, bay.image)),
        card=network.port(bay.tile, bay.place),
        translated_bytes=TRANSLATED_BYTES,
    )
    return Member(require_guest(bay.guest.root), machine, bay.folder)


def check_guest(bay: Bay, guest: Guest, cell: Cell) -> tuple[Check, ...]:
    """Every setting of a guest and its disk that can be read back, by qualified names."""
    disk = guest.started.disk
    if disk is None:
        raise RunFailure("guest", f"tile {bay.tile} {bay.guest.name} names no disk under test")
    checks = (
        *read_guest(guest.qmp, guest.process.pid, cell, bay.image, guest.machine),
        *check_disk(disk, cell, bay.image),
    )
    return _qualified(bay.key, checks)


def _qualified(key: GuestKey, checks: Sequence[Check]) -> tuple[Check, ...]:
    return tuple(replace(check, name=f"tile {key[0]} {key[1]}: {check.name}") for check in checks)


# -- as the engine sees them ----------------------------------------------------------------


def make_station(bay: Bay, guest: Guest, tile: Tile, tiles: int, scale: Fraction) -> Station:
    """A guest at work: its channel, and what QEMU tells of its disk."""
    disk = guest.started.disk
    device = disk.device if disk else ""

    def take_events() -> None:
        if event := guest.qmp.wait_event(_TROUBLE, _EVENT_SECONDS):
            raise _trouble(event)

    return Station(
        bay.tile,
        bay.guest.name,
        guest.channel,
        step_environment(tile, bay.tile, tiles, bay.guest.name, device, scale),
        guest.files.root_modules,
        {guest.booted.qmp_socket.fileno(): take_events},
        take_events,
        lambda failure: explain(failure, bay, guest),
    )


def _trouble(event: Mapping[str, object]) -> RunFailure:
    """A write that failed, or a guest that somebody has stopped."""
    data = event.get("data")
    told = data if isinstance(data, dict) else {}
    if event["event"] == "STOP":
        return RunFailure("qemu", "the guest was stopped", "QEMU tells so (QMP event STOP)")
    reason = str(told.get("reason"))  # of an error that is reported it does not set "nospace"
    kind, what = "qemu", disk_errors.WHAT
    if tells_no_space(reason):
        kind, what = "space", "the file system of its disk is full"
    why = f"{told.get('operation')}: {reason} (QMP event BLOCK_IO_ERROR)"
    return RunFailure(kind, what, why)


def explain(failure: RunFailure, bay: Bay, guest: Guest) -> RunFailure:
    """The failure with its cause, as far as QEMU's end, its console and its disk's folder tell.

    The logs themselves are kept for all guests of a failed run.
    """
    own = failure.evidence
    console = guest.booted.console
    told = boot.explain(failure, guest.process, console)
    why = told.why
    patience = _LAST_WORDS if failure.what.endswith(KILLED) else 0.0
    if killed := console.find(_OUT_OF_MEMORY, patience):
        why = f"its kernel: {killed[-1].decode('utf-8', 'replace')}\n{why}"
    kind, stat = told.kind, os.statvfs(bay.folder)
    if kind in ("guest", "workload") and stat.f_bavail * stat.f_frsize <= FULL_BYTES:
        kind, why = "space", f"the file system of its disk is full\n{why}"
    return RunFailure(kind, told.what, why, told.hint, own)


# -- what is kept ---------------------------------------------------------------------------


def keep_argvs(guests: Mapping[GuestKey, Guest]) -> Artefact:
    """The command lines of all QEMUs, by the names of their guests."""
    argvs = {
        f"tile {tile} {name}": read_command_line(guest.process.pid)
        for (tile, name), guest in guests.items()
    }
    return Artefact("qemu.argv.json", "application/json", json.dumps(argvs, indent=1).encode())


def keep_logs(guests: Mapping[GuestKey, Guest]) -> tuple[Artefact, ...]:
    """The end of each guest's console and of its QEMU's log, as far as they said anything."""
    found = []
    for (tile, name), guest in guests.items():
        console, log = guest.booted.console.read()[-KEPT:], guest.process.read_log(KEPT)
        for kind, content in (("console.log", console), ("qemu.log", log)):
            if content:
                found.append(Artefact(f"tile-{tile}.{name}.{kind}", "text/plain", content))
    return tuple(found)
