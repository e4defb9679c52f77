"""The words of virt-install: ``--disk`` with what it needs beside it.

Rules: virt-install 4.1 and 5.0 (virtinst/cli.py ParserDisk, devices/disk.py ``set_defaults``), and
the XML that 4.1 prints (tests/integration/test_advice_libvirt.py).
"""

import re
import shlex
from collections.abc import Iterator

from diskproof.advice import libvirt
from diskproof.advice.dialect import Dialect, Paste, Target, Unsayable
from diskproof.advice.libvirt_levels import (
    BUSES,
    DRIVER_KEYS,
    QEMU_DEFAULTS,
    metadata_cache_bytes,
    read_written,
)
from diskproof.advice.libvirt_xml import DiskParts, make_element
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Levels

_CACHE_SIZE = "./driver/metadata_cache/max_size"
_MAX_LINE = 64 << 10
_CONTROLLER = "type=scsi,model=virtio-scsi"


def find_obstacles(levels: Levels, target: Target) -> tuple[Unsayable, ...]:
    """virt-install says what libvirt does; it makes new machines, so nothing is there yet."""
    return libvirt.find_obstacles(levels, Target(target.image, target.block))


def write(levels: Levels, target: Target) -> Paste:
    """The options of a disk at these levels, for an image that is there; ``create`` makes it."""
    if found := find_obstacles(levels, target):
        raise ValueError("; ".join(f"{each.factor}={each.level}: {each.reason}" for each in found))
    levels = {"format": libvirt.image_format(levels, target), **levels}
    bus = BUSES[levels.get("bus", "virtio-blk")][0]
    with_thread = levels.get("iothread") == "on"
    words = ["--disk", ",".join(_disk_options(levels, target, bus))]
    if bus == "scsi":
        thread = ",driver.iothread=1" if with_thread else ""
        words += ["--controller", f"{_CONTROLLER}{thread}"]
    if with_thread:
        words += ["--iothreads", "1"]
    return Paste(
        text=shlex.join(words),
        where="virt-install ...",
        takes_effect="when the machine is installed",
        create=libvirt.make_image(levels, target),
        notes=tuple(_find_notes(levels, target)),
    )


def _disk_options(levels: Levels, target: Target, bus: str) -> Iterator[str]:
    yield f"path={_quote(libvirt.image_path(levels, target))}"
    yield f"target.bus={bus}"
    if target.disk:
        yield f"target.dev={target.disk}"
    yield "driver.name=qemu"
    for name, key in DRIVER_KEYS.items():
        if name in levels:
            yield f"driver.{key}={levels[name]}"
    if levels.get("iothread") == "on" and bus == "virtio":
        yield "driver.iothread=1"
    if "l2-cache-size" in levels and levels["format"] == "qcow2":
        size = metadata_cache_bytes(levels["l2-cache-size"], levels.get("cluster_size", ""))
        yield f"xpath1.set={_CACHE_SIZE},xpath1.value={size}"


def _quote(path: str) -> str:
    """virt-install splits at commas as a shell does at blanks (``parse_optstr_tuples``)."""
    return re.sub(r"([,'\"\\])", r"\\\1", path)


def _find_notes(levels: Levels, target: Target) -> Iterator[str]:
    prealloc = levels.get("preallocation", "off")
    if not target.block and levels.get("cluster_size", "64K") == "64K":
        sparse = (
            {"off": "yes", "falloc": "no"}.get(prealloc) if levels.get("format") == "raw" else ""
        )
        if sparse:
            yield (
                "virt-install makes the image itself, instead of qemu-img, with "
                f"size=GIBIBYTES,format=raw,sparse={sparse} in --disk"
            )
    if target.block and not {"cache", "aio", "discard"} <= set(levels):
        yield "what is not said of a block device, virt-install sets: none, native, unmap"
    if "discard" not in levels and not target.block:
        yield "virt-install sets discard=unmap by itself for a sparse image that it makes"
    if levels.get("cache") in ("writethrough", "directsync"):
        yield libvirt.WRITE_THROUGH
    if "l2-cache-size" in levels and levels["format"] == "qcow2":
        yield "max_size is of all metadata caches: the L2 cache and four clusters"


def read(text: str, target: Target) -> dict[str, str]:
    """The levels of the options. Raises UsageError where there is no --disk in them, or one that
    cannot be read."""
    if len(text) > _MAX_LINE:
        raise UsageError("these options are too long", f"{_MAX_LINE} characters at most")
    try:
        words = shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise UsageError("these options cannot be read", str(error)) from None
    disk = _find_option(words, "--disk")
    if disk is None:
        raise UsageError("there is no --disk in it")
    keys = _split(disk)
    thread = "driver.iothread" in _split(_find_option(words, "--controller") or "")
    return _read_keys(keys, thread)


def _find_option(words: list[str], name: str) -> str | None:
    for at, word in enumerate(words):
        if word == name and at + 1 < len(words):
            return words[at + 1]
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
    return None


def _split(option: str) -> dict[str, str]:
    """Keys and values. Raises UsageError for quotes without an end."""
    splitter = shlex.shlex(option, posix=True)
    splitter.commenters, splitter.whitespace, splitter.whitespace_split = "", ",", True
    try:
        pairs = [piece.partition("=")[::2] for piece in splitter]
    except ValueError as error:
        raise UsageError("these options cannot be read", str(error)) from None
    return {_LONG.get(key, key): value for key, value in pairs}


_LONG = {
    "bus": "target.bus",
    "cache": "driver.cache",
    "io": "driver.io",
    "discard": "driver.discard",
    "detect_zeroes": "driver.detect_zeroes",
    "format": "driver.type",
    "driver_type": "driver.type",
}


def _read_keys(keys: dict[str, str], controller_thread: bool) -> dict[str, str]:
    """The options as the element that they become, whose levels are libvirt's."""
    attributes = {
        key.removeprefix("driver."): value
        for key, value in keys.items()
        if re.fullmatch(r"driver\.[a-z_]+", key)
    }
    driver = make_element("driver", attributes)
    size = keys.get("xpath1.value") if keys.get("xpath1.set") == _CACHE_SIZE else None
    size = size or keys.get("driver.metadata_cache.max_size")
    if size:
        found = make_element("max_size", {"unit": "bytes"})
        found.text = size
        driver.append(make_element("metadata_cache", {}, found))
    place = make_element("target", {"bus": keys.get("target.bus", "")})
    disk = make_element("disk", {}, driver, place)
    model = make_element("driver", {"iothread": "1"} if controller_thread else {})
    controller = make_element("controller", {"type": "scsi", "model": "virtio-scsi"}, model)
    return read_written(DiskParts(disk, controller))


def find_defaults(target: Target) -> dict[str, str]:
    """Of a new disk: a block device gets none, native and unmap; an image that virt-install makes
    is sparse, and then gets unmap; its metadata are preallocated and its refcounts lazy
    (virtinst/storage.py validate, install). virt-manager makes disks by the same code."""
    levels = {**QEMU_DEFAULTS, "iothread": "off", "discard": "unmap", "bus": "virtio-blk"}
    if target.block:
        return levels | {"cache": "none", "aio": "native"}
    return levels | {"format": "qcow2", "preallocation": "metadata", "lazy_refcounts": "on"}


DIALECT = Dialect(
    name="virt-install",
    title="virt-install",
    source="virt-install 4.1 and 5.0, virtinst/cli.py, devices/disk.py and storage.py",
    find_obstacles=find_obstacles,
    write=write,
    read=read,
    defaults=find_defaults,
    version="4.1",
)
