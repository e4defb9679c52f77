"""Every QEMU that runs here, whoever started it, with what is in force of its disks.

What was set is on its command line. Of what is in force the kernel tells O_DIRECT (fdinfo), rings
and threads; the rest only QMP tells, and that is asked where it is free. Disks that came later are
seen as open files: their settings are unknown then, never guessed.
"""

import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from diskproof.advice.qemu_read import read_command_line
from diskproof.errors import DiskproofError
from diskproof.host.machines import Finder
from diskproof.host.machines.qemu_answers import find_block, inserted, read_block
from diskproof.host.machines.qemu_process import QemuProcess, find_processes
from diskproof.host.machines.qmp_socket import BlockAnswers, Item, ask_disks
from diskproof.process.open_files import OpenFile
from diskproof.records.virtual_machines import Layer, Machine, MachineDisk, Remark
from diskproof.study.factors import DIRECT

_TAKEN = "/proc/PID/cmdline, which QEMU took"
_FDINFO = "/proc/PID/fdinfo"
_HANDED = "/dev/fdset/"
SECONDS = 4.0
"""The most that all machines may take together."""


@dataclass
class _Looked:
    """A process with its machine, as far as that is known. ``config`` is the text of its further
    files; ``fault`` says why there is no more."""

    process: QemuProcess
    machine: Machine | None = None
    config: str = ""
    fault: str = ""
    done: bool = False

    def look(self) -> None:
        """Fill it in, step by step: any step may wait for a server that is away."""
        try:
            self.machine, self.config = _read(self.process)
            answers = ask_disks(self.process, self.config)
            self.machine = _with_running(self.process, self.machine, self.config, answers)
        except DiskproofError as error:
            self.fault = f"its command line cannot be read: {error.what}"
        self.done = True


def find() -> Iterator[Machine | str]:
    """Every running QEMU, and what could not be looked at."""
    looked = [_Looked(process) for process in find_processes()]
    _wait_for(looked)
    hidden = []
    for one in looked:
        fault = one.fault
        if not one.done:
            fault = f"its files did not answer within {SECONDS:.0f} s (a server that is away?)"
        if fault:
            yield f"QEMU {one.process.pid}: {fault}"
        if one.machine is not None:
            yield one.machine
            if one.done and one.process.files is None:
                hidden.append(f"{one.machine.name} ({one.process.pid})")
    if hidden:
        yield (
            f"of {', '.join(hidden[:5])}{' and others' if hidden[5:] else ''} only the command "
            "line can be seen: these QEMUs belong to another user; as root more is found"
        )


