"""Firecracker's drives: the file of ``--config-file``, and what ``GET /vm/config`` answers."""

import json
import re
from collections.abc import Iterator, Mapping

from diskproof.advice.dialect import Reading
from diskproof.advice.documents import find_at, list_at, load_json, require_few_disks, text_at
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import (
    Change,
    Layer,
    LayerName,
    Machine,
    MachineDisk,
    Remark,
)

SOURCE = (
    "Firecracker v1.16.0-dev-617-g81b38b9da (2026-08-21): docs/api_requests/block-caching.md, "
    "vmm_config/drive.rs, devices/virtio/block/mod.rs (cache_type is Unsafe where it is not set)"
)
_CLAIM = re.compile(r'"(drive_id|path_on_host)"\s*:')
_WHOLE = re.compile(r'"(drives|boot-source|machine-config)"\s*:')


def claims(text: str) -> bool:
    """Whether it is a configuration of Firecracker's."""
    start = text.lstrip("\ufeff \t\r\n")[:1]
    return start == "{" and bool(_CLAIM.search(text) and _WHOLE.search(text))


def read_machines(text: str, name: str) -> tuple[Machine, ...]:
    """The one machine of a configuration. Raises UsageError for what is none."""
    return (read_config(text, name, "configured"),)


def read_config(text: str, name: str, layer: LayerName) -> Machine:
    """A configuration, as what is written, as what a later start would take (``pending``) or, of
    one that started from it, what runs."""
    document = load_json(text, name)
    if not isinstance(find_at(document, "drives"), list):
        raise UsageError(
            f"{name}: no drives in it", "Firecracker's configuration has a list of them"
        )
    drives = [drive for drive in list_at(document, "drives") if isinstance(drive, dict)]
    require_few_disks(len(drives), name)
    disks = tuple(read_drive(drive, layer) for drive in drives)
    return Machine(name.rpartition("/")[2], "firecracker", name, disks)


def read_drive(drive: Mapping[str, object], layer: LayerName) -> MachineDisk:
    """One drive. What is not written is at Firecracker's default, which is Unsafe and Sync."""
    outside = text_at(drive, "socket")
    cache = text_at(drive, "cache_type") or "Unsafe"
    levels = {"bus": "virtio-blk"}
    if not outside and cache in ("Unsafe", "Writeback"):
        levels["flush"] = "advertised" if cache == "Writeback" else "not advertised"
    assumed = {"flush"} if not text_at(drive, "cache_type") else set()
    made = Layer(levels, "Firecracker's configuration", frozenset(assumed & set(levels)))
    facts = {"vmm": "firecracker", "cache_type": cache, "socket": outside,
             "io_engine": "" if outside else text_at(drive, "io_engine") or "Sync"}  # fmt: skip
    read_only = find_at(drive, "is_read_only") is True
    image = text_at(drive, "path_on_host")
    return MachineDisk(
        text_at(drive, "drive_id") or "unnamed",
        image or outside,
        kind="block" if image.startswith("/dev/") else "file" if image else "",
        configured=made if layer == "configured" else None,
        pending=made if layer == "pending" else None,
        running=made if layer == "running" else None,
        read_only=read_only,
        line=json.dumps(drive, indent=2),
        remarks=() if read_only else tuple(_remarks(drive, levels, layer)),
        facts={key: fact for key, fact in facts.items() if fact},
    )


def _remarks(
    drive: Mapping[str, object], levels: Mapping[str, str], layer: LayerName
) -> Iterator[Remark]:
    if text_at(drive, "socket"):
        what = "a vhost-user process serves it: what that does with a flush cannot be seen here"
        yield Remark("vhost-user", layer, "unknown", what, SOURCE, "unknown")
    elif levels.get("flush") == "not advertised":
        said = "is set" if text_at(drive, "cache_type") else "is the default"
        what = (
            f"cache_type Unsafe {said}: the guest is offered no flush and sends none, so a power "
        )
        what += "cut takes what the host's page cache has not written yet"
        change = Change(
            json.dumps({**drive, "cache_type": "Writeback"}, indent=2) + "\n",
            "at the next start of the microVM: in its configuration file, or by PUT /drives before "
            "InstanceStart",
        )
        yield Remark("not-advertised", layer, "loses", what, SOURCE, change=change)


READING = Reading("firecracker", claims, read_machines)
