"""The disk under test, from a cell's levels to pieces of QEMU command lines.

Every cache, aio, discard and flush setting is spelt out on both block nodes (file and format),
so that no default of a QEMU version decides. QEMU starts with the image's folder as its working
folder and the image's name relative to it: a confined QEMU may not search the folders above.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from diskproof.drive import DiskImage, NetworkDisk
from diskproof.errors import UsageError
from diskproof.qemu.machine import DISK_SERIAL
from diskproof.records import Cell
from diskproof.study.factors import CACHE_MODES, CacheMode
from diskproof.units import parse_bytes

_Row = TypeVar("_Row")

FILE_NODE = "diskproof-file"
DISK_NODE = "diskproof-disk"
DEVICE_ID = "diskproof-device"
EXPORT_ID = "diskproof-export"
EXPORT_NAME = "disk"
IOTHREAD_ID = "diskproof-iothread"
SECOND_NODE = "diskproof-source"
SECOND_SERIAL = "diskproof-source"
_SECOND_FDSET = 101  # beside the root's


@dataclass(frozen=True)
class Bus:
    """How a guest gets the disk; the kernel's drivers for it are in ``machine``.

    ``controller`` is a device to add, ``attach`` says where the disk goes. ``iothread_on`` names
    the device that takes an iothread, if one does. ``reports_write_cache``: the guest is told of
    write-through. ``reports_errors``: the device can be told to pass errors on.
    """

    device: str
    controller: Mapping[str, object] | None = None
    attach: Mapping[str, object] | None = None
    iothread_on: str = ""
    reports_write_cache: bool = True
    reports_errors: bool = True


BUSES: Mapping[str, Bus] = {
    "virtio-blk": Bus("virtio-blk-pci", iothread_on="virtio-blk-pci"),
    "virtio-scsi": Bus(
        "scsi-hd",
        controller={"driver": "virtio-scsi-pci", "id": "diskproof-scsi"},
        attach={"bus": "diskproof-scsi.0"},
        iothread_on="virtio-scsi-pci",
    ),
    # The pc machine's own IDE controller.
    "ide": Bus("ide-hd", attach={"bus": "ide.0", "unit": 0}),
    "ahci": Bus(
        "ide-hd",
        controller={"driver": "ich9-ahci", "id": "diskproof-ahci"},
        attach={"bus": "diskproof-ahci.0"},
    ),
    # QEMU's NVMe controller always says it has a volatile write cache; the block layer below it
    # flushes after each write all the same. It always passes errors on.
    "nvme": Bus("nvme", reports_write_cache=False, reports_errors=False),
}


def _cache_mode(cell: Cell) -> CacheMode:
    """The meaning of the cell's ``cache`` level. Raises UsageError for an unknown one."""
    return _require(CACHE_MODES, cell.level("cache", "writeback"), "cache mode")


def node_cache(cell: Cell) -> dict[str, bool]:
    """BlockdevCacheOptions of both nodes."""
    mode = _cache_mode(cell)
    return {"direct": mode.direct, "no-flush": mode.no_flush}


def writes_through(cell: Cell) -> bool:
    """Each write is flushed before it is acknowledged."""
    return _cache_mode(cell).write_through


def bus(name: str) -> Bus:
    """The bus of that name. Raises UsageError for an unknown one."""
    return _require(BUSES, name, "bus")


def image_format(cell: Cell) -> str:
    """The cell's image format; a frontend without a block layer uses a raw file."""
    return cell.level("format", "raw")


def image_options(cell: Cell) -> dict[str, str]:
    """Creation options of the image, as ``qemu-img create -o`` names them; sizes in bytes."""
    form = image_format(cell)
    options = {}
    if form in ("raw", "qcow2"):
        options["preallocation"] = cell.level("preallocation", "off")
    if form in ("qcow2", "qed") and cell.level("cluster_size"):
        options["cluster_size"] = str(parse_bytes(cell.level("cluster_size")))
    if form == "qcow2":
        options["compat"] = "1.1"
        options["lazy_refcounts"] = cell.level("lazy_refcounts", "off")
    return options


def create_image_args(cell: Cell, filename: str, size: int) -> list[str]:
    """``qemu-img`` arguments that make the cell's image of ``size`` bytes."""
    options = ",".join(f"{name}={value}" for name, value in image_options(cell).items())
    return [
        *("create", "-q", "-f", image_format(cell)),
        *(["-o", options] if options else []),
        *("--", filename, str(size)),
    ]


def clone_image_args(image: DiskImage, base: str) -> list[str]:
    """``qemu-img`` arguments that copy the raw file ``base`` into a fresh image.

    A fresh image reads as zeroes, so none are written and preallocated room stays as it is; of a
    bare device that is not known.
    """
    zero = [] if image.device and image.format == "raw" else ["--target-is-zero"]
    formats = ["-f", "raw", "-O", image.format]
    return ["convert", "-q", "-n", *zero, *formats, "--", base, str(image.path)]


def blockdev_nodes(cell: Cell, image: DiskImage) -> tuple[dict[str, object], dict[str, object]]:
    """The file node and the format node above it, as QMP's BlockdevOptions."""
    both = {
        "cache": node_cache(cell),
        "discard": cell.level("discard", "ignore"),
        "read-only": False,
        "auto-read-only": False,
    }
    protocol: dict[str, object] = {
        "driver": image.driver,
        "node-name": FILE_NODE,
        **(image.network.options if image.network else _local_options(cell, image)),
        **both,
    }
    form = {
        "driver": image_format(cell),
        "node-name": DISK_NODE,
        "file": FILE_NODE,
        "detect-zeroes": cell.level("detect-zeroes", "off"),
        **both,
    }
    if (image.device or image.network) and image_format(cell) == "raw":
        form["size"] = image.size  # the device may be larger
    if image_format(cell) == "qcow2":
        form["lazy-refcounts"] = cell.level("lazy_refcounts", "off") == "on"
        if cell.level("l2-cache-size"):
            form["l2-cache-size"] = parse_bytes(cell.level("l2-cache-size"))
    return protocol, form


