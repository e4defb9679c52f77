"""Nova's words (OpenStack, libvirt driver): nova.conf of the compute host, for every disk of a
source type, and the properties of the image."""

import re
from collections.abc import Iterator, Mapping

from diskproof.advice.dialect import Dialect, Paste, Target, Unsayable
from diskproof.advice.nova_conf import (
    Sections,
    read_flag,
    read_list,
    read_sections,
    render_sections,
)
from diskproof.advice.sayable import Sayable, find_unsayable, sayable
from diskproof.records.virtual_machines import Levels
from diskproof.study.factors import CACHE_MODES, DIRECT, FACTOR_BY_NAME

SOURCE = (
    "Nova 33.0.0-373-g00a030403f (2026-08-21): virt/libvirt/driver.py _set_cache_mode, "
    "imagebackend.py, volume/*.py, config.py LibvirtConfigGuestDisk, conf/libvirt.py; LP 1841363"
)
BUSES = {
    "virtio-blk": {"hw_disk_bus": "virtio"},
    "virtio-scsi": {"hw_disk_bus": "scsi", "hw_scsi_model": "virtio-scsi"},
    "ahci": {"hw_disk_bus": "sata"},
    "ide": {"hw_disk_bus": "ide"},
}
CACHES, DISCARD = "disk_cachemodes", "hw_disk_discard"
IMAGES, SPACE, VOLUME_AIO = "images_type", "preallocate_images", "use_default_aio_mode_for_volumes"
"""Keys of [libvirt], but for ``preallocate_images``, which is of [DEFAULT]."""
_FORMATS = {"qcow2": ("qcow2",), "raw": ("flat", "raw")}
_SPACES = {"off": "none", "falloc": "space"}
_PROPERTY = re.compile(r"--property\s+(hw_\w+)=([\w-]+)")
_FIXED = "Nova has no word for it"
_NO_THREAD = (
    "Nova makes one I/O thread an instance (from 2026.1) and gives it to no disk: its disk element "
    "has no iothread"
)


def source_type(target: Target) -> str:
    """What libvirt calls the kind of source, which is what ``disk_cachemodes`` goes by."""
    if target.block:
        return "block"
    return "network" if target.image.startswith(("rbd:", "rbd/", "nbd:", "iscsi:")) else "file"


def _words(kind: str) -> dict[str, Sayable]:
    default = {factor: FACTOR_BY_NAME[factor].default for factor in
               ("cluster_size", "lazy_refcounts", "l2-cache-size")}  # fmt: skip
    local = kind == "file"
    return {
        "cache": sayable(tuple(CACHE_MODES), "libvirt knows the five modes", "none"),
        "aio": sayable(
            ("threads",) if kind == "network" else ("threads", "native"),
            "librbd submits by itself" if kind == "network" else "Nova's driver asks for native "
            "or for nothing, which is QEMU's threads",
            "threads",
        ),
        "discard": sayable(("ignore", "unmap"), f"{DISCARD} is ignore or unmap", "ignore"),
        "detect-zeroes": sayable(("off",), _FIXED, "off"),
        "iothread": sayable(("off",), _NO_THREAD, "off"),
        "bus": sayable(tuple(BUSES), "hw_disk_bus is virtio, scsi, sata or ide", "virtio-blk"),
        "format": sayable(tuple(_FORMATS) if local else ("raw",), "Nova's images of this kind are "
                          f"{'qcow2 or raw' if local else 'raw'}", "raw"),
        "preallocation": sayable(("off", "falloc") if local else ("off",), f"{SPACE} is none or "
                                 "space, for files", "off", full="falloc" if local else "off"),
        **{factor: sayable((level,), _FIXED, level) for factor, level in default.items()},
    }  # fmt: skip


def find_obstacles(levels: Levels, target: Target) -> tuple[Unsayable, ...]:
    """What Nova has no words for, and the I/O mode that its driver would not choose."""
    kind = source_type(target)
    found = list(find_unsayable(levels, _words(kind)))
    if not any(item.factor in ("aio", "cache", "preallocation") for item in found):
        found += _find_other_aio(levels, kind)
    return tuple(found)


