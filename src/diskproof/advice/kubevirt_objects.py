"""What ``kubectl get vm|vmi -o yaml|json`` tells of the disks of KubeVirt's machines."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from diskproof.advice import kubevirt
from diskproof.advice.dialect import Reading, Target
from diskproof.advice.documents import (
    count_nodes,
    dump_yaml,
    find_at,
    list_at,
    load_documents,
    require_few_disks,
    table_at,
    text_at,
)
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import (
    Change,
    Effect,
    Layer,
    LayerName,
    Levels,
    Machine,
    MachineDisk,
    Remark,
)

_CLAIM = re.compile(
    r"""^[ \t\-{,]{0,200}["']?apiVersion["']?\s*:\s*["']?kubevirt\.io/""", re.MULTILINE
)
_TEMPLATE = ("spec", "template", "spec")
MADE_ANEW = (
    "cloudInitNoCloud",
    "cloudInitConfigDrive",
    "configMap",
    "secret",
    "serviceAccount",
    "sysprep",
    "downwardAPI",
    "downwardMetrics",
)
"""Volumes that KubeVirt writes itself at each start: nothing of the guest's is on them."""
GONE = ("containerDisk", "ephemeral", "emptyDisk")
"""Volumes whose writes end with the machine, as they are meant to."""
MAX_DISK_NODES = 100_000
"""Values in all disks of one text: so many take about three seconds."""


@dataclass(frozen=True)
class _Object:
    """One VirtualMachine or VirtualMachineInstance. ``key`` is its namespace and name."""

    key: str
    is_instance: bool
    spec: Mapping[str, object]
    whole: Mapping[str, object]

    @property
    def filled_in(self) -> bool:
        """Whether an instance type or a preference gives what the object leaves out."""
        return not self.is_instance and any(
            find_at(self.whole, "spec", word) for word in ("instancetype", "preference")
        )

    @property
    def runs(self) -> bool:
        """Whether it is what virt-launcher was told, and no manifest or an instance that ended."""
        return self.is_instance and text_at(self.whole, "status", "phase") == "Running"

    @cached_property
    def disks(self) -> Mapping[str, Mapping[str, object]]:
        """Its disks by name."""
        return _by_name(self.spec, "domain", "devices", "disks")

    @cached_property
    def volumes(self) -> Mapping[str, Mapping[str, object]]:
        """Its volumes by name."""
        return _by_name(self.spec, "volumes")

    @cached_property
    def statuses(self) -> Mapping[str, Mapping[str, object]]:
        """What an instance tells of its volumes, by name."""
        return _by_name(self.whole, "status", "volumeStatus")

    @cached_property
    def has_threads(self) -> bool:
        """Whether its virtio disks get I/O threads: a policy or one dedicated thread does it."""
        return bool(find_at(self.spec, "domain", "ioThreadsPolicy")) or any(
            find_at(disk, "dedicatedIOThread") is True for disk in self.disks.values()
        )


def _by_name(document: object, *keys: str) -> dict[str, Mapping[str, object]]:
    items = (item for item in list_at(document, *keys) if isinstance(item, dict))
    return {text_at(item, "name"): item for item in items}


def claims(text: str) -> bool:
    """Whether it is an object of KubeVirt's, or a list of some."""
    return bool(_CLAIM.search(text))


def read_machines(text: str, name: str) -> tuple[Machine, ...]:
    """The machines of objects as kubectl prints them. A VirtualMachine and its instance are one
    machine. Raises UsageError where there is none."""
    objects = [_read_object(item) for doc in load_documents(text, name) for item in _items(doc)]
    disks = [disk for item in objects if item for disk in item.disks.values()]
    require_few_disks(len(disks), name)
    if sum(map(count_nodes, disks)) > MAX_DISK_NODES:
        raise UsageError(f"{name}: too large disks", f"with {MAX_DISK_NODES} values at most")
    found: dict[str, dict[bool, _Object]] = {}
    for item in objects:
        if item is not None:
            found.setdefault(item.key, {})[item.is_instance] = item
    if not found:
        hint = "print them with kubectl get vm,vmi -A -o yaml"
        raise UsageError(f"{name}: no VirtualMachine in it", hint=hint)
    return tuple(_read_machine(pair.get(False), pair.get(True), name) for pair in found.values())


def _items(document: object) -> Iterator[object]:
    yield from list_at(document, "items") if find_at(document, "items") else [document]


def _read_object(item: object) -> _Object | None:
    kind = text_at(item, "kind")
    if not isinstance(item, dict) or kind not in ("VirtualMachine", "VirtualMachineInstance", ""):
        return None
    names = [text_at(item, "metadata", key) for key in ("namespace", "name")]
    key = "/".join(name for name in names if name) or "unnamed"
    if find_at(item, *_TEMPLATE) is not None:
        return _Object(key, False, table_at(item, *_TEMPLATE), item)
    if find_at(item, "spec", "domain") is not None:
        return _Object(key, True, table_at(item, "spec"), item)
    return None


def _read_machine(vm: _Object | None, vmi: _Object | None, name: str) -> Machine:
    if vm and vmi and not vmi.runs:
        vmi = None
    given = [each for each in (vmi, vm) if each]
    disks, left_out = [], []
    for disk in dict.fromkeys(disk for each in reversed(given) for disk in each.disks):
        volume = next((each.volumes[disk] for each in given if disk in each.volumes), {})
        source = next((key for key in volume if key != "name"), "")
        if source in MADE_ANEW:
            left_out.append(f"{disk} ({source})")
        else:
            disks.append(_read_disk(vm, vmi, disk, source))
    notes = []
    if left_out:
        notes.append(f"not judged, KubeVirt writes them at each start: {', '.join(left_out)}")
    if not (vmi and vmi.runs):
        notes.append("no running VirtualMachineInstance was given: what runs is not known")
    uid = text_at(given[0].whole, "metadata", "uid")
    return Machine(given[0].key, "kubevirt", name, tuple(disks), uid, notes=tuple(notes))


def _read_disk(vm: _Object | None, vmi: _Object | None, name: str, source: str) -> MachineDisk:
    owner = next(each for each in (vmi, vm) if each and name in each.disks)
    item = owner.disks[name]
    status = vmi.statuses.get(name, {}) if vmi else {}
    told = _layer(vmi, name, "VirtualMachineInstance, what virt-launcher was told", status)
    runs = vmi is not None and vmi.runs
    written = _layer(vm, name, "VirtualMachine", status) if vm or runs else told
    waits = vm is not None and _restart_required(vm)
    mode = text_at(status, "persistentVolumeClaimInfo", "volumeMode")
    shareable = "yes" if find_at(item, "shareable") is True else ""
    facts = {"volume": source, "volumeMode": mode, "shareable": shareable}
    return MachineDisk(
        name,
        _image(owner.volumes.get(name, {})),
        kind="block" if mode == "Block" else "file" if source == "hostDisk" else "volume",
        configured=None if waits else written,
        pending=written if waits else None,
        running=told if runs else None,
        read_only=_is_read_only(item),
        line=dump_yaml(vm.disks[name] if vm and name in vm.disks else item),
        remarks=tuple(_remarks(owner, item, source, status)),
        facts={key: fact for key, fact in facts.items() if fact},
    )


def _restart_required(vm: _Object) -> bool:
    return any(
        text_at(condition, "type") == "RestartRequired"
        and text_at(condition, "status").lower() == "true"
        for condition in list_at(vm.whole, "status", "conditions")
    )


def _image(volume: Mapping[str, object]) -> str:
    for kind, key in (
        ("persistentVolumeClaim", "claimName"),
        ("dataVolume", "name"),
        ("hostDisk", "path"),
        ("containerDisk", "image"),
    ):
        if found := text_at(volume, kind, key):
            return found
    return ""


def _is_shared(item: Mapping[str, object]) -> bool:
    """Whether virt-launcher holds it to cache none: of a LUN and a CD it does not ask that."""
    return find_at(item, "shareable") is True and not {"lun", "cdrom"} & set(item)


def _is_read_only(item: Mapping[str, object]) -> bool:
    if "cdrom" in item:
        return find_at(item, "cdrom", "readonly") is not False
    return any(find_at(item, device, "readonly") is True for device in ("disk", "lun"))


def _layer(
    each: _Object | None, name: str, source: str, status: Mapping[str, object]
) -> Layer | None:
    """What an object says of a disk, with what virt-launcher does by itself in ``assumed``."""
    if each is None or name not in each.disks:
        return None
    item = each.disks[name]
    levels = dict(kubevirt.read_item(item))
    assumed = {"discard", "detect-zeroes"} & set(levels)
    if find_at(status, "persistentVolumeClaimInfo", "preallocated") is True:
        levels["discard"] = "ignore"
    if _is_shared(item) and "cache" not in levels:
        levels["cache"] = "none"
        assumed.add("cache")
    levels.pop("iothread", None)
    if threads := _iothread(each, levels):
        levels["iothread"] = threads
    return Layer(levels, source, frozenset(assumed))


def _iothread(each: _Object, levels: Levels) -> str:
    """Whether the disk has a thread of its own or a share of some, empty where nobody knows."""
    if levels.get("bus") != "virtio-blk":
        return "off" if "bus" in levels else ""
    if each.has_threads:
        return "on"
    return "" if each.filled_in else "off"


def _remarks(
    owner: _Object, item: Mapping[str, object], source: str, status: Mapping[str, object]
) -> Iterator[Remark]:
    """What only KubeVirt's words can tell of a disk."""
    cache, bus = text_at(item, "cache"), text_at(item, "disk", "bus")
    shareable = _is_shared(item)
    layer: LayerName = "running" if owner.runs else "configured"

    def remark(rule: str, effect: Effect, what: str, **levels: str) -> Remark:
        change = _change(owner, item, levels) if levels else None
        return Remark(rule, layer, effect, what, kubevirt.SOURCE, change=change)

    if source in GONE and not _is_read_only(item):
        what = f"its volume is a {source}: what is written is gone when the machine ends"
        yield remark("ephemeral", "loses", what)
    if not cache and not shareable and not _is_read_only(item):
        yield _silent(owner, item, layer)
        if text_at(item, "io") == "native":
            what = "io is native and no cache is set: where O_DIRECT is refused the cache becomes "
            what += "writethrough, which libvirt does not start with native"
            yield remark("native-without-direct", "note", what)
    if find_at(item, "dedicatedIOThread") is True and bus != "virtio":
        what = f"dedicatedIOThread on bus {bus or 'of the default (sata)'}: threads are given to "
        what += "virtio disks only, and KubeVirt's admission refuses this one"
        yield remark("iothread-ignored", "ignored", what, bus="virtio-blk")
    if shareable and cache not in ("", "none", "directsync"):
        what = f"shareable with cache {cache}: virt-launcher does not start such a disk, and the "
        what += "pages of one host would be stale on the other"
        yield remark("shared-writeback", "will not start", what, cache="none")
    if find_at(status, "hotplugVolume") is not None:
        what = "it was plugged in while the machine ran: the VirtualMachine may not have it"
        yield remark("hot-plugged", "note", what)


def _silent(owner: _Object, item: Mapping[str, object], layer: LayerName) -> Remark:
    what = "no cache is set: virt-launcher takes none where O_DIRECT works, else writethrough, and "
    what += "no object says which; virsh dumpxml in its pod does"
    if owner.filled_in:
        what += " (an instance type or preference of the machine may set it too)"
    return Remark(
        "cache-chosen-silently",
        layer,
        "unknown",
        what,
        kubevirt.SOURCE,
        "unknown",
        _change(owner, item, {"cache": "none"}),
    )


def _change(owner: _Object, item: Mapping[str, object], levels: Levels) -> Change:
    paste = kubevirt.write(levels, Target(machine=owner.key, existing=dump_yaml(dict(item))))
    return Change(paste.text, paste.takes_effect)


READING = Reading("kubevirt", claims, read_machines)
