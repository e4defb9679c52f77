"""Proxmox VE: ``qm set VMID --scsi0 'STORAGE:VOLUME,cache=none,...'``, and back.

``qm set`` takes a disk from its argument alone (PVE/API2/Qemu.pm, update_vm_api), so a line always
holds everything that was in it.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from diskproof.advice.dialect import Dialect, Paste, Target, Unsayable
from diskproof.advice.proxmox_drive import (
    BUSES,
    INDEXES,
    SINGLE,
    SOURCE,
    DriveLine,
    Storage,
    check_drive,
    find_levels,
    find_storage,
    is_drive_key,
    keys_of,
    parse_drive,
    render_drive,
    split_storages,
)
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Levels
from diskproof.study.factors import DIRECT, FACTOR_BY_NAME

VERSION = "9.2"
TAKES_EFFECT = (
    "at the next stop and start (qm reboot does both; a reboot inside the guest does not): "
    "until then it stands in [PENDING]"
)
MAPPING = (
    ("cache", "cache=none|writeback|writethrough|directsync|unsafe; absent: none, on Btrfs with "
     "copy-on-write: writeback", "Drive.pm, drive_uses_cache_direct"),
    ("aio", "aio=io_uring|native|threads; absent: io_uring; on LVM, CIFS and buffered krbd: native "
     "if the cache is direct, else threads; none for librbd", "Drive.pm, aio_cmdline_option"),
    ("discard", "discard=on; absent or ignore: ignore", "Blockdev.pm, add_common_options"),
    ("detect-zeroes", "detect_zeroes=0: off; absent: on, with discard=on: unmap",
     "Drive.pm, detect_zeroes_cmdline_option"),
    ("iothread", "iothread=1 of virtioN, or of scsiN with scsihw virtio-scsi-single; elsewhere "
     "ignored with a warning", "QemuServer.pm, config_to_command"),
    ("bus", "the key: virtioN, scsiN (with scsihw virtio-scsi-*), ideN, sataN",
     "DriveDevice.pm, print_drivedevice_full"),
    ("format", "the volume's ending; STORAGE:SIZE,format= makes a new one",
     "Drive.pm, get_path_and_format"),
    ("preallocation", "a property of the storage; absent: metadata for qcow2, off for raw",
     "pve-storage Plugin.pm, preallocation_cmd_opt"),
    ("l2-cache-size", "cannot be said", "Blockdev.pm, generate_format_blockdev"),
)  # fmt: skip
"""A factor, how it is written here, and the file and function that it was read from."""

WINDOW = {
    "none": "No cache",
    "directsync": "Direct sync",
    "writethrough": "Write through",
    "writeback": "Write back",
    "unsafe": "Write back (unsafe)",
}
"""Cache modes in the web interface (pve-manager, form/CacheTypeSelector.js)."""

_USUAL_IMAGE = {"cluster_size": "64K", "lazy_refcounts": "off"}
_NEW = "STORAGE:SIZE_IN_GIB"


@dataclass(frozen=True)
class FoundLines:
    """What lines say: disks by key, ``scsihw`` (None: not said), the storages they stand on."""

    drives: Mapping[str, str] = field(default_factory=dict)
    scsihw: str | None = None
    storages: Mapping[str, Storage] = field(default_factory=dict)
    machine: str = ""


def _read_found(text: str, key: str) -> FoundLines:
    """Read ``qm set`` lines, lines of a configuration (``# 101.conf`` names it), a property string
    of disk ``key``, and the sections of a storage.cfg among them. Raises ValueError."""
    storages, lines = split_storages(text)
    values: dict[str, str] = {}
    machine = ""
    for line in filter(None, (line.strip() for line in lines)):
        if line.startswith("#"):
            named = re.fullmatch(r"# (\d+)\.conf", line)
            machine = named[1] if named else machine
        elif line.startswith("qm "):
            words = shlex.split(line)
            machine = words[2] if words[1:2] == ["set"] and len(words) > 2 else machine
            values |= _options(words)
        elif (found := re.match(r"([a-z][a-z_-]*\d*): +(\S.*)", line)) and (
            is_drive_key(found[1]) or found[1] == "scsihw"
        ):
            values[found[1]] = found[2]
        else:
            values[key] = line
    drives = {name: value for name, value in values.items() if is_drive_key(name)}
    return FoundLines(drives, values.get("scsihw"), storages, machine)


def _options(words: list[str]) -> dict[str, str]:
    """The options of a command: ``--NAME VALUE`` or ``--NAME=VALUE``."""
    options: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            options[name] = value if equals else following
    return options


@dataclass(frozen=True)
class Rewrite:
    """What is to be written: the disk as it is (None: a new one) and as it shall be."""

    was: DriveLine | None
    drive: DriveLine
    scsihw: str | None
    storages: Mapping[str, Storage]
    machine: str


def _plan(levels: Levels, target: Target) -> Rewrite:
    """Raises ValueError where what was found cannot be read."""
    key = target.disk if is_drive_key(target.disk) else ""
    found = _read_found(target.existing, key or "scsi0")
    if not key:
        key = next(iter(found.drives), "scsi0")
    was = parse_drive(key, found.drives[key]) if key in found.drives else None
    volume = target.image or _NEW
    if re.search(r"[,'\"\s]", volume):
        raise ValueError(f"{volume!r} cannot stand in a property string")
    drive = was or DriveLine(key, volume, {})
    by_path = volume.startswith("/") and levels.get("format") != "raw"  # absent: raw
    if was is None and "format" in levels and (by_path or not target.image):
        drive = replace(drive, properties={"format": levels["format"]})
    prefix = next((p for p, bus in BUSES.items() if bus == levels.get("bus")), drive.prefix)
    if prefix != drive.prefix:
        index = int(key.removeprefix(drive.prefix)) % INDEXES[prefix]
        drive = DriveLine(f"{prefix}{index}", drive.volume, keys_of(prefix, drive))
    storages = dict(found.storages)
    if target.filesystem == "btrfs" and drive.storage:
        storages.setdefault(drive.storage, Storage(drive.storage, "btrfs", {}))
    return Rewrite(was, drive, found.scsihw, storages, found.machine or target.machine or "VMID")


def _find_obstacles(levels: Levels, target: Target) -> Iterator[Unsayable]:
    try:
        drive = _plan(levels, target).drive
    except ValueError as error:
        yield Unsayable("image", target.image, str(error))
        return
    cache, aio = levels.get("cache"), levels.get("aio")
    if levels.get("bus") == "nvme":
        yield Unsayable("bus", "nvme", "Proxmox has no NVMe disks", "virtio-scsi")
    if aio == "native" and cache and cache not in DIRECT:
        reason = f"QEMU does not start with aio=native and cache={cache}: it is not direct"
        yield Unsayable("aio", "native", reason, "threads")
    if levels.get("iothread") == "on" and drive.prefix not in ("scsi", "virtio"):
        reason = "Proxmox has an I/O thread for virtio and scsi disks only"
        yield Unsayable("iothread", "on", reason, "off")
    zeroes, discard = levels.get("detect-zeroes"), levels.get("discard", "")
    if zeroes == "on" and discard == "unmap":
        reason = "detect_zeroes is a yes or no, and with discard=on its yes is unmap"
        yield Unsayable("detect-zeroes", "on", reason, "unmap")
    if zeroes == "unmap" and discard == "ignore":
        reason = "with discard=ignore the yes of detect_zeroes is on"
        yield Unsayable("detect-zeroes", "unmap", reason, "on")
    if levels.get("format") == "qed":
        yield Unsayable("format", "qed", "no storage of Proxmox makes QED images", "qcow2")
    usual = FACTOR_BY_NAME["l2-cache-size"].default
    if levels.get("l2-cache-size", usual) != usual:
        reason = "a property string has no such key, and args: does not reach its block nodes"
        yield Unsayable("l2-cache-size", levels["l2-cache-size"], reason, usual)


def find_obstacles(levels: Levels, target: Target) -> tuple[Unsayable, ...]:
    """What of a cell no property string says."""
    return tuple(_find_obstacles(levels, target))


def write(levels: Levels, target: Target) -> Paste:
    """The lines that bring a disk to the levels. What the levels do not name, and what is in force
    already, stays as it is. Raises ValueError for what cannot be said."""
    if obstacles := find_obstacles(levels, target):
        raise ValueError("; ".join(f"{each.factor}: {each.reason}" for each in obstacles))
    plan = _plan(levels, target)
    drive = _change(plan, levels)
    create = _create(levels, drive)
    if create and drive.volume == _NEW:  # what the command makes, not a new one of the storage's
        others = {name: value for name, value in drive.properties.items() if name != "format"}
        drive = DriveLine(drive.key, _made_volume(levels), others)
    lines = []
    if plan.was is not None and plan.was.key != drive.key:
        lines.append(f"qm set {plan.machine} --delete {plan.was.key}")
    if _needs_single(plan, drive, levels):
        lines.append(f"qm set {plan.machine} --scsihw {SINGLE}")
    lines.append(f"qm set {plan.machine} --{drive.key} {_quote(render_drive(drive))}")
    return Paste(
        "\n".join(lines),
        "a shell of the node that has the machine",
        TAKES_EFFECT,
        create,
        tuple(_notes(plan, drive, levels)),
    )


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _change(plan: Rewrite, levels: Levels) -> DriveLine:
    """The disk with the properties that are not in force yet."""
    drive = plan.drive
    hardware = SINGLE if _needs_single(plan, drive, levels) else plan.scsihw
    for factor, name, words in (
        ("cache", "cache", {}),
        ("aio", "aio", {}),
        ("discard", "discard", {"unmap": "on", "ignore": ""}),
        ("detect-zeroes", "detect_zeroes", {"off": "0", "on": "", "unmap": ""}),
        ("iothread", "iothread", {"on": "1", "off": ""}),
    ):
        if factor not in levels:
            continue
        in_force = find_levels(drive, hardware, plan.storages)[0]
        silent = plan.was is None and factor in ("cache", "aio")
        if in_force.get(factor) == levels[factor] and not (silent and name not in drive.properties):
            continue
        word = words.get(levels[factor], levels[factor])
        others = {k: v for k, v in drive.properties.items() if k != name}
        if word and name in drive.properties:
            others = {k: word if k == name else v for k, v in drive.properties.items()}
        elif word:
            others[name] = word
        drive = replace(drive, properties=others)
    return drive


def _needs_single(plan: Rewrite, drive: DriveLine, levels: Levels) -> bool:
    if drive.prefix != "scsi" or plan.scsihw == SINGLE:
        return False
    virtio = (plan.scsihw or "").startswith("virtio-scsi")
    return levels.get("iothread") == "on" or (levels.get("bus") == "virtio-scsi" and not virtio)


def _create(levels: Levels, drive: DriveLine) -> str:
    """The command that makes an image whose settings the storage would not give it."""
    form = levels.get("format", "qcow2" if drive.volume.endswith(".qcow2") else "raw")
    usual = {**_USUAL_IMAGE, "preallocation": "metadata" if form == "qcow2" else "off"}
    names = [name for name in usual if levels.get(name, usual[name]) != usual[name]]
    if form != "qcow2":
        names = [name for name in names if name == "preallocation"]
    if not names:
        return ""
    volume = _made_volume(levels) if drive.volume == _NEW else drive.volume
    options = ",".join(f"{name}={levels[name]}" for name in usual if name in levels)
    path = volume if volume.startswith("/") else f'"$(pvesm path {volume})"'
    return f"qemu-img create -f {form} -o {options} {path} SIZE"


def _made_volume(levels: Levels) -> str:
    return f"STORAGE:VMID/vm-VMID-disk-0.{levels.get('format', 'raw')}"


def _notes(plan: Rewrite, drive: DriveLine, levels: Levels) -> Iterator[str]:
    if _needs_single(plan, drive, levels):
        yield (
            f"scsihw is one for all scsi disks of the machine; without {SINGLE} Proxmox ignores "
            "iothread=1 with a warning in its log; on Windows try a boot with another controller "
            "on a copy first"
        )
    if plan.was is not None and plan.was.key != drive.key:
        yield (
            f"{plan.was.key} becomes {drive.key}: do it with the machine stopped, and put it into "
            f"the boot order again (qm set {plan.machine} --boot order={drive.key}); on Windows "
            "install its driver first"
        )
    if fields := ", ".join(_in_window(drive)):
        yield f"in the web interface (Hardware, Hard Disk, Advanced): {fields}"
    storage = find_storage(drive, plan.storages)
    kind = storage.type if storage else ""
    if levels.get("aio") == "io_uring" and kind in ("lvm", "cifs"):
        yield f"Proxmox does not use io_uring on {kind} by itself: it has seen it hang there"
    if plan.was is not None and "format" in levels:
        found = find_levels(drive, plan.scsihw, plan.storages)[0].get("format", levels["format"])
        if found != levels["format"]:
            yield (
                f"the volume is {found}: qm disk move {plan.machine} {drive.key} STORAGE --format "
                f"{levels['format']} makes it {levels['format']}"
            )


def _in_window(drive: DriveLine) -> Iterator[str]:
    """What is set, as the web interface shows it."""
    has = drive.properties
    if has.get("cache") in WINDOW:
        yield f"Cache: {WINDOW[has['cache']]}"
    if "aio" in has:
        yield f"Async IO: {has['aio']}"
    if has.get("discard") == "on":
        yield "Discard ticked"
    if has.get("iothread") == "1":
        yield "IO thread ticked"


def read(text: str, target: Target) -> Levels:
    """The levels of a disk in lines as ``write`` makes them, in a configuration's lines or in a
    property string. Raises UsageError."""
    try:
        found = _read_found(text, target.disk or "scsi0")
        known = _read_found(target.existing, target.disk or "scsi0")
        key = target.disk if target.disk in found.drives else next(iter(found.drives), "")
        if not key:
            raise ValueError("there is no disk in it")
        drive = parse_drive(key, found.drives[key])
    except ValueError as error:
        raise UsageError("not a disk of Proxmox", str(error)) from error
    if findings := check_drive(drive):
        raise UsageError(f"not a disk of Proxmox: {drive.key}", "; ".join(findings))
    scsihw = known.scsihw if found.scsihw is None else found.scsihw
    levels, _ = find_levels(drive, scsihw, {**known.storages, **found.storages})
    if drive.volume == _NEW and "format" not in drive.properties:
        levels.pop("format", None)
    return levels


def find_defaults(target: Target) -> dict[str, str]:
    """What the web interface gives a new disk of a new Linux guest on a kind of storage, which
    ``target.filesystem`` may name (``btrfs``, ``lvm``, ``cifs``). It makes qcow2 images where the
    storage has them (pve-manager, DiskStorageSelector.js; not on Btrfs: BTRFSPlugin.pm), with
    their metadata preallocated (pve-storage, Plugin.pm preallocation_cmd_opt)."""
    kind = target.filesystem if target.filesystem in ("btrfs", "lvm", "cifs") else "dir"
    drive = DriveLine("scsi0", "new:0", {"iothread": "1"})
    levels, _ = find_levels(drive, SINGLE, {"new": Storage("new", kind, {})})
    is_qcow2 = not target.block and kind in ("dir", "cifs")
    image = {"format": "qcow2", "preallocation": "metadata"} if is_qcow2 else {"format": "raw"}
    return levels | image


DIALECT = Dialect(
    name="proxmox",
    title="Proxmox VE",
    source=f"{SOURCE}, Blockdev.pm, DriveDevice.pm; pve-docs 9.1.3 (e5010dc) qm.adoc; "
    "pve-manager DiskStorageSelector.js; pve-storage Plugin.pm, BTRFSPlugin.pm",
    find_obstacles=find_obstacles,
    write=write,
    read=read,
    defaults=find_defaults,
    version="9",
)
