"""Incus: ``incus config device override VM root io.cache=...``, and back."""

import shlex
from collections.abc import Iterator
from dataclasses import replace

from diskproof.advice.dialect import Dialect, Paste, Target, Unsayable
from diskproof.advice.incus_device import (
    BUSES,
    CACHES,
    SOURCE,
    Device,
    find_aio,
    find_levels,
    parse_device,
)
from diskproof.advice.sayable import find_unsayable, sayable
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Levels
from diskproof.study.factors import FACTOR_BY_NAME

MAPPING = (
    ("cache", "io.cache=none|writeback|unsafe; absent: none; on files of ZFS and Btrfs writeback; "
     "for RBD writeback; for a host's block device and TrueNAS unsafe",
     "driver_qemu.go addDriveConfig; driver_truenas.go Info"),
    ("aio", "cannot be said: threads with io.cache=writeback or unsafe, on ZFS and Btrfs files and "
     "on host devices; io_uring in dir, lvm and linstor pools; else native",
     "driver_qemu.go addDriveConfig; disk.go detectVMPoolMountOpts"),
    ("discard", "always unmap", "driver_qemu.go addDriveConfig"),
    ("detect-zeroes", "always off", "driver_qemu.go addDriveConfig"),
    ("iothread", "always off", "driver_qemu.go, driver_qemu_templates.go: none is made"),
    ("bus", "io.bus=virtio-scsi|virtio-blk|nvme; absent: virtio-scsi", "disk.go validateConfig"),
    ("format", "the pool decides: raw", "driver_qemu.go addDriveConfig"),
    ("preallocation", "the pool decides", "storage/drivers/driver_*_volumes.go"),
    ("l2-cache-size", "cannot be said", "driver_qemu.go addDriveConfig"),
)  # fmt: skip
"""A factor, how it is written here, and the file and function that it was read from."""

TAKES_EFFECT = (
    "at the start in the last line: do not set it while the machine runs, for Incus takes the disk "
    "out of it and plugs it in again, and the root disk does not come back (seen with 6.0.4)"
)
_L2 = FACTOR_BY_NAME["l2-cache-size"].default
_TABLE = {
    "cache": sayable(
        CACHES, "Incus has io.cache=none, writeback and unsafe", "none", writethrough="writeback"
    ),
    "bus": sayable(BUSES, "Incus has io.bus=virtio-scsi, virtio-blk and nvme", "virtio-scsi"),
    "discard": sayable(("unmap",), "Incus passes every discard on", "unmap"),
    "detect-zeroes": sayable(("off",), "Incus does not set it", "off"),
    "iothread": sayable(("off",), "Incus makes no I/O threads", "off"),
    "format": sayable(("raw",), "the pool decides, and makes raw volumes", "raw"),
    "preallocation": sayable(("off",), "the pool decides", "off"),
    "l2-cache-size": sayable((_L2,), "Incus does not set it", _L2),
}


def _find_device(target: Target) -> Device:
    """The device that a line is for. Raises ValueError where what was found cannot be read."""
    if target.existing:
        found = parse_device(target.existing)
        filesystem = target.filesystem or found.filesystem
        return replace(found, filesystem=filesystem) if found.is_file else found
    name = target.disk or ("data" if target.image else "root")
    if not target.image:
        return Device(name, {"type": "disk", "path": "/", "pool": "default"}, "profile")
    if target.block and not target.image.startswith("/dev/"):
        return Device(name, {"type": "disk", "source": target.image, "pool": "POOL"})
    config = {"type": "disk", "source": target.image}
    return Device(name, config, filesystem=target.filesystem)


def _find_obstacles(levels: Levels, target: Target) -> Iterator[Unsayable]:
    yield from find_unsayable(levels, _TABLE)
    try:
        device = _find_device(target)
    except ValueError as error:
        yield Unsayable("image", target.image, str(error))
        return
    aio, cache = levels.get("aio"), levels.get("cache") or find_levels(device)[0].get("cache", "")
    if aio is None or device.is_rbd or cache not in CACHES:
        return
    found = find_aio(device, cache)
    if found and found != aio:
        reason = f"Incus has no key for it, and takes {found} with io.cache={cache} there"
        yield Unsayable("aio", aio, reason, found)
    elif not found and aio == "threads":
        reason = "Incus has no key for it, and takes io_uring or native with io.cache=none"
        yield Unsayable("aio", aio, reason, "io_uring")


