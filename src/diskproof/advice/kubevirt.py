"""KubeVirt's words for a disk: one item of ``spec.template.spec.domain.devices.disks``."""

from collections.abc import Mapping

from diskproof.advice.dialect import Dialect, Paste, Target, Unsayable
from diskproof.advice.documents import dump_yaml, find_at, load_yaml, text_at
from diskproof.advice.sayable import find_unsayable, sayable
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Levels
from diskproof.study.factors import CACHE_MODES, DIRECT, FACTOR_BY_NAME

SOURCE = (
    "KubeVirt v1.9.0-beta.0-1264-gd923fdb815 (2026-08-22): converter.go SetDriverCacheMode and "
    "SetOptimalIOMode, converter/storage/disk.go, storage/admitters/disks.go; VEP 326 for 1.10"
)
BUSES = {"virtio-blk": "virtio", "virtio-scsi": "scsi", "ahci": "sata"}
DEVICES = ("disk", "lun", "cdrom")
_LATER = ("directsync", "unsafe")
"""Cache modes that VEP 326 announces for 1.10; the admission of 1.9 takes the other three."""
_IMAGE = "a volume brings its image as it is: raw on a claim, and nothing of it is said by the disk"

WORDS = {
    "cache": sayable(tuple(CACHE_MODES), "KubeVirt knows the five modes", "none"),
    "aio": sayable(("threads", "native"), "io is native or threads", "threads"),
    "discard": sayable(
        ("unmap",),
        "virt-launcher always sets discard=unmap, but for volumes that CDI preallocated",
        "unmap",
    ),
    "detect-zeroes": sayable(("off",), "KubeVirt has no key for it and never sets it", "off"),
    "iothread": sayable(("off", "on"), "dedicatedIOThread is true or false", "off"),
    "bus": sayable(tuple(BUSES), "a bus is virtio, scsi or sata", "virtio-blk", ide="ahci"),
    "format": sayable(("raw",), _IMAGE, "raw"),
    **{
        factor: sayable((FACTOR_BY_NAME[factor].default,), _IMAGE, FACTOR_BY_NAME[factor].default)
        for factor in ("preallocation", "cluster_size", "lazy_refcounts", "l2-cache-size")
    },
}


def find_obstacles(levels: Levels, target: Target) -> tuple[Unsayable, ...]:
    """What KubeVirt cannot say, what its admission refuses, and what libvirt would not start."""
    found = list(find_unsayable(levels, WORDS))
    cache, aio = levels.get("cache", ""), levels.get("aio")
    if aio == "io_uring" and cache in DIRECT:
        found = [
            Unsayable("aio", aio, WORDS["aio"].reason, "native") if item.factor == "aio" else item
            for item in found
        ]
    if aio == "native" and cache in CACHE_MODES and cache not in DIRECT:
        reason = f"libvirt starts io=native with cache none or directsync only, not with {cache}"
        found.append(Unsayable("aio", aio, reason, "threads"))
    if levels.get("iothread") == "on" and levels.get("bus", "virtio-blk") != "virtio-blk":
        reason = "KubeVirt's admission refuses dedicatedIOThread on a bus other than virtio"
        found.append(Unsayable("iothread", "on", reason, "off"))
    cache_is_shared = find_at(_existing(target), "shareable") is True
    if cache_is_shared and cache in CACHE_MODES and cache not in ("none", "directsync"):
        reason = "a shareable disk has to have cache none (from 1.10 directsync as well)"
        found.append(Unsayable("cache", cache, reason, "none"))
    return tuple(found)


def write(levels: Levels, target: Target) -> Paste:
    """The whole item, with everything in it that was there. Raises ValueError for what
    ``find_obstacles`` finds and UsageError for an existing item that is none."""
    if obstacles := find_obstacles(levels, target):
        raise ValueError(f"{obstacles[0].factor}={obstacles[0].level}: {obstacles[0].reason}")
    item: dict[str, object] = {"name": target.disk or "DISK", **_existing(target)}
    device = next((word for word in DEVICES if word in item), "disk")
    inside = item.get(device)
    bus = {"bus": BUSES[levels["bus"]]} if "bus" in levels else {}
    item[device] = {**(inside if isinstance(inside, dict) else {}), **bus}
    if cache := levels.get("cache"):
        item["cache"] = cache
        if "aio" not in levels and cache not in DIRECT and item.get("io") == "native":
            item.pop("io")  # libvirt would not start it
    if aio := levels.get("aio"):
        item["io"] = aio
    if iothread := levels.get("iothread"):
        item["dedicatedIOThread"] = iothread == "on"
    machine = target.machine or "NAME"
    return Paste(
        dump_yaml([item]),
        where=f"spec.template.spec.domain.devices.disks of VirtualMachine {machine}, in place of "
        f"the item of that name (kubectl edit vm {machine.partition('/')[2] or machine})",
        takes_effect="when the machine is restarted (virtctl restart); until then its condition "
        "RestartRequired is true",
        notes=_notes(levels),
    )


