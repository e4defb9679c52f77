"""Programs, directories and guests that measuring takes: each is started, opened or booted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from diskproof.backings import load_backing
from diskproof.errors import DiskproofError
from diskproof.guest.build import AGENT, SPACE_NEEDED, find_guest
from diskproof.guest.packages import find_suite
from diskproof.host.accel import KVM, probe_accel
from diskproof.host.facts import require_engine
from diskproof.host.identity import read_version
from diskproof.host.qemu_probe import AIO, FORMATS, Probed, explain, probe_block_layer, probe_buses
from diskproof.native import find_native
from diskproof.proc import find_tool
from diskproof.qemu.disk import BUSES
from diskproof.records import BackingSpec, Finding
from diskproof.units import render_bytes

_BUILD_TOOLS = (("mmdebstrap", "mmdebstrap"), ("mksquashfs", "squashfs-tools"), ("zstd", "zstd"))


def examine_tool(program: str, package: str, *, needed: bool) -> Finding:
    """A program, by asking for its version."""
    if find_tool(program) is None:
        hint = f"apt-get install {package}"
        return Finding(program, "no", "it is not installed", hint, needed)
    version = read_version([program, "--version"])
    if not version:
        what = "it is there, but does not tell its version"
        return Finding(program, "no", what, f"apt-get install --reinstall {package}", needed)
    return Finding(program, "yes", version, needed=needed)


def examine_engine() -> Finding:
    """fio's nbd engine, which loads the storage daemon."""
    name = "fio's nbd engine"
    try:
        require_engine("nbd")
    except DiskproofError as error:
        return Finding(name, "no", error.why or error.what, error.hint, needed=True)
    return Finding(name, "yes", "it loads", needed=True)


def examine_native(program: str, *, needed: bool) -> Finding:
    """One of our own programs."""
    path = find_native(program)
    if path is None:
        return Finding(program, "no", "it is not built", "make setup", needed)
    if not os.access(path, os.X_OK):
        return Finding(program, "no", f"you may not run {path}", f"chmod a+rx {path}", needed)
    return Finding(program, "yes", "it is built", needed=needed)


def examine_directory(directory: Path) -> Finding:
    """Whether images can live there, with direct I/O and room for a guest's build."""
    name = f"directory {directory}"
    try:
        facts = load_backing("directory").probe(_spec(directory))
    except DiskproofError as error:
        hint = "name another one: diskproof doctor DIRECTORY"
        return Finding(name, "no", error.why or error.what, hint, needed=True)
    room = f"{render_bytes(facts.free_bytes)} free"
    if not facts.o_direct:
        what = f"{facts.filesystem}, {room}; no cache=none and directsync: {facts.o_direct_reason}"
        return Finding(name, "limited", what, "a directory on ext4, xfs or btrfs", needed=True)
    what = f"{facts.filesystem}, direct I/O works, {room}"
    if facts.free_bytes < SPACE_NEEDED:
        return Finding(name, "limited", what, "free some space there", needed=True)
    return Finding(name, "yes", what, needed=True)


def _spec(directory: Path) -> BackingSpec:
    return BackingSpec("doctor", "directory", (("path", str(directory)),))


def examine_block_layer(directories: Sequence[Path]) -> Iterator[Finding]:
    """Each image format and aio mode, tried in the first directory that can be used."""
    formats, aio = _probe_block_layer(directories)
    for form in FORMATS:
        yield _from_probe(f"format={form}", form, formats, needed=form in ("raw", "qcow2"))
    for mode in AIO:
        hint = {"io_uring": "sysctl -w kernel.io_uring_disabled=0"}.get(mode, "")
        yield _from_probe(f"aio={mode}", mode, aio, needed=mode == "threads", hint=hint)


def _probe_block_layer(directories: Sequence[Path]) -> tuple[Probed, Probed]:
    backing, reason = load_backing("directory"), "there is no directory to try it in"
    for directory in (*_direct_first(directories), Path(tempfile.gettempdir())):
        try:
            with backing.start_run_dir(_spec(directory)) as folder:
                return probe_block_layer(folder)
        except DiskproofError as error:
            reason = explain(error)
    failed = Probed(reasons=dict.fromkeys([*FORMATS, *AIO], reason))
    return failed, failed


