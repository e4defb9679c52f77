"""Disks that come into a guest with a slot while it runs, and go: one at a time, each new to it.

The kernel drops all that it knows of a disk when that is taken out: its cache hangs on the disk.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from diskproof.crash.writers.guest_disk import throwaway_cell
from diskproof.drive import DiskImage
from diskproof.errors import RunFailure
from diskproof.guest.ours import boot, channel
from diskproof.qemu.disk import DEVICE_ID, blockdev_nodes, bus, disk_device
from diskproof.qemu.machine import SLOT_ID

DEVICE = "/dev/sda"
_SYSFS = "/sys/block/sda"
_SECONDS = 120.0  # on a busy host, under emulation
_PAUSE = 0.003
_MAX_BYTES = 4096


@contextmanager
def start_disk(guest: boot.Guest, image: Path, form: str, serial: str) -> Iterator[str]:
    """The device in the guest of an image in QEMU's folder, where nothing is worth a flush.

    After a block that ends well it is gone; after another one the guest is good for nothing. Raises
    RunFailure ``qemu`` when QEMU cannot open it, ``guest`` when the guest does not find it.
    """
    bus_name = "virtio-scsi"
    cell = throwaway_cell(form, bus_name)
    nodes = blockdev_nodes(cell, DiskImage(Path(image.name), form, 0))
    for node in nodes:
        guest.qmp.execute("blockdev-add", node)
    where = {"bus": f"{SLOT_ID}.0", "serial": serial}
    guest.qmp.execute("device_add", {**disk_device(cell, bus(bus_name)), **where})
    _wait_until(lambda: _is_ready(guest, serial), "the guest does not find its disk")
    yield DEVICE
    guest.qmp.execute("device_del", {"id": DEVICE_ID})
    _wait_until(lambda: _is_deleted(guest), "QEMU does not take the disk out")
    for node in reversed(nodes):
        guest.qmp.execute("blockdev-del", {"node-name": node["node-name"]})
    _wait_until(lambda: _read(guest, "size") is None, "the guest does not let its disk go")


def _is_ready(guest: boot.Guest, serial: str) -> bool:
    """It is this disk, and the kernel has looked for partitions: from then on it can be opened."""
    page = _read(guest, "device/vpd_pg80")  # four bytes of header, then the serial
    if page is None or page[4:].decode("ascii", "replace").strip() != serial:
        return False
    reads = (_read(guest, "stat") or b"").split()[:1]
    return reads != [] and int(reads[0]) > 0


def _read(guest: boot.Guest, name: str) -> bytes | None:
    """A file of the disk in sysfs; None when there is none."""
    try:
        return guest.channel.read_file(f"{_SYSFS}/{name}", _MAX_BYTES, _SECONDS)
    except channel.GuestGone:
        raise
    except RunFailure:
        return None


def _is_deleted(guest: boot.Guest) -> bool:
    event = guest.qmp.wait_event(["DEVICE_DELETED"], _SECONDS)
    return event is not None and event["data"].get("device") == DEVICE_ID


def _wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not is_so():
        if time.monotonic() >= deadline:
            raise RunFailure("guest", what, f"it had {_SECONDS:.0f} s")
        time.sleep(_PAUSE)