def _notes(levels: Levels) -> tuple[str, ...]:
    notes = []
    cache = levels.get("cache", "")
    if cache == "none":
        notes.append(
            "where the storage refuses O_DIRECT the machine does not start; without the key it "
            "would start with writethrough, and no object would say so"
        )
    if cache in _LATER:
        notes.append(f"KubeVirt before 1.10 refuses cache: {cache} (VEP 326)")
    if cache in CACHE_MODES and cache not in DIRECT:
        notes.append(
            f"live migration: libvirt calls cache={cache} unsafe to migrate; such a machine moves "
            "only where the storage is known to be coherent or with unsafeMigrationOverride"
        )
    if levels.get("iothread") == "on":
        notes.append(
            "with one dedicated thread every other virtio disk of the machine gets a shared one"
        )
    return tuple(notes)


def read(text: str, target: Target) -> Levels:
    """The levels of one item. A factor without a key is not known, but for those that KubeVirt
    gives every disk. Raises UsageError for a text that is no item."""
    return read_item(_read_item(text, "the disk"))


def read_item(item: Mapping[str, object]) -> Levels:
    """The levels of one item, as ``read`` tells them."""
    levels = {"cache": text_at(item, "cache"), "aio": text_at(item, "io")}
    bus = next((text_at(item, word, "bus") for word in DEVICES if word in item), "")
    levels["bus"] = next((name for name, word in BUSES.items() if word == bus), "")
    if isinstance(dedicated := item.get("dedicatedIOThread"), bool):
        levels["iothread"] = "on" if dedicated else "off"
    found = {factor: level for factor, level in levels.items() if level}
    return found if "cdrom" in item else {**found, "discard": "unmap", "detect-zeroes": "off"}


def defaults(target: Target) -> Mapping[str, str]:
    """What virt-launcher gives a disk without keys on x86-64, where O_DIRECT works (else the cache
    is writethrough and io is QEMU's threads). A file that is preallocated has io native too."""
    return {
        "format": "raw",
        "cache": "none" if target.direct else "writethrough",
        "aio": "native" if target.block and target.direct else "threads",
        "discard": "unmap",
        "detect-zeroes": "off",
        "iothread": "off",
        "bus": "ahci",
    }


def _existing(target: Target) -> dict[str, object]:
    return _read_item(target.existing, "the disk as found") if target.existing.strip() else {}


def _read_item(text: str, name: str) -> dict[str, object]:
    """The one disk of a YAML text: a mapping, or a list of one."""
    found = load_yaml(text, name)
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, dict):
        raise UsageError(f"{name}: no disk of KubeVirt", "one item of devices.disks is needed")
    return found


DIALECT = Dialect("kubevirt", "KubeVirt", SOURCE, find_obstacles, write, read, defaults, "1.9")

MAPPING = (
    ("cache", "cache: none|writethrough|writeback, from 1.10 directsync|unsafe",
     "none where O_DIRECT works, else writethrough"),
    ("aio", "io: native|threads", "native on a block device or preallocated file, cache none"),
    ("discard", "no key", "unmap, but for volumes that CDI preallocated"),
    ("detect-zeroes", "no key", "off"),
    ("iothread", "dedicatedIOThread: true (virtio), ioThreadsPolicy of the machine", "off"),
    ("bus", "disk: {bus: virtio|scsi|sata}", "sata on x86-64, virtio elsewhere"),
    ("queues", "blockMultiQueue: true of the machine (virtio)", "1 a disk"),
    ("l2-cache-size", "no key", "QEMU's"),
    ("format, preallocation", "the volume's (CDI: preallocation: true)", "raw"),
)  # fmt: skip
"""Rows of the table of docs/advise.md: factor, KubeVirt's words, what no words give."""
