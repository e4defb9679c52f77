"""What is handed to QEMU behind libvirt's back: ``<qemu:commandline>`` and ``<qemu:override>``.

libvirt passes it on and does not look at it (docs/drvqemu.rst), so what it does to a disk is not in
the disk's element. What names a disk, its kind of device or the drives is told of that disk.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from xml.etree.ElementTree import Element

from diskproof.advice.libvirt_xml import disk_number
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import LayerName, MachineDisk, Remark

SOURCE = "libvirt docs/drvqemu.rst, pass-through of arbitrary QEMU commands"
_QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"
_DEVICES = r"(?:virtio-blk|virtio-scsi|scsi-hd|scsi-block|ide-hd|nvme|usb-storage)"
_ADDS_DISK = re.compile(rf"-(?:drive|blockdev|hd[abcd]|device (?:\{{[^\n]{{0,400}}?)?{_DEVICES})")
_GLOBAL = re.compile(rf"-(?:global|set) [^\n]{{0,400}}?(?P<device>{_DEVICES})")
_SET = re.compile(r"-set device\.(?P<alias>[\w-]+)\.(?P<property>[\w-]+)=(?P<value>.*)", re.DOTALL)
_EVERYWHERE = re.compile(r"-(?:snapshot|readconfig|set drive)\b")
_HARMLESS = ("serial", "bootindex", "physical_block_size", "logical_block_size", "rotation_rate")
_MAX_OPTIONS = 256
_SHOWN = 120


@dataclass(frozen=True)
class Override:
    """One thing that QEMU is told: ``alias`` names the device (empty: it is not one device's),
    ``device`` the kind (empty: any); ``text`` is what is told, ``name`` and ``value`` a property.
    """

    text: str
    alias: str = ""
    device: str = ""
    name: str = ""
    value: str = ""

    def concerns(self, disk: MachineDisk, aliases: set[str]) -> bool:
        """Whether it is about this disk; one on a bus that is not known it is."""
        if self.alias:
            return self.alias in aliases
        bus = disk.facts.get("bus", "")
        return not self.device or self.device in _DEVICES_OF_BUS.get(bus, (self.device,))


@dataclass(frozen=True)
class Overrides:
    """All of a machine; ``disks`` are options that add disks."""

    known: tuple[Override, ...]
    disks: tuple[str, ...]


def read_overrides(domain: Element, name: str) -> Overrides:
    """What QEMU is told beside libvirt's own. Raises UsageError where that is beyond all sense."""
    arguments = list(_read_arguments(domain))
    properties = list(_read_properties(domain))
    if len(arguments) + len(properties) > _MAX_OPTIONS:
        raise UsageError(f"{name}: more than {_MAX_OPTIONS} options are handed to QEMU")
    known = [found for each in arguments if (found := _understand(each))]
    added = tuple(each for each in arguments if _ADDS_DISK.match(each))
    return Overrides((*properties, *known), added)


def _understand(argument: str) -> Override | None:
    """What an option says of disks; None where it says nothing of any."""
    if found := _SET.match(argument):
        return Override(argument, found["alias"], "", found["property"], found["value"])
    if _EVERYWHERE.match(argument):
        return Override(argument)
    if found := _GLOBAL.match(argument):
        return Override(argument, device=found["device"])
    return None


def apply_overrides(
    overrides: Overrides, disks: tuple[MachineDisk, ...], layer: LayerName
) -> tuple[tuple[MachineDisk, ...], tuple[str, ...]]:
    """The disks with what is said of them behind libvirt's back, and notes on the machine."""
    notes = tuple(
        f"a disk is added behind libvirt's back: {each[:_SHOWN]}" for each in overrides.disks
    )
    return tuple(_apply(disk, overrides.known, layer) for disk in disks), notes


def _read_arguments(domain: Element) -> Iterator[str]:
    """Each option with its argument, as ``-set device.virtio-disk0.x=y``."""
    option = ""
    for each in domain.findall(f"{_QEMU}commandline/{_QEMU}arg"):
        word = each.get("value", "")
        if not word.startswith("-"):
            yield f"{option} {word}"
            option = ""
            continue
        if option:
            yield option
        option = f"-{word.lstrip('-')}"
    if option:
        yield option


def _read_properties(domain: Element) -> Iterator[Override]:
    """Those of ``<qemu:override>``."""
    for device in domain.findall(f"{_QEMU}override/{_QEMU}device"):
        for each in device.findall(f"{_QEMU}frontend/{_QEMU}property"):
            name, value = each.get("name", ""), each.get("value", "")
            yield Override(f"{name}={value}", device.get("alias") or "?", "", name, value)


def _apply(disk: MachineDisk, overrides: tuple[Override, ...], layer: LayerName) -> MachineDisk:
    aliases = _aliases(disk)
    given = [each for each in overrides if each.concerns(disk, aliases)]
    facts = {each.name: _on_off(each.value) for each in given if each.name == "config-wce"}
    told = [each.text for each in given if each.name not in (*facts, *_HARMLESS)]
    disk = replace(disk, facts={**disk.facts, **facts})
    if not told:
        return disk
    others = f" and {len(told) - 1} more" if told[1:] else ""
    what = f"QEMU is told {told[0][:_SHOWN]}{others} behind libvirt's back: what is set here may "
    remark = Remark(
        "commandline-override", layer, "unknown", f"{what}not be in force", SOURCE, "unknown"
    )
    return replace(disk, remarks=(*disk.remarks, remark))


def _on_off(value: str) -> str:
    return "off" if value in ("off", "false", "no", "0") else "on"


_DEVICES_OF_BUS: Mapping[str, tuple[str, ...]] = {
    "virtio": ("virtio-blk",),
    "scsi": ("virtio-scsi", "scsi-hd", "scsi-block"),
    "ide": ("ide-hd",),
    "sata": ("ide-hd",),
}


def _aliases(disk: MachineDisk) -> set[str]:
    """What libvirt calls the device; before it has run, as libvirt numbers those on virtio-blk."""
    if alias := disk.facts.get("alias", ""):
        return {alias}
    if disk.facts.get("bus") != "virtio":
        return set()
    return {f"virtio-disk{disk_number(disk.name)}"}
