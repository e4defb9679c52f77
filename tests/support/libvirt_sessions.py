"""A session libvirtd of the tests' own, without privileges, and how its QEMUs were started."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from diskproof.host.machines.libvirt import LibvirtHome, session
from diskproof.process.run_user import FORMER
from diskproof.process.start import find_tool

EMULATOR = "/usr/bin/qemu-system-x86_64"
NEEDED = ("libvirtd", "virsh", "virt-install", "virt-xml-validate", "xmllint", EMULATOR)
MISSING = ", ".join(name for name in NEEDED if find_tool(name) is None)
CACHES = {
    (True, False, "on"): "none",
    (True, False, "off"): "directsync",
    (False, False, "on"): "writeback",
    (False, False, "off"): "writethrough",
    (False, True, "on"): "unsafe",
}
"""(direct, no-flush, the device's write cache) -> cache mode, as qemu(1) defines them."""
DEVICES = {"virtio-blk-pci": "virtio-blk", "scsi-hd": "virtio-scsi"}


@dataclass(frozen=True)
class LibvirtSession:
    """``folder`` has everything: home, run-time files, images."""

    folder: Path
    daemon: subprocess.Popen[bytes]

    @property
    def place(self) -> LibvirtHome:
        return session("qemu:///session", self.folder / "config", self.folder / "run")

    @property
    def uri(self) -> str:
        return f"qemu:///session?socket={self.folder / 'run' / 'libvirt' / 'libvirt-sock'}"

    @property
    def environment(self) -> dict[str, str]:
        return _environment(self.folder)

    def run(self, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A command as the session's user."""
        return subprocess.run(
            [*_as_user(), *argv],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=180,
            env=self.environment,
            cwd=self.folder,
        )

    def virsh(self, *words: str, check: bool = True) -> str:
        """What virsh says; with ``check`` it succeeds."""
        done = self.run("virsh", "-q", "-c", self.uri, *words)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def image(self, name: str, form: str = "raw") -> str:
        """An image that the session's user may open."""
        path = self.folder / name
        subprocess.run(["qemu-img", "create", "-q", "-f", form, path, "4M"], check=True)
        path.chmod(0o666)
        return str(path)

    def pid(self, machine: str) -> int:
        return int((self.place.status / f"{machine}.pid").read_text())


def _environment(folder: Path) -> dict[str, str]:
    own = {"HOME": "home", "XDG_RUNTIME_DIR": "run", "XDG_CONFIG_HOME": "config"}
    own |= {"XDG_CACHE_HOME": "cache", "XDG_DATA_HOME": "data", "XDG_STATE_HOME": "state"}
    folders = {name: str(folder / place) for name, place in own.items()}
    return {**os.environ, **folders, "LC_ALL": "C"}


def _as_user() -> list[str]:
    uid = str(FORMER)
    user = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--"]
    return user if os.geteuid() == 0 else []


@contextmanager
def start_libvirt() -> Iterator[LibvirtSession]:
    """A libvirtd for the length of a block, and no QEMU of it thereafter. Its folder's name is
    short: a socket's path has 107 characters."""
    folder = Path(tempfile.mkdtemp(prefix="dp-lv-", dir="/tmp"))
    folder.chmod(0o755)
    for place in ("home", "run", "config", "cache", "data", "state"):
        (folder / place).mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(folder / place, FORMER, FORMER)
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [*_as_user(), find_tool("libvirtd") or "libvirtd"],
            env=_environment(folder),
            stdout=log,
            stderr=log,
            cwd=folder,
        )
    found = LibvirtSession(folder, daemon)
    try:
        _await_socket(found)
        yield found
    finally:
        daemon.terminate()
        daemon.wait(180)
        for path in found.place.status.glob("*.pid"):
            with suppress(ValueError, ProcessLookupError, FileNotFoundError):
                _kill_qemu(int(path.read_text()), path.stem)
        _stop_log_daemon(folder)
        shutil.rmtree(folder)


def _stop_log_daemon(folder: Path) -> None:
    """libvirtd starts a virtlogd, which would stay for two minutes; as it ends it takes its own
    files away."""
    with suppress(FileNotFoundError, ValueError, psutil.NoSuchProcess):
        daemon = psutil.Process(int((folder / "run" / "libvirt" / "virtlogd.pid").read_text()))
        if daemon.name() == "virtlogd":
            daemon.terminate()
            daemon.wait(180)


def _kill_qemu(pid: int, name: str) -> None:
    with suppress(FileNotFoundError):
        if f"guest={name}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


def _await_socket(found: LibvirtSession) -> None:
    end = time.monotonic() + 180
    while found.run("virsh", "-q", "-c", found.uri, "uri").returncode != 0:
        assert found.daemon.poll() is None, (found.folder / "log").read_text()
        assert time.monotonic() < end, "libvirtd does not answer"
        time.sleep(0.05)


def domain(name: str, *parts: str, machine: str = "q35", beside: str = "") -> str:
    """A machine that stops in its firmware. ``parts`` are devices."""
    return "\n".join(
        [
            f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory>",
            f"<vcpu>1</vcpu>{beside}<os><type arch='x86_64' machine='{machine}'>hvm</type></os>",
            f"<features><acpi/></features><devices><emulator>{EMULATOR}</emulator>",
            *parts,
            "<memballoon model='none'/></devices></domain>",
        ]
    )


def read_command_line(pid: int) -> list[tuple[str, dict[str, object]]]:
    """The options of a running QEMU whose value is JSON, as libvirt writes those of disks."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    pairs = zip(words, words[1:], strict=False)
    return [(option, json.loads(value)) for option, value in pairs if value.startswith("{")]


def levels_of(
    options: Sequence[tuple[str, Mapping[str, object]]], path: str, board: str
) -> dict[str, str]:
    """The levels that QEMU runs an image at, by its own words for them alone. The board's own
    ``ide`` bus is AHCI on q35."""
    nodes = {str(node.get("node-name")): node for option, node in options if option == "-blockdev"}
    file = next(node for node in nodes.values() if node.get("filename") == path)
    form = next(node for node in nodes.values() if node.get("file") == file["node-name"])
    devices = [device for option, device in options if option == "-device"]
    device = next(each for each in devices if each.get("drive") == form["node-name"])
    cache = form.get("cache", {"direct": False, "no-flush": False})
    assert cache == file.get("cache", {"direct": False, "no-flush": False})
    assert isinstance(cache, dict)
    bus = str(device.get("bus", ""))
    driver = str(device["driver"])
    holder = device
    if driver == "scsi-hd":
        holder = next(each for each in devices if each.get("id") == bus.split(".")[0])
        assert holder["driver"] == "virtio-scsi-pci"
    both_unmap = (form.get("discard"), file.get("discard")) == ("unmap", "unmap")
    key = (cache["direct"], cache["no-flush"], str(device.get("write-cache", "on")))
    return {
        "format": str(form["driver"]),
        "cache": CACHES[key],
        "aio": str(file.get("aio", "threads")),
        "discard": "unmap" if both_unmap else "ignore",
        "detect-zeroes": str(form.get("detect-zeroes", "off")),
        "iothread": "on" if holder.get("iothread") else "off",
        "bus": DEVICES.get(driver, "ahci" if board == "q35" else "ide"),
    }
