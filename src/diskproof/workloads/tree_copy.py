"""A tree of files copied with ``cp -a`` and synced: few big files, many small ones, five levels.

In a guest the disk under test gets a file system, on the host the tree lies beside the disk's file,
on the backing itself. The source lies there too, or on a disk of its own on another backing. It is
cold (written, dropped from the page cache, in a guest also unmounted) or all of it in memory, which
is proved either way. The time is that of ``cp -a`` and of ``sync -f`` after it. The copy is read
and compared afterwards, from the disk again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from diskproof.drive import Drive, Execution
from diskproof.errors import RunFailure, tells_no_space
from diskproof.guest.ours.build import PROGRAM_FOLDER
from diskproof.guest.ours.root import MAKE_FILE_SYSTEM
from diskproof.process.native import require_native
from diskproof.records import Check, Metric, WorkloadSpec
from diskproof.study.boots import parse_scale
from diskproof.units import MIB, parse_bytes, render_bytes
from diskproof.workloads import WorkloadResult

PROGRAM = "diskproof-tree"
MOUNT_POINT = "/mnt"
SOURCE_POINT = "/tmp/source"
ROOM = 1.25  # of a tree: blocks that are not full, the file system's own
SLOWEST = 2 << 20  # bytes/s, under emulation on a busy host
FILE_SECONDS = 0.02
START_SECONDS = 120.0
_HINTS = {
    "disk": 'a backing on a disk, or source = "memory"',
    "memory": 'a smaller scale, more memory, or source = "disk"',
}


@dataclass(frozen=True)
class TreeShape:
    """What ``diskproof-tree`` makes: the study's tree, shrunk by its scale."""

    files: int
    bytes: int
    depth: int

    def args(self) -> list[str]:
        return [f"--files={self.files}", f"--bytes={self.bytes}", f"--depth={self.depth}"]

    @property
    def patience(self) -> float:
        """Seconds within which all of it is written or read once, unless something hangs."""
        return START_SECONDS + self.bytes / SLOWEST + self.files * FILE_SECONDS


@dataclass(frozen=True)
class Room:
    """Where a tree lies. ``device`` holds the file system on ``folder``; None on the host."""

    folder: str
    device: str | None


@dataclass(frozen=True)
class Site:
    """Where the trees ``source`` and ``target`` are: in one room, or each in its own."""

    drive: Drive
    shape: TreeShape
    filesystem: str
    rooms: Mapping[str, Room]

    def path(self, name: str) -> str:
        """Tell where a tree lies."""
        return f"{self.rooms[name].folder}/{name}"

    def do(self, *argv: str) -> Execution:
        """Run a program that must end well. Raises RunFailure ``space`` or ``workload``."""
        done = self.drive.execute(argv, timeout=self.shape.patience)
        if done.returncode != 0:
            why = done.stderr.decode("utf-8", "replace").strip()[-500:]
            full = tells_no_space(why)
            what = f"{Path(argv[0]).name} failed with status {done.returncode}"
            hint = "a larger size, or a smaller scale" if full else ""
            raise RunFailure("space" if full else "workload", what, why, hint)
        return done

    def tree(self, command: str, name: str, *more: str) -> Execution:
        """Let ``diskproof-tree`` work on one of the trees."""
        in_guest = self.rooms[name].device is not None
        own = f"{PROGRAM_FOLDER}/{PROGRAM}" if in_guest else str(require_native(PROGRAM))
        return self.do(own, command, self.path(name), *self.shape.args(), *more)

    def make_filesystems(self) -> None:
        if self.drive.facts.machine:
            self.drive.facts.machine.load_modules([self.filesystem])
        for room in dict.fromkeys(self.rooms.values()):
            if room.device:
                self.do(*MAKE_FILE_SYSTEM[self.filesystem], room.device)
                self.do("mkdir", "-p", room.folder)
                self._mount(room)

    def cool(self, name: str) -> Check:
        """Take a tree out of memory: dropped, and where that can be, unmounted."""
        for _ in range(20):  # a page may still be held for a moment
            if not (left := parse_cached(self.tree("cache", name, "--drop").stdout)):
                break
        room = self.rooms[name]
        if room.device:
            self.do("umount", room.folder)
            self._mount(room)
        how = ", unmounted and mounted again" if room.device else ""
        told = f"{render_bytes(left)} cached{how}"
        return Check(f"{name}: cold", "none of it cached", told, "cachestat", left == 0)

    def _mount(self, room: Room) -> None:
        self.do("mount", "-t", self.filesystem, str(room.device), room.folder)


