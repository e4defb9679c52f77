"""Running machines of Firecracker, Cloud Hypervisor and crosvm, as /proc shows them.

Their API sockets are left alone: Firecracker's answers one at a time, and whoever drives it does
not expect another. What was set over one is told as not known, with the line that asks.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from diskproof.advice import cloud_hypervisor, crosvm, firecracker
from diskproof.errors import DiskproofError
from diskproof.host.machines import Finder
from diskproof.host.machines.qemu_process import QemuProcess
from diskproof.process.open_files import OpenFile
from diskproof.records.virtual_machines import LayerName, Machine, MachineDisk, Remark

_MAX_ARGUMENTS = 1 << 20
_TICK_SECONDS = 0.05
"""A start is known to 10 ms; whoever writes a file and starts with it at once is not late."""
_FDINFO = "its open files in /proc"
_Read = Callable[[Sequence[str], str, LayerName], Machine]


@dataclass(frozen=True)
class _Program:
    """One VMM. ``ask`` is a shell's line that prints what is set, with the socket's place in it."""

    name: str
    executable: re.Pattern[str]
    socket: str
    ask: str
    read: _Read | None = None


_PROGRAMS = (
    _Program("firecracker", re.compile(r"firecracker(-v[\w.-]+)?"), "--api-sock",
             "curl --unix-socket {} http://localhost/vm/config"),
    _Program("cloud-hypervisor", cloud_hypervisor.PROGRAM, "--api-socket",
             "ch-remote --api-socket {} info", cloud_hypervisor.read_arguments),
    _Program("crosvm", crosvm.PROGRAM, "--socket", "", crosvm.read_arguments),
)  # fmt: skip


def find() -> Iterator[Machine | str]:
    """Every such machine, and what could not be looked at."""
    for program, process in _find_processes():
        try:
            yield _look(program, process)
        except DiskproofError as error:
            yield f"{program.name} {process.pid}: its disks cannot be read: {error.what}"
        if process.files is None:
            yield f"{program.name} {process.pid} belongs to another user: as root more is found"


def _find_processes() -> Iterator[tuple[_Program, QemuProcess]]:
    found: dict[int, tuple[_Program, QemuProcess, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (program := _find_program(entry)):
            with suppress(OSError, ValueError, IndexError):
                text = (entry / "cmdline").read_bytes()[:_MAX_ARGUMENTS]
                argv = tuple(os.fsdecode(part) for part in text.split(b"\0")[:-1])
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                found[int(entry.name)] = (program, QemuProcess(int(entry.name), argv), parent)
    for _, (program, process, parent) in sorted(found.items()):
        # crosvm's devices are processes of its own with the same arguments
        if parent not in found or found[parent][0] is not program:
            yield program, process


def _find_program(entry: Path) -> _Program | None:
    """By its program; where that cannot be seen, by its own words."""
    name = ""
    try:
        name = (entry / "exe").readlink().name.removesuffix(" (deleted)")
    except PermissionError:
        with suppress(OSError):
            first = (entry / "cmdline").read_bytes()[:4096].split(b"\0")[0]
            name = os.fsdecode(first).rpartition("/")[2]
    except OSError:
        return None  # a kernel's thread, or gone
    return next((each for each in _PROGRAMS if each.executable.fullmatch(name)), None)


def _look(program: _Program, process: QemuProcess) -> Machine:
    source = f"process {process.pid}"
    options = _read_options(process.argv)
    if program.read:
        machine = program.read(process.argv[1:], source, "running")
    else:
        machine = _read_firecracker(process, options, source)
    socket = options.get(program.socket, "")
    ask = program.ask.format(socket) if socket and program.ask else ""
    disks = [_in_force(disk, process) for disk in machine.disks]
    keys = {key for disk in machine.disks if (key := process.key_of(disk.image))}
    keys |= {file.key for file in process.files or () if file.fd <= 2}  # what it prints to
    disks += [_later(file, ask) for file in process.find_unnamed(keys, "")]
    if not disks and machine.notes:  # they say why none is known
        disks = [_unseen("drives", machine.notes[0], ask)]
    notes = machine.notes + ((f"its API was not asked: {ask}",) if ask else ())
    name = options.get("--id") or options.get("--name") or f"{program.name}-{process.pid}"
    return replace(machine, name=name, manager=program.name, pid=process.pid,
                   disks=tuple(disks), notes=notes)  # fmt: skip


def _read_options(argv: Sequence[str]) -> Mapping[str, str]:
    """Options with a value, however it is written; the last one counts."""
    found = {}
    for word, value in zip(argv, (*argv[1:], ""), strict=True):
        option, equals, after = word.partition("=")
        if option.startswith("--"):
            found[option] = after if equals else value
    return {option: value.removeprefix("path=") for option, value in found.items()}


def _read_firecracker(process: QemuProcess, options: Mapping[str, str], source: str) -> Machine:
    """What its configuration file says, if it still says what the process started with."""
    path = options.get("--config-file")
    if not path:
        note = "it was configured over its API"
        return Machine("", "firecracker", source, (), notes=(note,))
    text = process.read_file(path)
    if text is None:
        note = f"its configuration {path} cannot be read (gone, or another user's)"
        return Machine("", "firecracker", source, (), notes=(note,))
    changed = True
    with suppress(OSError, ValueError, IndexError):
        changed = process.see(path).stat().st_mtime > _started(process) + _TICK_SECONDS
    machine = firecracker.read_config(text, path, "pending" if changed else "running")
    note = f"{path} was written after the process started: what runs is not known"
    return replace(machine, source=source, notes=(note,) if changed else ())


def _started(process: QemuProcess) -> float:
    """When it was started, in seconds of the wall clock: proc(5), stat, field 22."""
    ticks = int((process.folder / "stat").read_text().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def _in_force(disk: MachineDisk, process: QemuProcess) -> MachineDisk:
    """A disk with O_DIRECT as it is open, where the words have an option for it."""
    place = process.absolute(disk.image) if disk.image else disk.image
    key = process.key_of(disk.image) if disk.image else None
    flags = {file.flags & os.O_DIRECT for file in process.files or ()
             if key is not None and file.key == key and file.writable}  # fmt: skip
    layer = disk.running
    if layer is None or "direct" not in layer.levels or len(flags) != 1:
        return replace(disk, image=place)
    levels = {**layer.levels, "direct": "on" if flags.pop() else "off"}
    made = replace(layer, levels=levels, source=f"{layer.source}; {_FDINFO}")
    return replace(disk, image=place, running=made)


def _later(file: OpenFile, ask: str) -> MachineDisk:
    """A disk that is known by its open file only."""
    disk = _unseen(Path(file.path).name, "it is open for writing, and stands nowhere", ask)
    facts = {"O_DIRECT": "on" if file.flags & os.O_DIRECT else "off"}
    return replace(disk, image=file.path, kind="block" if file.block else "file", facts=facts)


def _unseen(name: str, why: str, ask: str) -> MachineDisk:
    what = (
        f"{why}: whether its guest is offered a flush is not known{f'; {ask} tells' if ask else ''}"
    )
    remark = Remark("not-on-command-line", "running", "unknown", what, _FDINFO, "unknown")
    return MachineDisk(name, "", remarks=(remark,))


FINDER = Finder("microvms", find)