def _wait_for(looked: list[_Looked]) -> None:
    """Look at all at once. Who waits for a dead server is left behind: such a thread ends with us,
    and nothing waits for it."""
    deadline = time.monotonic() + SECONDS
    threads = [threading.Thread(target=one.look, daemon=True) for one in looked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _read(process: QemuProcess) -> tuple[Machine, str]:
    """The machine as its command line has it, and the text of its further files."""
    texts = []

    def read_file(path: str) -> str | None:
        text = process.read_file(path)
        texts.append(text or "")
        return text

    machine = read_command_line(process.argv, f"process {process.pid}", read_file)
    manager, notes = machine.manager, machine.notes
    if "kubepods" in process.cgroup and manager == "libvirt":
        manager = "kubevirt"
    if process.contained:
        notes += ("it runs in a container: paths are as it sees them",)
    number = re.search(r"\0-id\0(\d+)\0", "\0".join(process.argv))
    uuid = re.search(r"\0-uuid\0([\w-]+)\0", "\0".join(process.argv))
    named = number or uuid
    machine = replace(
        machine,
        manager=manager,
        notes=notes,
        id=named[1] if named else "",
        pid=process.pid,
    )
    return machine, "\n".join(texts)


def _placed(disk: MachineDisk, process: QemuProcess) -> MachineDisk:
    """The disk with its image's path whole."""
    if disk.kind not in ("file", "block") or not disk.image:
        return disk
    kind = disk.kind
    seen = process.key_of(disk.image)
    if seen is not None:
        kind = "block" if seen[0] == -1 else "file"
    facts = (
        {**disk.facts, "seen at": str(process.see(disk.image))} if process.contained else disk.facts
    )
    return replace(disk, image=process.absolute(disk.image), kind=kind, facts=facts)


def _with_running(
    process: QemuProcess, machine: Machine, config: str, answers: BlockAnswers | None
) -> Machine:
    """The machine with what is in force, and with disks that came later."""
    machine = replace(machine, disks=tuple(_placed(disk, process) for disk in machine.disks))
    if process.files is None:
        return machine
    known = {key for disk in machine.disks if (key := process.key_of(disk.image)) is not None}
    unnamed = process.find_unnamed(known, config)
    if answers:
        disks = _by_monitor(process, machine, answers)
        images = {process.key_of(str(disk.facts.get("file", disk.image))) for disk in disks}
        later = [file for file in unnamed if file.key not in images]
        return replace(machine, disks=(*disks, *(_later(file) for file in later)))
    above = [process.read_backing(file) for file in unnamed]
    handed = [disk for disk in machine.disks if disk.image.startswith(_HANDED)]
    seen = [
        _in_force(disk, process, _files_of(disk, process, unnamed if disk in handed else []), above)
        for disk in machine.disks
    ]
    came = unnamed if len(unnamed) > len(handed) else []
    return replace(machine, disks=(*seen, *(_later(file) for file in came)))


def _by_monitor(process: QemuProcess, machine: Machine, answers: BlockAnswers) -> list[MachineDisk]:
    """The disks as QMP tells them, with those that came later."""
    disks, told = [], set()
    for disk in machine.disks:
        block = find_block(answers, disk)
        told.add(id(block))
        if block is None or _is_temporary(disk):
            disks.append(_in_force(disk, process, _files_of(disk, process, []), []))
        else:
            disks.append(read_block(_moved(disk, inserted(block), process), block, answers))
    for block in answers.blocks:
        if inserted(block) and id(block) not in told:
            disk = read_block(MachineDisk("", ""), block, answers)
            local = disk.kind in ("file", "block")
            disks.append(replace(disk, image=process.absolute(disk.image)) if local else disk)
    paths = {file.fd: file.path for file in process.files or ()}
    for place, disk in enumerate(disks):
        named = [paths[fd] for fd in answers.fdsets.get(disk.image, ()) if fd in paths]
        if named:
            disks[place] = replace(disk, facts={**disk.facts, "file": named[0]})
    return disks


def _moved(disk: MachineDisk, block: Item, process: QemuProcess) -> MachineDisk:
    """The disk on the image that it is on by now."""
    now = str(block.get("file") or "")
    if disk.kind not in ("file", "block") or now.startswith(("json:", _HANDED)) or not now:
        return disk
    if (image := process.absolute(now)) == disk.image:
        return disk
    what = f"it was started on {disk.image}: a live snapshot or a block job put another there"
    moved = Remark("image-replaced", "running", "note", what, "QMP query-block")
    return replace(disk, image=image, remarks=(*disk.remarks, moved))


def _is_temporary(disk: MachineDisk) -> bool:
    return any(remark.rule == "snapshot" for remark in disk.remarks)


def _files_of(disk: MachineDisk, process: QemuProcess, unnamed: list[OpenFile]) -> list[OpenFile]:
    """The open files that are this disk's, or may be: those that were handed over have no name."""
    key = process.key_of(disk.image) if disk.image else None
    own = [file for file in process.files or () if file.key == key]
    by_name = [file for file in process.files or () if file.deleted and file.path == disk.image]
    found = own or by_name or unnamed
    return [file for file in found if file.writable] or found


def _in_force(
    disk: MachineDisk, process: QemuProcess, files: list[OpenFile], above: list[str]
) -> MachineDisk:
    """The disk of a command line with what the kernel shows of it. ``above`` are what images that
    came later name as theirs below."""
    assert disk.configured is not None
    levels, sources = dict(disk.configured.levels), [_TAKEN]
    remarks: list[Remark] = []
    local = disk.kind in ("file", "block") and disk.image and not _is_temporary(disk)
    if local and (gone := _find_gone(disk, files, above)):
        return replace(disk, remarks=(*disk.remarks, gone))
    if files:
        remarks += _compare_direct(levels, {bool(file.flags & os.O_DIRECT) for file in files})
        sources.append(f"O_DIRECT by {_FDINFO}")
    remarks += _compare_ring(levels, process.rings)
    _compare_thread(levels, process.threads)
    facts = dict(disk.facts)
    if len({file.key for file in files}) == 1 and disk.image.startswith(_HANDED):
        facts["file"] = files[0].path
    assumed = disk.configured.assumed & levels.keys()
    running = Layer(levels, ", ".join(sources), assumed)
    return replace(disk, running=running, remarks=(*disk.remarks, *remarks), facts=facts)


def _find_gone(disk: MachineDisk, files: list[OpenFile], above: list[str]) -> Remark | None:
    """What is said of a disk whose image the guest does not write any more."""
    name = Path(disk.image).name
    covered = any(Path(backing).name == name or disk.image in backing for backing in above)
    writable = disk.read_only or any(file.writable for file in files)
    if not files:
        rule, what = "image-not-open", "its image is not open: it was taken out or replaced"
    elif covered or not writable:
        rule, what = "image-replaced", "another image was put above its own (a live snapshot)"
    else:
        return None
    what += " since QEMU started"
    return Remark(rule, "running", "unknown", what, _FDINFO, "unknown")


def _compare_direct(levels: dict[str, str], seen: set[bool]) -> Iterator[Remark]:
    """The cache mode is in force only if the file is open as it says."""
    cache = levels.get("cache")
    if cache in (None, "unsafe") or seen == {cache in DIRECT}:
        return
    del levels["cache"]
    shows = "with O_DIRECT" if True in seen else "without O_DIRECT"
    what = f"the command line says cache={cache}, and the image is open {shows}: it was changed "
    yield Remark("changed-since-start", "running", "unknown", what + "since", _FDINFO, "unknown")


def _compare_ring(levels: dict[str, str], rings: frozenset[str] | None) -> Iterator[Remark]:
    """Without its ring QEMU uses threads: it fell back (file-posix.c, with a warning on stderr), or
    it is one that makes the ring with the first request and has had none."""
    ring = {"native": "aio", "io_uring": "io_uring"}.get(levels.get("aio", ""))
    if ring and rings is not None and ring not in rings:
        what = f"aio={levels.pop('aio')} is set, and QEMU has no such ring: it fell back to "
        what += "threads, or has had no request yet"
        yield Remark("aio-ring-missing", "running", "note", what, "/proc/PID/maps and fd")


def _compare_thread(levels: dict[str, str], threads: frozenset[str]) -> None:
    """Threads have names only with ``-name debug-threads=on``."""
    named = any(name.startswith("CPU ") for name in threads)
    if named and levels.get("iothread") == "on" and not any(n.startswith("IO ") for n in threads):
        del levels["iothread"]


def _later(file: OpenFile) -> MachineDisk:
    """A disk that is known by its open file only."""
    what = (
        "it is open for writing and not on the command line (hot-plugged, or handed over as a "
        "descriptor): of its settings only O_DIRECT is known, not whether flushes reach the disk"
    )
    facts = {
        "O_DIRECT": "on" if file.flags & os.O_DIRECT else "off",
        "O_DSYNC": "on" if file.flags & os.O_DSYNC else "off",
    }
    return MachineDisk(
        Path(file.path).name,
        file.path,
        "block" if file.block else "file",
        running=Layer({}, _FDINFO),
        remarks=(Remark("not-on-command-line", "running", "unknown", what, _FDINFO, "unknown"),),
        facts=facts,
    )


FINDER = Finder("running", find)
