"""Machines in libvirt's XML: what ``virsh dumpxml`` prints, and the files libvirtd keeps.

A domain with an ``id`` (or in ``<domstatus>``) is one that runs, another one is its configuration.
Where a text has both of a machine, what differs is pending, and a disk that only runs was plugged
in for this run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal
from xml.etree.ElementTree import Element

from diskproof.advice.libvirt_levels import (
    SOURCE,
    VIRTIO_SCSI,
    find_assumed,
    find_bus,
    find_iothreads,
    read_written,
)
from diskproof.advice.libvirt_overrides import apply_overrides, read_overrides
from diskproof.advice.libvirt_xml import (
    CLAIM_CHARACTERS,
    DiskParts,
    child,
    find_root_name,
    iter_parts,
    parse_documents,
    render_element,
)
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import (
    Effect,
    Layer,
    LayerName,
    Machine,
    MachineDisk,
    Remark,
)

_ROOTS = ("domain", "domstatus", "domainsnapshot")
_KINDS: Mapping[str, Literal["file", "block", "network", "volume"]] = {
    "file": "file",
    "dir": "file",
    "block": "block",
    "network": "network",
    "volume": "volume",
}
MAX_DISKS = 512
MAX_DISKS_IN_ALL = 8192
_QEMU = ("kvm", "qemu", "hvf")


@dataclass(frozen=True)
class Domain:
    """One ``<domain>`` of a text."""

    element: Element
    source: str
    runs: bool = False
    pid: int | None = None
    snapshot: str = ""

    @property
    def name(self) -> str:
        return (self.element.findtext("name") or "").strip()

    @property
    def uuid(self) -> str:
        return (self.element.findtext("uuid") or "").strip().lower()

    @cached_property
    def disks(self) -> dict[str, DiskParts]:
        """By name. Raises UsageError for more than ``MAX_DISKS``."""
        found: dict[str, DiskParts] = {}
        for number, parts in enumerate(iter_parts(self.element)):
            if number == MAX_DISKS:
                raise UsageError(f"{self.source}: more than {MAX_DISKS} disks in one machine")
            known = not parts.name or parts.name in found
            found[f"{parts.name}#{number}" if known else parts.name] = parts
        return found

    @cached_property
    def uses_threads(self) -> bool:
        """Whether any of its disks has an iothread."""
        return any(find_iothreads(parts) for parts in self.disks.values())

    @property
    def by_qemu(self) -> bool:
        """Whether QEMU runs it, so that QEMU's defaults are known."""
        return self.element.get("type") in _QEMU


def claims_libvirt(text: str) -> bool:
    """Whether a text is a domain of libvirt, its status or a snapshot of it."""
    return find_root_name(text[:CLAIM_CHARACTERS]) in _ROOTS


def read_machines(text: str, name: str) -> tuple[Machine, ...]:
    """Every machine of a text. Raises UsageError with what is wrong in it."""
    found: dict[tuple[str, str], list[Domain]] = {}
    for root in parse_documents(text, name):
        domain = _open_domain(root, name)
        key = (domain.snapshot, domain.uuid or domain.name)
        found.setdefault(key, []).append(domain)
    if not found:
        raise UsageError(f"{name}: there is no machine in it")
    count = sum(len(each.disks) for domains in found.values() for each in domains)
    if count > MAX_DISKS_IN_ALL:
        raise UsageError(f"{name}: {count} disks, and {MAX_DISKS_IN_ALL} are read at most")
    return tuple(_merge(domains, name) for domains in found.values())


def _open_domain(root: Element, name: str) -> Domain:
    if root.tag == "domain":
        return Domain(root, name, runs=root.get("id", "-1").isdecimal())
    inner = root.find("domain")
    if root.tag not in _ROOTS or inner is None:
        raise UsageError(f"{name}: <{root.tag}> is no machine of libvirt", "wanted: <domain>")
    if root.tag == "domstatus":
        pid = root.get("pid", "")
        known = int(pid) if pid.isdecimal() and len(pid) < 9 else None
        return Domain(inner, name, runs=True, pid=known)
    title = (root.findtext("name") or "").strip() or "without a name"
    return Domain(inner, name, snapshot=title)


