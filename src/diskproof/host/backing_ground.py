"""What a study's backing lies on: folder, mount, disks with their models. Nothing is opened."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from diskproof.advice import observed
from diskproof.host.below import read_below, read_line
from diskproof.records import BackingFacts, BackingSpec
from diskproof.records.virtual_machines import MachineDisk
from diskproof.study.backings import chain
from diskproof.units import render_bytes

_BLOCK = Path("/sys/block")
_SECTOR = 512
_SLOW_DISCARD = ("discard", "discard=sync")
"""Mount options by which unlinking a file waits for the disk to trim it: ext4(5), xfs(5), btrfs(5).
btrfs' discard=async does so later."""


def add_ground(spec: BackingSpec, facts: BackingFacts) -> BackingFacts:
    """The facts of a backing, with what it lies on."""
    if spec.kind == "tmpfs":
        return replace(facts, ground="in memory (tmpfs)")
    told, disks, trims = [], dict[str, None](), False
    for place in _places(spec):
        levels = _levels(place)
        mounts = [text.split(" ", 1) for key, text in levels.items() if _is(observed.MOUNT, key)]
        mine = [key.split(" ", 1)[1] for key in levels if _is(observed.QUEUE, key)]
        mine = [name for name in mine if _is_lowest(name)]
        disks |= dict.fromkeys(mine)
        trims = trims or any(set(_SLOW_DISCARD) & set(options.split(",")) for _, options in mounts)
        layers = [f"{kind} ({options})" for kind, options in mounts]
        layers += map(_describe_disk, mine) if mine else [_below_all(mounts)]
        told.append(f"{'on what is made ' if spec.on else ''}in {place}: {' on '.join(layers)}")
    ground = ", and ".join(told) or f"behind {spec.option('uri') or 'a server'}"
    trims = trims and spec.on is None  # what is made there keeps its images for itself
    return replace(facts, ground=ground, disks=tuple(disks), trims=trims)


def _below_all(mounts: list[list[str]]) -> str:
    """What is there where no device is."""
    in_memory = bool(mounts) and mounts[-1][0] in observed.IN_MEMORY
    return "memory" if in_memory else "what cannot be seen from here"


def _is(word: str, key: str) -> bool:
    return key.startswith(f"{word} ")


def _places(spec: BackingSpec) -> Iterator[Path]:
    """The folder, or the devices, that a backing begins with on this host."""
    lowest = chain(spec)[-1]
    for target in lowest.targets:
        if target.startswith("/"):
            yield Path(target)
    if lowest.kind == "directory":
        yield Path(lowest.option("path")).absolute()


def _levels(place: Path) -> dict[str, str]:
    """What lies below it, or where it will be made: mounts from the top, then devices."""
    there = next((path for path in (place, *place.parents) if path.exists()), Path("/"))
    layer = read_below(MachineDisk("", str(there)))
    return dict(layer.levels) if layer else {}


def _is_lowest(name: str) -> bool:
    """Whether a block device is made of no other one, and of no file."""
    folder = _BLOCK / name.replace("/", "!")
    return not any((folder / "slaves").glob("*")) and not (folder / "loop/backing_file").exists()


def _describe_disk(name: str) -> str:
    """``sda (Samsung SSD 870, 1.8 TiB)``."""
    folder = _BLOCK / name.replace("/", "!")
    model = " ".join(read_line(folder / "device" / each) for each in ("vendor", "model")).strip()
    if model.startswith("0x") or not model:  # virtio has its number there
        model = (folder / "device/driver").resolve().name or "no model"
    size = read_line(folder / "size")
    room = f", {render_bytes(int(size) * _SECTOR)}" if size.isdecimal() else ""
    return f"{name} ({model}{room})"
