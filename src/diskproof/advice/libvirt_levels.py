"""A disk of libvirt's XML as levels of factors: one table, read here, written by ``libvirt``.

Rules: libvirt 9.0 and 11.3, docs/formatdomain.rst (driver, target, controller), and what libvirtd
9.0 made of them in QEMU's command line (tests/integration/test_advice_libvirt.py).
"""

from collections.abc import Mapping

from diskproof.advice.libvirt_xml import DiskParts, child
from diskproof.records.virtual_machines import Levels
from diskproof.study.load import render_level_bytes
from diskproof.units import parse_bytes

SOURCE = "libvirt 9.0 to 11.3, docs/formatdomain.rst, and its libvirtd 9.0 as it ran"
DRIVER_KEYS: Mapping[str, str] = {
    "format": "type",
    "cache": "cache",
    "aio": "io",
    "discard": "discard",
    "detect-zeroes": "detect_zeroes",
}
"""Factor -> attribute of ``<driver>``; levels are spelt the same."""
BUSES: Mapping[str, tuple[str, str]] = {
    "virtio-blk": ("virtio", "vd"),
    "virtio-scsi": ("scsi", "sd"),
    "ahci": ("sata", "sd"),
    "ide": ("ide", "hd"),
}
"""Level -> libvirt's bus and what names of disks begin with there."""
VIRTIO_SCSI = ("virtio-scsi", "virtio-transitional", "virtio-non-transitional")
QEMU_DEFAULTS: Levels = {
    "format": "raw",
    "cache": "writeback",
    "aio": "threads",
    "discard": "ignore",
    "detect-zeroes": "off",
}
"""libvirt passes nothing on where nothing is written, and QEMU decides."""
_REFCOUNT_CLUSTERS = 4
DEFAULT_CLUSTER = "64K"
_UNITS = {"": 1, "b": 1, "byte": 1, "bytes": 1} | {
    f"{prefix}{unit}": step ** (power + 1)
    for power, prefix in enumerate("kmgt")
    for unit, step in (("", 1024), ("ib", 1024), ("b", 1000))
}


def metadata_cache_bytes(l2_level: str, cluster: str = "") -> int:
    """What ``<max_size>`` is for that much L2 cache: it counts *all* metadata caches, and QEMU
    keeps four clusters of it for reference counts (block/qcow2.c, MIN_REFCOUNT_CACHE_SIZE)."""
    return parse_bytes(l2_level) + _REFCOUNT_CLUSTERS * parse_bytes(cluster or DEFAULT_CLUSTER)


def _l2_level(parts: DiskParts, cluster: str) -> str:
    """The L2 cache that ``<max_size>`` leaves, empty where none is set."""
    driver = child(parts.disk, "driver")
    size = child(child(driver, "metadata_cache"), "max_size")
    text, scale = (size.text or "").strip(), _UNITS.get(size.get("unit", "").lower(), 0)
    if driver.get("type") != "qcow2" or not (text.isascii() and text.isdecimal()):
        return ""
    least = metadata_cache_bytes("0", cluster)
    count = int(text[:18]) * scale - least
    return render_level_bytes(count) if 0 < count <= 1 << 50 else ""


def find_bus(parts: DiskParts) -> str:
    """The level of ``bus``; empty where a study has no word for it, or where it is not known which
    SCSI controller the machine gets."""
    if parts.bus == "scsi":
        model = parts.controller.get("model", "") if parts.controller is not None else ""
        return "virtio-scsi" if model in VIRTIO_SCSI else ""
    return next((level for level, (bus, _) in BUSES.items() if bus == parts.bus), "")


def find_iothreads(parts: DiskParts) -> tuple[str, ...]:
    """The numbers of the threads that are written for a disk, or for its controller."""
    holders = [parts.disk] if parts.bus != "scsi" else [parts.disk, parts.controller]
    found = []
    for holder in holders:
        driver = child(holder, "driver") if holder is not None else None
        if driver is not None:
            found += [driver.get("iothread", "")]
            found += [each.get("id", "") for each in driver.findall("iothreads/iothread")]
    return tuple(filter(None, found))


def read_written(parts: DiskParts, cluster: str = "") -> dict[str, str]:
    """The levels that are written of a disk. No iothread written is none: libvirt gives no disk a
    thread by itself."""
    driver = child(parts.disk, "driver")
    levels = {
        factor: level
        for factor, key in DRIVER_KEYS.items()
        if (level := driver.get(key, "")) and level != "default"
    }
    if levels.get("detect-zeroes") == "unmap" and levels.get("discard") != "unmap":
        levels["detect-zeroes"] = "on"
    if bus := find_bus(parts):
        levels["bus"] = bus
    levels["iothread"] = "on" if find_iothreads(parts) else "off"
    if l2 := _l2_level(parts, cluster):
        levels["l2-cache-size"] = l2
    return levels


def find_assumed(parts: DiskParts, written: Levels) -> dict[str, str]:
    """What nobody wrote, at what libvirt (a shared disk) or else QEMU makes of it; nothing for a
    disk that QEMU's block layer does not serve."""
    kind = parts.disk.get("type", "")
    if kind in ("vhostuser", "vhostvdpa"):
        return {}
    levels = dict(QEMU_DEFAULTS)
    if kind not in ("file", "block", "volume", "dir"):
        del levels["aio"]
    if parts.disk.find("shareable") is not None:
        levels["cache"] = "none"
    return {factor: level for factor, level in levels.items() if factor not in written}