def _find_other_aio(levels: Levels, kind: str) -> Iterator[Unsayable]:
    """Native falls back to threads without direct I/O (LP 1841363); for a file Nova asks for it
    where it reserved the space, and only there."""
    aio, cache = levels.get("aio"), levels.get("cache")
    if aio == "native" and cache is not None and cache not in DIRECT:
        reason = f"with cache={cache} Nova's driver falls back to threads, with a line in its log"
        yield Unsayable("aio", "native", reason, "threads")
    elif kind == "file" and aio == "native" and levels.get("preallocation") == "off":
        reason = f"Nova asks for native on a file only with {SPACE} = space"
        yield Unsayable("aio", "native", reason, "threads")
    elif kind == "file" and aio == "threads" and levels.get("preallocation") == "falloc":
        reason = f"with {SPACE} = space and direct I/O Nova always asks for native"
        yield from [Unsayable("aio", aio, reason, "native")] * (cache is None or cache in DIRECT)


def write(levels: Levels, target: Target) -> Paste:
    """The part of nova.conf, with everything in it that was there, and the image's properties as
    a comment. Raises ValueError for what ``find_obstacles`` finds and UsageError for an existing
    part that is none."""
    if obstacles := find_obstacles(levels, target):
        raise ValueError(f"{obstacles[0].factor}={obstacles[0].level}: {obstacles[0].reason}")
    sections = read_sections(target.existing, "the part of nova.conf as found")
    text = render_sections(_change(levels, source_type(target), sections))
    if bus := levels.get("bus"):
        words = " ".join(f"--property {key}={value}" for key, value in BUSES[bus].items())
        text += f"# the bus is the image's:\n# openstack image set {words} IMAGE\n"
    return Paste(
        text,
        where="/etc/nova/nova.conf of each compute host; it is for every instance there",
        takes_effect="after nova-compute is restarted, for an instance when it is started anew "
        "(openstack server reboot --hard); properties of an image are for servers made after it",
        notes=tuple(_notes(levels, source_type(target))),
    )


def _change(levels: Levels, kind: str, sections: Sections) -> Sections:
    """What is to stand in each section."""
    default = dict(sections.get("DEFAULT", {}))
    libvirt = dict(sections.get("libvirt", {}))
    if cache := levels.get("cache"):
        entries = dict(item.partition("=")[::2] for item in read_list(libvirt.get(CACHES, "")))
        entries[kind] = cache
        libvirt[CACHES] = ",".join(f"{key}={value}" for key, value in entries.items())
    if discard := levels.get("discard"):
        libvirt[DISCARD] = discard
    if kind == "file" and (form := levels.get("format")):
        libvirt[IMAGES] = _FORMATS[form][0]
    aio, space = levels.get("aio"), levels.get("preallocation")
    if kind == "file" and (space or aio):
        wanted = space or ("falloc" if aio == "native" else "off")
        default[SPACE] = _SPACES[wanted]
    if kind == "block" and aio:
        libvirt[VOLUME_AIO] = "false" if aio == "native" else "true"
    return {**sections, "DEFAULT": default, "libvirt": libvirt}


def _notes(levels: Levels, kind: str) -> Iterator[str]:
    cache = levels.get("cache", "")
    if kind == "network" and cache:
        yield (
            f"cache={cache} of RBD is librbd's own cache, not the host's page cache: no verdict of "
            "a file or a device holds for it"
        )
    if cache in CACHE_MODES and cache not in DIRECT and kind != "network":
        yield f"libvirt calls a live migration with cache={cache} unsafe and refuses it"
    if cache:
        yield f"a multi-attached volume has cache=none whatever {CACHES} says"
    if kind == "block" and levels.get("aio"):
        yield f"{VOLUME_AIO} is for iSCSI, FC and NFS volumes; an image on LVM has native always"
    if levels.get("discard"):
        yield f"{DISCARD} is for Nova's own images; a Cinder volume has what its backend reports"
    if levels.get("format") and kind == "file":
        yield f"{IMAGES} is for new instances: leave it where a host has instances of another"


