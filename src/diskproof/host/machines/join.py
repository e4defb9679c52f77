"""One machine that several were asked about: its manager's configuration and its running QEMU.

A QEMU belongs to a managed machine when their process, their UUID or, where the manager names no
process, their name is the same, and no other one has it. Disks are the same by image, then by name.
"""

import os
from collections.abc import Iterable
from dataclasses import replace

from diskproof.records.virtual_machines import Layer, Machine, MachineDisk, Remark


def join_machines(machines: Iterable[Machine]) -> tuple[Machine, ...]:
    """Managed machines with what runs of them; then the QEMUs that nobody manages."""
    found = list(machines)
    processes = [machine for machine in found if _is_process(machine)]
    joined = []
    for machine in found:
        if _is_process(machine):
            continue
        own = _find_process(machine, processes)
        if own is not None:
            processes.remove(own)
            machine = _with_process(machine, own)
        joined.append(machine)
    return (*joined, *processes)


def _is_process(machine: Machine) -> bool:
    """Whether it is a QEMU as it runs, and no manager's own word."""
    return machine.pid is not None and machine.source == f"process {machine.pid}"


def _find_process(machine: Machine, processes: list[Machine]) -> Machine | None:
    if machine.pid is not None:
        return next((each for each in processes if each.pid == machine.pid), None)
    same = [each for each in processes if each.id and each.id.lower() == machine.id.lower()]
    same = same or [each for each in processes if each.name in {machine.name, machine.id} - {""}]
    return same[0] if len(same) == 1 else None


def _with_process(machine: Machine, process: Machine) -> Machine:
    """What runs is QEMU's own word; what it does not tell stays the manager's."""
    left = list(process.disks)
    disks = []
    for disk in machine.disks:
        own = _find_disk(disk, left)
        if own is not None:
            left.remove(own)
            disk = _with_running(disk, own)
        disks.append(disk)
    # Read-only images beside the disks (firmware, a base, a CD) add nothing.
    disks += [disk for disk in left if not disk.read_only]
    return replace(
        machine,
        disks=tuple(disks),
        id=machine.id or process.id,
        pid=process.pid,
        notes=tuple(dict.fromkeys((*machine.notes, *process.notes))),
    )


def _find_disk(disk: MachineDisk, among: list[MachineDisk]) -> MachineDisk | None:
    """By image, which is sure; else by what the manager calls it."""
    image = _real(disk.image)
    by_image = [each for each in among if image and _real(each.image) == image]
    by_name = [each for each in among if _short(each.name) == _short(disk.name)]
    return next(iter(by_image or by_name), None)


def _real(image: str) -> str:
    return os.path.realpath(image) if image.startswith("/") else image


def _short(name: str) -> str:
    """``drive-scsi0`` is the drive of ``scsi0``."""
    return name.removeprefix("drive-")


def _with_running(disk: MachineDisk, own: MachineDisk) -> MachineDisk:
    return replace(
        disk,
        image=disk.image or own.image,
        kind=disk.kind or own.kind,
        # What QEMU took when it started is what runs, as far as nobody shows otherwise.
        running=merge_layers(disk.running, own.running or own.configured),
        read_only=disk.read_only or own.read_only,
        line=disk.line or own.line,
        remarks=tuple(dict.fromkeys((*disk.remarks, *map(_of_running, own.remarks)))),
        facts={**own.facts, **disk.facts},
    )


def _of_running(remark: Remark) -> Remark:
    """What a QEMU was started with is, beside its manager's configuration, what runs."""
    return replace(remark, layer="running") if remark.layer == "configured" else remark


def merge_layers(told: Layer | None, seen: Layer | None) -> Layer | None:
    """``seen`` counts before ``told``, and what was read before what was assumed."""
    if told is None or seen is None:
        return told or seen
    levels: dict[str, str] = {}
    assumed: set[str] = set()
    for layer in (told, seen):
        levels |= {name: layer.levels[name] for name in layer.assumed if name in layer.levels}
        assumed |= layer.assumed
    for layer in (told, seen):
        sure = {k: level for k, level in layer.levels.items() if k not in layer.assumed}
        levels |= sure
        assumed -= sure.keys()
    source = told.source if told.source == seen.source else f"{seen.source}; {told.source}"
    return Layer(levels, source, frozenset(assumed))