def _direct_first(directories: Sequence[Path]) -> list[Path]:
    """Those with direct I/O come first: aio=native is not to blame for one without."""

    def lacks(directory: Path) -> bool:
        try:
            return not load_backing("directory").probe(_spec(directory)).o_direct
        except DiskproofError:
            return True

    return sorted(directories, key=lacks)


def _from_probe(
    name: str, level: str, probed: Probed, *, needed: bool = False, hint: str = ""
) -> Finding:
    if level in probed.usable:
        return Finding(name, "yes", "it works", needed=needed)
    reason = probed.reasons.get(level, "it does not work")
    if "; apt-get install" in reason:
        reason, _, package = reason.rpartition("; ")
        hint = package
    return Finding(name, "no", reason, hint, needed)


def examine_buses() -> Finding:
    """Buses for the disk of a guest."""
    buses, iothreads = probe_buses()
    missing = [name for name in BUSES if name not in buses.usable]
    if not missing:
        takes = ", ".join(name for name in BUSES if name in iothreads.usable)
        return Finding("guest buses", "yes", f"{', '.join(BUSES)}; iothreads: {takes or 'none'}")
    what = "; ".join(dict.fromkeys(buses.reasons[name] for name in missing))
    there = [name for name in BUSES if name in buses.usable]
    hint = "apt-get install qemu-system-x86"
    if not there:
        return Finding("guest buses", "no", what.removesuffix(f"; {hint}"), hint)
    return Finding("guest buses", "limited", f"{', '.join(there)}; {what}", hint)


def examine_guest() -> Finding:
    """The built guest."""
    found = find_guest()
    if found is None:
        return Finding("guest", "no", "it is not built", "diskproof guest build")
    return Finding("guest", "yes", f"Linux {found.kernel_release} ({found.id})")


def examine_build_tools() -> Finding:
    """What building a guest takes."""
    name = "guest build"
    missing = [package for program, package in _BUILD_TOOLS if find_tool(program) is None]
    if missing:
        what = f"{', '.join(missing)} not installed"
        return Finding(name, "no", what, f"apt-get install {' '.join(missing)}")
    if find_suite() is None:
        return Finding(name, "no", "it takes a Debian host", "use a Debian container")
    if find_native(AGENT) is None:
        return Finding(name, "no", f"{AGENT} is not built", "make setup")
    return Finding(name, "yes", ", ".join(program for program, _ in _BUILD_TOOLS))


def examine_accel(*, refresh: bool) -> Finding:
    """The accelerator of guests: KVM only when a guest has booted under it."""
    name = "accelerator"
    if find_tool("qemu-system-x86_64") is None:
        what, hint = "qemu-system-x86_64 is not installed", "apt-get install qemu-system-x86"
        return Finding(name, "no", what, hint)
    if find_guest() is None:
        what = "not probed: there is no guest to boot"
        return Finding(name, "limited", what, "diskproof guest build")
    facts = probe_accel(refresh=refresh)
    if facts.accel == "kvm":
        return Finding(name, "yes", f"KVM: {facts.reason}, in {facts.seconds:.1f} s")
    return Finding(name, "limited", f"TCG, slow emulation: {facts.reason}", _kvm_hint())


def _kvm_hint() -> str:
    """Rights are the one thing about KVM that a line can mend; the rest is hardware."""
    try:
        stat = KVM.stat()
    except OSError:
        return "switch on virtualisation in the firmware or hypervisor, then modprobe kvm"
    if os.geteuid() != 0 and not os.access(KVM, os.R_OK | os.W_OK):
        return f"adduser $USER kvm   (and: chgrp kvm {KVM}; chmod 660 {KVM})"
    if os.geteuid() == 0 and stat.st_mode & 0o060 != 0o060:
        return f"chgrp kvm {KVM}; chmod 660 {KVM}"
    return ""
