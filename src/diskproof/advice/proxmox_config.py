"""A machine of Proxmox VE: /etc/pve/qemu-server/VMID.conf, or what ``qm config`` prints.

The text may begin with the sections of a storage.cfg, on which some defaults depend. Source:
qemu-server 9.2.6 (e6352be6) PVE/QemuServer.pm, parse_vm_config.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Literal

from diskproof.advice.dialect import Reading
from diskproof.advice.proxmox_drive import (
    SINGLE,
    TRUE,
    DriveLine,
    Storage,
    check_drive,
    find_levels,
    find_storage,
    is_drive_key,
    parse_drive,
    split_storages,
)
from diskproof.advice.qemu_extra import find_override, split_options
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Change, Layer, Machine, MachineDisk, Remark
from diskproof.study.factors import DIRECT

MAX_CHARS = 4 << 20
MAX_LINES = 20_000
QEMU_SERVER = "qemu-server 9.2.6 (e6352be6) PVE"
_CLAIMED = re.compile(
    r"^(?:(?:scsihw|ostype|smbios1|vmgenid|bootdisk): |(?:ide|sata|scsi|virtio)\d+: \S+)", re.M
)
_SECTION = re.compile(r"\[([^\]]*)\]\s*")
Kind = Literal["file", "block", "network", "volume", ""]
_TAKES_EFFECT = "at the next stop and start of the machine"


@dataclass(frozen=True)
class Sections:
    """The sections of a configuration: keys with their values."""

    main: dict[str, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    snapshots: dict[str, dict[str, str]] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)

    @property
    def deleted(self) -> frozenset[str]:
        """Keys that wait to be taken away; ``!`` before one says: with its volume."""
        words = re.split(r"[\s,;]+", self.pending.get("delete", ""))
        return frozenset(word.removeprefix("!") for word in words if word)

    @property
    def coming(self) -> dict[str, str]:
        """The main section as it will be after the next start."""
        merged = {**self.main, **self.pending}
        return {key: value for key, value in merged.items() if key not in self.deleted}


def split_sections(lines: list[str]) -> Sections:
    """Read the lines of a configuration. Comments, special and unknown sections are passed over;
    ``odd`` are lines that are no setting."""
    found = Sections()
    section: dict[str, str] | None = found.main
    for number, line in enumerate(lines, 1):
        if match := _SECTION.fullmatch(line):
            name = match[1]
            # Of a section that stands twice the last counts.
            if name.upper() == "PENDING":
                section = found.pending
                section.clear()
            elif re.fullmatch(r"[a-z][a-z0-9_-]+", name, re.IGNORECASE):
                section = found.snapshots[name] = {}
            else:
                section = None
            continue
        if section is None or not line.strip() or line.startswith("#"):
            continue
        key, colon, value = line.partition(":")
        if colon and value.strip() and re.fullmatch(r"[a-z][a-z_-]*\d{0,4}", key):
            key = "ide2" if key == "cdrom" else key
            if key not in section or _is_taken(key, value.strip()):  # what is refused counts not
                section[key] = value.strip()
        elif len(found.odd) < 3:
            found.odd.append(f"line {number} is no setting and was passed over: {line[:60]!r}")
    return found


def _is_taken(key: str, value: str) -> bool:
    """Whether Proxmox takes a line: a disk that it refuses leaves an earlier one in place."""
    try:
        return not is_drive_key(key) or not check_drive(parse_drive(key, value))
    except ValueError:
        return False


def claims(text: str) -> bool:
    """Whether a text looks like such a configuration."""
    return text.lstrip()[:1] not in ("<", "{") and _CLAIMED.search(text) is not None


def read_machines(text: str, name: str) -> tuple[Machine, ...]:
    """The machine of a configuration; ``name`` is its file's. Raises UsageError."""
    return (read_machine(text, name, {}),)