def _merge(domains: list[Domain], name: str) -> Machine:
    """What one text says of one machine: as it runs, as it is configured, or both."""
    running = next((domain for domain in domains if domain.runs), None)
    written = next((domain for domain in domains if not domain.runs), None)
    first = running or written
    assert first is not None
    live, kept = running.disks if running else {}, written.disks if written else {}
    disks = tuple(
        _merge_disk(running, live.get(dev), written, kept.get(dev)) for dev in {**live, **kept}
    )
    layer: LayerName = "running" if running else "configured"
    disks, notes = apply_overrides(read_overrides(first.element, name), disks, layer)
    if first.snapshot:
        notes = (f"this is the snapshot {first.snapshot}, not the machine as it is", *notes)
    if not first.by_qemu:
        kind = first.element.get("type") or "no type"
        notes = (f"not run by QEMU ({kind}): what is not written is not known", *notes)
    pid = running.pid if running else None
    return Machine(first.name, "libvirt", name, disks, first.uuid, pid, notes)


def _merge_disk(
    running: Domain | None, live: DiskParts | None, written: Domain | None, kept: DiskParts | None
) -> MachineDisk:
    """A disk from what runs and what is configured; either may be missing."""
    parts = kept or live
    assert parts is not None
    runs = _read_layer(live, running, "as it runs") if live and running else None
    set_ = _read_layer(kept, written, "its configuration") if kept and written else None
    pending = set_ if running and set_ and not (runs and _same(runs, set_)) else None
    layer: LayerName = "pending" if pending else "configured" if set_ else "running"
    domain = written if kept else running
    assert domain is not None
    remarks = [
        Remark(rule, layer, effect, what, SOURCE) for rule, effect, what in _find_faults(parts)
    ]
    if _has_idle_threads(parts, domain):
        what = "the machine has iothreads, and none of its disks uses one"
        remarks.append(Remark("iothread-ignored", layer, "ignored", what, SOURCE))
    if live and running and written and not kept:
        remarks.append(Remark("hot-plugged", "running", "note", _HOT_PLUGGED, SOURCE))
    if live and kept and (now := describe_disk(live).image) != (then := describe_disk(kept).image):
        what = f"it runs on {now or 'nothing'}, and on {then or 'nothing'} from the next start on"
        remarks.append(Remark("pending-change", "pending", "note", what, SOURCE))
    snapshot = written.snapshot if written else ""
    if snapshot:
        what = f"these are the settings of the snapshot {snapshot}: reverting to it brings them"
        remarks.append(Remark("snapshot-section", "configured", "note", what, SOURCE))
    return replace(
        describe_disk(live or parts),
        configured=runs if pending else set_,
        pending=pending,
        running=runs,
        line=write_line(parts),
        remarks=tuple(remarks),
    )


_HOT_PLUGGED = "it was plugged in while the machine ran, and is gone after its next start"


def _read_layer(parts: DiskParts, domain: Domain, what: str) -> Layer:
    written = read_written(parts)
    assumed = find_assumed(parts, written) if domain.by_qemu else {}
    return Layer({**assumed, **written}, f"{domain.source}, {what}", frozenset(assumed))


def _same(one: Layer, other: Layer) -> bool:
    return dict(one.levels) == dict(other.levels)


def write_line(parts: DiskParts) -> str:
    """The disk with what else decides on it, as ``virsh edit`` shows them."""
    pieces = [render_element(parts.controller)] if parts.controller is not None else []
    if parts.iothreads and find_iothreads(parts):
        pieces.insert(0, f"<iothreads>{parts.iothreads}</iothreads>")
    return "\n".join([*pieces, render_element(parts.disk)])


