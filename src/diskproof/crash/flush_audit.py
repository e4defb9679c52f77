"""Does this guest send flushes at all, and does each layer pass them on?

The question to ask before anybody turns on writeback. In one guest, on a recorded disk, a program
syncs after each write: on the raw disk, and in a file on each file system with each mount option.
Flushes are counted where they pass:

- guest: ``/sys/block/DISK/stat``, field 16 (flush requests completed; Linux 5.5 and later);
- QEMU: ``flush_operations`` of the device in QMP ``query-blockstats``;
- host: fsync, fdatasync and durable writes in the crash log.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from diskproof.backings import Consent, start_disk_dir
from diskproof.crash.record import make_files
from diskproof.crash.writers.guest_disk import (
    LEDGER,
    MOUNT_POINT,
    make_file_system,
    require_done,
    require_guest_drive,
)
from diskproof.drive import DiskImage, RunContext
from diskproof.errors import RunFailure
from diskproof.frontends import load_frontend
from diskproof.frontends.effective import require_objects
from diskproof.frontends.guest import GuestDrive
from diskproof.qemu.disk import DEVICE_ID
from diskproof.qemu.images import create_image
from diskproof.qemu.qmp import Qmp
from diskproof.recording.folder import Recording, start_recording
from diskproof.recording.log import ACKNOWLEDGE, FSYNC, SYNC_WRITE, WRITE, read_frames
from diskproof.records import BackingSpec, Cell

DISK_BYTES = 512 << 20  # xfs takes no less than 300 MiB; thin, so little of it is used
SYNCS = 32
STRAYS = SYNCS // 8
"""As many flushes may pass that no sync asked for, and still none of the syncs is answered. One was
seen with ``barrier=0``, in the first seconds of a mount: of ext4's thread for inode tables, before
our guests made them at mkfs (``ext4_run_li_request``)."""
START_SECONDS = 120.0
_FLUSHES = 15  # the field of the stat file, from 0
_BEGIN, _END = "diskproof: flush audit begins", "diskproof: flush audit ends"


@dataclass(frozen=True)
class Route:
    """What the syncs go through: the raw disk, or a file system with its mount options."""

    file_system: str = ""
    options: str = ""

    def __str__(self) -> str:
        return f"{self.file_system or 'raw disk'} {self.options}".strip()


ROUTES = (
    Route(),
    Route("ext4"),
    Route("ext4", "barrier=0"),
    Route("xfs"),
    Route("btrfs"),
    Route("btrfs", "nobarrier"),
)


@dataclass(frozen=True)
class FlushCounts:
    """Syncs that a program in the guest asked for, and the flushes that each layer saw.

    A file system may need two for a sync, and send some of its own (``STRAYS``). A layer answers
    syncs when it passes at least as many flushes as were asked for: one that is left out may be the
    one that matters. QEMU's NVMe controller counts none of those it carries
    out, so its count decides nothing. ``write_cache``: the guest's kernel believes that the disk
    has one; else it sends no flushes.
    """

    route: str
    write_cache: bool
    asked: int
    guest: int
    qemu: int
    host: int

    @property
    def finding(self) -> str:
        """Where flushes end, in words."""
        if self.host >= self.asked:
            passed = self.guest >= self.asked
            return "passed on to the host" if passed else "the host is flushed after each write"
        if self.guest <= STRAYS and not self.write_cache:
            return "the guest sends none: its disk tells of no cache"
        if self.guest <= STRAYS:
            return "the guest sends none"
        if self.guest < self.asked:
            return f"the guest sends {self.guest} for {self.asked} syncs"
        if self.host <= STRAYS:
            return "QEMU carries out none"
        return f"QEMU carries out {self.host} for {self.asked} syncs"


class FindingJson(TypedDict):
    finding: str


class FlushesJson(TypedDict):
    """What ``crash flushes --json`` prints of a guest: ``counts`` are FlushCounts."""

    cell: dict[str, str]
    label: str
    counts: list[Annotated[dict[str, Any], FlushCounts, FindingJson]]


@dataclass(frozen=True)
class _Seen:
    asked: int
    guest: int
    qemu: int


def audit_flushes(
    cell: Cell,
    backing: BackingSpec,
    consent: Consent,
    accel: str,
    routes: Sequence[Route] = ROUTES,
) -> tuple[FlushCounts, ...]:
    """One guest with the cell's disk, ``SYNCS`` syncs on each route.

    Raises RunFailure as the frontend does, ``guest`` when a file system cannot be made.
    """
    with start_disk_dir(backing, consent) as room:
        files = make_files(room)
        made = create_image(files, cell, DISK_BYTES)
        seen: list[_Seen] = []
        with start_recording(files, room) as recording:
            image = DiskImage(recording.folder / made.path.name, made.format, made.size)
            context = RunContext(cell, image, room, accel, START_SECONDS)
            with load_frontend("guest").start(context) as started:
                drive = require_guest_drive(started, "flush audit")
                seen = [_sync_on(drive, route, recording) for route in routes]
                write_cache = drive.disk.write_cache == "write back"
        hosts = count_host_flushes(recording.log)
    return tuple(
        FlushCounts(str(route), write_cache, one.asked, one.guest, one.qemu, host)
        for route, one, host in zip(routes, seen, hosts, strict=True)
    )


def _sync_on(drive: GuestDrive, route: Route, recording: Recording) -> _Seen:
    guest, device = drive.guest, drive.disk.device
    how = ["--records", str(SYNCS), "--slots", str(SYNCS), "--depth", "1", "--flush-every", "1"]
    if route.file_system:
        make_file_system(guest, device, route.file_system, route.options)
        require_done(guest, ["sync"])
        target = [f"{MOUNT_POINT}/audit", "--create", str(SYNCS * 4096)]
    else:
        target = [device]
    recording.acknowledge(_BEGIN)
    before = read_guest_flushes(drive), read_qemu_flushes(guest.qmp)
    require_done(guest, [LEDGER, "write", *target, *how])
    after = read_guest_flushes(drive), read_qemu_flushes(guest.qmp)
    recording.acknowledge(_END)
    if route.file_system:
        require_done(guest, ["umount", MOUNT_POINT])
    return _Seen(SYNCS, after[0] - before[0], after[1] - before[1])


def read_guest_flushes(drive: GuestDrive) -> int:
    """Flush requests of the disk that the guest's kernel has completed. Raises RunFailure."""
    path = f"/sys/block/{Path(drive.disk.device).name}/stat"
    fields = drive.guest.channel.read_file(path, 4096).split()
    if len(fields) <= _FLUSHES or not fields[_FLUSHES].isdigit():
        raise RunFailure("guest", f"{path} counts no flushes", "the kernel is older than 5.5")
    return int(fields[_FLUSHES])


def read_qemu_flushes(qmp: Qmp) -> int:
    """Flushes of the disk under test that QEMU has completed. Raises RunFailure ``qemu``."""
    for row in require_objects(qmp.execute("query-blockstats"), "query-blockstats"):
        stats, device = row.get("stats"), str(row.get("qdev", ""))
        if DEVICE_ID in device.split("/") and isinstance(stats, dict):
            return int(stats["flush_operations"])
    raise RunFailure("qemu", "QEMU counts nothing for the disk under test", "query-blockstats")


def count_host_flushes(log: Path) -> list[int]:
    """Flushes and durable writes between each pair of marks in a log."""
    counts: list[int] = []
    counting = False
    for frame in read_frames(log):
        if frame.kind == ACKNOWLEDGE:
            counting = frame.payload == _BEGIN.encode()
            if counting:
                counts.append(0)
        elif counting and not frame.errno:
            durable = frame.kind == FSYNC or (frame.kind == WRITE and frame.flags & SYNC_WRITE)
            counts[-1] += bool(durable)
    return counts
