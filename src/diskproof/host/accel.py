"""Which accelerator guests can use here: probed by booting one, never assumed.

A /dev/kvm that opens, creates a machine and then hangs or aborts exists on nested and
para-virtualised hosts. Only a guest whose agent answers proves that KVM works.
"""

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import start_agent
from diskproof.guest.ours.build import GuestFiles, find_guest, require_guest
from diskproof.guest.ours.cache_folder import cache_folder, write_file
from diskproof.process.scratch import start_scratch_dir
from diskproof.process.start import find_tool, require_tool
from diskproof.qemu.machine import GuestMachine
from diskproof.records import content_id

KVM = Path("/dev/kvm")
PROBE_SECONDS = 10.0


@dataclass(frozen=True)
class AccelFacts:
    """The accelerator to use, why, and how long the probe's guest took to answer or fail."""

    accel: Literal["kvm", "tcg"]
    reason: str
    seconds: float


def probe_accel(*, refresh: bool = False) -> AccelFacts:
    """Boot a guest under KVM, at most ``PROBE_SECONDS``; TCG when its agent does not answer.

    The result is kept until the host boots anew, or QEMU or the guest changes; ``refresh``
    probes again. Raises HostError when there is no guest to boot.
    """
    if not KVM.exists():
        return AccelFacts("tcg", f"{KVM} does not exist", 0.0)
    files = require_guest()
    kept, probe_id = cache_folder().parent / "accel.json", _probe_id(files)
    if not refresh and (found := _read_result(kept, probe_id)) is not None:
        return found
    facts = _boot_under_kvm(files)
    write_file(kept, json.dumps({"probe": probe_id, **asdict(facts)}).encode())
    return facts


def find_accel() -> AccelFacts | None:
    """What is known without booting a guest; None where nobody has probed yet."""
    if not KVM.exists():
        return AccelFacts("tcg", f"{KVM} does not exist", 0.0)
    files = find_guest()
    if files is None or find_tool("qemu-system-x86_64") is None:
        return None
    return _read_result(cache_folder().parent / "accel.json", _probe_id(files))


def _boot_under_kvm(files: GuestFiles) -> AccelFacts:
    began = time.monotonic()
    with start_scratch_dir() as run_dir:
        try:
            with start_agent(
                files,
                GuestMachine("kvm"),
                run_dir=run_dir,
                folder=run_dir,
                deadline=PROBE_SECONDS,
            ) as booted:
                facts = AccelFacts("kvm", "a guest booted under KVM", booted.seconds)
                booted.process.kill()  # nothing in it is worth a shutdown
                return facts
        except RunFailure as failure:
            return AccelFacts("tcg", _render_reason(failure), time.monotonic() - began)


def _render_reason(failure: RunFailure) -> str:
    lines = [failure.what, *failure.why.splitlines()]
    if os.geteuid() == 0 and not KVM.stat().st_mode & 0o020:
        lines.append(f"QEMU runs unprivileged, and the group of {KVM} may not open it")
    return "a guest under KVM did not come up: " + "; ".join(filter(None, lines))


def _probe_id(files: GuestFiles) -> str:
    """Changes with the host's boot, QEMU, the guest and who may open /dev/kvm."""
    qemu = Path(require_tool("qemu-system-x86_64", "qemu-system-x86")).resolve().stat()
    kvm = KVM.stat()
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    seen = [qemu.st_ino, qemu.st_size, qemu.st_mtime_ns, kvm.st_mode, kvm.st_uid, kvm.st_gid]
    return content_id([boot_id, files.id, os.geteuid(), os.getgroups(), *seen])


def _read_result(path: Path, probe_id: str) -> AccelFacts | None:
    """The kept result of this very probe; None for another one and for a damaged file."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(path.read_text())
        if kept["probe"] == probe_id and kept["accel"] in ("kvm", "tcg"):
            return AccelFacts(kept["accel"], str(kept["reason"]), float(kept["seconds"]))
    return None
