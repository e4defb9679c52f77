"""A disk as QMP tells it: query-block, query-named-block-nodes, qom-get (QEMU 7.2).

QMP tells neither ``discard`` nor ``aio``; they stay as the command line has them, if it does.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from diskproof.advice.qemu_nodes import LOCAL, NETWORK
from diskproof.host.machines.qmp_socket import BlockAnswers, Item
from diskproof.records.virtual_machines import Layer, MachineDisk, Remark
from diskproof.study.factors import CACHE_MODES, FACTOR_BY_NAME

_SOURCE = "QMP query-block, query-named-block-nodes, qom-get"
_ONLY_SET = ("aio", "discard", "l2-cache-size")


def inserted(block: Item) -> Item:
    """What is in a drive; empty for nothing."""
    found = block.get("inserted")
    return found if isinstance(found, dict) else {}


def find_block(answers: BlockAnswers, disk: MachineDisk) -> Item | None:
    """The block device of a disk of the command line: by its device's, drive's or node's name."""
    for block in answers.blocks:
        parts = str(block.get("qdev") or "").removesuffix("/virtio-backend").split("/")
        now = inserted(block)
        if now and disk.name in (parts[-1], block.get("device"), now.get("node-name")):
            return block
    return None


def read_block(disk: MachineDisk, block: Item, answers: BlockAnswers) -> MachineDisk:
    """The disk with what QMP says of it; one without a name came after the start."""
    now = inserted(block)
    file = str(now.get("file") or "")
    group = [node for node in answers.nodes if node.get("file") == file]
    ends = [node for node in group if str(node.get("drv")) in LOCAL | NETWORK]
    levels = {**_cache_level(now, ends), **_plain_levels(now, group)}
    device, controller, thread = answers.devices.get(str(block.get("qdev")), ("", "", False))
    if device:
        levels["iothread"] = "on" if thread else "off"
    if bus := _bus(device, controller):
        levels["bus"] = bus
    moved = any(remark.rule == "image-replaced" for remark in disk.remarks)
    was = disk.configured.levels if disk.configured and not moved else {}
    taken = {key: was[key] for key in _ONLY_SET if key in was}
    source = _SOURCE + ("; the rest by the command line" if taken else "")
    remarks = disk.remarks
    if not disk.name:
        what = "it is not on the command line: it was plugged in since QEMU started"
        unseen = "; QMP does not tell discard and aio"
        remarks = (Remark("hot-plugged", "running", "note", what + unseen, _SOURCE),)
    return replace(
        disk,
        name=disk.name or _name(block),
        image=disk.image or file,
        kind=disk.kind or _kind(ends),
        running=Layer({**taken, **levels}, source),
        read_only=disk.read_only or now.get("ro") is True,
        remarks=remarks,
    )


def _name(block: Item) -> str:
    qdev = str(block.get("qdev") or "").removesuffix("/virtio-backend").rpartition("/")[2]
    return qdev or str(block.get("device") or inserted(block).get("node-name") or "")


def _kind(ends: list[Item]) -> Literal["file", "block", "network", ""]:
    driver = str(ends[0].get("drv")) if len(ends) == 1 else ""
    if driver in NETWORK:
        return "network"
    return "file" if driver == "file" else "block" if driver == "host_device" else ""


def _flags(item: Item) -> Mapping[str, object]:
    cache = item.get("cache")
    return cache if isinstance(cache, dict) else {}


def _cache_level(now: Item, ends: list[Item]) -> dict[str, str]:
    """The lowest node decides on O_DIRECT and flushes, the device on write-through."""
    if len(ends) != 1:
        return {}
    flags, through = _flags(ends[0]), _flags(now).get("writeback") is False
    if flags.get("no-flush") is True:
        return {"cache": "unsafe"}
    wanted = (flags.get("direct") is True, False, through)
    for name, mode in CACHE_MODES.items():
        if (mode.direct, mode.no_flush, mode.write_through) == wanted:
            return {"cache": name}
    return {}


def _plain_levels(now: Item, group: list[Item]) -> dict[str, str]:
    zeroes = now.get("detect_zeroes")
    levels = {"detect-zeroes": zeroes} if isinstance(zeroes, str) else {}
    formats = FACTOR_BY_NAME["format"].levels
    drivers = {str(node.get("drv")) for node in group}
    found = [name for name in formats if name in drivers]
    if len(found) == 1:
        levels["format"] = found[0]
    elif drivers and drivers <= LOCAL | NETWORK:
        levels["format"] = "raw"
    return levels


def _bus(device: str, controller: str) -> str:
    if device.startswith("virtio-blk"):
        return "virtio-blk"
    if device.startswith("scsi-"):
        return "virtio-scsi" if controller.startswith("virtio-scsi") else ""
    if device.startswith("ide-"):
        return "ahci" if "ahci" in controller else "ide" if "ide" in controller else ""
    return "nvme" if device.startswith("nvme") else ""
