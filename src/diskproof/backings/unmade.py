"""What can be said of a backing without making it, where that would destroy something."""

from pathlib import Path

from diskproof.backings.consent import find_targets
from diskproof.backings.device import require_unused
from diskproof.backings.md import data_members
from diskproof.backings.place import read_device_bytes
from diskproof.records import BackingFacts, BackingSpec
from diskproof.study.backings import NOT_OWN, OVER_NETWORK

_OF_FILES = ("filesystem", "tmpfs", "nbd", "iscsi")


def inspect_unmade(spec: BackingSpec) -> BackingFacts:
    """Sizes and signatures of its devices, which are opened for reading only.

    Raises HostError for devices that are in use or not empty, as making it does.
    """
    targets = find_targets(spec)
    devices = {name: require_unused(Path(name)) for name in targets if name.startswith("/")}
    sizes = {name: read_device_bytes(device) for name, device in devices.items()}
    where, network = ", ".join(targets), spec.kind if spec.kind in OVER_NETWORK else ""
    what = spec.option("fs") or spec.kind
    return BackingFacts(
        path=where,
        filesystem=f"{what} on {where}",
        o_direct=True,
        o_direct_reason="",
        free_bytes=_find_room(spec, sizes),
        device=spec.kind not in _OF_FILES and spec.option("type") != "dataset",
        own=spec.kind not in NOT_OWN,
        network=network,
        fio=network != "iscsi",
        unprobed=f"backing {spec.name} is made on {where}: not probed, because that would destroy "
        "what is on it; free space taken as its size, O_DIRECT not known",
    )


def _find_room(spec: BackingSpec, sizes: dict[str, int]) -> int:
    """What fits on the devices at most, or what is asked for where that is less."""
    room = [int(spec.option("size") or 0)]
    if mine := [sizes[name] for name in spec.targets if name in sizes]:
        room.append(min(mine) * (data_members(spec) if spec.kind == "md" else 1))
    elif spec.on:
        room.append(_find_room(spec.on, sizes))
    return min(filter(None, room), default=0)
