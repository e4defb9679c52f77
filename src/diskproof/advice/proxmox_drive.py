"""A disk as Proxmox VE writes it: a property string, and what is in force where a word is missing.

Facts from qemu-server 9.2.6 (e6352be6: PVE/QemuServer/Drive.pm, Blockdev.pm, DriveDevice.pm) and
pve-storage 9.1.7 (0c56bad).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from diskproof.study.factors import CACHE_MODES, DIRECT, FACTOR_BY_NAME

SOURCE = "qemu-server 9.2.6 (e6352be6) PVE/QemuServer/Drive.pm"
SINGLE = "virtio-scsi-single"
BUSES = {"virtio": "virtio-blk", "scsi": "virtio-scsi", "ide": "ide", "sata": "ahci"}
"""Prefix of a disk's key -> bus; a scsi disk is on virtio-scsi only with such a ``scsihw``."""
INDEXES = {"virtio": 16, "scsi": 31, "ide": 4, "sata": 6}
"""How many disks of a prefix a machine may have."""
TRUE = ("1", "on", "yes", "true")
FALSE = ("0", "off", "no", "false")

_KEY = re.compile(r"(ide|sata|scsi|virtio)(0|[1-9]\d?)", re.ASCII)
_VOLUME = re.compile(r"/|none$|cdrom$|[A-Za-z][\w.-]*[A-Za-z0-9]:.", re.ASCII)
_STORAGE_TYPES = frozenset(
    ("btrfs", "cephfs", "cifs", "dir", "esxi", "glusterfs", "iscsi", "iscsidirect", "lvm",
     "lvmthin", "nfs", "pbs", "rbd", "zfs", "zfspool")
)  # fmt: skip
_SHARED = frozenset(["cephfs", "cifs", "glusterfs", "iscsi", "iscsidirect", "nfs", "rbd", "zfs"])
_WITHOUT_AIO = ("zfs", "iscsidirect")  # QEMU's iscsi driver; librbd is told by krbd
_BASE = frozenset(
    ("aio", "backup", "cache", "detect_zeroes", "discard", "file", "format", "media", "replicate",
     "rerror", "serial", "shared", "size", "snapshot", "volume", "werror")
)  # fmt: skip
_DROPPED = frozenset(["cyls", "heads", "secs", "trans"])
_ONLY = {
    "virtio": frozenset({"iothread", "ro"}),
    "scsi": frozenset(["iothread", "product", "queues", "ro", "scsiblock", "ssd", "vendor", "wwn"]),
    "ide": frozenset({"model", "ssd", "wwn"}),
    "sata": frozenset({"ssd", "wwn"}),
}
_LIMIT = re.compile(r"(m?bps|iops)(_rd|_wr)?(_max)?(_max_length|_length)?", re.ASCII)
_WORDS = {
    "cache": tuple(CACHE_MODES),
    "aio": FACTOR_BY_NAME["aio"].levels,
    "discard": ("ignore", "on"),
    "media": ("cdrom", "disk"),
    "detect_zeroes": TRUE + FALSE,
    "iothread": TRUE + FALSE,
    "ro": TRUE + FALSE,
}


@dataclass(frozen=True)
class Storage:
    """A section of storage.cfg."""

    name: str
    type: str
    options: Mapping[str, str]

    @property
    def krbd(self) -> bool:
        """Whether RBD images are mapped by the kernel, so that they are block devices."""
        return self.options.get("krbd") in TRUE

    @property
    def copies_on_write(self) -> bool:
        return self.type == "btrfs" and self.options.get("nocow") not in TRUE

    @property
    def shared(self) -> bool:
        """Whether other nodes reach it too."""
        return self.type in _SHARED or self.options.get("shared") in TRUE


