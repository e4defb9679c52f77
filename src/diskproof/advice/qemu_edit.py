"""A disk's options of a QEMU command line with other levels; all else in them stays as it is."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from diskproof.advice.qemu_disks import CommandLine, DiskOptions
from diskproof.advice.qemu_options import Flat, QemuOption, read_keys, render_keys
from diskproof.records.virtual_machines import Levels
from diskproof.study.factors import CACHE_MODES
from diskproof.units import parse_bytes

_CACHE_KEYS = ("cache", "cache.direct", "cache.no-flush", "cache.writeback")
_INDEX = {f"hd{letter}": str(place) for place, letter in enumerate("abcd")}
Settings = Mapping[str, str | None]
"""Keys with their new values; None: taken away."""


@dataclass(frozen=True)
class _Place:
    """A node's keys: in that option, behind that prefix (``file.``)."""

    option: QemuOption
    prefix: str


def edit_options(disk: DiskOptions, levels: Levels, name: str) -> list[QemuOption] | None:
    """The disk's options with those levels; None where the disk must be written anew: another bus
    or format, or a thread for a disk that has no -device. New ids start with ``name``."""
    drive = next((o for o in disk.options if o.name in ("drive", *_INDEX)), None)
    device = next((o for o in reversed(disk.options) if o.name == "device"), None)
    if levels.get("bus", disk.bus) != disk.bus:
        return None
    if levels.get("format", disk.node.format) != disk.node.format:
        return None
    edits: list[tuple[QemuOption, str, Settings]] = []
    if drive is not None:
        edits.append((drive, "", _drive_settings(drive.flat, levels)))
    else:
        places = list(_find_places(disk, str(disk.device.get("drive") or "")))
        for node, place in zip(disk.node.path, places, strict=False):
            lowest = node is disk.node.end
            found = dict(_node_settings(levels, node.driver, lowest, node is disk.node))
            edits.append((place.option, place.prefix, found))
    if device is None:
        threaded = levels.get("iothread", "off") == "on"
        return None if threaded else _apply(disk, edits, {})
    edits.append((device, "", _device_settings(disk, levels, explicit=drive is None)))
    return _with_thread(disk, levels, name, device, edits)


def _with_thread(
    disk: DiskOptions,
    levels: Levels,
    name: str,
    device: QemuOption,
    edits: list[tuple[QemuOption, str, Settings]],
) -> list[QemuOption] | None:
    wanted = levels.get("iothread")
    if wanted is None or (wanted == "on") == bool(disk.iothread):
        return _apply(disk, edits, {})
    taker = device
    if disk.bus == "virtio-scsi":
        own = [o for o in disk.options if o.name == "device" and o is not device]
        if not own:
            return None
        taker = own[0]
    thread = f"{name}-iothread"
    edits.append((taker, "", {"iothread": thread if wanted == "on" else None}))
    done = _apply(disk, edits, {})
    if wanted == "on":
        return [QemuOption("object", f"iothread,id={thread}"), *done]
    return [option for option in done if option.name != "object"]


def _find_places(disk: DiskOptions, name: str) -> Iterator[_Place]:
    """Where the keys of each node stand, from the uppermost down."""
    place: _Place | None = _find_node(disk, name)
    for node in disk.node.path:
        if place is None:
            return
        yield place
        below = place.option.flat.get(f"{place.prefix}file")
        inline = _Place(place.option, f"{place.prefix}file.")
        place = _find_node(disk, below) if below else inline if node.file else None


def _find_node(disk: DiskOptions, name: str) -> _Place | None:
    for option in disk.options:
        for key, value in option.flat.items() if option.name == "blockdev" else ():
            if value == name and (key == "node-name" or key.endswith(".node-name")):
                return _Place(option, key.removesuffix("node-name"))
    return None


