"""A place that a backing has made: a folder for image files, or a block device beside it."""

import errno
import mmap
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from diskproof.drive import NetworkDisk
from diskproof.errors import HostError
from diskproof.process.owner import hand_over_node
from diskproof.process.run_user import require_alone
from diskproof.process.scratch import start_locked_dir
from diskproof.records import BackingSpec
from diskproof.units import render_bytes

PROBE_PREFIX = "diskproof-probe-"
_BLOCK = 4096
_OTHER_PATH = "set another path in the study's [backings.NAME]"
_HINTS = {
    errno.EROFS: f"its file system is mounted read-only; {_OTHER_PATH}",
    errno.EACCES: f"you may not write there; {_OTHER_PATH}",
    errno.ENOTDIR: f"it must be a directory; {_OTHER_PATH}",
    errno.ENOSPC: "its file system is full; free some space there",
}


_OTHER_DEVICE = "name another one"
_DEVICE_HINTS = {
    errno.EPERM: f"a container or unit is let at the devices of its own list only; {_OTHER_DEVICE}",
    errno.EACCES: f"run it as root, or {_OTHER_DEVICE}",
}


def refuse_device(name: str, error: OSError) -> HostError:
    """A device that cannot be opened, as what the user can do about it."""
    used = error.errno == errno.EBUSY
    why = "it is mounted, swap, or part of another device" if used else error.strerror or str(error)
    hint = _DEVICE_HINTS.get(error.errno or 0, _OTHER_DEVICE)
    return HostError(f"{name} cannot be used as a backing", why, hint)


@dataclass(frozen=True)
class Service:
    """Disks that a server hands out over a network. ``driver`` is QEMU's for them, ``fio`` whether
    fio has a client of its own. ``start`` gets the folder of a run and the size of its disk.
    ``flushes`` says what was measured of the server's flushes."""

    driver: str
    fio: bool
    start: Callable[[Path, int], AbstractContextManager[NetworkDisk]]
    flushes: str


@dataclass(frozen=True)
class Place:
    """``folder`` takes the folders of runs, with image files, logs and sockets. With ``device``
    the disk under test is that whole block device, and no file. ``name`` says what it is, where
    the file system of the folder does not. ``below`` are files that the place is made of,
    whose pages are a second cache. ``base_free`` bounds what can be written there, in bytes, when
    the place promises more than what it stands on has. ``lowest`` is the host's own folder under
    a place whose folder the study has made. ``renew`` makes the device as new for a run. With
    ``service`` disks are reached over a network. What is written while ``uncached`` lasts does not
    stay in a cache that nothing but its owner drops."""

    folder: Path
    device: Path | None = None
    name: str = ""
    below: tuple[Path, ...] = ()
    base_free: int | None = None
    lowest: Path | None = None
    renew: Callable[[], None] | None = None
    service: Service | None = None
    uncached: Callable[[], AbstractContextManager[None]] = nullcontext

    @property
    def home(self) -> Path:
        """A folder that is still there when the study is dead."""
        return self.lowest or self.folder

    def free_bytes(self) -> int:
        """What an ordinary user's disks may take. Raises OSError."""
        free = read_free_bytes(self.folder)
        if self.device:
            free = read_device_bytes(self.device)
        return free if self.base_free is None else min(free, self.base_free)


