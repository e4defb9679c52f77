"""The dialect of QEMU's own command line: ``-object``, ``-blockdev``, ``-device``, qemu-img.

Every cache, aio, discard and flush setting is spelt out on both block nodes, so that no default of
a QEMU version decides. How errors reach the guest (werror) stays the user's.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from diskproof.advice.dialect import Dialect, Paste, Target, Unsayable
from diskproof.advice.qemu_disks import sort_options
from diskproof.advice.qemu_edit import edit_options, find_disk
from diskproof.advice.qemu_network import is_address, server_options
from diskproof.advice.qemu_options import base_name, find_program, read_options, split_commands
from diskproof.advice.qemu_read import DEFAULTS, read_command_line
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Levels
from diskproof.study.factors import CACHE_MODES, FACTOR_BY_NAME
from diskproof.study.load import render_level_bytes
from diskproof.units import parse_bytes

SOURCE = "QEMU 7.2: qemu(1) -drive, -blockdev, -device, -object iothread; qemu-img(1) create"
_WHERE = (
    "on the command line of qemu-system-*, in place of this disk's -drive, -hda or -blockdev and "
    "-device"
)
_WHEN = "at the next start of QEMU"
_TAKERS = ("virtio-blk", "virtio-scsi")
_SHIFTS = {"aio": "threads", "detect-zeroes": "on", "preallocation": "off"}
_NAME_LENGTH = 14  # of 31 that a node's name may have


@dataclass(frozen=True)
class Row:
    """How one factor is written. ``default`` is QEMU's where the key is absent."""

    factor: str
    blockdev: str
    drive: str
    default: str
    source: str


MAPPING = (
    Row(
        "format",
        "driver= of the upper node",
        "format=",
        "probed",
        "qemu(1) -blockdev driver, -drive format",
    ),
    Row(
        "cache",
        "cache.direct, cache.no-flush on both nodes; write-cache= of the device",
        "cache=, which is cache.direct, cache.no-flush and cache.writeback",
        "writeback",
        "qemu(1) -drive cache, -blockdev cache.direct",
    ),
    Row("aio", "aio= of the file node", "aio=", "threads", "qemu(1) -blockdev file: aio"),
    Row(
        "discard",
        "discard= on both nodes",
        "discard=; the file below has unmap",
        "ignore",
        "qemu(1) -blockdev discard; block.c bdrv_inherited_options",
    ),
    Row(
        "detect-zeroes",
        "detect-zeroes= of the upper node",
        "detect-zeroes=",
        "off",
        "qemu(1) -blockdev detect-zeroes",
    ),
    Row(
        "iothread",
        "-object iothread,id=X and iothread=X of virtio-blk-pci or virtio-scsi-pci",
        "not with if=virtio: if=none and -device",
        "off",
        "qemu(1) -object iothread; -device virtio-blk-pci,help",
    ),
    Row(
        "bus",
        "-device virtio-blk-pci; virtio-scsi-pci and scsi-hd; ide-hd; ich9-ahci and ide-hd; nvme",
        "if=virtio, if=ide (AHCI on q35)",
        "ide",
        "qemu(1) -drive if; -device help",
    ),
    Row(
        "l2-cache-size",
        "l2-cache-size= of the qcow2 node, bytes",
        "l2-cache-size=",
        "32M",
        "qemu(1) -blockdev qcow2: l2-cache-size",
    ),
    Row(
        "lazy_refcounts",
        "lazy-refcounts= of the qcow2 node; qemu-img create -o lazy_refcounts=",
        "lazy-refcounts=",
        "as the image has it (off)",
        "qemu(1) -blockdev qcow2: lazy-refcounts",
    ),
    Row(
        "cluster_size",
        "qemu-img create -o cluster_size=",
        "the same",
        "64K",
        "qemu-img(1) qcow2: cluster_size",
    ),
    Row(
        "preallocation",
        "qemu-img create -o preallocation=",
        "the same",
        "off",
        "qemu-img(1) raw, qcow2: preallocation",
    ),
)


def find_obstacles(levels: Levels, target: Target) -> tuple[Unsayable, ...]:
    """What of a cell no QEMU command line can say; beside what a line has that stays."""
    kept: Levels = {}
    if target.existing:
        with suppress(UsageError):
            kept = read(target.existing, target)
    return tuple(_obstacles({**kept, **levels}, target))


