"""Machines of the Proxmox VE node that we are on: its configurations in /etc/pve, read as files."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from diskproof.advice.proxmox_config import MAX_CHARS, read_machine
from diskproof.advice.proxmox_drive import Storage, read_storages
from diskproof.errors import UsageError
from diskproof.host.machines import Finder
from diskproof.process.plain_file import read_plain
from diskproof.records.virtual_machines import Machine

MOST_MACHINES = 2000


def find(root: Path = Path("/"), node: str = "") -> Iterator[Machine | str]:
    """The machines of ``node`` (empty: this host) below ``root``, stopped ones included."""
    base = root / "etc/pve"
    # The first is a link to the second; a cluster's other nodes have folders beside it.
    node = node or socket.gethostname().partition(".")[0]
    places = (base / "qemu-server", base / "nodes" / node / "qemu-server")
    try:
        if not base.is_dir():
            return
        files = {file.name: file for place in places for file in place.glob("*.conf")}
    except OSError as error:
        yield f"Proxmox's {base} cannot be read ({error.strerror}): run as root"
        return
    storages: dict[str, Storage] = {}
    try:
        storages = read_storages(_read_text(base / "storage.cfg"))
    except OSError as error:
        if files:
            yield f"{base}/storage.cfg cannot be read ({error.strerror}): defaults may be unknown"
    if len(files) > MOST_MACHINES:
        yield f"Proxmox: only the first {MOST_MACHINES} of {len(files)} machines are read"
    for name in sorted(files)[:MOST_MACHINES]:
        try:
            machine = read_machine(_read_text(files[name]), str(files[name]), storages)
        except OSError as error:
            yield f"{files[name]} cannot be read ({error.strerror}): run as root"
        except UsageError as error:
            yield f"{error.what}: {error.why}"
        else:
            yield replace(machine, pid=find_pid(root, machine.id))


def _read_text(path: Path) -> str:
    """A file's text, a little more than may be read of it at most. Raises OSError."""
    content = read_plain(path, 4 * (MAX_CHARS + 1)).decode("utf-8", "replace")
    return content[: MAX_CHARS + 1].replace("\r\n", "\n")


def find_pid(root: Path, vmid: str) -> int | None:
    """The process of a running machine: its QEMU still has the ``-id`` of the machine."""
    try:
        text = (root / "run/qemu-server" / f"{vmid}.pid").read_text().strip()
        words = (root / "proc" / text / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    asked = list(zip(words, words[1:], strict=False))
    return int(text) if text.isdecimal() and (b"-id", vmid.encode()) in asked else None


FINDER = Finder("proxmox", find)