@dataclass(frozen=True)
class DriveLine:
    """A disk: its key (``scsi0``), its volume or path, and its other properties as written."""

    key: str
    volume: str
    properties: Mapping[str, str]

    @property
    def prefix(self) -> str:
        return self.key.rstrip("0123456789")

    @property
    def storage(self) -> str:
        """The storage's name; empty for a path."""
        name, colon, _ = self.volume.partition(":")
        return name if colon and not self.volume.startswith("/") else ""

    @property
    def in_file(self) -> bool:
        """Whether its volume's name is one of a storage that keeps files (``101/vm-101-...``)."""
        return re.match(r"[^:/]+:(\d+|[^/]+/\d+)/", self.volume) is not None

    def is_on(self, name: str) -> bool:
        return self.properties.get(name) in TRUE

    @property
    def is_cdrom(self) -> bool:
        """A CD-ROM or the drive with cloud-init's answers: neither holds a guest's data."""
        cloud = re.search(r"[:/](vm-\d+-)?cloudinit(\.\w+)?$", self.volume)
        return self.properties.get("media") == "cdrom" or cloud is not None


def is_drive_key(key: str) -> bool:
    """Whether a key of a configuration names a disk (``scsi30``, not ``scsi31`` or ``unused0``)."""
    found = _KEY.fullmatch(key)
    return found is not None and int(found[2]) < INDEXES[found[1]]


def parse_drive(key: str, text: str) -> DriveLine:
    """Read a property string. Raises ValueError with what is wrong in it."""
    volume, properties = "", {}
    for part in text.strip().split(","):
        name, equals, value = part.partition("=")
        if not equals or name in ("file", "volume"):
            if volume:
                raise ValueError(f"{key} has two volumes")
            volume = value if equals else name
        elif name in properties:
            raise ValueError(f"{key} says {name} twice")
        else:
            properties[name] = value
    if not volume:
        raise ValueError(f"{key} has no volume")
    return DriveLine(key, volume, properties)


def render_drive(drive: DriveLine) -> str:
    """The property string: the inverse of ``parse_drive``."""
    return ",".join((drive.volume, *(f"{k}={v}" for k, v in drive.properties.items())))


def check_drive(drive: DriveLine) -> list[str]:
    """What Proxmox refuses in it: it then leaves the whole disk out, with a warning in its log."""
    known = _BASE | _DROPPED | _ONLY[drive.prefix]
    findings = []
    if _VOLUME.match(drive.volume) is None:
        findings.append(f"{drive.volume[:40]!r} is neither a path nor STORAGE:VOLUME")
    for name, value in drive.properties.items():
        if name not in known and _LIMIT.fullmatch(name) is None:
            findings.append(f"{drive.prefix} disks have no key {name[:40]!r}")
        elif name in _WORDS and value not in _WORDS[name]:
            findings.append(f"{name} cannot be {value[:40]!r}")
    return findings + _check_limits(drive.properties)


def _check_limits(properties: Mapping[str, str]) -> list[str]:
    """Limits that need another one, and those that bar each other."""
    told = {re.sub(r"^bps(?=$|_..$)", "mbps", k): v for k, v in properties.items() if v != "0"}
    findings = []
    for name in told:
        if (parts := _LIMIT.fullmatch(name)) is None:
            continue
        kind = "iops" if parts[1] == "iops" else "mbps"
        side = parts[2] or ""
        needed = f"{kind}{side}_max" if parts[4] else f"{kind}{side}"
        if (parts[3] or parts[4]) and needed not in told:
            findings.append(f"{name} needs {needed}")
        elif side and not parts[3] and not parts[4] and kind in told:
            findings.append(f"{name} cannot stand beside {kind}")
    return findings


def keys_of(prefix: str, drive: DriveLine) -> dict[str, str]:
    """The properties of a disk that one with another prefix may have too."""
    barred = frozenset().union(*_ONLY.values()) - _ONLY[prefix]
    return {name: value for name, value in drive.properties.items() if name not in barred}


def read_storages(text: str) -> dict[str, Storage]:
    """The storages of a storage.cfg, by name. Lines that belong to no storage are passed over."""
    return split_storages(text)[0]