def _local_options(cell: Cell, image: DiskImage) -> dict[str, object]:
    """A file or device; a client of a server has neither way of I/O nor locks of its own."""
    aio = cell.level("aio", "threads")
    return {"filename": image.path.name, "aio": aio, "locking": "auto"}


def image_opts(disk: NetworkDisk, size: int | None = None) -> str:
    """A network disk as ``--image-opts`` of QEMU's tools takes it, cut to ``size`` bytes."""
    if size is None:
        return _flat({"driver": disk.driver, **disk.options})
    inner = {f"file.{key}": value for key, value in disk.options.items()}
    return _flat({"driver": "raw", "size": size, "file.driver": disk.driver, **inner})


def _flat(options: Mapping[str, object], prefix: str = "") -> str:
    parts = []
    for key, value in options.items():
        if isinstance(value, Mapping):
            parts.append(_flat(value, f"{prefix}{key}."))
        else:
            parts.append(f"{prefix}{key}={str(value).replace(',', ',,')}")
    return ",".join(parts)


def blockdev_args(cell: Cell, image: DiskImage, option: str = "-blockdev") -> list[str]:
    """Both nodes as arguments; the storage daemon calls the option ``--blockdev``."""
    return [part for node in blockdev_nodes(cell, image) for part in (option, _json(node))]


def has_iothread(cell: Cell) -> bool:
    return cell.level("iothread", "off") == "on"


def iothread_args(cell: Cell, option: str = "-object") -> list[str]:
    """The iothread object, when the cell has one."""
    return [option, f"iothread,id={IOTHREAD_ID}"] if has_iothread(cell) else []


def device_args(cell: Cell) -> list[str]:
    """Controller and disk as the guest sees them; the block nodes must come before."""
    name = cell.level("bus", "virtio-blk")
    where = bus(name)
    if has_iothread(cell) and not where.iothread_on:
        raise UsageError(f"a disk on {name} cannot have an iothread", "QEMU has no such property")
    disk = disk_device(cell, where)
    devices = [dict(where.controller), disk] if where.controller else [disk]
    for device in devices:
        if has_iothread(cell) and device["driver"] == where.iothread_on:
            device["iothread"] = IOTHREAD_ID
    return [part for device in devices for part in ("-device", _json(device))]


def disk_device(cell: Cell, where: Bus) -> dict[str, object]:
    """The disk alone, as the command line and QMP's ``device_add`` take it."""
    disk: dict[str, object] = {
        "driver": where.device,
        "id": DEVICE_ID,
        **(where.attach or {}),
        "drive": DISK_NODE,
        "serial": DISK_SERIAL,
        "write-cache": "off" if writes_through(cell) else "on",
    }
    if where.reports_errors:
        # By default QEMU stops the guest when the disk below is full, and nobody would notice.
        disk |= {"werror": cell.workload.option("werror", "report"), "rerror": "report"}
    return disk


def guest_disk_args(cell: Cell, image: DiskImage) -> list[str]:
    """Everything of the disk under test that a QEMU system emulator's command line needs."""
    return [*iothread_args(cell), *blockdev_args(cell, image), *device_args(cell)]


def second_disk_args(fd: int, *, device: bool, direct: bool) -> list[str]:
    """A second disk, raw, on virtio-blk, around the host's page cache where it can be: the same
    for all cells, so that what differs between them is the disk under test. It lies on a file or
    block device that is open as ``fd``, for reading and writing."""
    node: dict[str, object] = {
        "driver": "raw",
        "node-name": SECOND_NODE,
        "cache": {"direct": direct, "no-flush": False},
        "file": {
            "driver": "host_device" if device else "file",
            "filename": f"/dev/fdset/{_SECOND_FDSET}",
            "aio": "threads",
            "cache": {"direct": direct, "no-flush": False},
        },
    }
    return [
        *("-add-fd", f"fd={fd},set={_SECOND_FDSET}"),
        *("-blockdev", _json(node)),
        *("-device", f"virtio-blk-pci,drive={SECOND_NODE},serial={SECOND_SERIAL}"),
    ]


def daemon_args(cell: Cell, image: DiskImage, *, nbd_fd: int, qmp_fd: int) -> list[str]:
    """``qemu-storage-daemon`` with the disk exported over NBD.

    ``nbd_fd`` is a listening socket, ``qmp_fd`` a connected one; both are inherited. The export's
    ``writethrough`` makes the daemon flush after each write, whatever the client asks.
    """
    export: dict[str, object] = {
        "type": "nbd",
        "id": EXPORT_ID,
        "node-name": DISK_NODE,
        "name": EXPORT_NAME,
        "writable": True,
        "writethrough": writes_through(cell),
    }
    if has_iothread(cell):
        export["iothread"] = IOTHREAD_ID
    return [
        "qemu-storage-daemon",
        *("--chardev", f"socket,id=qmp,fd={qmp_fd}"),
        *("--monitor", "chardev=qmp,mode=control"),
        *iothread_args(cell, "--object"),
        *blockdev_args(cell, image, "--blockdev"),
        *("--nbd-server", f"addr.type=fd,addr.str={nbd_fd}"),
        *("--export", _json(export)),
    ]


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, separators=(",", ":"))


def _require(table: Mapping[str, _Row], name: str, what: str) -> _Row:
    if name not in table:
        raise UsageError(f"unknown {what} {name!r}", f"known: {', '.join(table)}")
    return table[name]
