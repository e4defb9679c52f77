"""Machines from QEMU command lines: a shell's line, a script, libvirt's log, a -readconfig file."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from diskproof.advice.dialect import Reading
from diskproof.advice.qemu_disks import CommandLine, DiskOptions, sort_options
from diskproof.advice.qemu_nodes import LOCAL, NETWORK, BlockNode
from diskproof.advice.qemu_options import (
    CONFIG_FILE,
    STARTS,
    base_name,
    find_command_lines,
    read_config_file,
    read_options,
)
from diskproof.advice.qemu_remarks import find_remarks, write_back
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Layer, Machine, MachineDisk
from diskproof.study.factors import CACHE_MODES, FACTOR_BY_NAME
from diskproof.study.load import render_level_bytes
from diskproof.units import parse_bytes

_FORMATS = FACTOR_BY_NAME["format"].levels
_KINDS = {"file": "file", "host_device": "block", **dict.fromkeys(NETWORK, "network")}
DEFAULTS: Mapping[str, str] = {
    "aio": "threads",
    "discard": "ignore",
    "detect-zeroes": "off",
    "l2-cache-size": "32M",
}
"""What an absent key means to a block node: qemu(1) 7.2, -blockdev."""

ReadFile = Callable[[str], str | None]


def read_command_line(
    argv: Sequence[str], source: str, read_file: ReadFile = lambda path: None
) -> Machine:
    """The machine of one command line. ``read_file`` gives the text of a -readconfig file, None
    where that cannot be had. Raises UsageError."""
    line = sort_options(argv[0], read_options(argv[1:]))
    notes = []
    for path in line.config_files:
        text = read_file(path)
        if text is None:
            notes.append(f"-readconfig {path} was not read: disks in it are not known")
            continue
        for option in read_config_file(text, path):
            line.add(option)
    if any("$" in word or "`" in word for word in argv):
        notes.append("what the shell puts in for a variable is not known")
    return _machine(line, source, tuple(notes))


def _machine(line: CommandLine, source: str, notes: tuple[str, ...]) -> Machine:
    disks = list(line.disks())
    threads = {disk.iothread for disk in disks}
    idle = [] if "*" in threads else [name for name in line.iothreads if name not in threads]
    if idle and disks:
        notes += (f"no disk uses the iothread {', '.join(idle)}",)
    read = tuple(_disk(disk, line, source) for disk in disks)
    return Machine(line.name or base_name(source), find_manager(line), source, read, notes=notes)


def find_manager(line: CommandLine) -> str:
    """Whose hand wrote the command line, by the paths and names that they use."""
    texts = [option.text for option in line.others] + line.config_files
    text = "\n".join([line.name, *texts])
    if "OpenStack Nova" in text:
        return "nova"
    if "/var/run/qemu-server/" in text or "/run/qemu-server/" in text:
        return "proxmox"
    if re.search(r"/(?:incus|lxd)/", text):
        return "incus"
    if "kubevirt" in text:
        return "kubevirt"
    return "libvirt" if re.search(r"/libvirt/|charmonitor|masterKey0", text) else "qemu"


def _disk(disk: DiskOptions, line: CommandLine, source: str) -> MachineDisk:
    node = disk.node
    levels = dict(read_levels(disk, line))
    written = frozenset(_written(disk))
    end = node.end
    facts = {
        "protocol": end.driver,
        "device": str(disk.device.get("driver") or ""),
        "format": "" if node.format in _FORMATS else node.format,
    }
    return MachineDisk(
        disk.name,
        end.image,
        _KINDS.get(end.driver, ""),  # type: ignore[arg-type]
        Layer(levels, source, frozenset(levels) - written),
        read_only=disk.is_cdrom or node.keys.get("read-only") == "on",
        line=" ".join(option.render() for option in disk.options),
        remarks=find_remarks(disk, line),
        facts={key: value for key, value in facts.items() if value},
    )


def read_levels(disk: DiskOptions, line: CommandLine) -> Iterator[tuple[str, str]]:
    """What the options come to, factor by factor; what nobody can tell is left out."""
    node = disk.node
    if not node.known_end:
        return
    if node.format in _FORMATS:
        yield "format", node.format
    if cache := _cache(disk, line):
        yield "cache", cache
    if node.end.driver in LOCAL:
        yield from _known("aio", node.end.keys.get("aio", DEFAULTS["aio"]))
    asked = {part.keys.get("discard", DEFAULTS["discard"]) for part in node.path}
    yield from _known(
        "discard", "?" if "?" in asked else "ignore" if "ignore" in asked else "unmap"
    )
    zeroes = [part.keys["detect-zeroes"] for part in node.path if "detect-zeroes" in part.keys]
    yield from _known("detect-zeroes", next(iter(zeroes), DEFAULTS["detect-zeroes"]))
    if disk.device or disk.drive:
        yield "iothread", "on" if disk.iothread else "off"
    yield from _known("bus", disk.bus or "?")
    yield from _qcow2_levels(node)


def _known(factor: str, level: str) -> Iterator[tuple[str, str]]:
    if level != "?":
        yield factor, level


def _cache(disk: DiskOptions, line: CommandLine) -> str:
    """The mode that is in force: that of the lowest node, with the device's write cache."""
    end = disk.node.end.keys
    if line.snapshot or disk.drive.get("snapshot") in ("on", "yes"):
        return "unsafe"
    if end.get("cache.no-flush") == "on":
        return "unsafe"  # its flushes go nowhere, around the page cache and through it alike
    flags = (end.get("cache.direct", "off"), end.get("cache.no-flush", "off"), write_back(disk))
    if "?" in flags:
        return ""
    direct, through = flags[0] == "on", flags[2] == "off"
    return next(
        name
        for name, mode in CACHE_MODES.items()
        if (mode.direct, mode.no_flush, mode.write_through) == (direct, False, through)
    )