def _obstacles(levels: Levels, target: Target) -> Iterator[Unsayable]:
    for row in MAPPING:
        level, factor = levels.get(row.factor), FACTOR_BY_NAME[row.factor]
        if level is None:
            continue
        if factor.levels and level not in factor.levels:
            yield Unsayable(row.factor, level, "QEMU has no such level")
        for need in factor.needs:
            usual = "raw" if need.factor == "format" else FACTOR_BY_NAME[need.factor].default
            other = levels.get(need.factor, usual)
            if level in need.levels and other not in need.wanted:
                wanted = " or ".join(need.wanted)
                reason = f"QEMU refuses it without {need.factor}={wanted}"
                yield Unsayable(row.factor, level, reason, _SHIFTS[row.factor])
    bus = levels.get("bus", "virtio-blk")
    if levels.get("iothread") == "on" and bus not in _TAKERS:
        yield Unsayable("iothread", "on", f"QEMU's {bus} devices take no iothread", "off")
    if target.block and levels.get("preallocation") in ("falloc", "full"):
        reason = "it reserves room in a file, and this disk is a block device"
        yield Unsayable("preallocation", levels["preallocation"], reason, "off")
    if is_address(target.image):
        if server_options(target.image) is None:
            yield Unsayable("backing", target.image, "this server's address cannot be written here")
        if "aio" in levels:
            reason = "a client of a server has no way of I/O of its own"
            yield Unsayable("aio", levels["aio"], reason)


def write(levels: Levels, target: Target) -> Paste:
    """The lines of a disk. Raises ValueError for what cannot be said."""
    if obstacles := find_obstacles(levels, target):
        raise ValueError("; ".join(f"{o.factor}={o.level}: {o.reason}" for o in obstacles))
    name = disk_name(target)
    if text := _edit(levels, target, name):
        return Paste(text, _WHERE, _WHEN)
    words = [*_iothread_words(levels, name), *_node_words(levels, target, name)]
    words += _device_words(levels, name)
    pairs = [shlex.join(words[place : place + 2]) for place in range(0, len(words), 2)]
    notes = []
    if levels.get("bus") == "ide":
        notes.append("ide.0 is the IDE controller of the pc machine; on q35 it is AHCI")
    if not target.image:
        notes.append("put your image's path in place of " + _image(levels, target))
    return Paste(
        " \\\n".join(pairs),
        _WHERE,
        _WHEN,
        create=_create(levels, target),
        notes=tuple(notes),
    )


def _edit(levels: Levels, target: Target, name: str) -> str:
    """The disk's options as they were found, with those levels; empty where it is written anew."""
    if not target.existing:
        return ""
    commands = split_commands(target.existing)
    words = next((words for words in commands if words[0].startswith("-")), [])
    line = sort_options("qemu-system-x86_64", read_options(words))
    disk = find_disk(line, target.disk)
    options = edit_options(disk, levels, name) if disk else None
    return " \\\n".join(option.render() for option in options or ())


def disk_name(target: Target) -> str:
    """What the ids of a disk's objects start with: its key, else its image's name."""
    stem = target.disk or base_name(target.image).partition(".")[0] or "disk"
    plain = re.sub(r"[^A-Za-z0-9_-]", "-", stem)[:_NAME_LENGTH].strip("-")
    return plain if plain[:1].isalpha() else f"disk-{plain}"[:_NAME_LENGTH].rstrip("-")


def _image(levels: Levels, target: Target) -> str:
    return target.image or f"/path/to/disk.{_format(levels)}"


def _format(levels: Levels) -> str:
    return levels.get("format", "raw")


def _iothread_words(levels: Levels, name: str) -> list[str]:
    on = levels.get("iothread") == "on"
    return ["-object", f"iothread,id={name}-iothread"] if on else []