def _node_settings(
    levels: Levels, driver: str, lowest: bool, upper: bool
) -> Iterator[tuple[str, str | None]]:
    if cache := levels.get("cache"):
        mode = CACHE_MODES[cache]
        yield "cache.direct", "on" if mode.direct else "off"
        yield "cache.no-flush", "on" if mode.no_flush else "off"
    if discard := levels.get("discard"):
        yield "discard", discard
    if lowest and "aio" in levels:
        yield "aio", levels["aio"]
    if "detect-zeroes" in levels:
        yield "detect-zeroes", levels["detect-zeroes"] if upper else None
    if driver == "qcow2":
        yield from _qcow2_settings(levels)


def _qcow2_settings(levels: Levels) -> Iterator[tuple[str, str | None]]:
    if size := levels.get("l2-cache-size"):
        yield "l2-cache-size", str(parse_bytes(size))
        yield "cache-size", None
    if lazy := levels.get("lazy_refcounts"):
        yield "lazy-refcounts", lazy


def _drive_settings(keys: Flat, levels: Levels) -> Settings:
    """``cache=`` says all three; what is spelt out beside it would come first."""
    found: dict[str, str | None] = {}
    if cache := levels.get("cache"):
        found |= {key: None for key in keys if key.removeprefix("file.") in _CACHE_KEYS}
        found["cache"] = cache
    if aio := levels.get("aio"):
        found |= {"file.aio": None, "aio": aio}
    if discard := levels.get("discard"):
        found |= {"file.discard": None, "discard": discard}
    if zeroes := levels.get("detect-zeroes"):
        found |= {"file.detect-zeroes": None, "detect-zeroes": zeroes}
    if (keys.get("format") or keys.get("driver")) == "qcow2":
        found |= dict(_qcow2_settings(levels))
    return found


def _device_settings(disk: DiskOptions, levels: Levels, *, explicit: bool) -> Settings:
    if "cache" not in levels:
        return {}
    through = CACHE_MODES[levels["cache"]].write_through
    found: dict[str, str | None] = {}
    if explicit or disk.device.get("write-cache"):
        found["write-cache"] = "off" if through else "on"
    if through and disk.bus == "virtio-blk":
        found["config-wce"] = "off"
    return found


def _apply(
    disk: DiskOptions, edits: list[tuple[QemuOption, str, Settings]], done: dict[int, QemuOption]
) -> list[QemuOption]:
    """The options with those settings; each edit is made on what those before it left."""
    for option, prefix, settings in edits:
        now = done.get(id(option), option)
        named = {prefix + key: value for key, value in settings.items()}
        done[id(option)] = _set(now, named)
    return [done.get(id(option), option) for option in disk.options]


def _set(option: QemuOption, settings: Settings) -> QemuOption:
    if option.name in _INDEX:
        keys = {"file": option.text, "if": "ide", "index": _INDEX[option.name], "media": "disk"}
        return QemuOption("drive", render_keys("drive", {**keys, **settings}))
    if option.text.lstrip().startswith("{"):
        content = json.loads(option.text)
        for key, value in settings.items():
            _set_nested(content, key.split("."), value)
        return replace(option, text=json.dumps(content, separators=(",", ":"), ensure_ascii=False))
    keys_now = dict(option.keys if option.keys is not None else read_keys(option.name, option.text))
    return QemuOption(option.name, render_keys(option.name, {**keys_now, **settings}))


def _set_nested(content: dict[str, Any], path: list[str], value: str | None) -> None:
    """A key of a JSON object; one that stands there with its dots is meant by them too."""
    if (dotted := ".".join(path)) in content:
        del content[dotted]
    *above, key = path
    for part in above:
        inner = content.setdefault(part, {})
        if not isinstance(inner, dict):
            return
        content = inner
    if value is None:
        content.pop(key, None)
    else:
        content[key] = _TYPED.get(key, str)(value)


_TYPED: Mapping[str, Callable[[str], object]] = {
    **dict.fromkeys(("direct", "no-flush", "lazy-refcounts"), lambda value: value == "on"),
    "l2-cache-size": int,
    "config-wce": lambda value: value == "on",
}


def find_disk(line: CommandLine, name: str) -> DiskOptions | None:
    """The disk of that name, or the only one."""
    disks = list(line.disks())
    named = [disk for disk in disks if disk.name == name]
    return named[0] if named else disks[0] if len(disks) == 1 else None
