"""What lies below an image on this host: mounts, file systems, block devices down to the disks.

Looked at only, through what the kernel shows everybody (mountinfo, sysfs), and two programs that
list: zfs(8) and tgtadm(8), each with a bound. What cannot be seen stands there as unseen.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from diskproof.advice import observed
from diskproof.errors import DiskproofError
from diskproof.host.iscsi_session import find_store
from diskproof.process.start import find_tool, run
from diskproof.records.virtual_machines import Layer, MachineDisk

MAX_DEPTH = 24
SECONDS = 3.0
_SYS = Path("/sys")
_REMOTE = {"nbd": "an NBD server", "rbd": "a Ceph cluster", "drbd": "another host (DRBD)"}
_MEMORY = ("zram", "ram", "pmem")


@dataclass(frozen=True)
class Mount:
    """A line of mountinfo. ``device`` is ``MAJOR:MINOR``."""

    point: str
    kind: str
    source: str
    options: str
    device: str


@dataclass
class _Look:
    """One walk down. ``root`` is the folder that the paths of the machine's process begin at."""

    mounts: tuple[Mount, ...]
    root: str = ""
    found: dict[str, str] = field(default_factory=dict)
    depth: int = 0

    def say(self, word: str, name: str, value: str) -> None:
        self.found[f"{word} {name}"] = value

    def unseen(self, name: str, why: str) -> None:
        self.say(observed.UNSEEN, name, why)


def read_below(disk: MachineDisk, pid: int | None = None) -> Layer | None:
    """The layer below a disk, None for one that lies behind a server. With ``pid`` the image is
    looked for as that process sees it, which may be in a container."""
    if disk.kind == "network":
        return None
    if not disk.image:
        return Layer({f"{observed.UNSEEN} the disk": "its image is not known"}, "the configuration")
    look = _Look(*_view(pid))
    _look_at(look, disk.image)
    return Layer(look.found, "mountinfo and sysfs of this host")


def _view(pid: int | None) -> tuple[tuple[Mount, ...], str]:
    """Mounts and root folder of a process, ours where it cannot be looked into."""
    if pid is not None:
        with suppress(OSError):
            theirs = Path(f"/proc/{pid}/ns/mnt").stat().st_ino
            if theirs != Path("/proc/self/ns/mnt").stat().st_ino:
                return read_mounts(f"/proc/{pid}/mountinfo"), f"/proc/{pid}/root"
    return read_mounts("/proc/self/mountinfo"), ""


def read_mounts(path: str) -> tuple[Mount, ...]:
    """Source: proc_pid_mountinfo(5)."""
    try:
        return tuple(parse_mounts(Path(path).read_text(errors="surrogateescape")))
    except OSError:
        return ()


def parse_mounts(text: str) -> Iterator[Mount]:
    """The mounts in their order, later ones above earlier ones."""
    for each in text.splitlines():
        first, dash, last = each.partition(" - ")
        words, tail = first.split(), last.split()
        if dash and len(words) >= 6 and len(tail) >= 2:
            own = ",".join(dict.fromkeys((words[5] + "," + "".join(tail[2:3])).split(",")))
            yield Mount(_plain(words[4]), tail[0], _plain(tail[1]), own.strip(","), words[2])


