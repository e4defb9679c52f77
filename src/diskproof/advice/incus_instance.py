"""Virtual machines of Incus and LXD: ``incus config show [-e] NAME``, ``incus list --format json``.

What ``incus storage list --format yaml`` prints may stand beside it (after ``---``): a device does
not say what its pool is. Source: Incus 7.3 (be7afc5df3) shared/api/instance.go, storage_pool.go.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from diskproof.advice.dialect import Reading, Target
from diskproof.advice.documents import list_at, load_documents, table_at, text_at
from diskproof.advice.incus import write
from diskproof.advice.incus_device import (
    CACHES,
    REMOTE_POOLS,
    SOURCE,
    Device,
    find_levels,
    render_device,
)
from diskproof.advice.qemu_extra import find_override
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Change, Layer, Machine, MachineDisk, Remark

MAX_DEVICES = 1000
_CLAIMED = re.compile(r'^[ \t\[{-]{0,200}"?(expanded_)?devices"?\s*:|"expanded_devices"\s*:', re.M)
_OTHERS = re.compile(r'"?(profiles|expanded_config|architecture)"?\s*:')
_KUBERNETES = re.compile(r'"?apiVersion"?\s*:')
_NEXT_START = "at the next start; stop the machine first"


@dataclass(frozen=True)
class Pool:
    """A storage pool: its driver and what its ``source`` lies on (empty: not known)."""

    driver: str
    source: str = ""
    filesystem: str = ""


def claims(text: str) -> bool:
    """Whether a text looks like an instance, or a list of them."""
    if text.lstrip().startswith("<") or _KUBERNETES.search(text):
        return False
    return _CLAIMED.search(text) is not None and _OTHERS.search(text) is not None


def read_machines(text: str, name: str) -> tuple[Machine, ...]:
    """The virtual machines in a text; containers have no disks of QEMU. Raises UsageError."""
    return read_instances(load_documents(text, name), name, {})


def read_instances(
    documents: list[object], name: str, pools: Mapping[str, Pool], program: str = "incus"
) -> tuple[Machine, ...]:
    """As ``read_machines``, of documents, with pools that are known. Raises UsageError."""
    items = [item for document in documents for item in _flatten(document)]
    known = {**pools, **read_pools(items)}
    instances = [item for item in items if "devices" in item or "expanded_devices" in item]
    if not instances:
        raise UsageError(
            f"{name}: no instance of Incus",
            "no document in it has devices",
            "read what incus config show -e NAME or incus list --format json prints",
        )
    readers = (_Instance(item, name, known, program) for item in instances)
    return tuple(each.machine() for each in readers if not each.is_container)


def _flatten(document: object) -> list[dict[str, object]]:
    items = document if isinstance(document, list) else [document]
    return [item for item in items if isinstance(item, dict)]


def read_pools(items: list[dict[str, object]]) -> dict[str, Pool]:
    """The pools among documents, by name."""
    return {
        text_at(item, "name"): Pool(text_at(item, "driver"), text_at(item, "config", "source"))
        for item in items
        if text_at(item, "driver") and "devices" not in item and text_at(item, "name")
    }


@dataclass(frozen=True)
class _Instance:
    """Goes through the devices of one instance."""

    item: Mapping[str, object]
    source: str
    pools: Mapping[str, Pool] = field(default_factory=dict)
    program: str = "incus"

    @property
    def name(self) -> str:
        return text_at(self.item, "name") or PurePosixPath(self.source).stem or "VM"

    @property
    def config(self) -> Mapping[str, object]:
        return table_at(self.item, "expanded_config") or table_at(self.item, "config")

    @property
    def is_container(self) -> bool:
        """What ``config show`` prints does not say it; a container's ids are mapped."""
        kind = text_at(self.item, "type")
        mapped = ("volatile.idmap.", "volatile.last_state.idmap")
        return kind == "container" or (not kind and any(k.startswith(mapped) for k in self.config))

    def machine(self) -> Machine:
        pid = text_at(self.item, "state", "pid")
        disks = tuple(self.disk(device) for device in self.devices())
        return Machine(
            name=self.name,
            manager="incus",
            source=self.source,
            disks=disks,
            id=text_at(self.config, "volatile.uuid"),
            pid=int(pid) if re.fullmatch(r"[1-9]\d{0,8}", pid) else None,
            notes=tuple(self.notes(disks)),
        )

    def devices(self) -> Iterator[Device]:
        expanded = table_at(self.item, "expanded_devices")
        local = table_at(self.item, "devices")
        for name, _ in list((expanded or local).items())[:MAX_DEVICES]:
            words = _words(table_at(expanded or local, name))
            origin = ("local" if name in local else "profile") if expanded else ""
            pool = self.pools.get(words.get("pool", ""), Pool(""))
            filesystem = "" if pool.driver != "dir" else pool.filesystem
            device = Device(name, words, origin, pool.driver, filesystem, self.program)
            if device.is_disk:
                yield device

    def disk(self, device: Device) -> MachineDisk:
        levels, assumed = find_levels(device)
        kind = "network" if device.is_rbd else "block" if device.is_host_device else "volume"
        if device.source.startswith("/") and not device.is_host_device:
            kind = "file"
        image = device.source if not device.pool else f"{device.pool}/{device.source or self.name}"
        facts = {
            "pool": device.pool,
            "driver": "rbd" if device.is_rbd else "",
            "pool driver": device.driver,
            "filesystem": device.filesystem,
            "size": device.config.get("size", ""),
        }
        return MachineDisk(
            name=device.name,
            image=image,
            kind=kind,  # type: ignore[arg-type]
            configured=Layer(levels, "its device, with what Incus does by itself", assumed),
            read_only=device.config.get("readonly") in ("true", "1", "yes", "on"),
            line=render_device(device),
            remarks=tuple(self.remarks(device)),
            facts={name: fact for name, fact in facts.items() if fact},
        )

    def remarks(self, device: Device) -> Iterator[Remark]:
        told = device.config.get("io.cache", "")
        if told and told not in CACHES:
            what = (
                f"io.cache={told[:40]} is none of {', '.join(CACHES)}: the machine does not start"
            )
            yield Remark("line-refused", "configured", "will not start", what, "disk.go startVM")
        if not told and device.without_direct:
            place = "a block device of the host" if device.is_host_device else "a TrueNAS pool"
            what = f"Incus starts {place} with cache=unsafe unless io.cache is set"
            yield Remark(
                "block-device-unsafe-by-default", "configured", "loses", what, SOURCE,
                change=self.set_cache(device),
            )  # fmt: skip
        if not told and device.is_file and not device.file_system:
            what = (
                "Incus takes cache=none, or writeback where the file system does not do direct I/O "
                "(ZFS, Btrfs): flushes are carried out with both"
            )
            yield Remark("unknown-cache", "configured", "note", what, SOURCE)
        cache = find_levels(device)[0].get("cache")
        if cache == "writeback" and device.driver in REMOTE_POOLS and not device.is_rbd:
            what = (
                f"cache=writeback in a {device.driver} pool, which other hosts reach too: the page "
                "cache of one host does not see what another writes"
            )
            rule = "qemu(1), migration and cache.direct; libvirt calls such a migration unsafe"
            yield Remark(
                "shared-writeback", "configured", "note", what, rule, change=self.set_cache(device)
            )
        yield from self.snapshot_remarks(device)
        if text := self.find_override(device):
            what = f"{text} may put other settings over these"
            yield Remark(
                "commandline-override", "configured", "unknown", what, "driver_qemu.go", "unknown"
            )

    def set_cache(self, device: Device) -> Change:
        target = Target(machine=self.name, disk=device.name, existing=render_device(device))
        paste = write({"cache": "none"}, target)
        return Change(paste.text, paste.takes_effect)

    def snapshot_remarks(self, device: Device) -> Iterator[Remark]:
        for snapshot in list_at(self.item, "snapshots")[:MAX_DEVICES]:
            words = _words(table_at(snapshot, "expanded_devices", device.name))
            if words.get("io.cache") == "unsafe" != device.config.get("io.cache"):
                name = text_at(snapshot, "name").rpartition("/")[2]
                what = f"the snapshot {name} has io.cache=unsafe: restoring it brings it back"
                change = Change(
                    f"{self.program} snapshot delete {self.name} {name}",
                    "at once, if the snapshot is not wanted; it cannot be edited",
                )
                source = "shared/api/instance_snapshot.go"
                yield Remark("snapshot-section", "configured", "note", what, source, change=change)

    def find_override(self, device: Device) -> str:
        """The key of raw.qemu* that can change how a device is driven; empty if none does."""
        for key in self.config:
            text = text_at(self.config, key)
            if key == "raw.qemu" and text:
                if found := find_override(text, device.name):
                    return f"raw.qemu: {found}"
            elif key == "raw.qemu.scriptlet" and text:
                return "raw.qemu.scriptlet is a program that"
            elif key.startswith(("raw.qemu.conf", "raw.qemu.qmp.")) and re.search(
                r"block|blk|\bdrive\b|scsi|nvme|cache|iothread|throttle", text
            ):
                return f"{key} speaks of disks and"
        return ""

    def notes(self, disks: tuple[MachineDisk, ...]) -> Iterator[str]:
        if not disks:
            yield f"no disk in it: its devices come from profiles ({self.program} config show -e)"
        facts = [disk.facts for disk in disks if "pool driver" not in disk.facts]
        if strange := sorted({each["pool"] for each in facts if "pool" in each}):
            yield (
                f"the driver of the pool {', '.join(strange)} is not known, and caches depend on "
                f"it: put {self.program} storage list --format yaml after it (and --- before that)"
            )
        if self.program != "incus":
            yield "it is LXD's"


def _words(table: Mapping[str, object]) -> dict[str, str]:
    """The keys of a device with their values on one line each."""
    return {key: text_at(table, key).replace("\n", " ") for key in table if "\n" not in key}


READING = Reading("incus", claims, read_machines)
