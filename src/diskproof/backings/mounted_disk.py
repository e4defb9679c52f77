"""The file system on a disk's image, mounted through a loop device by mount(2): the number of its
error tells a file system that is damaged from a host that cannot just now."""

import ctypes
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from diskproof.backings.loop import start_loop
from diskproof.backings.mounting import enter_private_mounts, start_unmounting
from diskproof.errors import HostError

# linux/mount.h; what stands in no table is the file system's own.
_NOSUID, _NODEV = 2, 4
_FLAGS = {
    "defaults": 0,
    "rw": 0,
    "ro": 1,
    "nosuid": _NOSUID,
    "nodev": _NODEV,
    "noexec": 8,
    "sync": 16,
    "dirsync": 128,
    "noatime": 1024,
    "nodiratime": 2048,
    "relatime": 1 << 21,
    "strictatime": 1 << 24,
    "lazytime": 1 << 25,
}
_OWN = {"ext4": ("errors=continue",), "xfs": ("nouuid",)}
"""A damaged ext4 may not end the host, whatever it says of itself. xfs has no two disks with the
same number, which all states of a disk have, without that word."""
_PASSES = (errno.EBUSY, errno.EEXIST, errno.ENOMEM, errno.EAGAIN, errno.EINTR)
"""What others do to us, for a while. btrfs says EEXIST while another disk of the same number is
mounted, or still known."""
_OF_THE_HOST = (
    *_PASSES,
    *(errno.EPERM, errno.EACCES, errno.ENODEV, errno.ENXIO, errno.ENOTBLK),
    *(errno.EMFILE, errno.ENFILE),
)
_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_KERNEL = "boot a kernel that has it (apt-get install linux-image-amd64)"
_BTRFS = Path("/dev/btrfs-control")
_FORGET = 0x50009405  # linux/btrfs.h: BTRFS_IOC_FORGET_DEV
_libc = ctypes.CDLL(None, use_errno=True)


class Unmountable(Exception):
    """The kernel does not mount a file system for what it has found on the disk, or for the
    options. Its text is the kernel's."""


@contextmanager
def start_mounted(disk: Path, kind: str, options: str, point: Path) -> Iterator[Path]:
    """The file system on a disk for the length of a block, in mounts of our own: both it and its
    loop device go with us. Nothing in it gives rights, or is a device.

    Raises Unmountable, and HostError where the host is to blame.
    """
    enter_private_mounts()
    point.mkdir(exist_ok=True)
    with start_loop(disk) as loop:
        try:
            _mount(loop.path, kind, options, point)
            with start_unmounting(point):
                yield point
        finally:
            if kind == "btrfs":
                _forget(loop.path)


def _mount(device: Path, kind: str, options: str, point: Path) -> None:
    flags, own = _NOSUID | _NODEV, list(_OWN.get(kind, ()))
    for word in filter(None, options.split(",")):
        if word in _FLAGS:
            flags |= _FLAGS[word]
        else:
            own.append(word)
    source, target, name = (os.fsencode(each) for each in (device, point, kind))
    number = 0
    for pause in (*_PAUSES, None):
        data = ",".join(own).encode()
        if not _libc.mount(source, target, name, ctypes.c_ulong(flags), data):
            return
        number = ctypes.get_errno()
        if number not in _PASSES or pause is None:
            break
        time.sleep(pause)
    if number in _OF_THE_HOST:
        hint = _KERNEL if number == errno.ENODEV else ""
        raise HostError(f"{kind} cannot be mounted on this host", os.strerror(number), hint)
    raise Unmountable(os.strerror(number))


def _forget(device: Path) -> None:
    """btrfs remembers a disk that it has seen, and takes no older one of the same number."""
    with suppress(OSError), _BTRFS.open("rb") as control:
        fcntl.ioctl(control, _FORGET, bytearray(8) + os.fsencode(device).ljust(4088, b"\0"))
