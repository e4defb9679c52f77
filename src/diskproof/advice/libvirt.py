"""The words of libvirt: the ``<disk>`` element of a domain, and what it needs beside it."""

import copy
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from xml.etree.ElementTree import Element

from diskproof.advice.dialect import Dialect, Paste, Reading, Target, Unsayable
from diskproof.advice.libvirt_levels import (
    BUSES,
    DEFAULT_CLUSTER,
    DRIVER_KEYS,
    QEMU_DEFAULTS,
    SOURCE,
    VIRTIO_SCSI,
    find_iothreads,
    metadata_cache_bytes,
    read_written,
)
from diskproof.advice.libvirt_read import claims_libvirt, read_machines
from diskproof.advice.libvirt_xml import (
    DiskParts,
    child,
    iter_parts,
    make_element,
    parse_documents,
    render_element,
    require_child,
)
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Levels
from diskproof.study.factors import CACHE_MODES, DIRECT, FACTOR_BY_NAME

TAKES_EFFECT = "when the machine is started the next time; a reboot from inside is no start"
_SAID = (*DRIVER_KEYS, "bus", "iothread", "l2-cache-size")
_MADE = ("preallocation", "cluster_size", "lazy_refcounts")
_CLUSTER_WORDS = re.compile(r"4 clusters of ([0-9]{1,9}[KM]?) ")
_WITH_IOTHREAD = ("virtio-blk", "virtio-scsi")


def find_obstacles(levels: Levels, target: Target) -> tuple[Unsayable, ...]:
    """What libvirt has no word for, refuses, or would change by itself. Raises UsageError where the
    disk that is there cannot be read."""
    existing = _read_existing(target)
    wanted = {**(read_written(existing) if existing else {}), **levels}
    found = [*_find_strange(levels)]
    if wanted.get("bus") == "nvme":
        why = "libvirt (9.0 to 11.3) has no disks on an NVMe controller that QEMU emulates"
        found.append(Unsayable("bus", "nvme", why, "virtio-blk"))
    cache = wanted.get("cache", QEMU_DEFAULTS["cache"])
    if wanted.get("aio") == "native" and cache not in DIRECT:
        why = f"libvirt refuses io='native' with cache={cache}: it needs none or directsync"
        found.append(Unsayable("aio", "native", why, "threads"))
    if wanted.get("detect-zeroes") == "unmap" and wanted.get("discard") != "unmap":
        why = "libvirt makes it on, unless discard is unmap"
        found.append(Unsayable("detect-zeroes", "unmap", why, "on"))
    bus = wanted.get("bus", "its controller" if existing else "virtio-blk")
    if wanted.get("iothread") == "on" and bus not in _WITH_IOTHREAD:
        why = f"libvirt refuses an iothread for a disk on {bus}"
        found.append(Unsayable("iothread", "on", why, "off"))
    return tuple(found)


def _find_strange(levels: Levels) -> list[Unsayable]:
    """Levels that no study has."""
    return [
        Unsayable(factor, level, f"{factor} has no such level", FACTOR_BY_NAME[factor].default)
        for factor, level in levels.items()
        if factor in _SAID and FACTOR_BY_NAME[factor].levels
        if level not in FACTOR_BY_NAME[factor].levels
    ]


def _read_existing(target: Target) -> DiskParts | None:
    """The disk as it was found. Raises UsageError where there is none in the text."""
    if not target.existing:
        return None
    name = target.disk or "the disk as found"
    parts = [found for root in _roots(target.existing, name) for found in iter_parts(root)]
    named = [found for found in parts if found.name == target.disk] or parts
    if not named:
        raise UsageError(f"{name}: there is no <disk> in it")
    return named[0]


def _roots(text: str, name: str) -> list[Element]:
    """Domains, and what stands side by side without one as one place."""
    documents = parse_documents(text, name)
    domains = [each.find("domain") if each.tag == "domstatus" else each for each in documents]
    whole = [each for each in domains if each is not None and each.tag == "domain"]
    return whole or [make_element("domain", {}, *documents)]


