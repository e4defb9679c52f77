"""What a machine's guest sees of its disks, asked of its agent: files are read, nothing is run.

Asked only where somebody said so: the agent is the guest's, and who owns that may see it.
"""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

from diskproof.advice import guest_files, observed
from diskproof.advice.guest_files import GuestMount
from diskproof.errors import RunFailure
from diskproof.guest.ours.channel import GuestGone
from diskproof.guest.own.qemu_agent import AgentCalls, QemuAgent
from diskproof.guest.own.virsh_agent import VirshAgent
from diskproof.host.machines.libvirt import SYSTEM, find_live_socket, find_sessions
from diskproof.qemu.own_machine import QEMU_AGENT_PORT
from diskproof.records.virtual_machines import Layer, Machine, MachineDisk

SECONDS = 8.0
FIRST_SECONDS = 4.0
ALL_SECONDS = 60.0
"""For one answer, the first one, and for all of a guest: under emulation they take their time."""
NEEDED = ("guest-file-open", "guest-file-read", "guest-file-close")
_FILE_BYTES = 1 << 20
_MAX_DISKS = 256
_GROUPS = {"virtio-blk": "vd", "virtio-scsi": "sd", "ide": "sd", "ahci": "sd", "nvme": "nvme"}
_HOW = "install and start qemu-guest-agent in the guest, and give the machine its channel"


def read_guest(machine: Machine) -> Machine | str:
    """The machine with what its guest sees of each disk, or a sentence on why nobody knows."""
    try:
        with _start_agent(machine) as agent:
            if agent is None:
                return f"{machine.name}: it has no guest agent's port ({_HOW})"
            return _with_view(machine, agent)
    except (RunFailure, GuestGone, OSError) as error:
        why = f"{error.what}: {error.why}" if isinstance(error, RunFailure) else "it hung up"
        return f"{machine.name}: its guest could not be asked: {why.splitlines()[0][:300]}"


@contextmanager
def _start_agent(machine: Machine) -> Iterator[AgentCalls | None]:
    """Who carries our words: libvirt where the port is its own, else the socket."""
    if machine.manager in ("libvirt", "virt-install"):
        agent: AgentCalls = VirshAgent(machine.id or machine.name, _find_uri(machine))
        agent.require_commands(NEEDED)
        yield agent
        return
    path = find_agent_socket(_read_argv(machine.pid)) if machine.pid else ""
    if not path:
        yield None
        return
    with closing(socket.socket(socket.AF_UNIX)) as connected:
        connected.settimeout(SECONDS)
        connected.connect(path if Path(path).exists() else f"/proc/{machine.pid}/root{path}")
        talking = QemuAgent(connected, SECONDS)
        talking.wait_ready(FIRST_SECONDS, NEEDED)
        talking.end_within(ALL_SECONDS)
        yield talking


def _find_uri(machine: Machine) -> str:
    """The connection to the libvirt that runs it: the system's, or the session of some user."""
    for place in find_sessions():
        live = find_live_socket(place)
        if live is not None and (place.status / f"{machine.name}.pid").exists():
            return f"{place.uri}?socket={quote(str(live))}"
    return SYSTEM.uri


def _read_argv(pid: int | None) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode("utf-8", "replace") for part in text.split(b"\0")]


def find_agent_socket(argv: list[str]) -> str:
    """The Unix socket behind the agent's port on a QEMU's command line, or empty."""
    devices = [_options(value) for name, value in pairwise(argv) if name.lstrip("-") == "device"]
    backends = [each.get("chardev") for each in devices if each.get("name") == QEMU_AGENT_PORT]
    for name, value in pairwise(argv):
        if name.lstrip("-") == "chardev" and value.startswith("socket,"):
            chardev = _options(value)
            if chardev.get("id") in backends:
                return chardev.get("path", "")
    return ""


def _options(value: str) -> dict[str, str]:
    """``a=b,c=d`` of QEMU, or its JSON."""
    if value.startswith("{"):
        with suppress(ValueError):
            found = json.loads(value)
            return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}
    parts = (part.partition("=") for part in value.replace(",,", "\0").split(","))
    return {key: rest.replace("\0", ",") for key, _, rest in parts}


# -- what it says ---------------------------------------------------------------------------


def _with_view(machine: Machine, agent: AgentCalls) -> Machine:
    devices = _read_devices(agent)
    names = match_devices(machine.disks, devices)
    mounts = list(guest_files.parse_guest_mounts(_read(agent, "/proc/mounts")))
    where = _read_places(agent) | {
        mount.point: (parent_device(mount.source, devices),)
        for mount in mounts
        if parent_device(mount.source, devices)
    }
    kept = dict(_read_databases(agent, mounts))
    disks = []
    for disk in machine.disks:
        device = names.get(disk.name, "")
        levels = _view_of(agent, device, mounts, where, kept) if device else {}
        layer = Layer(levels, "its guest agent") if levels else None
        disks.append(replace(disk, guest=layer))
    seen = sum(disk.guest is not None for disk in disks)
    notes = machine.notes
    if seen < len(disks):
        lost = f"{len(disks) - seen} of its disks could not be told among {', '.join(devices)}"
        notes = (*notes, f"of what its guest sees, {lost}")
    return replace(machine, disks=tuple(disks), notes=notes)


