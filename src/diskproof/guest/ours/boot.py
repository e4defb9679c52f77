"""Run a guest for the length of a ``with`` block."""

import functools
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from diskproof.errors import RunFailure
from diskproof.guest.ours.build import GuestFiles
from diskproof.guest.ours.channel import Channel, GuestGone
from diskproof.guest.ours.console import Console
from diskproof.guest.ours.jobs import Job
from diskproof.guest.ours.kernel import find_extra
from diskproof.guest.ours.wire import Hello, Started
from diskproof.process.cage import QEMU_CAGE, QEMU_MEMORY
from diskproof.process.plain_file import open_plain
from diskproof.process.start import Process, require_tool, run, start_process
from diskproof.qemu import qmp
from diskproof.qemu.machine import DISK_SERIAL, ROOT_SERIAL, Descriptors, GuestMachine, machine_args

EXIT_SECONDS = 30.0
QMP_SECONDS = 10.0
_LAST_WORDS = 5.0  # from a closed channel to QEMU's end and the last of the console
_GUEST_ENDS = (
    (rb"Kernel panic - not syncing: .*", "the guest's kernel panicked"),
    (rb"diskproof-agent: fatal: .*", "the agent in the guest gave up"),
    (rb"diskproof-early: fatal: .*", "the guest found no root to boot from"),
)


@dataclass(frozen=True)
class Booted:
    """A guest whose agent has said hello, ``seconds`` after QEMU was started."""

    process: Process
    channel: Channel
    qmp_socket: socket.socket
    console: Console
    hello: Hello
    seconds: float
    sandboxed: bool

    def ask_start(self, machine: GuestMachine, timeout: float) -> Job:
        """Have the agent load the drivers, mount the root and find the disk under test."""
        serial = DISK_SERIAL if machine.bus else None
        return self.channel.ask_start(machine.drivers, ROOT_SERIAL, serial, timeout)


@dataclass(frozen=True)
class Launched:
    """A QEMU that was started at ``began`` (time.monotonic); its guest may not be up."""

    process: Process
    channel: Channel
    qmp_socket: socket.socket
    console: Console
    began: float
    sandboxed: bool

    def wait_hello(self, deadline: float) -> Booted:
        """The guest with its agent up, ``deadline`` seconds from now. Raises RunFailure."""
        return self.after_hello(self.channel.wait_hello(deadline))

    def after_hello(self, hello: Hello) -> Booted:
        """The guest with its agent, of which that was heard."""
        seconds = time.monotonic() - self.began
        ends = (self.process, self.channel, self.qmp_socket, self.console)
        return Booted(*ends, hello, seconds, self.sandboxed)


@dataclass(frozen=True)
class Guest:
    """A guest in service. ``started.disk`` is the disk under test as its kernel sees it."""

    files: GuestFiles
    machine: GuestMachine
    booted: Booted
    started: Started
    qmp: qmp.Qmp

    @property
    def channel(self) -> Channel:
        return self.booted.channel

    @property
    def process(self) -> Process:
        """QEMU."""
        return self.booted.process

    def load_modules(self, names: Sequence[str]) -> None:
        """Load modules that lie in the root (file systems). Raises RunFailure ``guest``."""
        if missing := [name for name in names if name not in self.files.root_modules]:
            what = f"the {self.files.kind} guest has no module {', '.join(missing)}"
            extra = find_extra(missing[0])
            build = f"diskproof guest build --with {extra}" if extra else "diskproof guest build"
            raise RunFailure("guest", what, hint=build)
        for path in dict.fromkeys(path for name in names for path in self.files.root_modules[name]):
            done = self.channel.exec(["insmod", path], timeout=60)
            if done.exit.code != 0 and b"File exists" not in done.stderr:
                why = done.stderr.decode("utf-8", "replace")
                raise RunFailure("guest", f"the guest cannot load {path}", why)

    def power_off(self, sync: bool = False) -> None:
        """Switch the guest off and wait for QEMU to close its files and end."""
        self.channel.power_off(sync)
        status = self.process.wait(EXIT_SECONDS)
        if status is None:
            raise RunFailure("guest", f"the guest was not off within {EXIT_SECONDS:.0f} s")
        if status != 0:
            raise RunFailure("qemu", f"QEMU {_describe(status)} while the guest was switched off")


@contextmanager
def start_guest(
    files: GuestFiles,
    machine: GuestMachine,
    *,
    run_dir: Path,
    disk_folder: Path | None = None,
    deadline: float = 120.0,
) -> Iterator[Guest]:
    """Boot a guest, mount its root and find the disk under test, within ``deadline`` seconds.

    QEMU runs confined in ``disk_folder`` (else ``run_dir``), where relative names in
    ``disk_args`` start, and logs to ``qemu.log`` in ``run_dir``; it ends with the block.
    Raises RunFailure ``guest`` for a guest that panics, hangs or gives up and ``qemu`` when QEMU
    fails. Those and ``timeout`` failures out of the block carry console and QEMU log as evidence.
    """
    folder = disk_folder or run_dir
    with start_agent(files, machine, run_dir=run_dir, folder=folder, deadline=deadline) as booted:
        left = max(1.0, deadline - booted.seconds)
        started = booted.channel.wait_started(booted.ask_start(machine, left), left)
        with qmp.start_qmp(booted.qmp_socket, QMP_SECONDS) as control:
            yield Guest(files, machine, booted, started, control)


@contextmanager
def start_agent(
    files: GuestFiles, machine: GuestMachine, *, run_dir: Path, folder: Path, deadline: float
) -> Iterator[Booted]:
    """Boot a guest up to the hello of its agent; the rest as ``start_guest``."""
    with ExitStack() as stack:
        launched = launch(stack, files, machine, run_dir=run_dir, folder=folder)
        with explained(launched.process, launched.console):
            yield launched.wait_hello(deadline)