def _node_words(levels: Levels, target: Target, name: str) -> list[str]:
    mode = CACHE_MODES[levels.get("cache", "writeback")]
    both: dict[str, object] = {
        "cache": {"direct": mode.direct, "no-flush": mode.no_flush},
        "discard": levels.get("discard", DEFAULTS["discard"]),
        "read-only": False,
        "auto-read-only": False,
    }
    image = _image(levels, target)
    place: Mapping[str, object] = server_options(image) or {
        "driver": "host_device" if target.block else "file",
        "filename": image,
        "aio": levels.get("aio", DEFAULTS["aio"]),
        "locking": "auto",
    }
    lower = {**place, "node-name": f"{name}-file", **both}
    upper: dict[str, object] = {
        "driver": _format(levels),
        "node-name": f"{name}-format",
        "file": f"{name}-file",
        "detect-zeroes": levels.get("detect-zeroes", DEFAULTS["detect-zeroes"]),
        **both,
    }
    if _format(levels) == "qcow2":
        upper["lazy-refcounts"] = levels.get("lazy_refcounts") == "on"
        if size := levels.get("l2-cache-size"):
            upper["l2-cache-size"] = parse_bytes(size)
    return [w for node in (lower, upper) for w in ("-blockdev", _json(node))]


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def _device_words(levels: Levels, name: str) -> list[str]:
    bus = levels.get("bus", "virtio-blk")
    through = CACHE_MODES[levels.get("cache", "writeback")].write_through
    thread = f",iothread={name}-iothread" if levels.get("iothread") == "on" else ""
    controllers = {
        "virtio-scsi": f"virtio-scsi-pci,id={name}-scsi{thread}",
        "ahci": f"ich9-ahci,id={name}-ahci",
    }
    # A guest's virtio driver could switch write-through off; nvme will not do without a serial.
    fixed = ",config-wce=off" if through else ""
    drivers = {
        "virtio-blk": f"virtio-blk-pci{thread}{fixed}",
        "virtio-scsi": f"scsi-hd,bus={name}-scsi.0",
        "ide": "ide-hd,bus=ide.0,unit=0",
        "ahci": f"ide-hd,bus={name}-ahci.0",
        "nvme": f"nvme,serial={name}",
    }
    own = f"id={name},drive={name}-format,write-cache={'off' if through else 'on'}"
    words = ["-device", controllers[bus]] if bus in controllers else []
    return [*words, "-device", f"{drivers[bus]},{own}"]


def _create(levels: Levels, target: Target) -> str:
    """The qemu-img line, where an image is made at all."""
    form = _format(levels)
    if is_address(target.image) or (target.block and form == "raw"):
        return ""
    options = {}
    if form in ("raw", "qcow2"):
        options["preallocation"] = levels.get("preallocation", "off")
    if form in ("qcow2", "qed") and (size := levels.get("cluster_size")):
        options["cluster_size"] = str(parse_bytes(size))
    if form == "qcow2":
        options["compat"] = "1.1"
        options["lazy_refcounts"] = levels.get("lazy_refcounts", "off")
    text = ",".join(f"{key}={value}" for key, value in options.items())
    words = ["qemu-img", "create", "-f", form, *(["-o", text] if text else [])]
    return shlex.join([*words, _image(levels, target), "SIZE"])


def read(text: str, target: Target) -> Levels:
    """The levels of the disk in lines as ``write`` makes them, those of ``create`` too where its
    line is there, or of the disk ``target.disk`` of a whole command line. Raises UsageError."""
    found: dict[str, str] = {}
    for words in split_commands(text):
        if base_name(words[0]) == "qemu-img":
            found |= _read_create(words)
            continue
        start = find_program(words)
        if start is None and not words[0].startswith("-"):
            continue
        argv = ["qemu-system-x86_64", *words] if start is None else words[start:]
        disks = read_command_line(argv, "the line").disks
        for disk in disks:
            if target.disk in ("", disk.name) and disk.configured:
                return {**found, **disk.configured.levels}
        if disks:
            raise UsageError(f"no disk {target.disk!r} in the line")
    raise UsageError("no disk in the line", "there is no -drive, and no -device with a -blockdev")


def _read_create(words: list[str]) -> dict[str, str]:
    """What a ``qemu-img create`` says."""
    pairs = dict(zip(words, words[1:], strict=False))
    options = {
        key: value
        for key, _, value in (part.partition("=") for part in pairs.get("-o", "").split(","))
    }
    found = {"format": pairs.get("-f", "raw")}
    found |= {key: options[key] for key in ("preallocation", "lazy_refcounts") if key in options}
    if size := options.get("cluster_size"):
        found["cluster_size"] = render_level_bytes(parse_bytes(size))
    return found


def defaults(target: Target) -> Mapping[str, str]:
    """What ``qemu-img create`` and ``-drive file=IMAGE,format=FORMAT`` on the pc machine give."""
    common = {
        "preallocation": "off",
        "cache": "writeback",
        "aio": DEFAULTS["aio"],
        "discard": DEFAULTS["discard"],
        "detect-zeroes": DEFAULTS["detect-zeroes"],
        "iothread": "off",
        "bus": "ide",
    }
    if target.image.endswith(".qcow2"):
        size = {"cluster_size": "64K", "lazy_refcounts": "off", "l2-cache-size": "32M"}
        return {"format": "qcow2", **common, **size}
    return {"format": "raw", **common}


DIALECT = Dialect(
    "qemu", "QEMU's command line", SOURCE, find_obstacles, write, read, defaults, "7.2"
)