def describe_disk(parts: DiskParts) -> MachineDisk:
    """What a disk is: its image, and what decides beside its levels."""
    disk = parts.disk
    device = disk.get("device", "disk")
    facts = {
        key: "on" for key in ("shareable", "transient", "mirror") if disk.find(key) is not None
    }
    driver, source = child(disk, "driver"), child(disk, "source")
    facts |= {"bus": parts.bus, "alias": child(disk, "alias").get("name", "")}
    if protocol := source.get("protocol", ""):
        facts["driver"] = protocol
    if device != "disk":
        facts["device"] = device
    if size := (child(child(driver, "metadata_cache"), "max_size").text or "").strip():
        facts["metadata_cache"] = size
    if queues := driver.get("queues"):
        facts["queues"] = queues
    if parts.bus == "scsi" and parts.controller is not None:
        facts["controller"] = parts.controller.get("model", "")
    if chain := list(disk.iterfind(".//backingStore/source")):
        facts["chain"] = str(len(chain))
        facts["base"] = find_image(disk.get("type", ""), chain[-1])
    return MachineDisk(
        name=parts.name,
        image=find_image(disk.get("type", ""), source),
        kind=_KINDS.get(disk.get("type", ""), ""),
        read_only=device == "cdrom" or disk.find("readonly") is not None,
        facts={name: fact for name, fact in facts.items() if fact},
    )


def find_image(kind: str, source: Element) -> str:
    """A path, a device, ``POOL/VOLUME`` or a URI; empty for a drive without a medium."""
    for key in ("file", "dev", "dir"):
        if path := source.get(key):
            return path
    if kind == "volume":
        return f"{source.get('pool', '')}/{source.get('volume', '')}".strip("/")
    protocol, name = source.get("protocol", ""), source.get("name", "")
    if not protocol:
        return ""
    if protocol == "rbd":  # its hosts are the monitors of a cluster: the name says which image
        return f"rbd:{name}"
    host = child(source, "host")
    if socket := host.get("socket"):
        return f"{protocol}+unix:///{name}?socket={socket}"
    port = f":{host.get('port')}" if host.get("port") else ""
    return f"{protocol}://{host.get('name', '')}{port}/{name.lstrip('/')}"


def _find_faults(parts: DiskParts) -> Iterator[tuple[str, Effect, str]]:
    """Rule, effect and words of what only libvirt's own elements tell."""
    for what in _find_thread_faults(parts):
        yield "iothread-ignored", "will not start", what
    if parts.disk.find("transient") is not None:
        what = "<transient/>: all that is written is thrown away when the machine stops"
        yield "temporary-writes", "loses", what
    if child(parts.disk, "driver").get("error_policy") == "ignore":
        what = "error_policy='ignore': the guest is told of a failed write that it succeeded"
        yield "werror-ignore", "may lose", what


def _find_thread_faults(parts: DiskParts) -> Iterator[str]:
    """Why libvirt refuses the thread that a disk or its controller has."""
    own = find_iothreads(DiskParts(parts.disk))
    if own and parts.bus != "virtio":
        yield f"iothread={own[0]} for a disk on {parts.bus}: libvirt refuses it"
    controller = parts.controller
    model = controller.get("model", "no model") if controller is not None else ""
    if (
        controller is not None
        and find_iothreads(DiskParts(controller))
        and model not in VIRTIO_SCSI
    ):
        yield f"an iothread for a SCSI controller of {model}: libvirt refuses it"
    for number in find_iothreads(parts):
        if not (number.isdecimal() and int(number[:9]) in parts.iothread_ids):
            there = f"the machine has {len(parts.iothread_ids) or 'none'}"
            yield f"there is no iothread {number[:9]} ({there}): libvirt refuses it"


def _has_idle_threads(parts: DiskParts, domain: Domain) -> bool:
    """Whether a disk that could have a thread has none, in a machine where no disk uses any."""
    could = find_bus(parts) in ("virtio-blk", "virtio-scsi")
    if not (could and parts.iothreads and parts.disk.get("device", "disk") == "disk"):
        return False
    return not domain.uses_threads
