"""Programs, directories and guests that measuring takes: each is started, opened or booted."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from diskproof.backings import NO_CONSENT, probe_backing, start_disk_dir
from diskproof.container.runtime import RUNTIME, require_containers
from diskproof.errors import DiskproofError
from diskproof.guest.ours.build import AGENT, MINIMAL, SPACE_NEEDED, find_guest, find_listed
from diskproof.guest.ours.packages import EXTRA_PACKAGES, OTHER_WAY, find_suite
from diskproof.host.accel import KVM, probe_accel
from diskproof.host.backing_ground import add_ground
from diskproof.host.facts import require_engine
from diskproof.host.identity import read_version
from diskproof.host.qemu_probe import AIO, FORMATS, Probed, explain, probe_block_layer, probe_buses
from diskproof.process.native import find_native
from diskproof.process.start import find_tool
from diskproof.qemu.disk import BUSES
from diskproof.records import BackingFacts, BackingSpec, Finding
from diskproof.study.guest_root import describe_root
from diskproof.units import render_bytes

_BUILD_TOOLS = (("mmdebstrap", "mmdebstrap"), ("mksquashfs", "squashfs-tools"), ("zstd", "zstd"))

_IO_URING_SWITCH = Path("/proc/sys/kernel/io_uring_disabled")


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


def examine_disks(directories: Sequence[Path]) -> Iterator[Finding]:
    """Each directory, and what QEMU's block layer can do in the best of them.

    One after the other: a directory that is not there is made for a probe and goes with it.
    """
    usable = {}
    for directory in dict.fromkeys(directories):
        facts, finding = _examine_directory(directory)
        yield finding
        if facts is not None:
            usable[directory] = facts
    # aio=native is not to blame for a directory without direct I/O.
    best = max(usable, key=lambda directory: usable[directory].o_direct, default=None)
    yield from _examine_block_layer(best or Path(tempfile.gettempdir()))


def _examine_directory(directory: Path) -> tuple[BackingFacts | None, Finding]:
    """Whether images can live there, with direct I/O and room for a guest's build."""
    name = f"directory {directory}"
    new = "" if os.access(directory, os.F_OK) else "can be made; "
    try:
        facts = add_ground(_spec(directory), probe_backing(_spec(directory), NO_CONSENT))
    except DiskproofError as error:
        hint = "name another one: diskproof doctor DIRECTORY"
        return None, Finding(name, "no", error.why or error.what, hint, needed=True)
    slow = " mounted with discard (removing an image takes longer)" * facts.trims
    where, room = f"{new}{facts.filesystem}{slow}", f"{render_bytes(facts.free_bytes)} free"
    if not facts.o_direct:
        what = f"{where}, {room}; no cache=none and directsync: {facts.o_direct_reason}"
        hint = "a directory on ext4, xfs or btrfs"
        return facts, Finding(name, "limited", what, hint, needed=True)
    what = f"{where}, direct I/O works, {room}"
    if facts.free_bytes < SPACE_NEEDED:
        return facts, Finding(name, "limited", what, "free some space there", needed=True)
    return facts, Finding(name, "yes", what, needed=True)


def _spec(directory: Path) -> BackingSpec:
    return BackingSpec("doctor", "directory", (("path", str(directory)),), make=True)


def _examine_block_layer(directory: Path) -> Iterator[Finding]:
    """Each image format and aio mode, tried in a directory."""
    try:
        with start_disk_dir(_spec(directory), NO_CONSENT) as folder:
            formats, aio = probe_block_layer(folder)
    except DiskproofError as error:
        formats = aio = Probed(reasons=dict.fromkeys([*FORMATS, *AIO], explain(error)))
    for form in FORMATS:
        yield _from_probe(f"format={form}", form, formats, needed=form in ("raw", "qcow2"))
    for mode in AIO:
        hint = _aio_hint(mode, aio.reasons.get(mode, ""))
        yield _from_probe(f"aio={mode}", mode, aio, needed=mode == "threads", hint=hint)


def _aio_hint(mode: str, reason: str) -> str:
    """What lets QEMU use an aio mode: it was built with it, and the kernel admits it."""
    if "not supported in this build" in reason:
        return "a QEMU built with it (Debian's is)"
    if mode == "io_uring" and _IO_URING_SWITCH.exists() and _IO_URING_SWITCH.read_text()[0] != "0":
        return "sysctl -w kernel.io_uring_disabled=0"
    if "O_DIRECT" in reason or "Invalid argument" in reason:
        return "name a directory with direct I/O: diskproof doctor DIRECTORY"
    return "in a container: a seccomp profile that admits it"


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


def examine_containers() -> Finding:
    """The frontend container: one is started."""
    try:
        require_containers()
    except DiskproofError as error:
        hint = error.hint or "in a container: run diskproof outside, or give it more rights"
        return Finding("containers", "no", error.why or error.what, hint)
    who = "root in it is nobody here" if os.geteuid() == 0 else "root in it is you"
    return Finding("containers", "yes", f"{RUNTIME} started one; {who}")


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
    if found.kind == MINIMAL:
        lacks = f"; lacks {', '.join(found.lacks)}" if found.lacks else ""
        what = f"minimal, with this host's Linux {found.kernel_release} and programs{lacks}"
        return Finding("guest", "limited", what, "diskproof guest build, or guest import FILE")
    what = f"Linux {found.kernel_release} ({found.id})"
    roots = (*(extra for extra in EXTRA_PACKAGES if find_guest(extra)), *find_listed())
    more = "; ".join(map(describe_root, roots))
    return Finding("guest", "yes", f"{what}; built too: with {more}" if more else what)


def examine_build_tools() -> Finding:
    """What building a guest takes."""
    name = "guest build"
    missing = [package for program, package in _BUILD_TOOLS if find_tool(program) is None]
    if missing:
        what = f"{', '.join(missing)} not installed"
        hint = f"apt-get install {' '.join(missing)}   # {OTHER_WAY}"
        return Finding(name, "no", what, hint)
    if find_suite() is None:
        hint = f"use a Debian container; {OTHER_WAY}"
        return Finding(name, "no", "it takes a Debian host", hint)
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