def find_obstacles(levels: Levels, target: Target) -> tuple[Unsayable, ...]:
    """What of a cell no device of Incus says."""
    return tuple(_find_obstacles(levels, target))


def write(levels: Levels, target: Target) -> Paste:
    """The command that brings a device to the levels; keys that it does not name stay. Raises
    ValueError for what cannot be said."""
    if obstacles := find_obstacles(levels, target):
        raise ValueError("; ".join(f"{each.factor}: {each.reason}" for each in obstacles))
    device = _find_device(target)
    in_force, assumed = find_levels(device)
    new = not target.existing
    keys = [
        f"io.{factor}={levels[factor]}"
        for factor in ("cache", "bus")
        if factor in levels and (new or in_force.get(factor) != levels[factor])
    ]
    if not keys:  # as it is already: said all the same, so that it stays when a default changes
        keys = [f"io.{name}={levels[name]}" for name in ("cache", "bus") if name in levels]
    if not keys:
        raise ValueError("cache and bus are all that a device of Incus says, and neither is asked")
    machine = target.machine or "VM"
    own = device.origin == "local" or (not device.origin and not device.is_root)
    verb, words = ("set" if own else "override"), keys
    if new and target.image:
        kept = (f"{name}={value}" for name, value in device.config.items() if name != "type")
        verb, words = "add", ["disk", *kept, *keys]
    names = [shlex.quote(machine), shlex.quote(device.name)]
    text = " ".join([device.program, "config device", verb, *names, *map(shlex.quote, words)])
    notes = tuple(_notes(device, levels, verb))
    if verb == "add":
        return Paste(text, "a shell of the host", "at once", notes=notes)
    around = (f"{device.program} {word} {names[0]}" for word in ("stop", "start"))
    return Paste(f"\n{text}\n".join(around), "a shell of the host", TAKES_EFFECT, notes=notes)


def _notes(device: Device, levels: Levels, verb: str) -> Iterator[str]:
    if not device.origin and verb != "add":
        yield "set is for a device of the instance's own, override for one from a profile"
    if "aio" in levels and not device.is_rbd and not find_aio(device, levels.get("cache", "none")):
        yield (
            "aio is no key of Incus: the pool decides (io_uring in dir, lvm and linstor, native in "
            "zfs); what runs is on QEMU's command socket"
        )
    if levels.get("cache") == "none" and device.without_direct:
        yield "io.cache=none has to stay set: without it Incus starts this device with cache=unsafe"


def read(text: str, target: Target) -> Levels:
    """The levels of a device in a command as ``write`` makes it, or in the lines of a device as
    it was found. Raises UsageError."""
    try:
        lines = [line for line in text.splitlines() if line.split()[1:2] == ["config"]]
        if not lines:
            return find_levels(parse_device(text))[0]
        words = shlex.split(lines[0])
        if words[1:3] != ["config", "device"] or len(words) < 6:
            raise ValueError(f"{text[:60]!r} is no incus config device command")
        device = _find_device(target)
        told = dict(word.partition("=")[::2] for word in words[6:] if "=" in word)
        if words[3] not in ("set", "override", "add"):
            raise ValueError(f"incus config device {words[3][:20]} sets nothing")
        device = replace(device, config={**device.config, **told})
        return find_levels(device)[0]
    except ValueError as error:
        raise UsageError("not a device of Incus", str(error)) from error


def find_defaults(target: Target) -> dict[str, str]:
    """What a device without io.cache gets: a host's block device or an image file as it was given,
    else the root disk of a ``dir`` pool on ``target.filesystem`` (or of a pool of that name; its
    LVM is thin or not). The volume of a machine is raw in all of them."""
    pools = ("lvm", "lvmcluster", "linstor", "truenas", "ceph")
    driver = "lvm" if target.filesystem == "lvmthin" else target.filesystem
    if target.block and driver in (*pools, "zfs"):
        device = Device("root", {"pool": "default", "path": "/"}, driver=driver)
    elif target.block:
        device = Device("data", {"source": "/dev/DEVICE"})
    else:
        config = {"pool": "default", "path": "/"}
        device = Device("root", config, driver="dir", filesystem=target.filesystem or "ext4")
    return {**find_levels(device)[0], "format": "raw"}


DIALECT = Dialect(
    name="incus",
    title="Incus",
    source=f"{SOURCE}; disk.go startVM; storage/drivers/driver_*.go",
    find_obstacles=find_obstacles,
    write=write,
    read=read,
    defaults=find_defaults,
    version="7",
)