def _plain(word: str) -> str:
    r"""mountinfo writes blanks as ``\040``."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, char)
    return word


def find_mount(mounts: tuple[Mount, ...], path: str) -> Mount | None:
    """The mount that a path lies on; of several at one point the last one covers the others."""
    fitting = [
        mount
        for mount in mounts
        if path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
    ]
    return max(fitting, key=lambda mount: len(mount.point), default=None)


def _look_at(look: _Look, path: str) -> None:
    """A path as the process sees it."""
    look.depth += 1
    if look.depth > MAX_DEPTH:
        look.unseen(path, f"more than {MAX_DEPTH} layers")
        return
    near = find_mount(look.mounts, path)
    if near is not None and near.kind in observed.ELSEWHERE:
        _look_at_mount(look, near)  # a server that is gone would hold whoever asks
        return
    try:
        seen = Path(look.root + path).stat()
        real = os.path.realpath(look.root + path).removeprefix(look.root)
    except OSError as error:
        look.unseen(path, (error.strerror or "it cannot be looked at").lower())
        return
    if stat.S_ISBLK(seen.st_mode):
        number = f"{os.major(seen.st_rdev)}:{os.minor(seen.st_rdev)}"
        _look_at_device(look, _SYS / "dev/block" / number, path)
        return
    mount = find_mount(look.mounts, real)
    if mount is None:
        look.unseen(path, "no mount of it was found")
        return
    _look_at_mount(look, mount)


def _look_at_mount(look: _Look, mount: Mount) -> None:
    look.say(observed.MOUNT, mount.point, f"{mount.kind} {mount.options}")
    if mount.kind == "zfs":
        look.say(observed.ZFS_SYNC, mount.source, read_zfs_sync(mount.source))
    elif mount.kind == "overlay":
        upper = next(
            (o.removeprefix("upperdir=") for o in mount.options.split(",") if "upperdir=" in o), ""
        )
        look.root, look.mounts = "", read_mounts("/proc/self/mountinfo")
        if upper:
            _look_at(look, upper)
        else:
            look.unseen(mount.point, "an overlay that does not name its upper folder")
    elif mount.source.startswith("/"):
        device = _SYS / "dev/block" / mount.device
        with suppress(OSError):
            if not device.exists():  # btrfs has a number of its own
                number = Path(mount.source).stat().st_rdev
                device = _SYS / "dev/block" / f"{os.major(number)}:{os.minor(number)}"
        _look_at_device(look, device, mount.source)
    elif mount.kind not in ("tmpfs", "ramfs") and ":" not in mount.source:
        look.unseen(mount.point, f"{mount.kind} of {mount.source} is on no device that is known")


def _look_at_device(look: _Look, device: Path, name: str) -> None:
    """A block device in sysfs, then what it is made of."""
    look.depth += 1
    try:
        folder = device.resolve(strict=True)
    except OSError:
        look.unseen(name, "sysfs does not have it")
        return
    if look.depth > MAX_DEPTH:
        look.unseen(name, f"more than {MAX_DEPTH} layers")
        return
    if (folder / "partition").exists():
        folder = folder.parent
    look.say(observed.QUEUE, folder.name, read_line(folder / "queue/write_cache"))
    if told := _read_cache_type(folder):
        look.say(observed.CACHE_TYPE, folder.name, told)
    kind = folder.name.rstrip("0123456789")
    if kind == "zd":
        dataset = name.removeprefix("/dev/zvol/")
        look.say(observed.ZFS_SYNC, dataset, read_zfs_sync(dataset))
    elif kind in _REMOTE:
        look.unseen(folder.name, f"it is served by {_REMOTE[kind]}")
    elif kind in _MEMORY[:2]:
        look.say(observed.TARGET, folder.name, "memory")
    elif store := find_store(folder):
        look.say(observed.TARGET, folder.name, store)
    elif backing := read_line(folder / "loop/backing_file"):
        look.say(observed.CACHE_TYPE, folder.name, "write back")  # drivers/block/loop.c
        look.root, look.mounts = "", read_mounts("/proc/self/mountinfo")
        _look_at(look, backing)
    slaves = sorted((folder / "slaves").glob("*"))
    for slave in slaves:
        _look_at_device(look, slave, slave.name)
    if any(look.found.get(f"{observed.QUEUE} {each.name}") == "write back" for each in slaves):
        # drivers/md: a device passes on the flushes of what it is made of.
        look.say(observed.CACHE_TYPE, folder.name, "write back")


def _read_cache_type(folder: Path) -> str:
    """What a disk reports of its write cache: SCSI and virtio show it beside the queue's view."""
    files = [folder / "cache_type", *(folder / "device/scsi_disk").glob("*/cache_type")]
    told = next((text for file in files if (text := read_line(file))), "")
    return "write back" if told.startswith("write back") else told


def read_line(path: Path) -> str:
    """A file of sysfs without its newline, empty for what cannot be read."""
    try:
        return path.read_text(errors="replace")[:4096].strip()
    except OSError:
        return ""


def read_zfs_sync(dataset: str) -> str:
    """ZFS's property ``sync`` of a dataset or volume, or why it is not known. zfsprops(7)."""
    if find_tool("zfs") is None:
        return "zfs is not installed"
    if dataset.startswith(("-", "/")):
        return "its dataset is not known"
    try:
        argv = ["zfs", "get", "-H", "-o", "value", "sync", dataset]
        done = run(argv, timeout=SECONDS, check=False)
    except DiskproofError as error:
        return error.what
    return done.text.strip() if done.returncode == 0 else done.error_text[:200]