def _view_of(
    agent: AgentCalls,
    device: str,
    mounts: list[GuestMount],
    where: dict[str, tuple[str, ...]],
    kept: dict[str, tuple[str, str]],
) -> dict[str, str]:
    """The keys of ``observed`` for one disk."""
    levels = {observed.DEVICE: device}
    told = _read(agent, f"/sys/class/block/{device}/queue/write_cache").strip()
    if told:
        levels[observed.WRITE_CACHE] = told[:40]
    points = {mount.point for mount in mounts if device in where.get(mount.point, ())}
    levels |= {
        f"{observed.MOUNT} {mount.point}": mount.text for mount in mounts if mount.point in points
    }
    return levels | {key: value for key, (point, value) in kept.items() if point in points}


def _read(agent: AgentCalls, path: str) -> str:
    """A file of the guest, empty for what is not there."""
    try:
        return agent.read_file(path, _FILE_BYTES).decode("utf-8", "replace")
    except RunFailure as failure:
        if failure.what.startswith(("the guest agent refused", "virsh refused")):
            return ""
        raise


def _read_devices(agent: AgentCalls) -> dict[str, str]:
    """Whole disks of the guest by kernel name, with the serial number where there is one."""
    try:
        answer = agent.execute("guest-get-disks")
    except RunFailure:
        answer = None
    found = {}
    for each in answer[:_MAX_DISKS] if isinstance(answer, list) else []:
        if isinstance(each, dict) and each.get("partition") is False:
            address = each.get("address")
            serial = str(address.get("serial", "")) if isinstance(address, dict) else ""
            name = str(each.get("name", "")).removeprefix("/dev/")
            if re.fullmatch(r"(vd|sd|hd|xvd)[a-z]{1,3}|nvme\d+n\d+", name):
                found[name] = serial
    if found:
        return found
    names = re.findall(
        r"\b((?:vd|sd)[a-z]{1,3}|nvme\d+n\d+)$", _read(agent, "/proc/partitions"), re.M
    )
    return dict.fromkeys(names[:_MAX_DISKS], "")


def match_devices(disks: tuple[MachineDisk, ...], devices: dict[str, str]) -> dict[str, str]:
    """Names of the machine's disks with those of the guest: by serial number, else in their order
    on a kind of bus, where both sides have equally many."""
    matched = {}
    for disk in disks:
        serial = disk.facts.get("serial", "")
        named = [name for name, told in devices.items() if serial and serial[:20] in told]
        if len(named) == 1:
            matched[disk.name] = named[0]
    for group in set(_GROUPS.values()):
        left = [name for name in devices if name.startswith(group)]
        left = [name for name in left if name not in matched.values()]
        ours = [disk.name for disk in disks if disk.name not in matched and _group(disk) == group]
        if len(ours) == len(left):
            left.sort(key=lambda name: (len(name), name))
            matched |= dict(zip(ours, left, strict=True))
    return matched


def _group(disk: MachineDisk) -> str:
    layers = (disk.running, disk.configured)
    bus = next((each.levels["bus"] for each in layers if each and "bus" in each.levels), "")
    return "" if disk.facts.get("device") == "cdrom" else _GROUPS.get(bus, "")


def _read_places(agent: AgentCalls) -> dict[str, tuple[str, ...]]:
    """Mount points with the disks below them, through volume managers as well."""
    try:
        answer = agent.execute("guest-get-fsinfo")
    except RunFailure:
        return {}
    found = {}
    for each in answer[:1000] if isinstance(answer, list) else []:
        disks = each.get("disk") if isinstance(each, dict) else None
        if isinstance(disks, list):
            names = [str(one.get("dev", "")) for one in disks if isinstance(one, dict)]
            known = [parent_device(name, {}) for name in names if name]
            found[str(each.get("mountpoint"))] = tuple(filter(None, known))
    return {point: names for point, names in found.items() if names}


def parent_device(source: str, devices: dict[str, str]) -> str:
    """The whole disk of ``/dev/vda1``, ``/dev/nvme0n1p2``; empty for what is none. With
    ``devices`` only what is among them."""
    match = re.fullmatch(r"/dev/((?:vd|sd|hd|xvd)[a-z]{1,3}|nvme\d+n\d+)(?:p?\d+)?", source)
    name = match[1] if match else ""
    return name if not devices or name in devices else ""


def _read_databases(
    agent: AgentCalls, mounts: list[GuestMount]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Keys of ``observed`` with the mount point of the data that they are about, and the value."""
    points = {mount.point: mount for mount in mounts}
    for path in guest_files.POSTGRES_FILES:
        if text := _read(agent, path):
            found = guest_files.parse_postgres(text)
            data = found.pop("data_directory", path.rpartition("/")[0])
            auto = guest_files.parse_postgres(_read(agent, f"{data}/postgresql.auto.conf"))
            auto.pop("data_directory", None)
            mount = guest_files.find_guest_mount(points, data)
            for key, value in (found | auto).items():
                yield f"{key} {path}", (mount.point if mount else "/", value)
    settings: dict[str, tuple[str, str]] = {}
    data = "/var/lib/mysql"
    for path in guest_files.MYSQL_FILES:
        for key, value in guest_files.parse_mysql(_read(agent, path)).items():
            if key == "datadir":
                data = value
            else:
                settings[key] = (path, value)
    mount = guest_files.find_guest_mount(points, data)
    for key, (path, value) in settings.items():
        yield f"{key} {path}", (mount.point if mount else "/", value)