def read_machine(text: str, name: str, storages: Mapping[str, Storage]) -> Machine:
    """As ``read_machines``, with the storages of the node. Raises UsageError."""
    if len(text) > MAX_CHARS or text.count("\n") > MAX_LINES:
        raise UsageError(
            f"{name}: no configuration of Proxmox", f"longer than {MAX_LINES} lines or 4 MiB"
        )
    own, lines = split_storages(text)
    found = split_sections(lines)
    if not found.main:
        raise UsageError(
            f"{name}: no configuration of Proxmox",
            "its main section has no setting such as scsi0: STORAGE:VOLUME",
            "read /etc/pve/qemu-server/VMID.conf, or what qm config VMID prints",
        )
    vmid = re.fullmatch(r"(\d{1,9})(?:\.conf|\.txt)?", PurePosixPath(name).name)
    reader = _MachineReader(found, {**storages, **own}, vmid[1] if vmid else "")
    return Machine(
        name=found.main.get("name", reader.vmid or PurePosixPath(name).name),
        manager="proxmox",
        source=name,
        disks=tuple(reader.disks()),
        id=reader.vmid,
        notes=tuple(reader.notes()),
    )


@dataclass(frozen=True)
class _MachineReader:
    """Goes through the sections of one machine. ``vmid`` is empty where the name does not say."""

    found: Sections
    storages: Mapping[str, Storage]
    vmid: str

    @property
    def command(self) -> str:
        return f"qm set {self.vmid or 'VMID'}"

    def disks(self) -> Iterator[MachineDisk]:
        """Disks of the main section, those that wait to be plugged in, those of ``args``."""
        coming = self.found.coming
        for key in dict.fromkeys(filter(is_drive_key, (*self.found.main, *coming))):
            now, later = self.find_drive(self.found.main, key), self.find_drive(coming, key)
            drive = now or later
            if drive is None or drive.is_cdrom:
                continue
            configured = self.layer(now, self.found.main, "its main section")
            changed = self.layer(later, coming, "its section [PENDING]")
            if changed and configured and changed.levels == configured.levels:
                changed = None
            disk = self.describe(drive, configured, changed)
            yield replace(disk, remarks=tuple(self.remarks(drive, disk)))
        yield from _disks_of_args(self.found.main.get("args", ""))

    def find_drive(self, section: Mapping[str, str], key: str) -> DriveLine | None:
        """A disk of a section; None where it has none, or none that can be read."""
        try:
            return parse_drive(key, section[key])
        except (KeyError, ValueError):
            return None

    def layer(
        self, drive: DriveLine | None, section: Mapping[str, str], source: str
    ) -> Layer | None:
        if drive is None:
            return None
        levels, assumed = find_levels(drive, section.get("scsihw", ""), self.storages)
        return Layer(levels, source, assumed)

    def describe(self, drive: DriveLine, now: Layer | None, later: Layer | None) -> MachineDisk:
        storage = self.storages.get(drive.storage)
        image, kind = find_image(drive, find_storage(drive, self.storages))
        lines = [f"# {self.vmid}.conf"] if self.vmid else []
        lines.append(
            f"{drive.key}: {self.found.main.get(drive.key) or self.found.coming[drive.key]}"
        )
        hardware = self.found.main.get("scsihw", "")
        if drive.prefix == "scsi" and hardware:
            lines.append(f"scsihw: {hardware}")
        if storage is not None:
            words = [f"\t{k} {v}" for k, v in storage.options.items() if k in ("krbd", "nocow")]
            lines += [f"{storage.type}: {storage.name}", *words]
        facts = {
            "volume": drive.volume,
            "size": drive.properties.get("size", ""),
            "storage": storage.type if storage else "",
            "driver": "rbd" if kind == "network" and storage and storage.type == "rbd" else "",
            "scsihw": (hardware or "lsi") if drive.prefix == "scsi" else "",
        }
        return MachineDisk(
            name=drive.key,
            image=image,
            kind=kind,
            configured=now,
            pending=later,
            read_only=drive.is_on("ro") or self.found.main.get("template") in TRUE,
            line="\n".join(lines),
            facts={name: fact for name, fact in facts.items() if fact},
        )

    def remarks(self, drive: DriveLine, disk: MachineDisk) -> Iterator[Remark]:
        key, driver = drive.key, f"{QEMU_SERVER}/QemuServer.pm, config_to_command"
        for finding in check_drive(drive):
            what = f"Proxmox refuses {key} ({finding}) and leaves the whole disk out"
            yield Remark("line-refused", "configured", "ignored", what, f"{QEMU_SERVER}/QemuServer")
        hardware = self.found.main.get("scsihw", "")
        if drive.prefix == "scsi" and hardware != SINGLE:
            change = Change(
                f"{self.command} --scsihw {SINGLE}",
                f"{_TAKES_EFFECT}, for all its scsi disks; on Windows try a boot on a copy first",
            )
            for name, words in (("iothread", "iothread=1"), ("queues", "queues")):
                if drive.is_on(name) or (name == "queues" and name in drive.properties):
                    what = f"{words} is ignored: scsihw is {hardware or 'lsi (none is set)'}"
                    yield Remark(
                        f"{name}-ignored", "configured", "ignored", f"{what}, not {SINGLE}",
                        driver, change=change,
                    )  # fmt: skip
        if drive.is_on("snapshot"):
            what = "snapshot=1: all that is written is thrown away when the machine stops"
            yield Remark("temporary-writes", "configured", "loses", what, driver)
        yield from self.pending_remarks(key, disk)
        yield from self.storage_remarks(drive, disk)
        for name, section in self.found.snapshots.items():
            kept = self.find_drive(section, key)
            if kept and kept.properties.get("cache") == "unsafe" != drive.properties.get("cache"):
                what = f"the snapshot {name} has cache=unsafe: a rollback to it brings it back"
                change = Change(
                    f"qm delsnapshot {self.vmid or 'VMID'} {name}",
                    "at once, if the snapshot is not wanted; it cannot be edited",
                )
                yield Remark("snapshot-section", "configured", "note", what, driver, change=change)
        if text := find_override(self.found.main.get("args", ""), key):
            what = f"args: gives QEMU {text}, which may put other settings over these"
            yield Remark("commandline-override", "configured", "unknown", what, driver, "unknown")

    def pending_remarks(self, key: str, disk: MachineDisk) -> Iterator[Remark]:
        source = f"{QEMU_SERVER}/QemuServer.pm, vmconfig_update_disk"
        change: Change | None = Change(
            f"qm reboot {self.vmid or 'VMID'}", "at once: it stops it and starts it"
        )
        if disk.pending is not None and disk.pending.levels.get("cache") == "unsafe":
            change = Change(f"{self.command} --revert {key}", "at once: nothing waits any more")
        if key in self.found.deleted:
            what, change = f"{key} waits to be taken out at the next stop", None
        elif disk.pending is not None and disk.configured is None:
            what, change = f"{key} waits to be plugged in", None
        elif disk.pending is not None and disk.configured is not None:
            was = disk.configured.levels
            changes = [
                f"{name} {was.get(name, 'not known')} -> {level}"
                for name, level in disk.pending.levels.items()
                if was.get(name) != level
            ]
            what = f"a change waits in [PENDING]: {', '.join(changes) or 'another disk'}"
        else:
            return
        yield Remark("pending-change", "pending", "note", what, source, change=change)

    def storage_remarks(self, drive: DriveLine, disk: MachineDisk) -> Iterator[Remark]:
        storage = find_storage(drive, self.storages)
        if storage is None and disk.configured and "cache" not in disk.configured.levels:
            what = (
                f"its cache is none, or writeback if {drive.storage} is Btrfs with copy-on-write: "
                "flushes are carried out with both"
            )
            source = f"{QEMU_SERVER}/QemuServer/Drive.pm, drive_uses_cache_direct"
            yield Remark("unknown-cache", "configured", "note", what, source)
        cache = disk.configured.levels.get("cache", "") if disk.configured else ""
        if storage is None or not storage.shared or disk.kind == "network":
            return
        if cache and cache not in DIRECT and cache != "unsafe":
            what = (
                f"cache={cache} on {storage.type}, which other nodes reach too: the page cache of "
                "one node does not see what another writes; none or directsync is for migration"
            )
            rule = "qemu(1), migration and cache.direct; libvirt calls such a migration unsafe"
            yield Remark("shared-writeback", "configured", "note", what, rule)

    def notes(self) -> Iterator[str]:
        yield from self.found.odd
        strange: list[str] = []
        for key in filter(is_drive_key, self.found.main):
            try:
                drive = parse_drive(key, self.found.main[key])
            except ValueError as error:
                yield f"{error}: Proxmox leaves the disk out"
                continue
            if not drive.is_cdrom and find_storage(drive, self.storages) is None:
                strange.append(drive.storage)
        if strange:
            yield (
                f"what {', '.join(sorted(set(strange)))} is was not told, and defaults depend on "
                "it: put /etc/pve/storage.cfg before the configuration (cat both)"
            )
        for name, section in self.found.snapshots.items():
            for key in sorted(section.keys() - self.found.main.keys()):
                if is_drive_key(key) and "cache=unsafe" in section[key].split(","):
                    yield f"the snapshot {name} has a disk {key} with cache=unsafe"