def read_free_bytes(folder: Path) -> int:
    """What an ordinary user may still write on a folder's file system."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


def read_device_bytes(device: Path) -> int:
    """Size of a block device. Raises OSError."""
    handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.lseek(handle, 0, os.SEEK_END)
    finally:
        os.close(handle)


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """An OSError as what the user can do about it."""
    try:
        yield
    except OSError as error:
        raise HostError(
            f"the disks under test cannot be kept in {folder}",
            error.strerror or str(error),
            _HINTS.get(error.errno or 0, _OTHER_PATH),
        ) from error


def probe_direct(folder: Path) -> tuple[bool, str]:
    """Whether O_DIRECT works in a folder, by writing one aligned block, and if not, why."""
    try:
        # Anonymous memory is aligned to a page.
        with _probe_file(folder) as path, mmap.mmap(-1, _BLOCK) as block:
            handle = os.open(path, os.O_RDWR | os.O_DIRECT)
            try:
                os.pwrite(handle, block, 0)
            finally:
                os.close(handle)
        return True, ""
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        return False, f"{find_filesystem(folder)} refuses it ({error.strerror})"


@contextmanager
def _probe_file(folder: Path) -> Iterator[str]:
    """A file to open; without a name, so that nothing is left of it when we are killed. File
    systems without O_TMPFILE give it one."""
    try:
        handle, name = os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600), ""
    except OSError:
        handle, name = tempfile.mkstemp(prefix=PROBE_PREFIX, dir=folder)
    try:
        yield name or f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
        if name:
            Path(name).unlink(missing_ok=True)


def find_filesystem(folder: Path) -> str:
    """The type of the file system that holds a folder: the last mount of its device.

    btrfs subvolumes have devices of their own; there the longest mount point above decides.
    """
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    best, best_length = "unknown", -1
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        fields, _, rest = line.partition(" - ")
        _, _, number, _, mount_point = fields.split()[:5]
        kind = rest.split()[0]
        if number == wanted:
            best, best_length = kind, 1 << 30
        elif _is_above(mount_point, folder) and len(mount_point) >= best_length:
            best, best_length = kind, len(mount_point)
    return best


def _is_above(mount_point: str, folder: Path) -> bool:
    """mountinfo writes space, tab, newline and backslash in octal."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        mount_point = mount_point.replace(code, char)
    return folder.is_relative_to(mount_point)


NODE_NAME = "disk.device"
"""The device of a place as a run sees it: a node of its own, which QEMU's user may open."""


@contextmanager
def start_run_dir(place: Place) -> Iterator[Path]:
    """Ours, and QEMU's user may enter it; its lock is held for its life. Raises HostError, also
    when somebody else runs as that user."""
    require_alone()
    with ExitStack() as stack:
        with explained(place.folder):
            path = stack.enter_context(start_locked_dir(place.folder))
        if place.device:
            if place.renew:
                place.renew()
            with explained(place.folder):
                _make_node(path / NODE_NAME, place.device)
        yield path


def find_device(folder: Path) -> Path | None:
    """The device that is the disk under test of a run, or None where that is a file."""
    node = folder / NODE_NAME
    return node if node.is_block_device() else None


def _make_node(path: Path, device: Path) -> None:
    if os.statvfs(path.parent).f_flag & os.ST_NODEV:
        raise HostError(
            f"a device cannot be opened in {path.parent.parent}",
            "its file system is mounted with nodev",
            "set another directory below the device in the study's [backings.NAME]",
        )
    os.mknod(path, stat.S_IFBLK | 0o600, device.stat().st_rdev)
    hand_over_node(path)


DEFAULT_BYTES = 8 << 30
_RESERVE = 64 << 20


def choose_size(
    spec: BackingSpec, base: Place, needed: Callable[[int], int], step: int = 4 << 20
) -> int:
    """The size in bytes of a volume that takes ``needed(size)`` when it is full: what is asked for
    rounded up to ``step``, else all of a device, and 8 GiB at most where files are made.

    Raises HostError when there is less room.
    """
    room = base.free_bytes() - (0 if base.device else _RESERVE)
    asked = -(-int(spec.option("size") or 0) // step) * step
    if asked == 0:
        asked = _largest(room if base.device else min(room, DEFAULT_BYTES), needed, step)
    if asked < step or needed(asked) > room:
        wanted = f"{render_bytes(needed(asked))} are needed at the peak, " if asked else ""
        raise HostError(
            f"backing {spec.name} does not fit on {_name_base(spec, base)}",
            f"{wanted}{render_bytes(max(0, room))} are free",
            f"set a smaller size in [backings.{spec.name}]",
        )
    return asked


def _name_base(spec: BackingSpec, base: Place) -> str:
    """What a study makes lies in folders and on devices whose names say nothing."""
    if spec.on and spec.on.kind not in ("directory", "device"):
        return f"backing {spec.on.name}"
    return str(base.device or base.folder)


def _largest(room: int, needed: Callable[[int], int], step: int) -> int:
    """The largest multiple of ``step`` that fits; ``needed`` grows with its argument."""
    low, high = 0, max(0, room) // step
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if needed(middle * step) <= room else (low, middle - 1)
    return low * step