def read(text: str, target: Target) -> Levels:
    """The levels that a part of nova.conf gives a disk of the target's kind, by the rules of its
    driver. Raises UsageError for what is no nova.conf."""
    kind = source_type(target)
    sections = read_sections(text, "nova.conf")
    libvirt = sections.get("libvirt", {})
    levels = {"detect-zeroes": "off", "iothread": "off"}
    entries = dict(item.partition("=")[::2] for item in read_list(libvirt.get(CACHES, "")))
    if (cache := entries.get(kind, "")) in CACHE_MODES:
        levels["cache"] = cache
    elif cache == "default":
        levels["cache"] = "writeback"  # what libvirt and QEMU take that word for
    if (discard := libvirt.get(DISCARD, "")) in ("ignore", "unmap"):
        levels["discard"] = discard
    if kind == "file":
        levels.update(_read_file_keys(sections))
    properties = dict(_PROPERTY.findall(text))
    levels.update(("bus", bus) for bus, words in BUSES.items() if words == properties)
    if aio := _read_aio(kind, sections, levels):
        levels["aio"] = aio
    return levels


def _read_file_keys(sections: Sections) -> Iterator[tuple[str, str]]:
    images = sections.get("libvirt", {}).get(IMAGES, "")
    yield from (("format", form) for form, words in _FORMATS.items() if images in words)
    space = sections.get("DEFAULT", {}).get(SPACE, "")
    yield from (("preallocation", level) for level, word in _SPACES.items() if space == word)


def _read_aio(kind: str, sections: Sections, levels: Levels) -> str:
    """What the driver asks for, empty where that hangs on what the text does not say."""
    cache = levels.get("cache")
    if kind == "network" or cache is None:
        return ""
    if kind == "file":
        native = levels.get("preallocation") == "falloc"
        known = "preallocation" in levels
    else:
        value = sections.get("libvirt", {}).get(VOLUME_AIO)
        native, known = not read_flag(value or "", False), value is not None
    if cache not in DIRECT:
        return "threads"
    return ("native" if native else "threads") if known else ""


def defaults(target: Target) -> Mapping[str, str]:
    """What a new instance's own disk has without keys: cache none where O_DIRECT works in
    Nova's folder of instances, else writeback."""
    kind = source_type(target)
    levels = {
        "format": "qcow2" if kind == "file" else "raw",
        "cache": "none" if target.direct else "writeback",
        "aio": "native" if kind == "block" and target.direct else "threads",
        "discard": "ignore",
        "detect-zeroes": "off",
        "iothread": "off",
        "bus": "virtio-blk",
    }
    return levels | ({"preallocation": "off"} if kind == "file" else {})


DIALECT = Dialect("nova", "OpenStack Nova", SOURCE, find_obstacles, write, read, defaults, "33")

MAPPING = (
    ("cache", "[libvirt] disk_cachemodes = file=none,block=none,network=writeback",
     "none, for Nova's own images writeback where O_DIRECT is refused"),
    ("aio", "[DEFAULT] preallocate_images = space; [libvirt] use_default_aio_mode_for_volumes",
     "threads on files; native on LVM, iSCSI, FC and NFS; threads without direct I/O"),
    ("discard", "[libvirt] hw_disk_discard = ignore|unmap (a volume: its backend)", "ignore"),
    ("detect-zeroes", "no key", "off"),
    ("iothread", "no key; one is made from 2026.1 and no disk has it", "off"),
    ("bus", "image: hw_disk_bus=virtio|scsi|sata|ide, hw_scsi_model=virtio-scsi", "virtio"),
    ("format, preallocation", "[libvirt] images_type, [DEFAULT] preallocate_images", "qcow2, none"),
    ("l2-cache-size", "no key", "QEMU's"),
)  # fmt: skip
"""Rows of the table of docs/advise.md: factor, Nova's words, what no words give."""
