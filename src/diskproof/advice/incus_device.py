"""A disk device of Incus: which settings are in force for what it says, and where it lies.

Facts from Incus 7.3 (be7afc5df3) and 6.0.4: internal/server/instance/drivers/driver_qemu.go
(addDriveConfig), internal/server/device/disk.go (startVM, detectVMPoolMountOpts), DirectIO and
IOUring in internal/server/storage/drivers/driver_*.go; what 6.0.4 of Debian 13 asked of QEMU for a
machine that ran was the same (tests/golden/incus). LXD, from which it was forked, writes its
devices in the same words.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

SOURCE = "Incus 7.3 (be7afc5df3) and 6.0.4, driver_qemu.go addDriveConfig"
CACHES = ("none", "writeback", "unsafe")
BUSES = ("virtio-scsi", "virtio-blk", "nvme")
_URING_POOLS = ("lvm", "lvmcluster", "linstor")
"""Pools of block devices whose disks are driven by io_uring."""
FILE_POOLS = ("dir", "btrfs")
REMOTE_POOLS = ("ceph", "linstor", "lvmcluster", "truenas")
BUFFERED = ("zfs", "btrfs")
"""File systems whose files are never opened for direct I/O unless io.cache=none says so."""


@dataclass(frozen=True)
class Device:
    """A disk device. ``origin``: ``local`` to the instance, from a ``profile``, empty: not known.
    ``driver`` is its pool's, empty where that is not known; ``filesystem`` what a file lies on."""

    name: str
    config: Mapping[str, str]
    origin: str = ""
    driver: str = ""
    filesystem: str = ""
    program: str = "incus"

    @property
    def source(self) -> str:
        return self.config.get("source", "")

    @property
    def pool(self) -> str:
        return self.config.get("pool", "")

    @property
    def is_root(self) -> bool:
        return self.config.get("path") == "/"

    @property
    def is_rbd(self) -> bool:
        return self.driver == "ceph" or self.source.startswith("ceph:")

    @property
    def is_host_device(self) -> bool:
        """A block device of the host that was passed as it is."""
        return not self.pool and self.source.startswith("/dev/")

    @property
    def is_file(self) -> bool:
        if self.is_rbd or self.is_host_device:
            return False
        return self.driver in FILE_POOLS or not self.pool

    @property
    def without_direct(self) -> bool:
        """A block device that Incus does not take for fit for direct I/O: it starts unsafe."""
        return self.is_host_device or self.driver == "truenas"

    @property
    def file_system(self) -> str:
        return "btrfs" if self.driver == "btrfs" else self.filesystem

    @property
    def is_disk(self) -> bool:
        """Whether a virtual machine gets a disk by it: no shared folder, no CD-ROM, attached."""
        config = self.config
        if config.get("type") != "disk" or config.get("attached") in ("false", "0", "no", "off"):
            return False
        if self.source.endswith(".iso") or re.match(
            r"(cloud-init|agent|tmpfs|cephfs)", self.source
        ):
            return False
        if config.get("io.bus") in ("9p", "virtiofs", "auto"):
            return False
        return self.is_root or not config.get("path")


def find_usual_cache(device: Device) -> str:
    """The cache mode where io.cache is not set; empty where the pool's driver or the file system
    decides, and that is not known."""
    if device.is_rbd:
        return "writeback"
    if device.without_direct:
        return "unsafe"
    if device.pool and not device.driver:
        return ""
    if not device.is_file:
        return "none"
    if device.file_system in BUFFERED:
        return "writeback"
    return "none" if device.file_system else ""


def find_aio(device: Device, cache: str) -> str:
    """How QEMU submits I/O; empty where that is not known, or nothing (librbd does it itself)."""
    if device.is_rbd:
        return ""
    if cache in ("writeback", "unsafe") or device.without_direct:
        return "threads"
    if device.file_system in BUFFERED and device.is_file:
        return "threads"  # set for such files, and kept when io.cache=none
    if device.pool and not device.driver:
        return ""
    if not device.is_file:
        return "io_uring" if device.driver in _URING_POOLS else "native"
    if not device.file_system:
        return ""
    return "io_uring" if device.driver == "dir" else "native"


def find_levels(device: Device) -> tuple[dict[str, str], frozenset[str]]:
    """The levels in force, and which of them nobody wrote."""
    cache = device.config.get("io.cache") or find_usual_cache(device)
    bus = device.config.get("io.bus") or "virtio-scsi"
    levels = {
        "cache": cache,
        "aio": find_aio(device, cache),
        "discard": "unmap",
        "detect-zeroes": "off",
        "iothread": "off",
        "bus": bus if bus in BUSES else "",
    }
    levels = {name: level for name, level in levels.items() if level}
    told = {name.removeprefix("io.") for name in device.config}
    return levels, frozenset(levels) - told


def render_device(device: Device) -> str:
    """It as lines: ``incus local root: path=/ pool=default``, and what its pool is."""
    words = (f"{name}={value}" for name, value in device.config.items())
    origin = device.origin or "device"
    lines = [f"{device.program} {origin} {shlex.quote(device.name)}: {shlex.join(words)}"]
    if device.driver or device.filesystem:
        told = (f"driver={device.driver}", f"filesystem={device.filesystem}")
        lines.append(f"pool {device.pool or '-'}: {' '.join(w for w in told if w[-1] != '=')}")
    return "\n".join(lines)


def parse_device(text: str) -> Device:
    """The inverse of ``render_device``. Raises ValueError."""
    head, _, tail = text.strip().partition("\n")
    words = shlex.split(head)
    if len(words) < 3 or not words[2].endswith(":") or words[1] not in (
        "local", "profile", "device",
    ):  # fmt: skip
        raise ValueError(f"{head[:60]!r} is no device of Incus")
    config = dict(word.partition("=")[::2] for word in words[3:])
    pool = dict(word.partition("=")[::2] for word in tail.split())
    return Device(
        words[2].removesuffix(":"),
        config,
        "" if words[1] == "device" else words[1],
        pool.get("driver", ""),
        pool.get("filesystem", ""),
        words[0],
    )