class TreeCopy:
    """The kind ``tree_copy``."""

    def run(self, spec: WorkloadSpec, drive: Drive) -> WorkloadResult:
        """Raises RunFailure ``space`` when the disk is too small, ``workload`` when a program
        failed or the copy is not the tree."""
        site = find_site(spec, drive)
        site.make_filesystems()
        site.tree("make", "source")
        check = warm_check(site) if spec.option("source") == "memory" else site.cool("source")
        if not check.ok:
            raise RunFailure("cache", check.name, check.effective, _HINTS[spec.option("source")])
        copied = site.do("cp", "-a", site.path("source"), site.path("target"))
        synced = site.do("sync", "-f", site.path("target"))
        if site.rooms["target"].device:
            site.cool("target")
        site.tree("check", "target")
        return WorkloadResult(
            make_metrics(site.shape, copied.seconds, synced.seconds),
            (check, Check("copy", "the tree", "every file compared", PROGRAM, True)),
        )


WORKLOAD = TreeCopy()


def parse_shape(spec: WorkloadSpec) -> TreeShape:
    """The tree of a spec; every level of folders keeps a file."""
    scale, depth = parse_scale(spec.option("scale")), int(spec.option("depth"))
    files = max(depth, round(int(spec.option("files")) * scale))
    return TreeShape(files, round(parse_bytes(spec.option("bytes")) * scale), depth)


def find_site(spec: WorkloadSpec, drive: Drive) -> Site:
    """Where the trees go. Raises RunFailure, also when they do not fit on the disk."""
    shape = parse_shape(spec)
    path = drive.facts.disk
    if drive.facts.machine is None:
        target = _host_room(drive, path)
        source = _host_room(drive, drive.facts.second_disk) if drive.facts.second_disk else target
    else:
        require_room(shape, drive.facts.size, alone=bool(drive.facts.second_disk))
        target = Room(MOUNT_POINT, path)
        source = Room(SOURCE_POINT, drive.facts.second_disk) if drive.facts.second_disk else target
    rooms = {"source": source, "target": target}
    return Site(drive, shape, spec.option("filesystem"), rooms)


def _host_room(drive: Drive, path: str) -> Room:
    """Beside the disk's file."""
    if drive.execute(["test", "-b", path], timeout=START_SECONDS).returncode == 0:
        raise RunFailure(
            "workload",
            "a tree cannot be copied on a bare device",
            "it has no file system",
            'a backing of the kind "filesystem" on it',
        )
    return Room(str(Path(path).parent), None)


def require_room(shape: TreeShape, size: int, *, alone: bool = False) -> None:
    """Raises RunFailure ``space`` when two trees, or one ``alone``, do not fit on a disk of
    ``size`` bytes."""
    needed = int((1 if alone else 2) * ROOM * shape.bytes)
    if needed > size:
        who = "a tree needs" if alone else "two trees need"
        what = f"{who} {render_bytes(needed)}, the disk has {render_bytes(size)}"
        raise RunFailure("space", what, hint="a larger size, or a smaller scale")


def parse_cached(output: bytes) -> int:
    """Bytes in memory, as ``diskproof-tree cache`` tells them. Raises RunFailure ``workload``: in a
    guest, what answers is not to be trusted."""
    try:
        return int(json.loads(output)["cached"])
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        raise RunFailure(
            "workload", f"{PROGRAM} did not say what is cached", repr(output[:200])
        ) from None


def warm_check(site: Site) -> Check:
    """Whether all of the source is in memory: it was just written."""
    cached = parse_cached(site.tree("cache", "source").stdout)
    told = f"{render_bytes(cached)} of {render_bytes(site.shape.bytes)}"
    ok = cached >= site.shape.bytes
    return Check("source: in memory", "all of it", told, "cachestat", ok)


def make_metrics(shape: TreeShape, copied: float, synced: float) -> tuple[Metric, ...]:
    """The figures of a copy that took ``copied`` and a sync that took ``synced`` seconds."""
    seconds = copied + synced
    return (
        Metric("seconds", "s", seconds, higher_is_better=False, primary=True),
        Metric("bandwidth", "MiB/s", shape.bytes / seconds / MIB, higher_is_better=True),
        Metric("file_rate", "1/s", shape.files / seconds, higher_is_better=True),
        Metric("sync_seconds", "s", synced, higher_is_better=False),
    )