def _qcow2_levels(node: BlockNode) -> Iterator[tuple[str, str]]:
    found = next((part for part in node.path if part.driver == "qcow2"), None)
    if found is None:
        return
    if "lazy-refcounts" in found.keys:
        yield from _known("lazy_refcounts", found.keys["lazy-refcounts"])
    size = found.keys.get("l2-cache-size", "?" if "cache-size" in found.keys else "32M")
    try:
        yield "l2-cache-size", render_level_bytes(parse_bytes(size))
    except ValueError:
        return


def _written(disk: DiskOptions) -> Iterator[str]:
    """The factors that somebody wrote."""
    written = frozenset().union(*(part.written for part in disk.node.path))
    yield from written & {"aio", "discard", "detect-zeroes", "l2-cache-size"}
    if disk.node.driver:
        yield "format"
    if {"cache.direct", "cache.no-flush", "cache.writeback"} & written:
        yield "cache"
    if disk.device.get("write-cache", "auto") != "auto":
        yield "cache"
    if disk.iothread:
        yield "iothread"
    if disk.device or disk.drive.get("if"):
        yield "bus"
    if "lazy-refcounts" in written:
        yield "lazy_refcounts"


def claims(text: str) -> bool:
    """Whether a text starts a QEMU, or is a file for its -readconfig."""
    return bool(STARTS.search(text) or CONFIG_FILE.search(text))


def read_machines(text: str, name: str) -> tuple[Machine, ...]:
    """Every QEMU that a text starts; of several starts of one guest in a log, the last."""
    if not STARTS.search(text):
        line = sort_options("", read_config_file(text, name))
        return (_machine(line, name, ()),)
    found = find_command_lines(text)
    if not found:
        raise UsageError(f"{name}: no QEMU command line", "it names QEMU without options")
    machines = [read_command_line(argv, name) for argv in found]
    by_name = {
        (found.name, "" if found.name != base_name(name) else place): found
        for place, found in enumerate(machines)
    }
    return tuple(by_name.values())


READING = Reading("qemu", claims, read_machines)
