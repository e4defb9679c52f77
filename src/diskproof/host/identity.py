"""Which host this is, as it is stored with every run: what stays the same while it is unchanged.

Nothing that varies by itself is in here (load, free memory, devices that come and go), so that
runs of one host are recognised as such.
"""

import os
import platform
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from diskproof.errors import DiskproofError
from diskproof.guest.ours.build import MINIMAL, find_guest
from diskproof.process.start import find_tool, run
from diskproof.records import HostRecord, content_id

_SECONDS = 20.0
_BLOCK_DEVICES = Path("/sys/block")
_KSM = {"0": "off", "1": "on", "2": "off, pages unmerged"}  # kernel: mm/ksm.rst


def host_record(accel: str, accel_reason: str) -> HostRecord:
    """This host with its facts; ``accel`` is what guests run under (``HostFacts.accel``).

    The id changes with the machine and its facts, but not with ``accel_reason``, a sentence, the
    last MiB of memory, which balloons take and give, nor KSM, which ksmtuned switches by itself.
    """
    memory = read_memory_bytes()
    facts: dict[str, object] = {
        "accel": accel,
        "kernel": platform.release(),
        "distribution": read_distribution(),
        "cpu_model": read_cpu_model(),
        "cpus": os.cpu_count() or 1,
        "qemu_version": read_version(["qemu-storage-daemon", "--version"])
        or read_version(["qemu-system-x86_64", "--version"]),
        "fio_version": read_version(["fio", "--version"]),
        "virtualization": find_virtualization("--vm"),
        "container": find_virtualization("--container"),
        "transparent_hugepages": read_choice(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "schedulers": read_schedulers(),
    }
    guest = find_guest()
    if guest is not None and guest.kind == MINIMAL:
        facts["guest"] = MINIMAL  # its figures are never those of a guest made of packages
    name = platform.node() or "unnamed"
    machine = _read_text(Path("/etc/machine-id"))
    identity = content_id([name, machine, facts, round(memory / (1 << 30))])
    ksm = _KSM.get(_read_text(Path("/sys/kernel/mm/ksm/run")), "not offered")
    varying = {"ksm": ksm, "memory_bytes": memory, "accel_reason": accel_reason}
    return HostRecord(identity, name, {**facts, **varying})


def read_memory_bytes() -> int:
    """Memory that the kernel manages: MemTotal of proc_meminfo(5)."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def read_distribution(path: Path = Path("/etc/os-release")) -> str:
    """``Debian GNU/Linux 12 (bookworm)``, or empty."""
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)', _read_text(path), re.MULTILINE)
    return found[1] if found else ""


def read_cpu_model(path: Path = Path("/proc/cpuinfo")) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", _read_text(path), re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def read_version(argv: Sequence[str]) -> str:
    """The version that a program's first line tells; empty when it is not there."""
    if find_tool(argv[0]) is None:
        return ""
    with suppress(DiskproofError):
        line = (run(argv, timeout=_SECONDS).text.splitlines() or [""])[0]
        found = re.search(r"\d[\w.+~-]*(?: \([^)]*\))?", line)
        return found[0] if found else line
    return ""


def find_virtualization(kind: str) -> str:
    """What systemd-detect-virt(1) says for ``--vm`` or ``--container``: a name or ``none``.

    Without it the processor's own word, which knows machines but not their makers.
    """
    if find_tool("systemd-detect-virt") is not None:
        with suppress(DiskproofError):
            done = run(["systemd-detect-virt", kind], timeout=_SECONDS, check=False)
            return done.text.strip() or "unknown"
    flags = re.search(r"^flags\s*:.*$", _read_text(Path("/proc/cpuinfo")), re.MULTILINE)
    hypervisor = bool(flags and " hypervisor" in flags[0])
    return ("unknown hypervisor" if hypervisor else "none") if kind == "--vm" else "unknown"


def read_choice(path: Path) -> str:
    """The choice in force of a file like ``always [madvise] never``."""
    found = re.search(r"\[([\w-]+)\]", _read_text(path))
    return found[1] if found else "not offered"


def read_schedulers() -> dict[str, str]:
    """Block device -> I/O scheduler, of devices that stay: no loop, no memory, none removable."""
    return {
        device.name: read_choice(device / "queue" / "scheduler")
        for device in sorted(_BLOCK_DEVICES.glob("*"))
        if (device / "device").exists() and _read_text(device / "removable") == "0"
    }


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