def split_storages(text: str) -> tuple[dict[str, Storage], list[str]]:
    """Take the sections of a storage.cfg out of a text: storages by name, and the other lines."""
    storages: dict[str, Storage] = {}
    others: list[str] = []
    options: dict[str, str] | None = None
    for line in text.split("\n"):
        kind, colon, name = line.partition(":")
        if colon and kind in _STORAGE_TYPES and re.fullmatch(r"[\w.-]+", name.strip()):
            options = {}
            storages[name.strip()] = Storage(name.strip(), kind, options)
        elif options is not None and line[:1] in (" ", "\t") and line.strip():
            word, _, value = line.strip().partition(" ")
            options[word] = value.strip() or "1"
        else:
            options = None
            others.append(line)
    return storages, others


def find_storage(drive: DriveLine, storages: Mapping[str, Storage]) -> Storage | None:
    """Where its volume lies, as far as that is known. Every node has a ``local`` that is a
    directory, and a path belongs to no storage, which behaves like one."""
    if not drive.storage:
        return Storage("", "dir", {})
    implied = Storage("local", "dir", {}) if drive.storage == "local" else None
    return storages.get(drive.storage, implied)


def find_levels(
    drive: DriveLine, scsihw: str | None, storages: Mapping[str, Storage]
) -> tuple[dict[str, str], frozenset[str]]:
    """The levels in force and which of them nobody wrote. ``scsihw`` is None where it is not known
    and empty where the configuration says none. A level that depends on a storage whose type is
    not known is left out."""
    storage = find_storage(drive, storages)
    cache = drive.properties.get("cache") or _usual_cache(drive, storage)
    discard = "unmap" if drive.properties.get("discard") == "on" else "ignore"
    zeroes = "off" if drive.properties.get("detect_zeroes") in FALSE else ""
    levels = {
        "format": _format(drive, storage),
        "cache": cache,
        "aio": _aio(drive, storage, cache),
        "discard": discard,
        "detect-zeroes": zeroes or ("unmap" if discard == "unmap" else "on"),
        "iothread": _iothread(drive, scsihw),
        "bus": _bus(drive, scsihw),
    }
    levels = {name: level for name, level in levels.items() if level}
    told = {name.replace("_", "-") for name in drive.properties} | {"bus"}
    return levels, frozenset(levels) - told


def _usual_cache(drive: DriveLine, storage: Storage | None) -> str:
    if storage is None:  # only files can lie on Btrfs
        return "" if drive.in_file else "none"
    return "writeback" if storage.copies_on_write else "none"


def _aio(drive: DriveLine, storage: Storage | None, cache: str) -> str:
    if storage and (storage.type in _WITHOUT_AIO or (storage.type == "rbd" and not storage.krbd)):
        return ""
    if told := drive.properties.get("aio", ""):
        return told
    if storage is None or not cache:
        return ""
    direct = cache in DIRECT
    if storage.type in ("lvm", "cifs") or (storage.type == "rbd" and not direct):
        return "native" if direct else "threads"
    return "io_uring"


def _iothread(drive: DriveLine, scsihw: str | None) -> str:
    if not drive.is_on("iothread") or drive.prefix not in ("scsi", "virtio"):
        return "off"
    if drive.prefix == "scsi" and scsihw != SINGLE:
        return "" if scsihw is None else "off"
    return "on"


def _bus(drive: DriveLine, scsihw: str | None) -> str:
    if drive.prefix == "scsi" and not (scsihw or "").startswith("virtio-scsi"):
        return ""
    return BUSES[drive.prefix]


def _format(drive: DriveLine, storage: Storage | None) -> str:
    ending = drive.volume.rpartition(".")[2]
    if drive.storage and ending in ("raw", "qcow2"):
        return ending
    told = drive.properties.get("format", "")
    if told:
        return told if told in FACTOR_BY_NAME["format"].levels else ""
    return "" if ending in ("vmdk", "subvol") or (storage is None and drive.in_file) else "raw"