def launch(
    stack: ExitStack, files: GuestFiles, machine: GuestMachine, *, run_dir: Path, folder: Path
) -> Launched:
    """Start a guest and wait for nothing; ``stack`` ends it. Folders are those of
    ``start_agent``."""
    began = time.monotonic()
    process, ends = start_qemu(stack, files, machine, log=run_dir / "qemu.log", folder=folder)
    console = Console(ends["console"])
    channel = Channel(ends["agent"])
    return Launched(process, channel, ends["qmp"], console, began, has_sandbox())


class BootFiles(Protocol):
    """What QEMU boots: our guest, or a system whose root is the disk under test."""

    @property
    def kernel(self) -> Path: ...

    @property
    def initrd(self) -> Path: ...

    @property
    def root(self) -> Path | None: ...


def start_qemu(
    stack: ExitStack,
    files: BootFiles,
    machine: GuestMachine,
    *,
    log: Path,
    folder: Path,
) -> tuple[Process, dict[str, socket.socket]]:
    """Start QEMU with descriptors of what it needs; gives it and our ends of the sockets (``qmp``,
    ``agent``, ``console``). ``stack`` ends it and closes them."""
    booted = {"kernel": files.kernel, "initrd": files.initrd, "root": files.root}
    with ExitStack() as theirs:
        ours, numbers = open_ends(stack, theirs, booted)
        fds = Descriptors(**numbers)
        process = start_qemu_process(
            stack,
            machine_args(machine, fds, sandbox=has_sandbox()),
            machine,
            fds=(*fds.all(), *machine.fds()),
            booted=fds.booted(),
            log=log,
            folder=folder,
        )
    return process, ours


def open_ends(
    stack: ExitStack, theirs: ExitStack, files: Mapping[str, Path | None]
) -> tuple[dict[str, socket.socket], dict[str, int]]:
    """Our ends of QEMU's sockets by name, which ``stack`` closes, and by the same names the
    descriptors of its own ends and of the files, which ``theirs`` closes."""
    ours: dict[str, socket.socket] = {}
    numbers: dict[str, int] = {}
    for name in ("qmp", "agent", "console"):
        ours[name], end = socket.socketpair()
        stack.enter_context(ours[name])
        numbers[name] = theirs.enter_context(end).fileno()
    for name, path in files.items():
        if path is not None:
            numbers[name] = open_plain(path)
            theirs.callback(os.close, numbers[name])
    return ours, numbers


def start_qemu_process(
    stack: ExitStack,
    args: Sequence[str],
    machine: GuestMachine,
    *,
    fds: Sequence[int],
    booted: Sequence[int],
    log: Path,
    folder: Path,
) -> Process:
    """QEMU, confined in ``folder``; ``booted`` are those of its descriptors that it opens anew."""
    cage = QEMU_CAGE.reading(*(f"/proc/self/fd/{number}" for number in booted))
    starting = start_process(
        [require_tool("qemu-system-x86_64", "qemu-system-x86"), *args],
        name="qemu",
        log=log,
        cwd=folder,
        pass_fds=tuple(fds),
        confined=True,
        cage=cage.within(machine.memory_bytes + QEMU_MEMORY),
        groups=kvm_groups() if machine.accel == "kvm" else (),
        network=machine.namespace,
    )
    return stack.enter_context(starting)


def kvm_groups() -> tuple[int, ...]:
    """The group that may use /dev/kvm."""
    with suppress(FileNotFoundError):
        return (Path("/dev/kvm").stat().st_gid,)
    return ()


@functools.cache
def has_sandbox() -> bool:
    """Whether this QEMU was built with ``-sandbox``; its help lists only what it has."""
    qemu = require_tool("qemu-system-x86_64", "qemu-system-x86")
    return (
        re.search(r"^-sandbox\b", run([qemu, "-help"], timeout=30).text, re.MULTILINE) is not None
    )


def explain(failure: RunFailure, process: Process, console: Console) -> RunFailure:
    """The failure with its cause, as far as the end of QEMU and the console tell, and evidence."""
    if failure.kind not in ("guest", "qemu", "timeout"):
        return failure
    kind, what, why = failure.kind, failure.what, failure.why
    status = process.wait(_LAST_WORDS if isinstance(failure, GuestGone) else 0.0)
    if status is not None:
        console.wait_end(_LAST_WORDS)
        kind, what, why = _describe_end(status, console.read(), process)
    evidence = (("console", console.read()), ("qemu.log", process.read_log()))
    return RunFailure(kind, what, why, failure.hint, failure.evidence + evidence)


@contextmanager
def explained(
    process: Process,
    console: Console,
    how: Callable[[RunFailure, Process, Console], RunFailure] = explain,
) -> Iterator[None]:
    """A block that fails, fails with its cause, and QEMU has ended then."""
    try:
        yield
    except RunFailure as failure:
        told = how(failure, process, console)
        process.kill()
        if told is failure:
            raise
        raise told from failure


def _describe_end(status: int, console: bytes, process: Process) -> tuple[str, str, str]:
    """Kind, what and why of a guest that ended."""
    for pattern, what in _GUEST_ENDS:
        if found := re.search(pattern, console):
            return "guest", what, found[0].decode("utf-8", "replace").strip()[:500]
    if status != 0:
        tail = process.read_log(2000).decode("utf-8", "replace").strip().splitlines()[-3:]
        return "qemu", f"QEMU {_describe(status)}", "\n".join(tail)
    return "guest", "the guest switched itself off", "nobody asked it to"


def _describe(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