def find_image(drive: DriveLine, storage: Storage | None) -> tuple[str, Kind]:
    """Where a volume lies and what it is: (path or URI, kind). What is not known is told by its
    name in the manager. Source: pve-storage 9.1.7 (0c56bad), PVE/Storage/*Plugin.pm, path."""
    name = drive.volume.partition(":")[2]
    last = name.rpartition("/")[2]
    if not drive.storage:
        return drive.volume, "block" if drive.volume.startswith("/dev/") else "file"
    options = storage.options if storage else {}
    kind = storage.type if storage else ""
    if kind == "rbd":
        place = f"{options.get('pool', 'rbd')}/{last}"
        if not storage or not storage.krbd:
            return f"rbd:{place}", "network"
        return (f"/dev/rbd-pve/{options['fsid']}/{place}" if "fsid" in options else ""), "block"
    if kind in ("zfs", "iscsidirect"):
        return drive.volume, "network"
    if kind in ("lvm", "lvmthin") and "vgname" in options:
        return f"/dev/{options['vgname']}/{last}", "block"
    if kind == "zfspool" and "pool" in options:
        return f"/dev/zvol/{options['pool']}/{last}", "block"
    folder = options.get("path", {"nfs": f"/mnt/pve/{drive.storage}"}.get(kind, ""))
    if kind in ("cifs", "cephfs", "glusterfs"):
        folder = folder or f"/mnt/pve/{drive.storage}"
    if drive.storage == "local" and kind == "dir":
        folder = folder or "/var/lib/vz"
    if folder and drive.in_file:
        owner = "/".join(name.split("/")[-2:])
        if kind == "btrfs" and owner.endswith(".raw"):
            owner = f"{owner.removesuffix('.raw')}/disk.raw"
        return f"{folder}/images/{owner}", "file"
    return drive.volume, "volume"


