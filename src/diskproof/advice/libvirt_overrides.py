"""What is handed to QEMU behind libvirt's back: ``<qemu:commandline>`` and ``<qemu:override>``.

libvirt passes it on and does not look at it (docs/drvqemu.rst), so what it does to a disk is not in
the disk's element. What names a disk, its kind of device or the drives is told of that disk.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from xml.etree.ElementTree import Element

from diskproof.advice.libvirt_xml import disk_number
from diskproof.records.virtual_machines import LayerName, MachineDisk, Remark

SOURCE = "libvirt docs/drvqemu.rst, pass-through of arbitrary QEMU commands"
_QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"
_DEVICES = r"(?:virtio-blk|virtio-scsi|scsi-hd|scsi-block|ide-hd|nvme|usb-storage)"
_ADDS_DISK = re.compile(rf"-(?:drive|blockdev|hd[abcd]|device (?:\{{.*)?{_DEVICES})")
_GLOBAL = re.compile(rf"-(?:global|set) .*?(?P<device>{_DEVICES})")
_SET = re.compile(r"-set device\.(?P<alias>[\w-]+)\.(?P<property>[\w-]+)=(?P<value>.*)")
_EVERYWHERE = re.compile(r"-(?:snapshot|readconfig|set drive)\b")
_HARMLESS = ("serial", "bootindex", "physical_block_size", "logical_block_size", "rotation_rate")


def apply_overrides(
    domain: Element, disks: Iterable[MachineDisk], layer: LayerName
) -> tuple[tuple[MachineDisk, ...], tuple[str, ...]]:
    """The disks with what is said of them behind libvirt's back, and notes on the machine."""
    arguments = list(_read_arguments(domain))
    notes = tuple(
        f"a disk is added behind libvirt's back: {each[:200]}"
        for each in arguments
        if _ADDS_DISK.match(each)
    )
    properties = list(_read_properties(domain))
    return tuple(_apply(disk, arguments, properties, layer) for disk in disks), notes


def _read_arguments(domain: Element) -> Iterator[str]:
    """Each option with its argument, as ``-set device.virtio-disk0.x=y``."""
    words = [each.get("value", "") for each in domain.findall(f"{_QEMU}commandline/{_QEMU}arg")]
    option = ""
    for word in words:
        if not word.startswith("-"):
            yield f"{option} {word}"
            option = ""
            continue
        if option:
            yield option
        option = f"-{word.lstrip('-')}"
    if option:
        yield option


def _read_properties(domain: Element) -> Iterator[tuple[str, str, str]]:
    """(alias, property, value) of ``<qemu:override>``."""
    for device in domain.findall(f"{_QEMU}override/{_QEMU}device"):
        for each in device.findall(f"{_QEMU}frontend/{_QEMU}property"):
            yield device.get("alias", ""), each.get("name", ""), each.get("value", "")


def _apply(
    disk: MachineDisk,
    arguments: list[str],
    properties: list[tuple[str, str, str]],
    layer: LayerName,
) -> MachineDisk:
    aliases = _aliases(disk)
    given = [(name, value) for alias, name, value in properties if alias in aliases]
    told = []
    for argument in arguments:
        if found := _SET.match(argument):
            if found["alias"] in aliases:
                given.append((found["property"], found["value"]))
        elif _EVERYWHERE.match(argument) or _names_device(argument, disk):
            told.append(argument)
    facts = {name: _on_off(value) for name, value in given if name == "config-wce"}
    told += [f"{name}={value}" for name, value in given if name not in (*facts, *_HARMLESS)]
    if not told and not facts:
        return disk
    remarks = [*disk.remarks, *(_remark(each, layer) for each in told)]
    return replace(disk, facts={**disk.facts, **facts}, remarks=tuple(remarks))


def _remark(what: str, layer: LayerName) -> Remark:
    text = f"QEMU is told {what[:200]} behind libvirt's back: what is set here may not be in force"
    return Remark("commandline-override", layer, "unknown", text, SOURCE, "unknown")


def _on_off(value: str) -> str:
    return "off" if value in ("off", "false", "no", "0") else "on"


def _names_device(argument: str, disk: MachineDisk) -> bool:
    """Whether an option for a kind of device concerns this disk; one of unknown bus it does."""
    found = _GLOBAL.match(argument)
    bus = disk.facts.get("bus", "")
    return found is not None and found["device"] in _DEVICES_OF_BUS.get(bus, (found["device"],))


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