def write(levels: Levels, target: Target) -> Paste:
    """The lines of a disk at these levels; what is not said of an existing one stays as it is."""
    if found := find_obstacles(levels, target):
        raise ValueError("; ".join(f"{each.factor}={each.level}: {each.reason}" for each in found))
    existing = _read_existing(target)
    parts = copy.deepcopy(existing) if existing else _make_parts(levels, target)
    before = read_written(existing) if existing else {}
    notes = _set_bus(parts, levels)
    _set_driver(require_child(parts.disk, "driver"), levels)
    parts = _set_controller(parts, levels)
    wanted = levels.get("iothread", before.get("iothread", "") if notes else "")
    threads = _set_iothread(parts, wanted)
    return Paste(
        text=_render(parts, threads, levels),
        where=f"virsh edit {shlex.quote(target.machine) if target.machine else 'NAME'}",
        takes_effect=TAKES_EFFECT,
        create="" if existing else make_image(levels, target),
        notes=(*notes, *_find_notes(levels, parts, target, threads)),
    )


def _make_parts(levels: Levels, target: Target) -> DiskParts:
    """A new disk, virtio-blk unless the levels say otherwise."""
    bus, prefix = BUSES[levels.get("bus", "virtio-blk")]
    kind, attribute = ("block", "dev") if target.block else ("file", "file")
    name = target.disk or f"{prefix}a"
    disk = make_element(
        "disk",
        {"type": kind, "device": "disk"},
        make_element("driver", {"name": "qemu", "type": image_format(levels, target)}),
        make_element("source", {attribute: image_path(levels, target)}),
        make_element("target", {"dev": name, "bus": bus}),
    )
    controller = {"type": "scsi", "index": "0", "model": "virtio-scsi"}
    return DiskParts(disk, make_element("controller", controller) if bus == "scsi" else None)


def image_path(levels: Levels, target: Target) -> str:
    """Where the image is; where nobody said, where libvirt's default pool would have it."""
    form = image_format(levels, target)
    return target.image or f"/var/lib/libvirt/images/{target.machine or 'NAME'}.{form}"


def image_format(levels: Levels, target: Target) -> str:
    """The format of a new image. libvirt takes one of which nothing is said for raw."""
    return levels.get("format", "raw" if target.block else "qcow2")


def make_image(levels: Levels, target: Target) -> str:
    """The command that makes the image, empty for a device that is used as it is."""
    form = image_format(levels, target)
    if target.block and form == "raw":
        return ""
    options = {name: levels[name] for name in _MADE if name in levels and levels[name] != "off"}
    if form != "qcow2":
        options.pop("lazy_refcounts", None)
    said = ",".join(f"{name}={level}" for name, level in options.items())
    path = shlex.quote(image_path(levels, target))
    return f"qemu-img create -f {form} {f'-o {said} ' if said else ''}{path} SIZE"


def _set_bus(parts: DiskParts, levels: Levels) -> list[str]:
    """Move a disk to another bus: its name there, and no address of the bus that it leaves."""
    wanted, disk, before = levels.get("bus"), parts.disk, parts.name
    if wanted is None or parts.bus == BUSES[wanted][0]:
        return []
    bus, prefix = BUSES[wanted]
    name = f"{prefix}{before[2:] or 'a'}"
    child(disk, "target").attrib.update(dev=name, bus=bus)
    for address in disk.findall("address"):
        disk.remove(address)
    return [
        f"the disk moves from {before} to {name}: see that this name is free, and that the guest "
        f"has the driver of {wanted} and finds its disks by UUID"
    ]


def _set_driver(driver: Element, levels: Levels) -> None:
    for factor, key in DRIVER_KEYS.items():
        if factor in levels:
            driver.set(key, levels[factor])
    if "l2-cache-size" in levels and driver.get("type") == "qcow2":
        size = require_child(require_child(driver, "metadata_cache"), "max_size")
        size.set("unit", "bytes")
        size.text = str(
            metadata_cache_bytes(levels["l2-cache-size"], levels.get("cluster_size", ""))
        )


def _set_controller(parts: DiskParts, levels: Levels) -> DiskParts:
    """The disk with the controller that it needs: virtio-scsi, where the levels or a thread say so;
    none where it is not on SCSI (any more)."""
    if parts.bus != "scsi":
        return DiskParts(parts.disk, None, parts.iothreads, parts.iothread_ids)
    controller = parts.controller
    if controller is None:
        if "bus" not in levels and levels.get("iothread") != "on":
            return parts
        address = child(parts.disk, "address")
        controller = make_element(
            "controller", {"type": "scsi", "index": address.get("controller", "0")}
        )
    if "bus" in levels and controller.get("model") not in VIRTIO_SCSI:
        controller.set("model", "virtio-scsi")
    return DiskParts(parts.disk, controller, parts.iothreads, parts.iothread_ids)