def _disks_of_args(args: str) -> Iterator[MachineDisk]:
    """Disks that ``args`` adds beside those of the configuration."""
    number = 0
    for option, value in split_options(args):
        if option not in ("-drive", "-blockdev", "-hda", "-hdb", "-hdc", "-hdd"):
            continue
        if re.search(r"(^|[^a-z0-9])(drive-)?(ide|sata|scsi|virtio|efidisk)\d", value):
            continue  # one of the configuration's own
        given = dict(part.partition("=")[::2] for part in value.split(","))
        if "pflash" in given.values() or given.get("media") == "cdrom":
            continue
        layer = None
        if option == "-drive":
            levels = {"cache": given.get("cache", "writeback"), "aio": given.get("aio", "threads")}
            layer = Layer(levels, "args", frozenset(levels) - set(given))
        read_only = given.get("readonly", given.get("read-only", "off")) == "on"
        what = "args: adds this disk beside what Proxmox knows"
        yield MachineDisk(
            name=f"args{number}",
            image=given.get("file", ""),
            configured=layer,
            read_only=read_only,
            line=f"{option} {value[:200]}",
            remarks=(Remark("commandline-override", "configured", "note", what, "qm(1), args"),),
        )
        number += 1


READING = Reading("proxmox", claims, read_machines)