def _set_iothread(parts: DiskParts, wanted: str) -> int:
    """Give the disk (on SCSI: its controller) a thread or none; how many threads the machine then
    needs."""
    holder = parts.controller if parts.bus == "scsi" else parts.disk
    for each in (parts.disk, parts.controller):
        if each is not None and (wanted == "off" or (wanted == "on" and each is not holder)):
            _drop_iothread(each)
    if wanted == "on" and holder is not None and not find_iothreads(parts):
        number = min(parts.iothread_ids, default=1)
        require_child(holder, "driver").set("iothread", str(number))
    numbers = [int(each) for each in find_iothreads(parts) if each.isdecimal()]
    return max([parts.iothreads, *(numbers if wanted == "on" else [])])


def _drop_iothread(holder: Element) -> None:
    driver = child(holder, "driver")
    driver.attrib.pop("iothread", None)
    for mapping in driver.findall("iothreads"):
        driver.remove(mapping)
    if holder.tag == "controller" and not driver.attrib and not len(driver):
        for each in holder.findall("driver"):
            holder.remove(each)


def _render(parts: DiskParts, threads: int, levels: Levels) -> str:
    """What belongs beside ``<devices>``, then what belongs into it."""
    cluster = levels.get("cluster_size", DEFAULT_CLUSTER)
    pieces = []
    if threads:
        pieces += ["<!-- beside <devices> -->", f"<iothreads>{threads}</iothreads>"]
        pieces += ["<!-- in <devices> -->"]
    if "l2-cache-size" in levels and cluster != DEFAULT_CLUSTER:
        pieces.append(f"<!-- max_size: L2 and 4 clusters of {cluster} for reference counts -->")
    if parts.controller is not None:
        pieces.append(render_element(parts.controller))
    return "\n".join([*pieces, render_element(parts.disk)])


def _find_notes(levels: Levels, parts: DiskParts, target: Target, threads: int) -> Iterator[str]:
    machine = shlex.quote(target.machine) if target.machine else "NAME"
    if target.existing:
        yield (
            "in one line, where nothing but <disk> changes: virsh update-device "
            f"{machine} FILE --config, with <disk> alone in FILE"
        )
        if made := [name for name in _MADE if name in levels]:
            yield f"{', '.join(made)}: the image that is there keeps its own; qemu-img convert"
    if (mode := CACHE_MODES.get(levels.get("cache", ""))) and mode.write_through:
        yield WRITE_THROUGH
    if "l2-cache-size" in levels and child(parts.disk, "driver").get("type") == "qcow2":
        yield (
            "max_size is of all metadata caches: the L2 cache asked for and four clusters for "
            "reference counts (libvirt 7.0 and newer)"
        )
    if threads and levels.get("iothread") == "on":
        yield f"<iothreads> must be {threads} or more: where the machine has more, leave it"
    if parts.controller is not None and levels.get("iothread"):
        yield "the thread is the controller's: all disks on this controller share it"
    if levels.get("aio") == "io_uring":
        yield "io='io_uring' needs libvirt 6.3, QEMU 5.0 and a host that allows io_uring"


WRITE_THROUGH = (
    "libvirt says write-through to the guest's device alone (write-cache=off): a guest that may "
    "turn its cache over (virtio-blk CONFIG_WCE, as Windows' driver does) undoes it. libvirt's one "
    "word for config-wce=off is <qemu:override> (8.2 and newer); read it back in the guest"
)


def read(text: str, target: Target) -> dict[str, str]:
    """The levels that the lines say. Raises UsageError where there is no disk in them."""
    words = _CLUSTER_WORDS.search(text)
    found = _read_existing(replace(target, existing=text or " "))
    assert found is not None
    return read_written(found, words[1] if words else "")


def find_defaults(target: Target) -> dict[str, str]:
    """Of a new disk: libvirt has none of its own, so what QEMU does with nothing said."""
    return {**QEMU_DEFAULTS, "iothread": "off"}


DIALECT = Dialect(
    name="libvirt",
    title="libvirt (virsh edit)",
    source=SOURCE,
    find_obstacles=find_obstacles,
    write=write,
    read=read,
    defaults=find_defaults,
    version="9",
)
READING = Reading("libvirt", claims_libvirt, read_machines)
